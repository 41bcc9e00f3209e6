import json
from dataclasses import replace

import pytest
import vl_convert
from altair.utils.schemapi import SchemaBase

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.charts import FIGURES

BY_NAME = {figure.name: figure for figure in FIGURES}


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


OF_ALL_RANKS = [name for name in BY_NAME if not name.startswith(("pairs", "rails"))]
ON_ONE_MACHINE = [name for name in OF_ALL_RANKS if name != "wire"]
EVERY_CHART = [*((name, "results") for name in ON_ONE_MACHINE), *((name, "testbed_results") for name in OF_ALL_RANKS)]


@pytest.fixture
def sweep(request, where):
    """Results of a sweep: on one machine, or on a testbed."""
    return request.getfixturevalue(where)


def values(specification):
    (dataset,) = specification["datasets"].values()
    return dataset


def axis_titles(specification):
    panel = specification.get("spec", specification)
    return {
        layer["encoding"][axis]["title"]
        for layer in panel["layer"]
        for axis in "xy"
        if "title" in layer["encoding"][axis]
    }


@pytest.mark.parametrize("name", ON_ONE_MACHINE)
def test_a_chart_has_its_setting_machine_and_units(results, name):
    (group,) = recommended_groups(results)
    chart = BY_NAME[name].specification(group)
    heading = " ".join(chart["title"]["subtitle"])
    assert chart["title"]["text"].startswith("all_reduce: ")
    assert heading.startswith("measured on 2 cores of Intel Xeon Platinum 8481C on 1 node (alpha)")
    assert "oversubscribed, more ranks than cores (3, 4 ranks)" in heading
    units = {
        "size (B, KiB, MiB)", "size", "ranks", "time per operation (us, ms, s)", "busbw (GB/s)",
        "parallel efficiency (%)", "speed-up over native",
    }  # fmt: skip
    assert len(axis_titles(chart)) == 2
    assert axis_titles(chart) <= units


@pytest.mark.parametrize(("name", "where"), EVERY_CHART)
def test_a_chart_is_vega_lite_and_can_be_rendered(valid, sweep, name):
    (group,) = recommended_groups(sweep)
    svg = vl_convert.vegalite_to_svg(json.dumps(valid(BY_NAME[name].specification(group))))
    assert svg.count("ring") >= 1
    assert "NaN" not in svg


@pytest.mark.parametrize(("name", "where"), EVERY_CHART)
def test_a_chart_names_the_classes_of_its_channels(sweep, name, monkeypatch):
    """For a channel without one Altair goes through all of its classes: half of the time of a chart."""
    searched = []
    monkeypatch.setattr(SchemaBase, "from_dict", lambda *about, **_: searched.append(about))
    (group,) = recommended_groups(sweep)
    BY_NAME[name].specification(group)
    assert not searched


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("change", [{"status": "wrong", "wrong": 1}, {"status": "failed"}, {"status": "skipped"}])
def test_what_is_not_a_result_is_not_drawn(specification, make_row, name, change):
    assert specification(name, *(make_row(ranks=p, **change) for p in (2, 4))) is None


def test_the_floor_is_drawn_against_size_and_nowhere_else(results):
    (group,) = recommended_groups(results)
    drawn = {
        name
        for name, figure in BY_NAME.items()
        if (chart := figure.specification(group)) and any(v.get("line") == "floor" for v in values(chart))
    }
    assert drawn == {"time"}


def test_a_series_has_one_colour_in_all_charts(results):
    (group,) = recommended_groups(results)
    pairs = set()
    for chart in filter(None, (figure.specification(group) for figure in FIGURES)):
        layers = chart.get("spec", chart)["layer"]
        scales = [
            layer["encoding"]["color"]["scale"]
            for layer in layers
            if "domain" in (layer["encoding"]["color"].get("scale") or ())
        ]
        pairs |= {pair for scale in scales for pair in zip(scale["domain"], scale["range"], strict=True)}
    assert len(pairs) == len(group.legend)


def test_oversubscribed_points_are_hollow(specification, make_row):
    drawn = values(specification("time", make_row(), make_row(ranks=4)))
    assert {v["ranks"]: v["fill"] == "#ffffff" for v in drawn} == {2: False, 4: True}


def test_panels_are_ordered_by_placement_and_ranks(results):
    (group,) = recommended_groups(results)
    chart = BY_NAME["time"].specification(group)
    out = ["2 ranks, out of place", "3 ranks, out of place", "4 ranks, out of place"]
    assert chart["facet"]["sort"] == [*out, *(title.replace("out of", "in") for title in out)]
    assert chart["columns"] == 3


def test_lines_of_two_machines_are_not_joined(specification, make_row, make_run):
    runs = make_run(), make_run(run_id="run-2", machine="another machine")
    chart = specification("time", make_row(nbytes=8), make_row(nbytes=64, run_id="run-2"), runs=runs)
    assert {v["machine"] for v in values(chart)} == {"machine 1", "machine 2"}
    assert all(
        {"field": "machine", "type": "nominal"} in layer["encoding"]["detail"] for layer in chart["spec"]["layer"]
    )
    assert "machine 2: another machine" in " ".join(chart["title"]["subtitle"])


def test_a_repeated_measurement_is_a_line_of_its_own(specification, make_row, make_run):
    runs = make_run(), make_run(run_id="run-2", created="2026-02-01")
    rows = [make_row(nbytes=n, run_id=run.run_id) for run in runs for n in (8, 64)]
    drawn = {(v["bytes"], v["run"]): v["repeat"] for v in values(specification("time", *rows, runs=runs))}
    assert drawn == {(8, "run-1"): 0, (64, "run-1"): 0, (8, "run-2"): 1, (64, "run-2"): 1}


def test_the_band_of_a_bandwidth_is_low_where_the_time_is_high(specification, make_row):
    (drawn,) = values(specification("busbw", make_row(ci_low_s=9e-6, ci_high_s=2e-5, busbw_Bps=1e8)))
    assert (drawn["low"], drawn["high"]) == (pytest.approx(5e7), pytest.approx(1e8 / 0.9))


def test_scaling_needs_two_rank_counts(specification, make_row):
    assert specification("scaling", make_row(), make_row("native")) is None
    assert specification("scaling", make_row(), make_row(ranks=4)) is not None


def test_auto_is_drawn_over_size_only(make_node_row, make_bed_run, of_rows):
    rows = [make_node_row(name, nodes) for nodes in (2, 4) for name in ("ring", "native")]
    rows += [replace(row, algorithm="auto", median_s=row.median_s / 2) for row in rows[::2]]
    (group,) = recommended_groups(of_rows(*rows, runs=(make_bed_run(),)))
    drawn = {name: BY_NAME[name].specification(group) for name in OF_ALL_RANKS}
    with_auto = {name for name, chart in drawn.items() if "auto" in {v["series"] for v in values(chart)}}
    assert with_auto == {"time", "busbw"}


def test_a_collective_without_bandwidth_has_no_chart_of_it(specification, make_row):
    rows = [make_row(collective="barrier", ranks=p, algbw_Bps=None, busbw_Bps=None) for p in (2, 4)]
    assert specification("busbw", *rows) is None
    assert specification("efficiency", *rows) is None
    assert specification("scaling", *rows) is not None


def test_the_map_shows_the_lead_ties_and_single_choices(specification, make_row):
    rows = (
        make_row(nbytes=8, seconds=1e-5), make_row("native", nbytes=8, seconds=1.5e-5),
        make_row(nbytes=64, seconds=1.01e-5), make_row("native", nbytes=64),
        make_row(nbytes=512),
    )  # fmt: skip
    cells = {v["size"]: (v["series"], v["lead"], v["second"]) for v in values(specification("choice", *rows))}
    assert cells == {
        "8 B": ("ring", "1.50x", "native, 1.50 times as long"),
        "64 B": ("ring", "tie", "native, 0.99 times as long"),
        "512 B": ("ring", "alone", "none"),
    }


@pytest.mark.parametrize(("name", "where"), EVERY_CHART)
def test_charts_have_no_number_that_json_cannot_write(sweep, name):
    (group,) = recommended_groups(sweep)
    json.dumps(BY_NAME[name].specification(group), allow_nan=False)


@pytest.mark.parametrize("name", OF_ALL_RANKS)
def test_a_chart_of_a_testbed_has_its_kind_and_rate(testbed_results, name):
    (group,) = recommended_groups(testbed_results)
    subtitle = BY_NAME[name].specification(group)["title"]["subtitle"]
    assert subtitle[0] == "measured on a testbed, 100 Mbit/s on cluster bed, 2 CPUs of AMD EPYC a node"


def test_the_map_of_choices_and_the_speedups_come_first():
    assert [figure.name for figure in FIGURES[:2]] == ["choice", "speedup"]


@pytest.mark.parametrize(("name", "title"), [("scaling", "time against nodes"), ("choice", "by nodes and size")])
def test_charts_of_nodes_have_the_ranks_of_each_node(testbed_results, name, title):
    (group,) = recommended_groups(testbed_results)
    chart = BY_NAME[name].specification(group)
    assert title in chart["title"]["text"]
    assert "nodes (1 rank each)" in axis_titles(chart)
    assert "ranks" not in axis_titles(chart)


def test_a_line_of_nested_launches_is_joined_over_nodes(testbed_results):
    (group,) = recommended_groups(testbed_results)
    drawn = [
        v for v in values(BY_NAME["scaling"].specification(group)) if (v["series"], v["size"]) == ("ring", "4 MiB")
    ]
    assert [(v["nodes"], v["repeat"], v["machine"]) for v in drawn] == [(n, 0, "machine 1") for n in (2, 4, 8)]


def test_panels_of_nodes_are_named_by_nodes(testbed_results):
    (group,) = recommended_groups(testbed_results)
    panels = BY_NAME["time"].specification(group)["facet"]["sort"]
    assert panels == ["2 nodes, out of place", "4 nodes, out of place", "8 nodes, out of place"]


def test_ranks_are_the_axis_where_nodes_hold_unlike_numbers_of_them(specification, make_node_row, make_bed_run):
    rows = make_node_row(), make_node_row(nodes=4, ranks=6, ranks_per_node=None)
    chart = specification("scaling", *rows, runs=(make_bed_run(),))
    assert "ranks" in axis_titles(chart)
    panels = specification("time", *rows, runs=(make_bed_run(),))["facet"]["sort"]
    assert panels == ["2 ranks on 2 nodes, out of place", "6 ranks on 4 nodes, out of place"]


def test_slow_bandwidths_are_labelled_in_megabytes(testbed_results):
    (group,) = recommended_groups(testbed_results)
    assert "busbw (MB/s)" in axis_titles(BY_NAME["busbw"].specification(group))


def rules(chart):
    return [layer for layer in chart["spec"]["layer"] if layer["mark"]["type"] == "rule"]


def test_the_calibrated_wire_is_a_rule_where_it_holds(testbed_results):
    (group,) = recommended_groups(testbed_results)
    chart = BY_NAME["busbw"].specification(group)
    assert len(rules(chart)) == 1
    wires = {v["size"]: v["wire"] for v in values(chart)}
    assert wires == {"4 KiB": None, "64 KiB": None, "1 MiB": 12_400_000, "4 MiB": 12_400_000}


def test_there_is_no_rule_without_a_calibrated_wire(results, specification, make_node_row, make_bed_run):
    (group,) = recommended_groups(results)
    assert not rules(BY_NAME["busbw"].specification(group))
    assert not rules(specification("busbw", make_node_row(), runs=(make_bed_run(wire_Bps=11_900_000),)))


def test_measured_bytes_on_the_wire_are_drawn_with_the_counted_ones(testbed_results):
    (group,) = recommended_groups(testbed_results)
    drawn = {(v["series"], v["nodes"]): v for v in values(BY_NAME["wire"].specification(group)) if v["size"] == "4 MiB"}
    assert drawn["ring", 8]["expected"] == pytest.approx(2 * 7 / 8)
    assert drawn["ring", 8]["value"] == pytest.approx(2 * 7 / 8 * 1.0111, rel=1e-4)
    assert drawn["recursive_doubling", 8]["expected"] == 3
    assert drawn["native", 8]["expected"] is None


def test_one_node_has_no_chart_of_the_wire(results):
    (group,) = recommended_groups(results)
    assert BY_NAME["wire"].specification(group) is None


def test_a_chart_names_the_launches_on_different_hosts_that_it_joins(specification, make_node_row, make_bed_run):
    rows = make_node_row(run_id="a", job="small"), make_node_row(nodes=4, run_id="b", job="large")
    small = make_bed_run("a", job="small", hosts=["n7", "n8"])
    separate = specification("scaling", *rows, runs=(small, make_bed_run("b", 4, job="large")))
    assert "launches on different hosts are joined: job small on n[7-8]; job large on n[1-4]" in " ".join(
        separate["title"]["subtitle"]
    )
    within = make_bed_run("a", job="small", hosts=["n2", "n4"])
    nested = specification("scaling", *rows, runs=(within, make_bed_run("b", 4, job="large")))
    assert "hosts" not in " ".join(nested["title"]["subtitle"])


def test_each_variant_has_its_own_map(specification, make_row, make_run):
    runs = [make_run(run_id=variant) for variant in ("funneled", "multiple")]
    rows = [
        make_row(algorithm, variant=run.run_id, run_id=run.run_id, seconds=seconds)
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
    ]
    chart = specification("choice", *rows, runs=runs)
    assert chart["facet"]["sort"] == ["variant funneled, out of place", "variant multiple, out of place"]
    assert {(v["panel"], v["series"]) for v in values(chart)} == {
        ("variant funneled, out of place", "ring funneled"),
        ("variant multiple, out of place", "ring multiple"),
    }


def test_each_executor_has_its_own_map_and_a_line_explains_the_mark(specification, make_row, make_run):
    runs = [make_run(run_id=executor) for executor in ("compiled", "python")]
    rows = [
        make_row(algorithm, executor=run.run_id, run_id=run.run_id, seconds=seconds)
        for run in runs
        for algorithm, seconds in (("ring", 1e-5), ("native", 2e-5))
    ]
    chart = specification("choice", *rows, runs=runs)
    assert chart["facet"]["sort"] == ["compiled executor, out of place", "python executor, out of place"]
    assert {(v["panel"], v["series"]) for v in values(chart)} == {
        ("compiled executor, out of place", "ring"), ("python executor, out of place", "ring (python)"),
    }  # fmt: skip
    assert any(line.startswith("(python): ") for line in chart["title"]["subtitle"])
    alone = specification("choice", *rows[2:], runs=runs)
    assert not any("executor" in line for line in alone["title"]["subtitle"])
    assert {v["panel"] for v in values(alone)} == {"out of place"}


def map_panels(chart):
    """Return the series of each panel of a map, by size."""
    panels = {}
    for cell in values(chart):
        panels.setdefault(cell["panel"], {})[cell["size"]] = cell["series"]
    return panels


def test_a_choice_for_both_placements_has_one_panel_and_others_have_their_own(specification, make_row):
    def rows(ranks, of_native):
        return [
            make_row(name, ranks, in_place=in_place, seconds=seconds, oversubscribed=False)
            for in_place in (False, True)
            for name, seconds in (("ring", 1e-5), ("native", of_native[in_place]))
        ]

    assert map_panels(specification("choice", *rows(2, (2e-5, 2e-5)))) == {"": {"1 KiB": "ring"}}
    assert map_panels(specification("choice", *rows(2, (2e-5, 5e-6)))) == {
        "out of place": {"1 KiB": "ring"}, "in place": {"1 KiB": "native"},
    }  # fmt: skip
    cells = values(specification("choice", *rows(2, (2e-5, 2e-5)), *rows(4, (2e-5, 5e-6))))
    assert {(cell["panel"], cell["at"], cell["series"]) for cell in cells} == {
        ("out of place", 2, "ring"), ("in place", 2, "ring"), ("out of place", 4, "ring"), ("in place", 4, "native"),
    }  # fmt: skip


def test_a_choice_that_is_slower_at_one_size_is_pale_there_with_its_factor(specification, make_row):
    sizes = [8 << 2 * i for i in range(6)]
    rows = [make_row(nbytes=size, half_interval=0.001, seconds=1e-5) for size in sizes]
    rows += [
        make_row("tree", nbytes=size, half_interval=0.001, seconds=0.98e-5 if size == 128 else 2e-5) for size in sizes
    ]
    cells = {cell["size"]: cell for cell in values(specification("choice", *rows))}
    assert {cell["series"] for cell in cells.values()} == {"ring"}
    assert [size for size, cell in cells.items() if not cell["clear"]] == ["128 B"]
    assert cells["128 B"]["lead"] == "0.98x"


@pytest.mark.parametrize("differing", ["dtype", "op", "root"])
def test_a_choice_that_only_another_group_measured_has_its_name_and_colour_in_the_map(
    make_row, of_rows, valid, differing
):
    first, second = {"dtype": ("float32", "int32"), "op": ("sum", "max"), "root": (0, 1)}[differing]
    shape = {"collective": "broadcast", "op": None} if differing == "root" else {}
    rows = [make_row(name, **(shape | {differing: first})) for name in ("star", "native")]
    rows += [make_row("chain", seconds=1e-6, **(shape | {differing: second}))]
    drawn = [valid(BY_NAME["choice"].specification(group)) for group in recommended_groups(of_rows(*rows))]
    assert [{cell["series"] for cell in values(chart)} for chart in drawn] == [{"chain"}, {"chain"}]


def test_a_group_has_no_recommendation_of_another_kind_of_result(make_row, make_run, of_rows):
    runs = make_run(), make_run(run_id="bed", kind="measured on a testbed", machine="a testbed")
    rows = [
        make_row(name, run_id=run.run_id, kind=run.kind, seconds=seconds)
        for run, times in zip(runs, ((1e-5, 2e-5), (2e-5, 1e-5)), strict=True)
        for name, seconds in zip(("ring", "native"), times, strict=True)
    ]
    groups = recommended_groups(of_rows(*rows, runs=runs))
    drawn = {group.kind: {v["series"] for v in values(BY_NAME["choice"].specification(group))} for group in groups}
    assert drawn == {"measured": {"ring"}, "measured on a testbed": {"native"}}


def test_rows_of_an_unknown_run_are_drawn_and_compared(specification, make_row):
    rows = make_row(), make_row("native", seconds=2e-5)
    assert [cell["series"] for cell in values(specification("choice", *rows, runs=()))] == ["ring"]
    assert [v["speedup"] for v in values(specification("speedup", *rows, runs=()))] == ["2.00"]


def test_the_speedup_has_a_rule_at_native(results):
    (group,) = recommended_groups(results)
    chart = BY_NAME["speedup"].specification(group)
    assert [layer["encoding"]["y"]["datum"] for layer in rules(chart)] == [1]
    assert {v["series"] for v in values(chart)} == {"ring", "recursive_doubling"}


def test_a_series_with_one_placement_is_in_the_panels_of_both(specification, make_row):
    shape = {"collective": "broadcast", "op": None}
    rows = make_row(**shape), make_row(**shape, in_place=True), make_row("native", **shape, in_place=True)
    native = [d["panel"] for d in values(specification("time", *rows)) if d["series"] == "native"]
    assert native == ["2 ranks, out of place", "2 ranks, in place"]
    only = specification("time", make_row("pairwise", collective="all_to_all_v", op=None))
    assert only["facet"]["sort"] == ["2 ranks"]


def test_many_lines_have_a_legend_that_fits_and_a_second_cue(specification, make_row):
    rows = [make_row(f"algorithm_number_{i}", nbytes=n) for i in range(11) for n in (8, 64)]
    chart = specification("time", *rows)
    assert chart["config"]["legend"]["columns"] * chart["usermeta"]["label"] <= 780
    shapes = [layer["encoding"]["shape"] for layer in chart["spec"]["layer"] if "shape" in layer["encoding"]]
    assert [len(set(shape["scale"]["range"])) for shape in shapes] == [8]


def test_a_barrier_has_a_time_over_ranks_and_nothing_over_sizes(make_row, of_rows):
    none = {"collective": "barrier", "op": None, "algbw_Bps": None, "busbw_Bps": None}
    rows = [
        make_row(name, p, 8, seconds=s, **none) for name, s in (("dissemination", 1), ("native", 2)) for p in (2, 4)
    ]
    (group,) = recommended_groups(of_rows(*rows))
    drawn = {name: chart for name, figure in BY_NAME.items() if (chart := figure.specification(group))}
    assert drawn.keys() == {"choice", "scaling"}
    assert "8 B" not in str(drawn)
    assert {(v["at"], v["series"], v["lead"]) for v in values(drawn["choice"])} == {
        (2, "dissemination", "2.00x"), (4, "dissemination", "2.00x"),
    }  # fmt: skip
