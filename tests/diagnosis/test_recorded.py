"""What a user asks of a diagnosis, and what it is asked of known nodes."""

from dataclasses import replace

import pytest
from recorded_diagnoses import interrupted, recorded

from hpccoll.common.errors import UnusableError
from hpccoll.diagnosis.recorded import KEPT, DiagnosisOptions
from hpccoll.diagnosis.verdict import verdict_of

HOSTS = "n1", "n2", "n3"


def test_racks_that_a_user_gives_replace_those_of_the_topology():
    given = DiagnosisOptions(seed=7, links=True, racks={"n3": "b", "n1": "a", "n2": "b", "n9": "c"})
    question = given.question(HOSTS, ["x", "x", "y"], rails=2)
    assert (question.hosts, question.racks, question.rails, question.links) == (
        HOSTS,
        ("a", "b", "b"),
        2,
        True,
    )
    assert DiagnosisOptions(seed=7).question(HOSTS, ["x", "x", "y"]).racks == ("x", "x", "y")
    assert DiagnosisOptions(seed=7).question(HOSTS).racks is None


def test_hosts_without_a_rack_are_named():
    with pytest.raises(UnusableError, match=r"--racks: .*n\[2-3\]"):
        DiagnosisOptions(seed=7, racks={"n1": "a"}).question(HOSTS)


def test_a_kept_diagnosis_says_when_it_was_kept_and_its_slurm_job():
    running = interrupted(recorded(8))
    about = {KEPT: "2026-11-26T09:00:12+01:00", "variables": {"SLURM_JOB_ID": "17"}}
    running = replace(running, provenance={**running.provenance, **about})
    assert running.kept_at == "2026-11-26T08:00:12+00:00"
    assert verdict_of(running).kept_at == running.kept_at
    assert verdict_of(running).slurm_job == "17"


def test_a_diagnosis_that_a_signal_ended_does_not_run_and_one_of_an_earlier_release_may():
    ended = interrupted(recorded(8))
    assert ended.kept_at is None
    earlier = replace(ended, provenance={**ended.provenance, KEPT: True})
    assert earlier.kept_at == ""


def test_what_a_file_names_as_its_job_is_a_number_because_it_is_pasted_into_a_shell():
    ended = interrupted(recorded(8))
    about = {"variables": {"SLURM_JOB_ID": "17; rm -r ."}, KEPT: "yesterday"}
    strange = replace(ended, provenance={**ended.provenance, **about})
    assert (strange.slurm_job, strange.kept_at) == ("", "")
