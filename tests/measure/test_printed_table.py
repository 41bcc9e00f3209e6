"""The table of a run: the lines printed during the measurement, and the sorted rows at the end."""

import random

import numpy as np
import pytest
import raw_examples
from cli_runner import rows

from hpccoll.measure.printed_table import PrintedTable
from hpccoll.spec.case import Effort
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import CaseHistory

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


@pytest.fixture
def printed(capsys):
    """What a table prints of some outcomes."""

    def show(*wholes, job=JOB):
        table = PrintedTable()
        for place, each in enumerate(wholes, 1):
            table.show(job, each, place, len(wholes))
        table.end()
        return capsys.readouterr().out

    return show


def test_rows_are_sorted_by_algorithm_and_size(printed):
    shuffled = random.Random(3).sample(CASES, len(CASES))  # noqa: S311  an order, not a secret
    said = printed(*map(whole, shuffled))
    words = [line.split() for line in rows(said)]
    assert [(row[0], row[1], row[2], row[6]) for row in words] == [
        (case.algorithm, *size, "in" if case.in_place else "out")
        for case in CASES
        for size in [{8: ("8", "B"), 1024: ("1", "KiB"), 65536: ("64", "KiB")}[case.bytes]]
    ]
    head = said.splitlines()[-len(CASES) - 1]
    assert head.startswith("#algorithm ")
    assert "busbw(GB/s)" in head


def test_each_row_is_printed_as_a_comment_at_once(capsys):
    table = PrintedTable()
    table.show(JOB, whole(CASES[3], status="wrong", reason="off by one", wrong=7), 1, 2)
    table.show(JOB, CaseHistory(raw_examples.attempt(provenance=MPI), raw_examples.skipped(CASES[0]), {}), 2, 2)
    meanwhile = capsys.readouterr().out
    assert rows(meanwhile) == []
    table.end()
    skipped, *wrong = rows(capsys.readouterr().out)
    assert skipped.endswith("8 B out skipped: too large")
    assert wrong[1].endswith("1 KiB in wrong: off by one")
    assert meanwhile.splitlines()[-3:] == [f"# {wrong[0]}  [1/2]", f"# {wrong[1]}", f"# {skipped}  [2/2]"]


def test_adjacent_cases_without_numbers_share_a_line_if_the_reason_is_the_same(printed):
    def without(case, reason):
        return CaseHistory(raw_examples.attempt(provenance=MPI), raw_examples.skipped(case, reason), {})

    *five, last = CASES[:6]
    told = rows(printed(*(without(case, "no room") for case in five), without(last, "too large"), whole(CASES[6])))
    assert [" ".join(line.split()) for line in told[:2]] == [
        "ring 8 B to 64 KiB 5 cases skipped: no room", "ring 64 KiB in skipped: too large"
    ]  # fmt: skip
    assert told[2].split()[:3] == ["native", "8", "B"]
    both = rows(printed(*(without(case, "no room") for case in CASES[:2])))
    assert [" ".join(line.split()) for line in both] == ["ring 8 B 2 cases skipped: no room"]


def test_a_case_has_one_row_for_all_its_rounds(printed):
    job = raw_examples.job(*CASES, effort=Effort(rounds=3))
    failed = whole(CASES[0], reason="it failed in an earlier launch", times=raw_examples.times(number=2))
    (row,) = rows(
        printed(
            failed,
            whole(
                CASES[0],
                times=raw_examples.times().merge(raw_examples.times(number=2)).merge(raw_examples.times(number=3)),
            ),
            job=job,
        )
    )
    assert "failed" not in row


def test_rows_of_an_attempt_on_fewer_ranks_have_their_own_heading(printed):
    three = raw_examples.case(8, ranks=3)
    said = printed(whole(CASES[0]), whole(three, number=2, ranks=3)).splitlines()
    (place,) = [place for place, line in enumerate(said) if line.startswith("# attempt 2, 3 ranks")]
    assert len(rows("\n".join(said[:place]))) == len(rows("\n".join(said[place:]))) == 1


def test_the_bandwidth_of_a_small_message_is_not_rounded_to_zero(printed):
    start = np.zeros((6, 2), np.int64)
    slow = CaseTimes.from_samples(start, start + 3_000_000, one_clock=True, limit=1 << 22)
    (row,) = rows(printed(whole(CASES[0], times=slow)))
    assert row.split()[10:12] == ["0.00000267"] * 2
