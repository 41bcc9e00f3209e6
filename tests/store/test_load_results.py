"""Results below some paths: rows, gaps with their reasons, each file once."""

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples
from cli_runner import invoke

from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.case_states import case_states
from hpccoll.store.job_cases import job_cases
from hpccoll.store.journal import Journal, journal_path, write_failure_note
from hpccoll.store.load_results import read_results, to_results
from hpccoll.store.raw_results import Failure
from hpccoll.store.result_files import ResultFiles, find_raw_files, read_all, read_raw
from hpccoll.store.sweep_notes import read_sweep_notes

SIZES = (8, 16, 32, 64)
CASES = [raw_examples.case(size) for size in SIZES]
OUTCOMES = [raw_examples.outcome(case) for case in CASES]


def write(path, *outcomes, more=(), launch="run-1"):
    """Write a raw file with these outcomes, of a job that has ``more`` cases, and return its content."""
    raw = raw_examples.raw(*outcomes, more=more)
    raw.attempts[0] = raw_examples.attempt(run_id=launch), raw.attempts[0][1]
    hdf5.write_raw_file(raw, path)
    return raw


@pytest.fixture
def sweep(tmp_path):
    """A sweep of two jobs: one ended in its third case, the other has no results; planning left out one case."""
    first, second = raw_examples.job(*CASES), raw_examples.job(*CASES[:2], name="mpi.p3", ranks=3)
    plan = Plan(
        name="sweep",
        profile="local",
        jobs=(first, second),
        launcher=Launcher(command="mpiexec"),
        resources={},
        estimated_s=1.0,
        skips=(Skip(case="x", job="mpi.p3", reason="needs a power of two"),),
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "plan.json").write_text(plan.to_json())
    journal = Journal(tmp_path / "raw" / "mpi.p2.h5", first)
    journal.begin(raw_examples.attempt())
    journal.record(OUTCOMES[0])
    journal.record(raw_examples.outcome(CASES[1], status="wrong", reason="rank 0: bad", wrong=7))
    journal.start(CASES[2])
    write_failure_note(
        tmp_path / "raw" / "mpi.p2.h5", Failure(case_id=CASES[2].id, rank=1, message="stuck")
    )
    journal.close(remove=False)
    return tmp_path


def test_the_status_of_a_directory_of_sweeps_knows_their_plans(sweep, tmp_path_factory):
    parent = tmp_path_factory.mktemp("results")
    shutil.copytree(sweep, parent / "mine")
    ended = invoke("status", parent)
    assert (ended.code, "mpi.p3" in ended.out) == (3, True)


class CountedNotes(list):
    """Notes that count how often somebody goes through them."""

    walks = 0

    def __iter__(self):
        CountedNotes.walks += 1
        return super().__iter__()


def walks_through_notes(cases):
    """Return how often loading a job with so many cases and no result goes through its failure notes."""
    raw = raw_examples.raw(more=[raw_examples.case(8 * size) for size in range(1, cases + 1)])
    notes = [
        Failure(case_id=case.id, rank=rank, message="lost")
        for case in raw.job.cases
        for rank in (0, 1)
    ]
    raw.failures = CountedNotes(notes)
    CountedNotes.walks = 0
    results = to_results(ResultFiles(raw_results=[raw]))
    assert {gap.reason for gap in results.missing} == {"ranks 0, 1 on n[0-1]: lost"}
    return CountedNotes.walks


def test_notes_are_sorted_by_case_once_however_many_cases_there_are():
    assert walks_through_notes(30) == walks_through_notes(3)


def test_the_states_of_cases_are_those_of_their_rows(sweep):
    files = read_all([sweep])
    jobs = list(map(job_cases, files.raw_results))
    states = case_states(files, jobs, read_sweep_notes(files.unstarted_jobs, [sweep]))
    results = to_results(files, [sweep])
    assert Counter(row.status for row in states.rows) == Counter(row.status for row in results.rows)
    assert (states.done, states.measured, states.missing) == (
        results.done,
        results.measured,
        results.missing,
    )
    of_jobs = states.by_job()
    assert {job: len(of_job.missing) for job, of_job in of_jobs.items()} == {
        "mpi.p2": 3,
        "mpi.p3": 2,
    }
    assert {job: of_job.planned for job, of_job in of_jobs.items()} == {"mpi.p2": 4, "mpi.p3": 2}


def test_the_hosts_of_a_failure_are_those_of_its_attempt():
    raw = raw_examples.raw()
    first = raw_examples.attempt()
    elsewhere = tuple(replace(place, host="n9") for place in first.places)
    raw.attempts = [(first, []), (replace(first, number=2, places=elsewhere), [])]
    raw.failures = [Failure(case_id=CASES[0].id, rank=1, message="stuck", attempt=1)]
    assert raw.failure_reasons().of(CASES[0].id) == f"rank 1 on {first.places[1].host}: stuck"


def test_every_gap_has_its_reason(sweep):
    results = read_results([sweep])
    gaps = {(gap.job, gap.case): (gap.status, gap.reason) for gap in results.missing}
    assert gaps == {
        ("mpi.p2", CASES[1].id): ("wrong", "rank 0: bad"),
        ("mpi.p2", CASES[2].id): ("failed", "rank 1 on n1: stuck"),
        ("mpi.p2", CASES[3].id): ("not run", "the job ended before it"),
        ("mpi.p3", CASES[0].id): ("not run", "its job has not begun"),
        ("mpi.p3", CASES[1].id): ("not run", "its job has not begun"),
    }
    assert [(skip.status, skip.reason) for skip in results.skipped] == [
        ("left out", "needs a power of two")
    ]
    assert results.planned == 6
    assert [(row.case_id, row.status, row.wrong) for row in results.rows] == [
        (CASES[0].id, "ok", 0), (CASES[1].id, "wrong", 7), (CASES[2].id, "failed", None),
    ]  # fmt: skip


def test_a_run_is_partial_until_every_case_has_an_outcome_and_failures_stay_in_the_finished_file(
    sweep,
):
    file = sweep / "raw" / "mpi.p2.h5"
    assert [(run.status, run.job, run.attempt) for run in read_results([sweep]).runs] == [
        ("partial", "mpi.p2", 1)
    ]
    journal = Journal(file, raw_examples.job(*CASES))
    journal.begin(raw_examples.attempt(2))
    journal.record(OUTCOMES[2])
    journal.record(raw_examples.skipped(CASES[3]))
    hdf5.write_raw_file(journal.raw, file)
    journal.close(remove=True)
    results = read_results([sweep])
    assert [(run.status, run.attempt) for run in results.runs] == [("complete", 1), ("complete", 2)]
    assert [gap.status for gap in results.missing] == ["wrong", "not run", "not run"]
    assert sorted(row.attempt for row in results.rows) == [1, 1, 2, 2]
    assert len(results.skipped) == 2
    assert [failure.message for failure in hdf5.read_raw_file(file).failures] == ["stuck"]


def test_a_file_named_several_times_or_by_what_accompanies_it_is_read_once(sweep, tmp_path):
    raw_file = sweep / "raw" / "mpi.p2.h5"
    for ending in ("reserve", "interrupted", "failure-launch"):
        raw_file.with_name(f"mpi.p2.h5.{ending}").touch()
    files = sorted(raw_file.parent.glob("mpi.p2.h5*"))
    assert len(files) == 5
    assert [find_raw_files([path]) for path in files] == [[raw_file]] * 5
    write(raw_file, OUTCOMES[0])
    (tmp_path / "link.h5").symlink_to(raw_file)
    assert find_raw_files([*files, sweep, raw_file, tmp_path / "link.h5"]) == [raw_file]


def test_a_complete_file_takes_precedence_over_its_journal_which_does_over_a_partial_or_damaged_file(
    out,
):
    raw = write(out, OUTCOMES[0], more=CASES[1:2])
    journal = Journal(out, raw.job, raw)
    journal.begin(raw_examples.attempt(2))
    journal.record(OUTCOMES[1])
    assert read_raw(out).path == journal_path(out)
    for damaged in (out.read_bytes()[:-900], b"x"):
        out.write_bytes(damaged)
        found = read_results([out.parent])
        assert [row.case_id for row in found.rows] == [case.id for case in CASES[:2]]
        assert ["its journal is read in its place" in note for note in found.notes] == [True]
    hdf5.write_raw_file(journal.raw, out)
    journal.close(remove=False)
    for named in (out.parent, out, journal_path(out)):
        assert find_raw_files([named]) == [out]
        assert read_raw(out).path == out


def test_a_journal_alone_is_read_and_an_empty_one_ignored(out):
    journal_path(out.with_name("empty.h5")).touch()
    assert find_raw_files([out.parent]) == []
    Journal(out, raw_examples.job(*CASES)).close(remove=False)
    assert find_raw_files([out.parent]) == [out]
    results = read_results([out.parent])
    assert ({gap.status for gap in results.missing}, results.rows) == ({"not run"}, ())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no", "there is no such raw file or directory"),
        (".", "which hpccoll sweep, run --out and import write"),
        (
            "README.md",
            "is not a whole raw file .* do: name raw files .* or a directory that holds some",
        ),
        ("accept.yaml", r"accept\.yaml' is not valid: results; .* are in results/accept, unless"),
    ],
)
def test_a_path_without_results_is_refused(tmp_path, name, words):
    for file in ("accept.yaml", "README.md"):
        (tmp_path / file).write_text("# Results")
    with pytest.raises(BadInputError, match=words):
        read_results([tmp_path / name])


def test_unreadable_files_are_gaps_and_hide_no_other(sweep):
    before, broken = (
        read_results([sweep]),
        [sweep / "raw" / f"{name}.h5" for name in ("broken", "another")],
    )
    for path in broken:
        path.write_text("x")
    after = read_results([sweep])
    assert after.rows == before.rows
    gaps = sorted(set(after.missing) - set(before.missing), key=lambda gap: gap.job)
    assert [(gap.job, gap.status, gap.case in gap.reason) for gap in gaps] == [
        ("another", "failed", True),
        ("broken", "failed", True),
    ]
    assert sum(".h5' is not a whole raw file" in line for line in after.damaged) == 2
    assert read_results([sweep / "raw" / "mpi.p2.h5", *broken]).rows == before.rows
    with pytest.raises(BadInputError, match=r"broken\.h5") as caught:
        read_results(broken)
    assert len(caught.value.others) == 1


def test_an_unreadable_plan_and_a_pipe_in_place_of_slurm_json_hide_no_result(sweep):
    before = read_results([sweep]).rows
    (sweep / "plan.json").write_text("{")
    os.mkfifo(sweep / "slurm.json")
    found = read_results([sweep])
    assert found.rows == before
    assert ["plan.json" in line for line in found.damaged] == [True]
    journal_path(sweep / "raw" / "mpi.p2.h5").unlink()
    with pytest.raises(BadInputError, match=r"plan\.json"):
        read_results([sweep])


def test_a_damaged_line_of_a_journal_is_named_and_its_case_is_missing(sweep):
    journal = journal_path(sweep / "raw" / "mpi.p2.h5")
    journal.write_bytes(journal.read_bytes().replace(b'"status": "ok"', b'"status": "oK"'))
    found = read_results([sweep])
    assert ["mpi.p2.h5.journal: line 6" in line for line in found.damaged] == [True]
    (gap,) = (gap for gap in found.missing if gap.case == CASES[0].id and gap.job == "mpi.p2")
    assert gap.reason == "the job ended before it, or a damaged line of its journal held it"


def test_copies_of_a_raw_file_count_once_and_are_noted(tmp_path):
    raw = write(tmp_path / "b.h5", *OUTCOMES[:2])
    shutil.copy(tmp_path / "b.h5", tmp_path / "a.h5")
    part = replace(raw, attempts=[(raw.attempts[0][0], OUTCOMES[:1])])
    hdf5.write_raw_file(part, tmp_path / "0-part.h5")
    write(tmp_path / "c.h5", *OUTCOMES[:2], launch="another")
    found = read_results([tmp_path])
    assert [(row.case_id, row.run_id) for row in found.rows] == [
        (case.id, run) for case in CASES[:2] for run in ("run-1", "another")
    ]
    assert found.planned == 4
    left_out = {Path(note.split(" is left out: it is a copy of ")[0]).name for note in found.notes}
    assert left_out == {"b.h5", "0-part.h5"}
    assert sum("a.h5, or of a part" in note for note in found.notes) == 2


def test_two_files_that_resumed_the_same_file_share_its_launches_once(tmp_path):
    for name, outcome in (("a", OUTCOMES[1]), ("b", OUTCOMES[2])):
        raw = raw_examples.raw(OUTCOMES[0], more=CASES[1:3])
        raw.attempts.append((raw_examples.attempt(2, run_id=f"run-2{name}"), [outcome]))
        hdf5.write_raw_file(raw, tmp_path / f"{name}.h5")
    found = read_results([tmp_path])
    assert sorted((row.requested_bytes, row.run_id) for row in found.rows) == [
        (8, "run-1"), (16, "run-2a"), (32, "run-2b"),
    ]  # fmt: skip
    assert ["b.h5: launches are left out that" in note for note in found.notes] == [True]
