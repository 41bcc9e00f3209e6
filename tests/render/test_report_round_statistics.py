"""Statistics of rounds: series are compared round by round, and a clear winner wins every round."""

import csv
import io
import json
from dataclasses import replace

import pytest

from hpccoll.render.chart_groups import chart_groups
from hpccoll.render.charts import FIGURES
from hpccoll.render.export import export
from hpccoll.render.round_statistics import (
    clearly_faster,
    paired_rounds,
    round_stats,
    split_by_launch,
    time_ratio,
)
from hpccoll.store.statistics import RoundStatistics


@pytest.fixture
def points(of_rows, make_run):
    def make(*rows):
        runs = [make_run(run_id=run) for run in dict.fromkeys(run for row in rows for run in row.round_run_ids if run)]
        return [point for group in chart_groups(of_rows(*rows, runs=runs)) for point in group.points]

    return make


def test_a_series_that_wins_every_round_wins_on_a_drifting_machine(rounds_row, points):
    ring, native = points(rounds_row("ring", 10, 20, 40), rounds_row("native", 12, 24, 48))
    assert clearly_faster(ring, native)
    assert time_ratio(native, ring) == pytest.approx(1.2)
    assert ring.row.ci_high_s > native.row.ci_low_s  # which the intervals of the cases would not tell


def test_a_series_that_loses_one_round_is_no_clear_winner(rounds_row, points):
    ring, native = points(rounds_row("ring", 10, 10, 13), rounds_row("native", 12, 12, 12))
    assert not clearly_faster(ring, native)


def test_a_round_is_won_where_the_median_is_below_the_interval_of_the_other(rounds_row, points):
    ring, native = points(rounds_row("ring", 10, 10), rounds_row("native", 10.5, 10.1))
    assert not clearly_faster(ring, native)
    ring, native = points(rounds_row("ring", 10, 10), rounds_row("native", 10.5, 10.3))
    assert clearly_faster(ring, native)
    assert not clearly_faster(native, ring)


def test_with_one_round_the_intervals_must_be_disjoint(rounds_row, points):
    ring, native = points(rounds_row("ring", 10), rounds_row("native", 10.3))
    assert not clearly_faster(ring, native)


def short(row):
    """The same measured with too few iterations for an interval."""
    return replace(row, ci_low_s=None, ci_high_s=None, round_intervals_s=(None,) * len(row.round_medians_s))


@pytest.mark.parametrize("count", [1, 3])
def test_without_intervals_there_is_no_clear_winner_in_any_number_of_rounds(count, rounds_row, points):
    rows = rounds_row("ring", *[10] * count), rounds_row("native", *[30] * count)
    assert clearly_faster(*points(*rows))
    ring, native = points(*map(short, rows))
    assert not clearly_faster(ring, native)
    assert time_ratio(native, ring) == pytest.approx(3.0)


def test_one_round_without_an_interval_leaves_no_clear_winner(rounds_row, points):
    native = rounds_row("native", 30, 30, 30)
    some = replace(native, round_intervals_s=(*native.round_intervals_s[:2], None))
    assert not clearly_faster(*points(rounds_row("ring", 10, 10, 10), some))


def test_a_point_without_an_interval_has_no_band(rounds_row, of_rows):
    (group,) = chart_groups(of_rows(short(rounds_row("ring", 10, 10, 10))))
    for name in ("time", "busbw"):
        (figure,) = (figure for figure in FIGURES if figure.name == name)
        drawn = next(iter(figure.specification(group)["datasets"].values()))
        (point,) = (one for one in drawn if "value" in one)
        assert point["low"] == point["high"] == point["value"]
        assert point["interval"] == "none: too few iterations"


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds(rounds_row, points):
    ring, native = points(rounds_row("ring", 10, 40, 30), rounds_row("native", 10, 20, 90))
    assert time_ratio(ring, native) == pytest.approx(1.0)  # of 1, 2 and 1/3; that of the medians is 1.5


def test_only_rounds_of_one_launch_are_paired(rounds_row, points):
    first, second = points(
        rounds_row("ring", 10, 20, 30, runs=["a", "a", "b"]),
        rounds_row("native", 5, 40, 15, runs=["a", "b", "b"]),
    )
    assert [(mine.median, theirs.median) for mine, theirs in paired_rounds(first, second)] == [
        (pytest.approx(10e-6), pytest.approx(5e-6)), (pytest.approx(30e-6), pytest.approx(15e-6)),
    ]  # fmt: skip
    assert len(split_by_launch([first, second])) == 1


def test_runs_without_a_common_launch_are_separate_unless_a_point_joins_them(rounds_row, points):
    first = rounds_row("ring", 10, 10, runs=["a", "a"])
    last = rounds_row("native", 10, 10, runs=["b", "b"])
    both = rounds_row("tree", 10, 10, runs=["a", "b"])
    assert [len(part) for part in split_by_launch(points(first, last))] == [1, 1]
    assert [len(part) for part in split_by_launch(points(first, last, both))] == [3]
    ring, native = points(first, last)
    assert not clearly_faster(replace(ring, row=replace(ring.row, round_medians_s=(1e-9, 1e-9))), native)


def test_a_row_without_rounds_is_one_round_of_its_run(make_row, of_rows):
    ((point,),) = (group.points for group in chart_groups(of_rows(make_row(seconds=1e-5))))
    ((key, taken),) = round_stats(point).items()
    assert key == ("run-1", 1)
    assert taken == RoundStatistics(1e-5, (point.row.ci_low_s, point.row.ci_high_s))


def test_a_row_with_missing_rounds_is_compared_in_the_others(rounds_row, points):
    partial = rounds_row("ring", 10, 10, None, status="partial", reason="2 of 3 rounds")
    ring, native = points(partial, rounds_row("native", 12, 12, 1))
    assert len(paired_rounds(ring, native)) == 2
    assert clearly_faster(ring, native)


def test_csv_has_the_rounds_as_json(rounds_row, of_rows):
    (record,) = csv.DictReader(io.StringIO(export(of_rows(rounds_row("ring", 10, None, 20)), "csv")))
    assert json.loads(record["round_medians_s"]) == [pytest.approx(1e-5), None, pytest.approx(2e-5)]
    assert (record["rounds"], json.loads(record["round_run_ids"])) == ("2", ["run-1", None, "run-1"])
