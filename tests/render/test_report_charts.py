"""Charts of collectives and of steps: one golden outline of all, and values that must hold in them."""

import json
import re
from dataclasses import replace

import pytest
import vl_convert
from altair.utils.schemapi import SchemaBase
from chart_outline import layers, outline, point_lines, values
from golden_page import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from row_examples import make_row
from step_examples import steps

from hpccoll.analysis.chart_groups import MOST_SERIES, chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.extensions.steps.render.step_page import STEP_FIGURES
from hpccoll.render import charts
from hpccoll.render.charts import FIGURES
from hpccoll.render.colours import series_colour
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.schema import COPY_RATES

pytestmark = pytest.mark.usefixtures("small_maps")

BY_NAME = {figure.name: figure for figure in FIGURES}
BUCKETS = [{"bucket": n << 20, "scale": 16} for n in (80, 4, 25)] + [{"scale": 16}]


def recommended_groups(results):
    """Return the groups of results with what to use in them."""
    return chart_groups(results, recommend(results))


def of_nodes(*nodes, workloads=({},), **takes):
    """Return results of steps on some numbers of nodes."""
    return to_results(
        ResultFiles(
            raw_results=[
                steps(takes, workloads, ranks=n, path=f"{n}.h5", run_id=f"run-{n}") for n in nodes
            ]
        )
    )


def test_the_outline_of_all_charts_is_the_golden_page(results, testbed_results):
    of_steps = of_nodes(2, 4, workloads=BUCKETS, ring=12, native=60, null=0)
    groups = [
        chart_groups(each, recommend(each))[0] for each in (results, testbed_results, of_steps)
    ]
    charts = [
        figure.specification(group)
        for group in groups
        for figure in (STEP_FIGURES if group.of_steps else FIGURES)
    ]
    assert_golden(
        "charts", "\n".join(line for chart in charts if chart for line in (*outline(chart), ""))
    )


@pytest.mark.parametrize(
    "name", [name for name in BY_NAME if not name.startswith(("pairs", "rails"))]
)
def test_a_chart_is_vega_lite_of_named_classes_and_can_be_rendered(
    valid, testbed_results, name, monkeypatch
):
    """For a channel without its class Altair goes through all of its classes: half of the time of a chart."""
    (group,) = recommended_groups(testbed_results)
    searched = []
    monkeypatch.setattr(SchemaBase, "from_dict", lambda *about, **_: searched.append(about))
    chart = BY_NAME[name].specification(group)
    assert not searched
    svg = vl_convert.vegalite_to_svg(json.dumps(valid(chart), allow_nan=False))
    assert ("ring" in svg, "NaN" in svg) == (True, False)


def test_bands_and_ticks_are_transparent_by_their_fill_because_each_opacity_costs_a_png_a_layer(
    of_rows,
):
    rounds = {
        "rounds": 3,
        "round_medians_s": (9e-5, 1e-4, 2e-4),
        "round_intervals_s": (None,) * 3,
        "round_run_ids": ("run",) * 3,
    }
    rows = [make_row("ring", 2, nbytes, seconds=1e-4, **rounds) for nbytes in (4096, 65536)]
    (group,) = recommended_groups(of_rows(*rows))
    svg = vl_convert.vegalite_to_svg(json.dumps(BY_NAME["time"].specification(group)))
    assert {*re.findall(r'<path[^>]* fill-opacity="([^"]+)"', svg)} >= {"0.12", "0.8"}
    assert {*re.findall(r'<path[^>]* opacity="([^"]+)"', svg)} <= {"0", "1"}


def all_charts(results):
    (group,) = recommended_groups(results)
    return {
        name: chart for name, figure in BY_NAME.items() if (chart := figure.specification(group))
    }


def test_a_floor_has_times_and_a_barrier_none_against_size_and_what_is_no_result_is_not_drawn(
    results, of_rows
):
    with_floor = {
        name
        for name, chart in all_charts(results).items()
        if "floor" in {v.get("line") for v in values(chart)}
    }
    assert with_floor == {"time"}
    none = {"collective": "barrier", "op": None, "algbw_Bps": None, "busbw_Bps": None}
    rows = [make_row(name, p, 8, **none) for name in ("dissemination", "native") for p in (2, 4)]
    drawn = all_charts(of_rows(*rows))
    assert (drawn.keys(), "8 B" in str(drawn)) == ({"choice", "scaling"}, False)
    for change in ({"status": "wrong", "wrong": 1}, {"status": "failed"}, {"status": "skipped"}):
        assert not all_charts(of_rows(*(make_row(ranks=p, **change) for p in (2, 4))))


def placed(ranks, *of_native):
    """Return rows of ring, and of native with its times out of place and in place."""
    return [
        make_row(name, ranks, in_place=in_place, seconds=seconds, oversubscribed=False)
        for in_place, native in enumerate(of_native)
        for name, seconds in (("ring", 1e-5), ("native", native))
    ]


BOTH, OWN = placed(2, 2e-5, 2e-5), placed(4, 2e-5, 5e-6)
BROADCAST = {"collective": "broadcast", "op": None}
TWO_RUNS = [make_row(nbytes=n, run_id=run) for run in ("run-1", "run-2") for n in (8, 64)]
SCENARIOS = {
    "lines of two machines are not joined": ("time", TWO_RUNS, {"machine": "another"}),
    "a repeated measurement is a line of its own": ("time", TWO_RUNS, {"created": "2026-02-01"}),
    "the band of a bandwidth is low where the time is high; oversubscribed points are hollow": (
        "busbw", [make_row(ranks=p, ci_low_s=9e-6, ci_high_s=2e-5, busbw_Bps=1e8) for p in (2, 4)], {}),
    "a map has leads, ties and what stands alone": (
        "choice", [make_row(nbytes=8), make_row("native", nbytes=8, seconds=1.5e-5), make_row(nbytes=512),
                   make_row(nbytes=64, seconds=1.01e-5), make_row("native", nbytes=64)], {}),
    "a choice for both placements has one panel": ("choice", BOTH, {}),
    "choices of a placement have panels of their own": ("choice", OWN, {}),
    "a choice for both placements is in the panels of others": ("choice", BOTH + OWN, {}),
    "a choice that only another group measured is in the map": (
        "choice", [make_row("star"), make_row("native"), make_row("chain", seconds=1e-6, dtype="int32")], {}),
    "a series with one placement is in the panels of both": (
        "time", [make_row(**BROADCAST), make_row(**BROADCAST, in_place=True),
                 make_row("native", **BROADCAST, in_place=True)], {}),
}  # fmt: skip
"""For each rule a chart, rows, and what differs in their second run."""


def test_the_points_of_charts_are_the_golden_page(
    of_rows, make_run, make_node_row, make_bed_run, testbed_results
):
    lines = []
    for rule, (name, rows, second) in SCENARIOS.items():
        for group in recommended_groups(
            of_rows(*rows, runs=(make_run(), make_run(run_id="run-2", **second)))
        ):
            lines += ["", f"# {rule}", *point_lines(BY_NAME[name].specification(group))]
    uneven = of_rows(
        make_node_row(),
        make_node_row(nodes=4, ranks=6, ranks_per_node=None),
        runs=(make_bed_run(),),
    )
    at_most = replace(testbed_results, rows=[row for row in testbed_results.rows if row.nodes == 8])
    below = of_rows(make_node_row(), runs=(make_bed_run(wire_Bps=11_900_000),))
    copies = make_run(
        provenance={
            COPY_RATES: {
                "ranks": 2,
                "sizes": [{"bytes": size, "Bps": 4e9} for size in (1 << 16, 1 << 26)],
            }
        }
    )
    in_memory = of_rows(
        *(
            make_row(ranks=p, nbytes=n, in_place=in_place, seconds=n / 5e8)
            for p in (2, 4)
            for n in (8 << 10, 32 << 10, 1 << 20)
            for in_place in (False, True)
        ),
        runs=(copies,),
    )
    for rule, results, names in (
        ("ranks are the axis where nodes hold unlike numbers of them", uneven, ("scaling", "time")),
        (
            "the calibrated wire is a rule where it holds; counted bytes are dashed",
            at_most,
            ("busbw", "wire"),
        ),
        (
            "what memory allows is a line from the smallest buffers that were copied",
            in_memory,
            ("time", "busbw"),
        ),
        ("a wire slower than the bandwidth is no rule", below, ("busbw",)),
    ):
        for name in names:
            lines += ["", f"# {rule}", *point_lines(all_charts(results)[name])]
    measured, (_, share, bucket, *_) = of_nodes(2, 4, ring=12, native=60, null=0), STEP_FIGURES
    predicted = [
        replace(row, kind="simulated", nodes=8, ranks=8, run_id="p")
        for row in measured.rows
        if row.nodes == 4
    ]
    for rule, results, figure in (
        (
            "shares of the step, joined by predictions",
            replace(measured, rows=(*measured.rows, *predicted)),
            share,
        ),
        ("limits of buckets", of_nodes(2, workloads=BUCKETS, ring=12, null=0), bucket),
    ):
        (group,) = chart_groups(results)
        lines += ["", f"# {rule}", *point_lines(figure.specification(group))]
    assert (share.specification(group), bucket.specification(chart_groups(measured)[0])) == (
        None,
        None,
    )
    assert_golden("chart_points", lines[1:])


@given(st.integers(1, 60))
def test_there_is_a_colour_for_any_number_of_lines(count):
    assert len({series_colour(i) for i in range(count)}) == count


def test_of_too_many_series_the_pale_ones_lie_behind_and_the_caption_counts_those_that_are_not_drawn(
    of_rows, valid
):
    rings = [
        make_row(params={"channels": n + 1}, nbytes=size, seconds=1e-6 * (n + 1))
        for n in range(MOST_SERIES + 2)
        for size in (8, 64)
    ]
    (group,) = recommended_groups(
        of_rows(*rings, *(make_row("native", nbytes=size) for size in (8, 64)))
    )
    figure = BY_NAME["time"]
    chart = valid(figure.specification(group))
    tones = [(value["series"], value.get("tone")) for value in values(chart)]
    assert len({series for series, _ in tones}) == MOST_SERIES
    assert {series for series, tone in tones if tone is None} == {"ring channels=1", "native"}
    assert all(tone == "pale" for _, tone in tones[:-4])
    assert chart["config"]["legend"]["symbolLimit"] == MOST_SERIES
    assert layers(chart)[-1]["encoding"]["color"]["scale"]["domain"][:2] == [
        "ring channels=1",
        "native",
    ]
    assert " 3 more series" in figure.group_caption(group)
    assert "more series" not in BY_NAME["choice"].group_caption(group)


@pytest.mark.parametrize(("floors_us", "drawn"), [((0.1, 0.2, 2.0), 0), ((0.1, 2.0, 3.0), 2)])
def test_a_floor_is_drawn_and_in_the_legend_only_where_it_makes_a_line(floors_us, drawn):
    common = {"at": "2 ranks", "place": "in place", "machine": ""}
    measured = [
        {"series": "ring", "line": "measured", "value": time, **common} for time in (1.0, 4.0, 9.0)
    ]
    floors = [{"series": "null", "line": "floor", "value": time, **common} for time in floors_us]
    kept = charts._without_low_floors([*floors, *measured])
    assert [record["series"] for record in kept].count("null") == drawn
