"""Summaries for a terminal: every command counts every case once, and in the same words."""

import json
import os
import re
from datetime import UTC, datetime, timedelta

import pytest
import raw_examples
from cli_runner import invoke
from golden_page import assert_golden

from hpccoll.cases.case import Effort
from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.render.terminal_summary import MAX_JOBS_NAMED, MAX_REASONS, outcome_lines
from hpccoll.store.journal import Journal
from hpccoll.store.rows import Gap
from hpccoll.sweep.workflow import exclusive

CASES = [raw_examples.case(size) for size in (8, 16, 32, 64)]
FIRST, SECOND = (
    raw_examples.job(*CASES, name=name, effort=Effort(rounds=3)) for name in ("mpi.p2", "mpi.p3")
)


@pytest.fixture
def out(tmp_path):
    """A sweep of two jobs; of the first, which began 1000 s ago, two cases are measured once and one is skipped."""
    skip = Skip(case="x", job="mpi.p3", reason="needs a power of two")
    plan = Plan(
        name="s",
        profile="local",
        jobs=(FIRST, SECOND),
        launcher=Launcher(command="mpiexec"),
        resources={},
        estimated_s=1.0,
        skips=(skip,),
    )
    (tmp_path / "raw").mkdir()
    (tmp_path / "plan.json").write_text(plan.to_json())
    journal = Journal(tmp_path / "raw" / "mpi.p2.h5", FIRST)
    journal.begin(
        raw_examples.attempt(
            created=(datetime.now(UTC) - timedelta(seconds=1000)).isoformat(timespec="seconds")
        )
    )
    journal.record(raw_examples.outcome(CASES[2]))
    journal.record(raw_examples.skipped(CASES[1]))
    journal.record(raw_examples.outcome(CASES[0]))
    yield tmp_path, journal
    journal.close(remove=False)


@pytest.fixture
def ended(out):
    """The same when its ranks have ended, and the sweep, too."""
    out, journal = out
    journal.close(remove=False)
    return out


@pytest.fixture
def at_work(out):
    """The same while it is measured."""
    out, _ = out
    with exclusive(out):
        yield out


def test_the_status_of_a_running_sweep_has_a_line_for_each_job_and_reason(at_work):
    result = invoke("status", at_work)
    assert (result.code, result.err) == (3, "")
    head, first, skipped, second, waits, left_out = result.out.splitlines()
    # 2 were measured in 1000 s, or in more on a machine that is busy: 500 s for each of the 19 and
    # of the 7.
    hours = re.fullmatch(
        rf"{at_work}: a sweep is running: 5 of 24 measurements, about (.*) h left", head
    )[1]
    counts = "0 of 4 cases, 1 not run, 2 partial, 1 skipped"
    minutes = re.fullmatch(
        rf"mpi\.p2: running \(5 of 12 measurements, about (.*) min left\), {counts}, 1 attempt",
        first,
    )[1]
    assert (2.6 <= float(hours) < 4, 58 <= float(minutes) < 90) == (True, True)
    assert skipped == f"  skipped: {CASES[1].id}: too large"
    assert (second, waits) == (
        "mpi.p3: planned, 0 of 4 cases, 4 not run",
        "  not run: 4 cases: its job has not begun",
    )
    assert left_out == "  left out in mpi.p3: x: needs a power of two"


def test_the_status_of_an_ended_sweep_has_each_reason_once(ended):
    log = ended / "logs" / "mpi.p3.log"
    log.parent.mkdir()
    log.touch()  # as the workflow does when it starts the job
    assert_golden("status", invoke("status", ended).out.replace(str(ended), "s"))


def test_a_case_in_a_job_that_was_cancelled_has_not_failed(out):
    directory, journal = out
    journal.start(CASES[3])
    journal.close(remove=False)
    cancelled = {
        "job": "mpi.p2",
        "id": "7",
        "state": "CANCELLED",
        "reason": "the sweep was interrupted",
        "hosts": "n1",
    }
    for waiting in ([], [cancelled | {"hosts": ""}]):  # one that waited did not run the case
        (directory / "slurm.json").write_text(json.dumps(waiting))
        assert "1 failed" in invoke("status", directory).out
    (directory / "slurm.json").write_text(json.dumps([cancelled]))
    printed = invoke("status", directory).out
    assert "1 failed" not in printed
    assert f"not run: {CASES[3].id}: the job ended while it ran" in printed
    assert "CANCELLED: it was cancelled (the sweep was interrupted)" in printed


def test_a_raw_file_has_the_state_that_it_has_as_part_of_its_sweep(ended):
    journal = ended / "raw" / "mpi.p2.h5"
    counted = "0 of 4 cases, 1 not run, 2 partial, 1 skipped"
    of_file, of_sweep = invoke("status", journal), invoke("status", ended)
    assert (of_file.code, of_sweep.code) == (3, 3)
    assert of_file.out.startswith(f"{journal}.journal: partial, {counted}, 1 attempt\n")
    assert f"mpi.p2: partial, {counted}, 1 attempt\n" in of_sweep.out
    both = invoke("status", ended, journal)
    assert both.out == of_sweep.out  # each file once


def test_the_status_as_json_has_the_counts_and_the_gaps(ended):
    (sweep,) = json.loads(invoke("status", ended, "--json").out)
    assert (sweep["directory"], sweep["running"], sweep["measured"], sweep["measurements"]) == (
        str(ended),
        False,
        5,
        24,
    )
    assert [(job["name"], job["state"], job["cases"], job["done"]) for job in sweep["jobs"]] == [
        ("mpi.p2", "partial", 4, 0),
        ("mpi.p3", "planned", 4, 0),
    ]
    assert [gap["status"] for gap in sweep["jobs"][1]["missing"]] == ["not run"] * 4
    assert [gap["case"] for gap in sweep["left_out"]] == ["x"]


def test_without_a_path_the_sweep_that_was_planned_last_counts(ended, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("status").is_bad_input("results/", "no sweep")
    for age, name in enumerate(("new", "old")):
        plan = tmp_path / "results" / name / "plan.json"
        plan.parent.mkdir(parents=True)
        plan.write_text((ended / "plan.json").read_text())
        os.utime(plan, (10_000 - age, 10_000 - age))
    assert invoke("status").out.startswith("results/new: no sweep is running")


def test_report_counts_as_status_does(ended):
    both = "0 of 8 cases, 5 not run, 2 partial, 1 skipped; 1 left out of the plan"
    assert both in invoke("report", ended).out.splitlines()
    assert f"{both}." in (ended / "report" / "index.html").read_text()


def test_the_outcomes_of_reports_on_a_terminal(of_rows, make_row, make_run):
    """One rank; results without an answer; reasons, of which a few more than fit are listed, and many jobs counted."""
    alone = make_row(ranks=1), make_row("native", ranks=1, seconds=2e-5)
    floor, library = (
        make_row("null", floor=True),
        {"version": "2.30.7", "files": ["/opt/libnccl.so.2"]},
    )
    with_gpus = {
        "gpus": [{"hosts": ["n1"], "gpus": []}],
        "nccl": [{"hosts": ["n1"], "library": library}],
    }
    gaps = [
        Gap(case="x", job="mpi.p2", status="failed", reason=str(i)) for i in range(MAX_REASONS + 2)
    ]
    of_jobs = [
        Gap(case="x", job=f"mpi.p{i}", status="not run", reason="no")
        for i in range(MAX_JOBS_NAMED + 1)
    ]
    several = {
        "one rank": of_rows(*alone), "one rank with a GPU": of_rows(make_row(ranks=1, device="cuda")),
        "one rank and two": of_rows(*alone, make_row(), make_row("native", seconds=2e-5)),
        "GPUs": of_rows(make_row(), runs=[make_run(run_id=name, provenance=with_gpus) for name in ("a", "b")]),
        "wrong": of_rows(make_row(status="wrong", wrong=1)), "only null": of_rows(floor),
        "only auto and null": of_rows(floor, make_row("auto")), "imported": of_rows(make_row(kind="imported")),
        "simulated": of_rows(make_row(kind="simulated")),
        **{f"{n} reasons": of_rows(make_row(), missing=tuple(gaps[:n])) for n in range(MAX_REASONS, MAX_REASONS + 3)},
        **{f"{n} jobs": of_rows(make_row(), missing=tuple(of_jobs[:n])) for n in (2, MAX_JOBS_NAMED + 1)},
    }  # fmt: skip
    assert_golden(
        "outcomes",
        (line for title, of in several.items() for line in (f"-- {title}", *outcome_lines(of))),
    )
