"""Charts of collectives and of steps: one golden outline of all, and values that must hold in them."""

import json
from dataclasses import replace

import pytest
import vl_convert
from altair.utils.schemapi import SchemaBase
from golden_page import assert_golden
from step_examples import steps

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.charts import FIGURES, STEP_FIGURES
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

BY_NAME = {figure.name: figure for figure in FIGURES}
MIB = 1 << 20


def recommended_groups(results):
    """Return the groups of results with what to use in them."""
    return chart_groups(results, recommend(results))


@pytest.fixture
def specification(of_rows):
    """The specification of a chart of the rows given."""

    def make(name, *rows, runs=None):
        (group,) = recommended_groups(of_rows(*rows, runs=runs))
        return BY_NAME[name].specification(group)

    return make


def of_nodes(*nodes, workloads=({},), **takes):
    """Return results of steps on some numbers of nodes."""
    return to_results(
        ResultFiles(raw_results=[steps(takes, workloads, ranks=n, path=f"{n}.h5", run_id=f"run-{n}") for n in nodes])
    )


def values(specification):
    (dataset,) = specification["datasets"].values()
    return dataset


def layers(chart):
    return chart.get("spec", chart)["layer"]


def rules(chart):
    return [layer for layer in layers(chart) if layer["mark"]["type"] == "rule"]


def outline(chart):
    """Yield the lines of what a chart shows: headings, panels, axes, series with their colours and marks, and data."""
    yield f"# {chart['title']['text']}"
    yield from (f"  {line}" for line in chart["title"]["subtitle"])
    if "facet" in chart:
        yield f"panels, {chart['columns']} in a row: {'; '.join(chart['facet']['sort'])}"
    channels = [layer["encoding"] for layer in layers(chart)]
    for axis in "xy":
        titles = {str(each[axis]["title"]) for each in channels if "title" in each.get(axis, {})}
        yield f"{axis}: {', '.join(sorted(titles))}"
    for name in ("color", "shape"):
        scales = {str(each[name].get("scale")): each[name].get("scale") for each in channels if name in each}
        for scale in filter(None, scales.values()):
            pairs = (
                zip(scale["domain"], scale["range"], strict=True) if len(scale["range"]) == len(scale["domain"]) else ()
            )
            yield f"{name}: " + ", ".join(f"{series} {value}" for series, value in pairs)
    yield "marks: " + ", ".join(layer["mark"]["type"] for layer in layers(chart))
    yield f"{len(values(chart))} records"


def test_the_outline_of_all_charts_is_the_golden_page(results, testbed_results):
    workloads = [{"bucket": n * MIB, "scale": 16} for n in (80, 4, 25)] + [{"scale": 16}]
    of_steps = of_nodes(2, 4, workloads=workloads, ring=12, native=60, null=0)
    groups = [chart_groups(each, recommend(each))[0] for each in (results, testbed_results, of_steps)]
    charts = [
        figure.specification(group) for group in groups for figure in (STEP_FIGURES if group.of_steps else FIGURES)
    ]
    assert_golden("charts", "\n".join(line for chart in charts if chart for line in (*outline(chart), "")))


@pytest.mark.parametrize("name", [name for name in BY_NAME if not name.startswith(("pairs", "rails"))])
def test_a_chart_is_vega_lite_of_named_classes_and_can_be_rendered(valid, testbed_results, name, monkeypatch):
    """For a channel without its class Altair goes through all of its classes: half of the time of a chart."""
    (group,) = recommended_groups(testbed_results)
    searched = []
    monkeypatch.setattr(SchemaBase, "from_dict", lambda *about, **_: searched.append(about))
    chart = BY_NAME[name].specification(group)
    assert not searched
    svg = vl_convert.vegalite_to_svg(json.dumps(valid(chart), allow_nan=False))
    assert ("ring" in svg, "NaN" in svg) == (True, False)


def all_charts(results):
    (group,) = recommended_groups(results)
    return {name: chart for name, figure in BY_NAME.items() if (chart := figure.specification(group))}


def test_a_floor_has_times_and_a_barrier_none_against_size_and_what_is_no_result_is_not_drawn(
    results, of_rows, make_row
):
    drawn = all_charts(results)
    assert {name for name, chart in drawn.items() if any(v.get("line") == "floor" for v in values(chart))} == {"time"}
    none = {"collective": "barrier", "op": None, "algbw_Bps": None, "busbw_Bps": None}
    rows = [make_row(name, p, 8, **none) for name in ("dissemination", "native") for p in (2, 4)]
    drawn = all_charts(of_rows(*rows))
    assert (drawn.keys(), "8 B" in str(drawn)) == ({"choice", "scaling"}, False)
    for change in ({"status": "wrong", "wrong": 1}, {"status": "failed"}, {"status": "skipped"}):
        assert not all_charts(of_rows(*(make_row(ranks=p, **change) for p in (2, 4))))


@pytest.mark.parametrize(
    ("other", "field", "expected"),
    [({"machine": "another"}, "machine", ["machine 1", "machine 2"]), ({"created": "2026-02-01"}, "repeat", [0, 1])],
)
def test_lines_of_two_machines_and_repeated_measurements_are_not_joined(
    specification, make_row, make_run, other, field, expected
):
    runs = make_run(), make_run(run_id="run-2", **other)
    chart = specification("time", *(make_row(nbytes=n, run_id=run.run_id) for run in runs for n in (8, 64)), runs=runs)
    assert [v[field] for v in values(chart)] == [each for each in expected for _ in (8, 64)]
    assert all({"field": field, "type": "nominal"} in layer["encoding"]["detail"] for layer in layers(chart))


def test_the_map_shows_the_lead_ties_and_single_choices(specification, make_row):
    rows = (
        make_row(nbytes=8, seconds=1e-5), make_row("native", nbytes=8, seconds=1.5e-5),
        make_row(nbytes=64, seconds=1.01e-5), make_row("native", nbytes=64),
        make_row(nbytes=512),
    )  # fmt: skip
    cells = {v["size"]: (v["lead"], v["second"], v["clear"]) for v in values(specification("choice", *rows))}
    assert cells == {
        "8 B": ("1.50x", "native, 1.50 times as long", True), "64 B": ("tie", "native, 0.99 times as long", False),
        "512 B": ("alone", "none", False),
    }  # fmt: skip


def test_the_band_of_a_bandwidth_is_low_where_the_time_is_high_and_oversubscribed_points_are_hollow(
    specification, make_row
):
    rows = [make_row(ranks=p, ci_low_s=9e-6, ci_high_s=2e-5, busbw_Bps=1e8) for p in (2, 4)]
    for drawn in values(specification("busbw", *rows)):
        assert (drawn["low"], drawn["high"]) == (pytest.approx(5e7), pytest.approx(1e8 / 0.9))
        assert (drawn["fill"] == "#ffffff") is (drawn["ranks"] == 4)


def test_ranks_are_the_axis_where_nodes_hold_unlike_numbers_of_them(specification, make_node_row, make_bed_run):
    rows = make_node_row(), make_node_row(nodes=4, ranks=6, ranks_per_node=None)
    chart = specification("scaling", *rows, runs=(make_bed_run(),))
    assert "x: ranks" in outline(chart)
    times = specification("time", *rows, runs=(make_bed_run(),))
    assert times["facet"]["sort"] == ["2 ranks on 2 nodes, out of place", "6 ranks on 4 nodes, out of place"]
    assert times["columns"] == 2


def test_the_calibrated_wire_is_a_rule_where_it_holds_and_counted_bytes_are_drawn_with_the_measured_ones(
    testbed_results, specification, make_node_row, make_bed_run
):
    charts = all_charts(testbed_results)
    assert len(rules(charts["busbw"])) == 1
    wires = {v["size"]: v["wire"] for v in values(charts["busbw"])}
    assert wires == {"4 KiB": None, "64 KiB": None, "1 MiB": 12_400_000, "4 MiB": 12_400_000}
    assert not rules(specification("busbw", make_node_row(), runs=(make_bed_run(wire_Bps=11_900_000),)))
    drawn = {(v["series"], v["nodes"]): v for v in values(charts["wire"]) if v["size"] == "4 MiB"}
    assert drawn["ring", 8]["expected"] == pytest.approx(2 * 7 / 8)
    assert drawn["ring", 8]["value"] == pytest.approx(2 * 7 / 8 * 1.0111, rel=1e-4)
    assert drawn["recursive_doubling", 8]["expected"] == 3
    assert drawn["native", 8]["expected"] is None


def test_a_choice_for_both_placements_has_one_panel_and_others_have_their_own(specification, make_row):
    def panels(*shapes):
        rows = [
            make_row(name, ranks, in_place=in_place, seconds=seconds, oversubscribed=False)
            for ranks, of_native in shapes
            for in_place in (False, True)
            for name, seconds in (("ring", 1e-5), ("native", of_native[in_place]))
        ]
        return {(cell["panel"], cell["at"], cell["series"]) for cell in values(specification("choice", *rows))}

    both, own = (2e-5, 2e-5), (2e-5, 5e-6)
    assert panels((2, both)) == {("", 2, "ring")}
    assert panels((2, own)) == {("out of place", 2, "ring"), ("in place", 2, "native")}
    assert panels((2, both), (4, own)) == {
        ("out of place", 2, "ring"), ("in place", 2, "ring"), ("out of place", 4, "ring"), ("in place", 4, "native"),
    }  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [({}, {"dtype": "int32"}), ({}, {"op": "max"})])
def test_a_choice_that_only_another_group_measured_has_its_name_and_colour_in_the_map(
    make_row, of_rows, valid, first, second
):
    rows = [*(make_row(name, **first) for name in ("star", "native")), make_row("chain", seconds=1e-6, **second)]
    drawn = [valid(BY_NAME["choice"].specification(group)) for group in recommended_groups(of_rows(*rows))]
    assert [{cell["series"] for cell in values(chart)} for chart in drawn] == [{"chain"}, {"chain"}]


def test_a_series_with_one_placement_is_in_the_panels_of_both(specification, make_row):
    shape = {"collective": "broadcast", "op": None}
    rows = make_row(**shape), make_row(**shape, in_place=True), make_row("native", **shape, in_place=True)
    native = [d["panel"] for d in values(specification("time", *rows)) if d["series"] == "native"]
    assert native == ["2 ranks, out of place", "2 ranks, in place"]
    only = specification("time", make_row("pairwise", collective="all_to_all_v", op=None))
    assert only["facet"]["sort"] == ["2 ranks"]


_, SHARE, BUCKET = STEP_FIGURES


def points(chart, **wanted):
    return [d for d in values(chart) if wanted.items() <= d.items()]


def test_shares_against_nodes_are_of_exposed_and_of_all_communication_and_predictions_join_them(valid):
    measured = of_nodes(2, 4, ring=12, native=60, null=0)
    predicted = [
        replace(row, kind="simulated", nodes=8, ranks=8, run_id="p") for row in measured.rows if row.nodes == 4
    ]
    (group,) = chart_groups(replace(measured, rows=(*measured.rows, *predicted)))
    chart = valid(SHARE.specification(group))
    exposed, everything = chart["facet"]["sort"]
    shares = {
        (nodes, panel, line): d["value"]
        for nodes, panel, line in ((4, exposed, "measured"), (4, everything, "measured"), (8, exposed, "simulated"))
        for d in points(chart, nodes=nodes, panel=panel, line=line)
        if d["series"].startswith("ring")
    }
    assert list(shares.values()) == pytest.approx([4 / 34, 12 / 34, 4 / 34])
    assert not points(chart, series="null (floor)")


def test_steps_are_drawn_against_several_limits_of_buckets_and_several_numbers_of_nodes_only(valid):
    workloads = [{"bucket": n * MIB, "scale": 16} for n in (80, 4, 25)] + [{"scale": 16}]
    (one,), (two,) = (
        chart_groups(of_nodes(2, workloads=workloads, ring=12, null=0)),
        chart_groups(of_nodes(2, 4, ring=1)),
    )
    chart = valid(BUCKET.specification(one))
    assert sorted(d["bucket"] for d in points(chart, series="ring")) == [0, 1, 2, 3]
    assert '["default", "4 MiB", "25 MiB", "80 MiB"]' in str(layers(chart))
    assert (SHARE.specification(one), BUCKET.specification(two)) == (None, None)
