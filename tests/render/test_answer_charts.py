"""The charts beside the answers: bandwidth with the ranges of the answers, and the scaling curve."""

import re
from dataclasses import replace

import pytest
from chart_outline import values
from hypothesis import given
from hypothesis import strategies as st
from row_examples import make_row
from synthetic_timings import KIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.common.units import format_size
from hpccoll.render.answer_charts import ANSWER_FIGURES, answered_group
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import LIBRARY, MEASURED, PALE, size_axis
from hpccoll.render.charts import FIGURES
from hpccoll.store.rows import Results

SIZES = [KIB << 2 * i for i in range(6)]
TIMES = st.lists(st.floats(1e-6, 1e-3), min_size=len(SIZES), max_size=len(SIZES))
BUSBW, SCALING = ANSWER_FIGURES
QUICK, SLOW = linear_curve(1e-5, 2e-10, SIZES), linear_curve(1e-5, 1e-9, SIZES)


def answered(results):
    recommendations = recommend(results)
    groups = chart_groups(results, recommendations)
    return answered_group(groups, Answers(recommendations), "all_reduce")


def drawn(results, figure=BUSBW):
    """Return the records of a chart beside the answers; none if it is not drawn."""
    group = answered(results)
    chart = group and figure.specification(group)
    return values(chart) if chart else []


def scaling_axes(nodes, half_interval):
    """Return the specifications of both axes of the scaling curve of one algorithm on numbers of nodes."""
    rows = []
    for count in nodes:
        row = make_row(
            "ring", count, KIB, half_interval=half_interval, nodes=count, ranks_per_node=1
        )
        rows.append(replace(row, oversubscribed=False, busbw_Bps=1e9))
    chart = SCALING.specification(answered(Results(rows=tuple(rows), runs=(), planned=0)))
    encoding = chart["layer"][-1]["encoding"]
    return encoding["x"], encoding["y"]


@pytest.mark.parametrize(
    ("nodes", "scale", "is_said"),
    [((2, 4, 8), "log", False), ((2, 3, 4), "linear", False), ((2, 3, 4, 8), "log", True)],
)
def test_the_axis_of_nodes_looks_even_or_says_that_it_is_logarithmic(nodes, scale, is_said):
    x, _ = scaling_axes(nodes, 0.03)
    assert x["scale"].get("type", "linear") == scale
    assert ("logarithmic" in x["title"]) == is_said


@pytest.mark.parametrize(
    ("half_interval", "reaches"), [(0.4, 1e9 / 0.6), (0.03, 1e9 / 0.97), (0.9, 2e9)]
)
def test_the_axis_of_a_scaling_curve_has_intervals_whole_up_to_twice_the_curve(
    half_interval, reaches
):
    _, y = scaling_axes((2, 4), half_interval)
    _, top = y["scale"]["domain"]
    assert reaches <= top < 1.2 * reaches


def bars(records):
    return [record for record in records if "until" in record]


@given(st.tuples(TIMES, TIMES, TIMES))
def test_the_bars_along_the_axis_are_the_advised_ranges_of_the_answers(times):
    curves = {
        name: dict(zip(SIZES, of_name, strict=True))
        for name, of_name in zip(("native", "ring", "star"), times, strict=True)
    }
    results = measured_results(curves, drift=(1, 3, 2), spread=0.02)
    (recommendation,) = recommend(results)
    advised = [chosen for chosen in recommendation.ranges if chosen.is_advice]
    expected = []
    for chosen in advised:
        first = max(chosen.sizes.first, SIZES[0])
        last = SIZES[-1] if chosen.sizes.below is None else chosen.sizes.below
        if first < last:
            expected.append((chosen.choice.algorithm, first, last))
    shown = bars(drawn(results))
    assert joined(shown) == sorted(expected)
    for size, verdict in recommendation.verdicts.items():
        for bar in shown:
            if bar["bytes"] < size < bar["until"]:
                assert (bar.get("tone") == PALE) is not verdict.is_clear


def joined(shown):
    """Return the series and the ends of bars, where those of a series that touch are one."""
    whole = []
    for bar in sorted(shown, key=lambda bar: bar["bytes"]):
        name, first, last = bar["series"], bar["bytes"], bar["until"]
        if whole and (whole[-1][0], whole[-1][2]) == (name, first):
            first = whole.pop()[1]
        whole.append((name, first, last))
    return sorted(whole)


def test_each_placement_has_a_panel_with_its_own_bars():
    ways = ({"ring": QUICK, "native": SLOW}, {"ring": SLOW, "native": QUICK})
    results = merged_results(
        *(
            measured_results(curves, number=number, in_place=number == 2, drift=(1, 3, 2))
            for number, curves in enumerate(ways, 1)
        )
    )
    best = {bar["panel"].partition(", ")[2]: bar["series"] for bar in bars(drawn(results))}
    assert best == {"out of place": "ring", "in place": "native"}


def test_the_librarys_own_call_has_a_line_of_its_own_kind():
    records = drawn(measured_results({"ring": QUICK, "native": SLOW}))
    kinds = {record["series"]: record["line"] for record in records if "until" not in record}
    assert kinds == {"ring": MEASURED, "native": LIBRARY}


def test_only_the_ranks_of_the_first_answers_are_in_the_chart_of_sizes(of_rows):
    rows = [
        make_row(name, ranks, size, oversubscribed=False)
        for name in ("ring", "native")
        for ranks in (2, 4)
        for size in SIZES
    ]
    records = drawn(of_rows(*rows))
    assert {record["ranks"] for record in records} == {4}


def test_the_scaling_curve_has_the_largest_size_of_most_counts_and_its_efficiency(of_rows):
    rows = [
        make_row("ring", ranks, size, busbw_Bps=4e9 / ranks, oversubscribed=False)
        for ranks in (2, 4, 8)
        for size in (64, 1 << 20)
    ]
    rows.append(make_row("ring", 8, 1 << 24, oversubscribed=False))
    rows += [make_row("native", ranks, 1 << 20, oversubscribed=False) for ranks in (2, 8)]
    records = drawn(of_rows(*rows), SCALING)
    assert {record["bytes"] for record in records} == {1 << 20}
    ends = {record["efficiency"] for record in records if record["series"] == "ring"}
    assert ends == {"100%", "50%", "25%"}
    assert format_size(1 << 20) in SCALING.title_of(answered(of_rows(*rows)))


def label_sides(of_rows, **busbw_of):
    """Return the side of each curve's label whose last point has this bus bandwidth in GB/s."""
    rows = []
    for name, rate in busbw_of.items():
        for ranks in (2, 4):
            busbw = {"busbw_Bps": rate * 1e9, "oversubscribed": False}
            rows.append(make_row(name, ranks, 1 << 20, **busbw))
    records = drawn(of_rows(*rows), SCALING)
    return {record["series"]: record["label_side"] for record in records if "label_side" in record}


def test_labels_at_the_ends_of_curves_do_not_touch(of_rows):
    assert label_sides(of_rows, native=4.0, ring=3.99) == {"native": "above", "ring": "below"}
    three = label_sides(of_rows, native=4.0, ring=3.9, recursive_doubling=3.8)
    assert three == {"native": "above", "ring": "below"}
    apart = label_sides(of_rows, native=4.0, ring=3.0, recursive_doubling=1.0)
    assert set(apart.values()) == {"above", "below"}
    assert len(apart) == 3


def test_counts_without_a_bandwidth_are_named_under_the_scaling_curve(of_rows):
    rows = [make_row("ring", 1, 64, busbw_Bps=None, oversubscribed=False)]
    rows += [
        make_row(name, ranks, 64, oversubscribed=False)
        for name in ("ring", "native")
        for ranks in (2, 4)
    ]
    group = answered(of_rows(*rows))
    assert "1 rank" in SCALING.group_caption(group)
    assert "Not drawn" not in BUSBW.group_caption(group)


def test_one_count_has_no_scaling_curve_and_results_without_answers_have_no_chart(of_rows):
    assert drawn(of_rows(*(make_row(name, 2, 64) for name in ("ring", "native"))), SCALING) == []
    barrier = {"collective": "barrier", "op": None, "algbw_Bps": None, "busbw_Bps": None}
    results = of_rows(*(make_row(name, 2, 8, **barrier) for name in ("dissemination", "native")))
    recommendations = recommend(results)
    groups = chart_groups(results, recommendations)
    assert answered_group(groups, Answers(recommendations), "barrier") is None


def test_the_map_appears_from_three_columns_on(of_rows):
    (map_figure,) = (figure for figure in FIGURES if figure.name == "choice")

    def has_map(*counts):
        rows = [
            make_row(name, ranks, size, oversubscribed=False)
            for name in ("ring", "native")
            for ranks in counts
            for size in (8, 64)
        ]
        results = of_rows(*rows)
        (group,) = chart_groups(results, recommend(results))
        return map_figure.specification(group) is not None

    assert [has_map(2), has_map(2, 4), has_map(2, 4, 8)] == [False, False, True]


def test_axes_with_too_many_sizes_for_labels_have_them_at_powers_of_16() -> None:
    def labels(sizes: list[int]) -> list[str]:
        expression = size_axis(sizes).to_dict()["axis"]["labelExpr"]
        return re.findall(r"indexof\(\[(.*?)\]", expression)

    assert labels([2**exponent for exponent in range(3, 23)]) == ["16, 256, 4096, 65536, 1048576"]
    assert labels([8, 1024, 4096]) == []  # all have one
    assert labels([3 * 2**exponent for exponent in range(20)]) == []  # those that fit
