"""Diagnoses with a program of nccl-tests: started as processes, its output read, its failures named."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from nccl_tests_stand_in import installed

from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.recorded import DiagnosisOptions
from hpccoll.sweep import pair_launches
from hpccoll.sweep.pair_launches import diagnose_with, hosts_to_diagnose

HOSTS = tuple(f"n{number}" for number in range(1, 9))


@pytest.fixture
def diagnose(tmp_path, monkeypatch):
    """Run a diagnosis by ``sendrecv_perf`` of some hosts with faults; ``diagnose.progress`` is what it showed."""
    program = installed(tmp_path)

    def diagnose(hosts=HOSTS, stop=lambda: False, **faults):
        monkeypatch.setenv("FAULTS", json.dumps(faults))
        diagnose.progress = []
        return diagnose_with(
            f"{program} -b 1M -e 2M",
            DiagnosisOptions(seed=1),
            hosts,
            launch="env PAIR={hosts}",
            progress=lambda *shown: diagnose.progress.append(shown),
            stop=stop,
        )

    return diagnose


def accused(recorded):
    return {
        (each.component.kind, *(recorded.question.hosts[node] for node in each.component.where))
        for each in recorded.diagnosis.faults
    }


@pytest.mark.parametrize(
    "message",
    ["slurm_load_jobs error: Invalid job id specified", "scontrol: DNS SRV lookup failed"],
)
def test_without_an_answer_of_slurm_the_remedy_is_to_name_the_hosts(programs, monkeypatch, message):
    """The job is over in this session, or scontrol finds no controller, as in a container."""
    programs("scontrol", err=message, code=1)
    monkeypatch.setenv("SLURM_JOB_ID", "36")
    with pytest.raises(BadInputError, match=f"--hosts.*36.*{message}.*name the hosts"):
        hosts_to_diagnose(None)


def test_a_slow_node_is_found_by_the_program_of_others_whose_one_time_counts_in_both_directions(
    diagnose,
):
    recorded = diagnose(slow={"n3": 1.25})
    assert accused(recorded) == {("node", "n3")}
    (fault,) = recorded.diagnosis.faults
    assert fault.low < 1.25 < fault.high
    load = recorded.load
    assert (load.program, load.memory, load.bytes, load.together) == (
        "sendrecv_perf",
        "GPU",
        2 << 20,
        True,
    )
    first = recorded.measured[0]
    usual = first.seconds[0][first.seconds[0] < 190e-6]
    assert usual.size >= 6  # 160 us out of place, in the row of the largest size
    assert usual == pytest.approx(160e-6, rel=0.06)
    for each in recorded.measured:
        for seconds, partners in zip(each.seconds, each.slots.partners, strict=True):
            assert np.array_equal(seconds, seconds[partners], equal_nan=True)
    assert recorded.provenance["library"] == "NCCL 2.29.4"
    assert recorded.provenance["failed_pairs"] == []
    done, known, purposes = zip(*diagnose.progress, strict=True)
    assert done == (*range(recorded.diagnosis.slots),)
    assert max(known) == recorded.diagnosis.slots
    assert [*dict.fromkeys(purposes)][:2] == ["screen", "retest"]


def test_a_program_that_fails_on_a_host_is_no_slow_host_and_its_pairs_are_named(diagnose):
    recorded = diagnose(broken=["n2"], slow={"n5": 1.3})
    assert accused(recorded) == {("node", "n5")}
    failures = recorded.provenance["failed_pairs"]
    assert failures
    assert all("n2" in each["hosts"] for each in failures)
    assert all("Test NCCL failure common.cu:1279" in each["why"] for each in failures)
    assert all("exit code 3" in each["why"] for each in failures)


def test_wrong_results_are_a_failure_and_no_time(diagnose):
    recorded = diagnose(HOSTS, wrong=["n7"])
    assert accused(recorded) == set()
    failures = recorded.provenance["failed_pairs"]
    assert {each["why"] for each in failures} == {"14 wrong elements"}
    assert all("n7" in each["hosts"] for each in failures)


def test_a_program_that_fails_on_all_pairs_ends_the_diagnosis_with_the_reason(diagnose):
    with pytest.raises(BadInputError, match=r"failed on 4 pairs.*n\d and n\d: .*Test NCCL failure"):
        diagnose(broken=HOSTS)


def alive(directory):
    """Return the processes that run the program of a test."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(directory).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def test_launches_past_their_deadline_are_ended_and_name_the_host_that_hangs(
    diagnose, monkeypatch, tmp_path
):
    monkeypatch.setenv("STARTED", str(tmp_path))
    monkeypatch.setattr(pair_launches, "LEAST_DEADLINE_S", 2.0)
    monkeypatch.setattr(pair_launches, "MEDIAN_LAUNCHES", 3)
    recorded = diagnose((*HOSTS, "n9"), silent=["n4"])
    assert accused(recorded) == {("hung", "n4")}
    assert recorded.provenance["failed_pairs"] == []
    assert alive(tmp_path) == []


def test_a_launch_that_fails_at_once_leaves_the_others_the_deadline_of_the_first(
    diagnose, monkeypatch
):
    monkeypatch.setattr(pair_launches, "LEAST_DEADLINE_S", 0.0)
    monkeypatch.setattr(pair_launches, "MEDIAN_LAUNCHES", 3)
    monkeypatch.setenv("LASTS", "1")  # of launches that do not fail
    recorded = diagnose(
        ("n1", "n2", "n3", "n4"), stop=lambda: len(diagnose.progress) == 3, broken=["n2"]
    )
    (first,) = recorded.measured
    assert [np.isfinite(row).sum() for row in first.seconds] == [2, 2]
    assert recorded.provenance["failed_pairs"]


def test_an_interrupted_diagnosis_ends_its_launches_keeps_its_slots_and_has_no_answer(
    diagnose, monkeypatch, tmp_path
):
    monkeypatch.setenv("STARTED", str(tmp_path))
    recorded = diagnose(stop=lambda: len(diagnose.progress) == 4)  # within the fourth slot
    (first,) = recorded.measured
    assert recorded.diagnosis is None
    assert (first.slots.purpose, first.seconds.shape) == ("screen", (3, 8))
    assert len(first.slots.partners) > 3
    assert alive(tmp_path) == []


def test_what_a_launcher_leaves_behind_is_ended(diagnose, monkeypatch, tmp_path):
    monkeypatch.setenv("STARTED", str(tmp_path))
    monkeypatch.setenv("LEAVES", "1")
    assert diagnose(stop=lambda: len(diagnose.progress) == 3).measured
    assert alive(tmp_path) == []


def test_launches_that_cannot_be_started_are_failures_of_their_pairs(diagnose, monkeypatch):
    start = pair_launches.PairLaunches._start

    def start_some(self, pair, directory):
        if self._slots == 0 and pair[0] == 0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return start(self, pair, directory)

    monkeypatch.setattr(pair_launches.PairLaunches, "_start", start_some)
    recorded = diagnose(stop=lambda: len(diagnose.progress) == 2)
    assert recorded.measured
    (failure,) = recorded.provenance["failed_pairs"]
    assert ("n1" in failure["hosts"], "temporarily unavailable" in failure["why"]) == (True, True)


@pytest.mark.parametrize(
    ("program", "launch", "message"),
    [
        ("", "env {hosts}", "--with"),
        ("sendrecv_perf 'x", "env {hosts}", "No closing quotation"),
        ("sendrecv_perf", "mpiexec -n 2", "{hosts}"),
        ("sendrecv_perf", "no-such-launcher {hosts}", "no-such-launcher"),
    ],
)
def test_command_lines_that_are_none_are_refused_before_anything_starts(program, launch, message):
    with pytest.raises(BadInputError, match=re.escape(message)):
        diagnose_with(program, DiagnosisOptions(seed=1), HOSTS, launch=launch)


@pytest.mark.parametrize("names", ["n1", "n1,n2", "n1,n2,n3,n1", ","])
def test_hosts_are_three_or_more_each_once(names):
    with pytest.raises(BadInputError, match="--hosts"):
        hosts_to_diagnose(names)


def test_without_hosts_and_without_an_allocation_the_option_is_named(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(BadInputError, match="--hosts is missing"):
        hosts_to_diagnose(None)


def test_hosts_are_names_with_commas_or_lines_of_a_file(tmp_path):
    (tmp_path / "hosts").write_text("# of rack 1\nn1\nn3  # slow\n\nn5\n")
    assert hosts_to_diagnose("n1, n2,n3") == ("n1", "n2", "n3")
    assert hosts_to_diagnose(str(tmp_path / "hosts")) == ("n1", "n3", "n5")


@pytest.mark.parametrize("line", ["n2 slots=8", "n2, n3"])
def test_a_line_of_a_file_of_hosts_is_one_name(tmp_path, line):
    (tmp_path / "hosts").write_text(f"n1\n{line}\nn5\n")
    with pytest.raises(BadInputError, match=r"--hosts: .*, line 2"):
        hosts_to_diagnose(str(tmp_path / "hosts"))


def test_more_hosts_than_the_steps_of_a_job_allow_are_refused_in_one_line():
    hosts = [f"n{number}" for number in range(4096)]
    assert len(hosts_to_diagnose(",".join(hosts[:256]))) == 256
    with pytest.raises(BadInputError, match=r"^--with: there are 4096 hosts.{,200}$"):
        hosts_to_diagnose(",".join(hosts))
