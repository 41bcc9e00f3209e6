"""The command status: what keeps it from calling results complete, and the exit code of each."""

import json

import pytest
import raw_examples
from cli_runner import invoke
from written_runs import write_run

from hpccoll.cases.plan import Launcher, Plan
from hpccoll.store import hdf5
from hpccoll.store.journal import Journal

CASES = [raw_examples.case(size) for size in (8, 16)]
JOB = raw_examples.job(*CASES)
MEASURED = raw_examples.outcome(CASES[0])
LAST = {
    "wrong": raw_examples.outcome(CASES[1], status="wrong", wrong=1, reason="1 element differs"),
    "failed": raw_examples.outcome(CASES[1], times=None, status="failed", reason="rank 1 died"),
}
COMPLETE = ": complete, "


@pytest.fixture
def sweep(tmp_path):
    """A directory with the plan of a sweep of one job of two cases, without results."""
    plan = Plan(
        name="s",
        profile="local",
        jobs=(JOB,),
        launcher=Launcher(command="mpiexec"),
        resources={},
        skips=(),
        estimated_s=1.0,
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "plan.json").write_text(plan.to_json())
    return tmp_path


def leave_journal(sweep):
    """Leave the journal of the job, which ended before its second case."""
    journal = Journal(sweep / "raw" / f"{JOB.name}.h5", JOB)
    journal.begin(raw_examples.attempt())
    journal.record(MEASURED)
    journal.close(remove=False)


def status(path):
    """Return the exit code, whether anything is called complete, and what is printed."""
    ended = invoke("status", path)
    return ended.code, COMPLETE in ended.out, ended.out


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize(
    "damage", [lambda whole: whole[: len(whole) // 2], lambda whole: whole[:-9] + b"#" + whole[-8:]]
)
def test_a_damaged_raw_file_is_named_and_ends_with_3_in_a_directory_and_by_its_name(
    tmp_path, damage, is_named
):
    path = tmp_path / "a.h5"
    hdf5.write_raw_file(raw_examples.raw(MEASURED), path)
    path.write_bytes(damage(path.read_bytes()))
    result = invoke("status", path if is_named else tmp_path)
    assert (result.code, "a.h5" in result.err, COMPLETE in result.out) == (3, True, False)


def test_a_file_that_is_no_raw_file_by_its_name_has_no_status(tmp_path):
    (tmp_path / "notes.txt").write_text("complete")
    assert invoke("status", tmp_path / "notes.txt").is_bad_input("notes.txt")


def test_a_sweep_whose_cases_are_all_measured_is_complete(sweep):
    hdf5.write_raw_file(
        raw_examples.raw(MEASURED, raw_examples.outcome(CASES[1])), sweep / "raw" / f"{JOB.name}.h5"
    )
    assert status(sweep)[:2] == (0, True)


@pytest.mark.parametrize("last", LAST)
def test_a_whole_file_with_a_result_that_is_not_right_is_not_complete_and_ends_with_3(
    tmp_path, last
):
    path = tmp_path / "a.h5"
    hdf5.write_raw_file(raw_examples.raw(MEASURED, LAST[last]), path)
    code, is_complete, text = status(path)
    assert (code, is_complete, f"1 of 2 cases, 1 {last}" in text) == (3, False, True)


def test_a_plan_without_results_is_not_complete_and_ends_with_3(sweep):
    code, is_complete, text = status(sweep)
    assert (code, is_complete, f"{JOB.name}: planned, 0 of 2 cases, 2 not run" in text) == (
        3,
        False,
        True,
    )


def test_a_journal_that_a_launch_left_is_partial_and_ends_with_3(sweep):
    leave_journal(sweep)
    code, is_complete, text = status(sweep)
    assert (code, is_complete, f"{JOB.name}: partial, 1 of 2 cases, 1 not run" in text) == (
        3,
        False,
        True,
    )


def test_a_job_that_was_cancelled_is_not_complete_and_ends_with_3(sweep):
    leave_journal(sweep)
    cancelled = {
        "job": JOB.name,
        "id": "7",
        "state": "CANCELLED",
        "reason": "the sweep was interrupted",
        "hosts": "n1",
    }
    (sweep / "slurm.json").write_text(json.dumps([cancelled]))
    code, is_complete, text = status(sweep)
    assert (code, is_complete, "CANCELLED: it was cancelled" in text) == (3, False, True)


def test_a_raw_file_that_ended_before_its_last_case_is_partial_and_ends_with_3(tmp_path):
    path = tmp_path / "a.h5"
    hdf5.write_raw_file(raw_examples.raw(MEASURED, more=(CASES[1],)), path)
    code, is_complete, text = status(path)
    assert (code, is_complete, ": partial, 1 of 2 cases, 1 not run" in text) == (3, False, True)


def test_a_damaged_line_of_a_journal_is_named_and_ends_with_3(sweep):
    leave_journal(sweep)
    (journal,) = (sweep / "raw").glob("*.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = lines[-1][:-9] + b"#" + lines[-1][-8:]
    journal.write_bytes(b"".join([*lines[:-1], damaged, lines[-1]]))
    ended = invoke("status", sweep)
    assert (ended.code, COMPLETE in ended.out, "journal" in ended.err) == (3, False, True)


def test_a_plan_that_cannot_be_read_is_named_and_ends_with_3(sweep):
    hdf5.write_raw_file(
        raw_examples.raw(MEASURED, raw_examples.outcome(CASES[1])), sweep / "raw" / f"{JOB.name}.h5"
    )
    (sweep / "plan.json").write_text("{")
    ended = invoke("status", sweep)
    assert (ended.code, "plan.json" in ended.err) == (3, True)


def test_a_size_without_a_scaling_curve_is_refused_in_one_line(tmp_path):
    run = write_run(tmp_path / "a.h5")
    out = "--out", tmp_path / "out"
    assert invoke("report", run, *out, "--size", "1K").is_bad_input(
        "--size", "only 2 nodes were measured"
    )
    assert invoke("report", run, *out, "--size", "many").is_bad_input("--size", "many")
