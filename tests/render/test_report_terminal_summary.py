"""Summaries for a terminal: every command counts every case once, and in the same words."""

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
import raw_examples
from cli_runner import invoke

from hpccoll.analysis.noise_sentence import noise_sentence
from hpccoll.analysis.recommendations import recommend
from hpccoll.cases.case import Effort
from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.render.answers import Answers, answer_lines
from hpccoll.render.terminal_summary import MAX_JOBS_NAMED, MAX_REASONS, outcome_lines
from hpccoll.store.journal import Journal
from hpccoll.store.rows import Gap
from hpccoll.sweep.workflow import exclusive

CASES = [raw_examples.case(size) for size in (8, 16, 32, 64)]
FIRST, SECOND = (raw_examples.job(*CASES, name=name, effort=Effort(rounds=3)) for name in ("mpi.p2", "mpi.p3"))


@pytest.fixture
def out(tmp_path):
    """A sweep of two jobs; of the first, which began 1000 s ago, two cases are measured once and one is skipped."""
    skip = Skip(case="x", job="mpi.p3", reason="needs a power of two")
    plan = Plan(name="s", profile="local", jobs=(FIRST, SECOND), launcher=Launcher(command="mpiexec"), resources={},
                estimated_s=1.0, skips=(skip,))  # fmt: skip
    (tmp_path / "raw").mkdir()
    (tmp_path / "plan.json").write_text(plan.to_json())
    journal = Journal(tmp_path / "raw" / "mpi.p2.h5", FIRST)
    journal.begin(
        raw_examples.attempt(created=(datetime.now(UTC) - timedelta(seconds=1000)).isoformat(timespec="seconds"))
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
    # 2 were measured in 1000 s, or in more on a machine that is busy: 500 s for each of the 19 and of the 7.
    (hours,) = re.fullmatch(r"a sweep is running: 5 of 24 measurements, about (.*) h left", head).groups()
    (minutes,) = re.fullmatch(
        r"mpi\.p2: running, 5 of 12 measurements, about (.*) min left; 0 of 4 cases, 1 not run, 2 partial, 1 skipped",
        first,
    ).groups()
    assert 2.6 <= float(hours) < 4
    assert 58 <= float(minutes) < 90
    assert skipped == f"  skipped: {CASES[1].id}: too large"
    assert (second, waits) == ("mpi.p3: 0 of 4 cases, 4 not run", "  not run: 4 cases: its job has not begun")
    assert left_out == "  left out in mpi.p3: x: needs a power of two"


def test_the_status_of_an_ended_sweep_has_each_reason_once(ended):
    log = ended / "logs" / "mpi.p3.log"
    log.parent.mkdir()
    log.touch()  # as the workflow does when it starts the job
    result = invoke("status", ended)
    assert result.out.splitlines() == [
        "no sweep is running: 5 of 24 measurements",
        "mpi.p2: 0 of 4 cases, 1 not run, 2 partial, 1 skipped",
        "  partial: 2 cases: 1 of 3 rounds; the job ended before it",
        f"  not run: {CASES[3].id}: the job ended before it",
        f"  skipped: {CASES[1].id}: too large",
        "mpi.p3: 0 of 4 cases, 4 not run",
        f"  output of its ranks: {log}",
        "  not run: 4 cases: its job ended before its first measurement",
        "  left out in mpi.p3: x: needs a power of two",
    ]


def test_a_case_in_a_job_that_was_cancelled_has_not_failed(out):
    directory, journal = out
    journal.start(CASES[3])
    journal.close(remove=False)
    cancelled = {"job": "mpi.p2", "id": "7", "state": "CANCELLED", "reason": "the sweep was interrupted", "hosts": "n1"}
    for waiting in ([], [cancelled | {"hosts": ""}]):  # one that waited did not run the case
        (directory / "slurm.json").write_text(json.dumps(waiting))
        assert "1 failed" in invoke("status", directory).out
    (directory / "slurm.json").write_text(json.dumps([cancelled]))
    printed = invoke("status", directory).out
    assert "1 failed" not in printed
    assert f"not run: {CASES[3].id}: the job ended while it ran" in printed
    assert "CANCELLED: it was cancelled (the sweep was interrupted)" in printed


def test_report_and_validate_count_as_status_does(ended):
    counted = "0 of 4 cases, 1 not run, 2 partial, 1 skipped"
    assert f"mpi.p2.h5.journal: partial, {counted}, 1 attempt\n" in invoke("validate", ended).out
    both = "0 of 8 cases, 5 not run, 2 partial, 1 skipped; 1 left out of the plan"
    assert both in invoke("report", ended).out.splitlines()
    assert f"{both}." in (ended / "report" / "index.html").read_text()


def counted_lines(results):
    """Return the counts of cases, and the indented lines of reasons below them."""
    lines = list(outcome_lines(results))
    start = next(i for i, line in enumerate(lines) if " cases" in line)
    return [lines[start], *takewhile(lambda line: line.startswith("  "), lines[start + 1 :])]


def test_the_outcome_ends_with_what_to_use_and_the_noise(of_rows, make_row):
    results = of_rows(make_row(), make_row("native", seconds=2e-5), make_row(collective="all_gather", op=None))
    *_, use, other, noise = outcome_lines(results)
    assert [use, other] == list(answer_lines(Answers(recommend(results))))
    assert noise == noise_sentence(results)


def test_settings_whose_answers_only_the_report_has_are_named_for_each_collective(of_rows, make_row):
    shapes = [make_row(name, ranks=ranks) for ranks in (2, 4, 8, 16, 32, 64) for name in ("ring", "native")]
    lines = [*outcome_lines(of_rows(*shapes, make_row(collective="all_gather", op=None)))]
    (folded,) = [line for line in lines if "the report has" in line]
    assert re.fullmatch(
        r"all_reduce: the report has the answers for 4 ranks; 8 ranks; 16 ranks; 2 more settings\.", folded
    )


def test_without_a_usable_row_the_outcome_has_the_counts_and_says_that_there_is_no_answer(of_rows, make_row):
    counts, answer = outcome_lines(of_rows(make_row(status="wrong", wrong=1)))
    assert counts.startswith("0 of 1 cases")
    assert answer == "all_reduce: no result is complete and correct."


def test_a_single_rank_has_no_answer_but_what_two_ranks_need(of_rows, make_row):
    alone = make_row(ranks=1), make_row("native", ranks=1, seconds=2e-5)
    lines = [line for line in outcome_lines(of_rows(*alone)) if line.startswith("all_reduce")]
    assert len(lines) == 1
    assert "mpiexec -n 2" in lines[0]
    assert not re.search("GPU|fast|use ", lines[0])
    (on_gpu,) = [line for line in outcome_lines(of_rows(make_row(ranks=1, device="cuda"))) if "all_reduce" in line]
    assert "NCCL_MULTI_RANK_GPU_ENABLE=1" in on_gpu
    lines = list(outcome_lines(of_rows(*alone, make_row(), make_row("native", seconds=2e-5))))
    assert [line for line in lines if line.startswith("all_reduce on 2 ranks: use ring")]
    assert not [line for line in lines if "1 rank" in line or "one rank" in line]


@pytest.mark.parametrize(
    ("algorithms", "words"),
    [
        (["null"], "only null was measured"),
        (["auto"], "only auto was measured"),
        (["null", "auto"], "only auto and null"),
    ],
)
def test_what_is_no_choice_is_not_called_incomplete(of_rows, make_row, algorithms, words):
    results = of_rows(*(make_row(name, floor=name == "null") for name in algorithms))
    assert [line for line in outcome_lines(results) if line.startswith(f"all_reduce: {words}")]


def test_imported_and_predicted_times_alone_are_not_called_incomplete(of_rows, make_row):
    for kind in ("imported", "simulated"):
        assert not [line for line in outcome_lines(of_rows(make_row(kind=kind))) if line.startswith("all_reduce")]


@pytest.mark.parametrize("more", [0, 1, 2])
def test_further_reasons_are_counted_if_that_saves_a_line(of_rows, make_row, more):
    gaps = tuple(Gap(case="x", job="mpi.p2", status="failed", reason=str(i)) for i in range(MAX_REASONS + more))
    counts, *reasons = counted_lines(of_rows(make_row(), missing=gaps))
    assert counts == f"1 of {MAX_REASONS + more + 1} cases, {MAX_REASONS + more} failed"
    assert len(reasons) == MAX_REASONS + (more > 0)
    assert [line for line in reasons if "and more" in line] == [
        "  and more for 2 other reasons, which the report lists"
    ] * (more == 2)


def test_a_reason_of_several_jobs_names_them_up_to_a_maximum(of_rows, make_row):
    gaps = [Gap(case="x", job=f"mpi.p{i}", status="not run", reason="no") for i in range(MAX_JOBS_NAMED + 1)]
    few, many = (counted_lines(of_rows(make_row(), missing=gaps[:n]))[1:] for n in (2, MAX_JOBS_NAMED + 1))
    assert few == ["  not run in mpi.p0, mpi.p1: 2 cases: no"]
    assert many == [f"  not run in {MAX_JOBS_NAMED + 1} jobs: {MAX_JOBS_NAMED + 1} cases: no"]
