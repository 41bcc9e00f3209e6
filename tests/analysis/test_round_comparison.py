"""Rows are compared in the rounds that one launch measured, and a clear winner wins each of them."""

from dataclasses import replace

import pytest
from row_examples import make_row, rounds_row

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.round_comparison import (
    clearly_faster,
    clearly_faster_anywhere,
    paired_rounds,
    round_statistics,
    time_ratio,
)
from hpccoll.analysis.series_points import split_by_launch
from hpccoll.store.rows import Results
from hpccoll.store.statistics import RoundStatistics


def short(row):
    """Return the row as if it had been measured with too few iterations for an interval."""
    return replace(
        row, ci_low_s=None, ci_high_s=None, round_intervals_s=(None,) * len(row.round_medians_s)
    )


@pytest.mark.parametrize(
    ("ring", "native", "clear"),
    [
        ([10, 20, 40], [12, 24, 48], True),  # on a machine that drifts
        ([10, 10, 13], [12, 12, 12], False),
        ([10, 10], [10.5, 10.1], False),  # a median within the interval of the other
        ([10, 10], [10.5, 10.3], True),
        ([10], [10.3], False),  # of one round intervals are disjoint
        ([10], [10.6], True),
        ([10, 10, None], [12, 12, 1], True),
    ],
)
def test_a_clear_winner_is_below_the_interval_of_the_other_in_every_common_round(
    ring, native, clear
):
    rows = rounds_row("ring", *ring), rounds_row("native", *native)
    assert clearly_faster(*rows) is clear
    assert not clearly_faster(*rows[::-1])
    assert not clearly_faster(*map(short, rows))
    first_without = replace(rows[1], round_intervals_s=(None, *rows[1].round_intervals_s[1:]))
    assert not clearly_faster(rows[0], first_without)


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    ring, native = rounds_row("ring", 10, 40, 30), rounds_row("native", 10, 20, 90)
    # of 1, 2 and 1/3; that of the medians is 1.5
    assert time_ratio(ring, native) == pytest.approx(1.0)


def test_only_rounds_of_one_launch_are_paired():
    first = rounds_row("ring", 10, 20, 30, runs=["a", "a", "b"])
    second = rounds_row("native", 5, 40, 15, runs=["a", "b", "b"])
    pairs = [pytest.approx((10e-6, 5e-6)), pytest.approx((30e-6, 15e-6))]
    assert [
        (mine.median, theirs.median) for mine, theirs in paired_rounds(first, second).values()
    ] == pairs


def test_rows_of_different_launches_are_clearly_different_if_their_intervals_are_disjoint():
    fast, slow = (
        rounds_row("ring", 10, 10, runs=["a", "a"]),
        rounds_row("ring", 30, 30, runs=["b", "b"]),
    )
    assert (clearly_faster(fast, slow), clearly_faster_anywhere(fast, slow)) == (False, True)
    assert not clearly_faster_anywhere(fast, short(slow))


def test_points_without_a_common_launch_are_in_parts_of_their_own_unless_another_joins_them():
    rows = [
        rounds_row(name, 10, 10, runs=runs) for name, runs in (("ring", "aa"), ("native", "bb"), ("tree", "ab"))
    ]  # fmt: skip
    (group,) = chart_groups(Results(rows=tuple(rows), runs=(), planned=3))
    assert [len(part) for part in split_by_launch(group.points)] == [3]
    apart = [point for point in group.points if point.row.algorithm != "tree"]
    assert [len(part) for part in split_by_launch(apart)] == [1, 1]


def test_a_row_without_rounds_is_one_round_of_its_run_and_one_without_a_time_has_none():
    row = make_row(seconds=1e-5)
    assert round_statistics(row) == {
        ("run-1", 1): RoundStatistics(1e-5, (row.ci_low_s, row.ci_high_s))
    }
    skipped = replace(row, median_s=None)
    assert round_statistics(skipped) == {}
    assert not clearly_faster(skipped, row)
    assert not clearly_faster(row, skipped)
