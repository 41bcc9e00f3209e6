"""The table of a run: the lines printed during the measurement, and the sorted rows at the end."""

import io
import random
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import raw_examples
from cli_runner import rows
from golden_page import assert_golden

from hpccoll.analysis.recommendations import recommend, verdicts_by_setting
from hpccoll.cases.case import TIMINGS, Effort
from hpccoll.common.terminal import ERASE_LINE, PrintableStream
from hpccoll.render import printed_table
from hpccoll.render.printed_table import PrintedTable
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.load_results import _to_run
from hpccoll.store.raw_results import CaseHistory, RawResults
from hpccoll.store.rows import Results
from hpccoll.store.statistics import make_row

SIZES = (8, 1024, 65536)
CASES = [
    raw_examples.case(size, algorithm=name, in_place=in_place)
    for name in ("ring", "native")
    for size in SIZES
    for in_place in (False, True)
]
JOB = raw_examples.job(*CASES, effort=Effort(rounds=1))
MPI = {
    "mpi": {"version": "MPICH 5", "path": "libmpi.so", "threads": "multiple"},
    "executor": "compiled", "waiting": "spins",
}  # fmt: skip


def whole(of, number=1, ranks=2, **more):
    outcome = raw_examples.outcome(of, **{"bytes": of.bytes, "times": raw_examples.times(ranks=ranks), **more})
    return CaseHistory(raw_examples.attempt(number, ranks, provenance=MPI), outcome, {})


def verdicts(job, histories):
    """Return what to use at each size of a job of which some cases have been measured."""
    attempts = {history.attempt.run_id: history.attempt for history in histories}
    raw = RawResults(path=Path("here.h5"), job=job, attempts=[(attempt, []) for attempt in attempts.values()])
    results = Results(
        rows=tuple(make_row(job, attempt, outcome, runs=runs) for attempt, outcome, runs in histories),
        runs=tuple(_to_run(raw, attempt) for attempt in attempts.values()),
        planned=len(job.cases),
    )
    return verdicts_by_setting(recommend(results))


@pytest.fixture
def printed(capsys):
    """What a table prints of some outcomes, after those of an earlier launch."""

    def show(*wholes, job=JOB, earlier=()):
        table = PrintedTable()
        for place, each in enumerate(wholes, 1):
            table.show(job, each, place, len(wholes))
        table.end(job, [*earlier, *wholes], verdicts(job, [*earlier, *wholes]))
        return capsys.readouterr().out

    return show


def lasting(case, *rounds_us, **more):
    """Return the history of a case that took so many microseconds in each round, to within 2 %."""
    start = np.zeros((9, 2), np.int64)
    parts = [
        CaseTimes.from_samples(
            start, start + (us * np.repeat([980, 1000, 1020], 3))[:, None].astype(np.int64), one_clock=True,
            limit=1 << 22, round_number=number,
        )
        for number, us in enumerate(rounds_us, 1)
    ]  # fmt: skip
    return whole(case, times=reduce(CaseTimes.merge, parts), **more)


def marked(said):
    """Return name, place and mark of the rows with a mark."""
    words = [line.split() for line in rows(said)]
    return [(row[0], row[3], row[-1]) for row in words if row[-1] in ("*", "~")]


def test_the_cases_of_a_size_are_next_to_each_other_sizes_ascending(printed):
    shuffled = random.Random(3).sample(CASES, len(CASES))  # noqa: S311  an order, not a secret
    said = printed(*map(whole, shuffled))
    words = [line.split() for line in rows(said)]
    size_words = {8: ("8", "B"), 1024: ("1", "KiB"), 65536: ("64", "KiB")}
    assert [tuple(row[:4]) for row in words] == [
        (name, *size_words[size], place) for size in SIZES for name in ("ring", "native") for place in ("out", "in")
    ]
    headings = next(line for line in said.splitlines()[-len(CASES) - 5 :] if "algorithm" in line)
    assert headings.split() == [
        "#algorithm", "size", "place", "time", "+-", "p99", "algbw", "busbw", "#wrong", "iters", "best"
    ]  # fmt: skip


def test_the_lines_of_a_run(printed):
    cases = [raw_examples.case(size, algorithm=name) for size in SIZES for name in ("ring", "native")]
    job = raw_examples.job(*cases, raw_examples.case(8, algorithm="bruck"), effort=Effort(rounds=3))
    skipped = CaseHistory(raw_examples.attempt(provenance=MPI), raw_examples.skipped(job.cases[-1]), {})
    wrong = lasting(cases[2], 20, 30, 40, status="wrong", reason="off by one", wrong=7)
    said = printed(
        lasting(cases[0], 10, 12, 14), lasting(cases[1], 20, 24, 22), wrong, lasting(cases[3], 40), skipped, job=job
    )
    assert_golden("run", said)


def test_a_log_is_never_silent_for_long_and_says_the_time_left(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(printed_table.time, "monotonic", lambda: now)
    job, table = raw_examples.job(CASES[0], effort=Effort(rounds=9)), PrintedTable()
    for number in range(1, 9):
        now += 12
        table.show(job, lasting(CASES[0], *[20] * number), number, 9)
    progress = [line for line in capsys.readouterr().out.splitlines() if "left" in line]
    assert progress == ["# [4/9], about 60 s left", "# [7/9], about 24 s left"]


def test_the_time_left_counts_from_the_attempt_that_goes_on_with_fewer_ranks(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(printed_table.time, "monotonic", lambda: now)
    job, table = raw_examples.job(CASES[0], effort=Effort(rounds=9)), PrintedTable()
    table.show(job, lasting(CASES[0], 20), 1, 9)
    now = 3600.0  # in which ranks were lost
    for number in range(1, 5):
        now += 20
        table.show(job, lasting(CASES[0], *[20] * number, number=2), number, 9)
    progress = [line for line in capsys.readouterr().out.splitlines() if "left" in line]
    assert progress == ["# [3/9], about 2 min left"]


def test_a_terminal_keeps_nothing_of_a_line_about_the_progress(monkeypatch):
    below = io.StringIO()
    below.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", PrintableStream(below))
    job, table = raw_examples.job(CASES[0], effort=Effort(rounds=4)), PrintedTable()
    for number in range(1, 5):
        table.show(job, lasting(CASES[0], *[20] * number), number, 4)
    assert below.getvalue().count(f" left{ERASE_LINE}") == 2


def test_lines_have_at_most_100_columns(printed):
    names = ("recursive_doubling", "bidirectional_ring", "native")
    cases = [raw_examples.case(size, algorithm=name) for name in names for size in (8, 512 << 20)]
    job = raw_examples.job(*cases, effort=Effort(rounds=3))
    said = printed(*(lasting(case, 123456, 987654, 400000) for case in cases), job=job).splitlines()
    assert max(len(line) for line in said if not line.endswith("/6]")) <= 100


def test_what_to_use_is_marked_and_whether_every_round_separates_it_from_the_others(printed):
    small, large = ([case for case in CASES if case.bytes == size] for size in (8, 1024))
    job = raw_examples.job(*CASES, effort=Effort(rounds=3))
    said = printed(
        lasting(small[0], 10, 20, 40), lasting(small[2], 12, 24, 48),
        lasting(large[0], 10, 10, 13), lasting(large[2], 12, 12, 12), job=job,
    )  # fmt: skip
    assert marked(said) == [("ring", "out", "*"), ("ring", "out", "~")]


def test_what_an_earlier_launch_measured_is_part_of_the_table_and_of_the_comparison(printed):
    said = printed(lasting(CASES[0], 20), earlier=[lasting(CASES[6], 10)])
    assert marked(said) == [("native", "out", "*")]


def test_a_choice_for_both_placements_is_marked_in_both(printed):
    said = printed(*(lasting(case, 10 if case.algorithm == "ring" else 20) for case in CASES))
    assert marked(said) == [("ring", place, "*") for _ in SIZES for place in ("out", "in")]


def test_nothing_is_marked_that_has_nothing_to_be_compared_with(printed):
    floor = raw_examples.case(8, algorithm="null")
    job = raw_examples.job(*CASES, floor)
    said = printed(
        lasting(CASES[0], 20), lasting(CASES[1], 10), lasting(floor, 1, floor=True),
        lasting(CASES[6], 5, status="wrong", reason="off by one", wrong=1), job=job,
    )  # fmt: skip
    assert marked(said) == []


def test_each_row_is_printed_as_a_comment_at_once(capsys):
    table, wrong = PrintedTable(), whole(CASES[3], status="wrong", reason="off by one", wrong=7)
    skipped = CaseHistory(raw_examples.attempt(provenance=MPI), raw_examples.skipped(CASES[0]), {})
    table.show(JOB, wrong, 1, 2)
    table.show(JOB, skipped, 2, 2)
    meanwhile = capsys.readouterr().out
    assert rows(meanwhile) == []
    table.end(JOB, [skipped, wrong], {})
    *wrong, skipped = rows(capsys.readouterr().out)
    assert skipped.endswith("8 B out skipped: too large")
    assert wrong[1].endswith("1 KiB in wrong: off by one")
    first, *others = meanwhile.splitlines()[-3:]
    assert first.endswith("  [1/2]")
    assert wrong[0].startswith(first.removeprefix("# ").removesuffix("  [1/2]"))
    assert others == [f"# {wrong[1]}", f"# {skipped}  [2/2]"]


def test_a_case_is_printed_after_its_first_round_and_after_its_last_one(capsys):
    table, job = PrintedTable(), raw_examples.job(*CASES, effort=Effort(rounds=3))
    printed = []
    for rounds in ([10], [10, 30], [10, 30, 20]):
        table.show(job, lasting(CASES[0], *rounds), len(rounds), 3)
        printed.append([line for line in capsys.readouterr().out.splitlines() if "ring" in line])
    assert [len(lines) for lines in printed] == [1, 0, 1]
    assert " 10.00 " in printed[0][0]
    assert " 20.00 " in printed[2][0]


def test_an_interrupted_run_has_a_row_for_each_case_with_a_round_and_says_how_many_lack_some(printed):
    job = raw_examples.job(*CASES, effort=Effort(rounds=3))
    said = printed(lasting(CASES[0], 10, 11, 12), lasting(CASES[1], 10), lasting(CASES[2], 10, 11), job=job)
    assert len(rows(said)) == 3
    assert said.splitlines()[-1].startswith("# 2 cases with fewer than 3 rounds")


def test_cases_without_numbers_come_last_and_share_a_line_if_the_reason_is_the_same(printed):
    def without(case, reason):
        return CaseHistory(raw_examples.attempt(provenance=MPI), raw_examples.skipped(case, reason), {})

    *five, last = CASES[:6]
    told = rows(printed(*(without(case, "no room") for case in five), without(last, "too large"), whole(CASES[6])))
    assert told[0].split()[:3] == ["native", "8", "B"]
    assert [" ".join(line.split()) for line in told[1:]] == [
        "ring 8 B to 64 KiB 5 cases skipped: no room", "ring 64 KiB in skipped: too large"
    ]  # fmt: skip
    both = rows(printed(*(without(case, "no room") for case in CASES[:2])))
    assert [" ".join(line.split()) for line in both] == ["ring 8 B 2 cases skipped: no room"]


def test_rows_of_an_attempt_on_fewer_ranks_have_their_own_heading(printed):
    three = raw_examples.case(8, ranks=3)
    said = printed(whole(CASES[0]), whole(three, number=2, ranks=3)).splitlines()
    (place,) = [place for place, line in enumerate(said) if line.startswith("# 3 ranks")]
    assert len(rows("\n".join(said[:place]))) == len(rows("\n".join(said[place:]))) == 1


def test_the_numbers_of_a_small_message_are_not_rounded_to_zero(printed):
    def numbers(microseconds):
        (row,) = rows(printed(lasting(CASES[0], microseconds)))
        return row.split()[4:9]

    time, _, _, *bandwidths = numbers(3000)
    assert (time, bandwidths) == ("3000.00", ["2.67e-06"] * 2)
    assert numbers(0.001)[0] == "0.00100"


def test_timings_are_part_of_the_names_and_explained(printed):
    cases = [raw_examples.case(timing=timing) for timing in TIMINGS]
    outcomes = [{}, {"operations": 7}]
    histories = [whole(case, **about) for case, about in zip(cases, outcomes, strict=True)]
    text = printed(*histories, job=raw_examples.job(*cases, effort=Effort(operations=7)))
    names = {line.partition(" 1 KiB")[0].strip() for line in text.splitlines() if not line.startswith("#")}
    assert names == {"ring", "ring aggregated"}
    assert "# aggregated: 7 operations queued back to back, over their number" in text


@pytest.mark.parametrize("alone", [[0, 1, 2, 3], None])
def test_a_launch_whose_ranks_see_one_gpu_each_begins_with_a_warning_and_what_to_do(printed, alone):
    attempt = raw_examples.attempt(provenance={**MPI, "ranks_seeing_one_gpu": alone})
    text = printed(CaseHistory(attempt, raw_examples.skipped(CASES[0]), {}))
    assert ("4 ranks see only one of several GPUs" in text) == bool(alone)
    assert ("--gpu-bind=none" in text) == bool(alone)
