import json

import pytest
import vl_convert

from hpccoll.report.charts import FIGURES
from hpccoll.report.groups import groups

BY_NAME = {figure.name: figure for figure in FIGURES}


@pytest.fixture
def specification(of_rows):
    """The specification of a chart of the rows given."""

    def make(name, *rows, runs=None):
        (group,) = groups(of_rows(*rows, runs=runs))
        return BY_NAME[name].specification(group)

    return make


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


@pytest.mark.parametrize("name", BY_NAME)
def test_a_chart_says_what_was_measured_where_and_in_which_units(results, name):
    (group,) = groups(results)
    chart = BY_NAME[name].specification(group)
    heading = " ".join(chart["title"]["subtitle"])
    assert chart["title"]["text"].startswith("all_reduce: ")
    assert heading.startswith("measured on 2 cores of Intel Xeon Platinum 8481C on 1 node (alpha)")
    assert "oversubscribed, more ranks than cores (3, 4 ranks)" in heading
    units = {"size (B, KiB, MiB)", "ranks", "time per operation (us, ms)", "busbw (GB/s)", "parallel efficiency (%)"}
    assert len(axis_titles(chart)) == 2
    assert axis_titles(chart) <= units


@pytest.mark.parametrize("name", BY_NAME)
def test_a_chart_can_be_rendered(results, name):
    (group,) = groups(results)
    svg = vl_convert.vegalite_to_svg(json.dumps(BY_NAME[name].specification(group)))
    assert svg.count("ring") >= 1
    assert "NaN" not in svg


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("change", [{"status": "wrong", "wrong": 1}, {"status": "failed"}, {"status": "skipped"}])
def test_what_is_not_a_result_is_not_drawn(specification, make_row, name, change):
    assert specification(name, *(make_row(ranks=p, **change) for p in (2, 4))) is None


def test_the_floor_is_drawn_against_size_and_nowhere_else(results):
    (group,) = groups(results)
    drawn = {name for name, f in BY_NAME.items() if any(v["floor"] for v in values(f.specification(group)))}
    assert drawn == {"time"}


def test_a_series_has_one_colour_in_all_charts(results):
    (group,) = groups(results)
    pairs = set()
    for figure in FIGURES:
        layers = figure.specification(group).get("spec", figure.specification(group))["layer"]
        scales = [
            layer["encoding"]["color"]["scale"]
            for layer in layers
            if "domain" in (layer["encoding"]["color"].get("scale") or ())
        ]
        pairs |= {pair for scale in scales for pair in zip(scale["domain"], scale["range"], strict=True)}
    assert len(pairs) == len(group.colours)


def test_oversubscribed_points_are_hollow(specification, make_row):
    drawn = values(specification("time", make_row(), make_row(ranks=4)))
    assert {v["ranks"]: v["fill"] == "#ffffff" for v in drawn} == {2: False, 4: True}


def test_panels_are_ordered_by_placement_and_ranks(results):
    (group,) = groups(results)
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


def test_a_collective_without_bandwidth_has_no_chart_of_it(specification, make_row):
    rows = [make_row(collective="barrier", ranks=p, algbw_Bps=None, busbw_Bps=None) for p in (2, 4)]
    assert specification("busbw", *rows) is None
    assert specification("efficiency", *rows) is None
    assert specification("scaling", *rows) is not None


def test_the_map_says_who_is_ahead_who_ties_and_who_is_alone(specification, make_row):
    rows = (
        make_row(nbytes=8, seconds=1e-5), make_row("native", nbytes=8, seconds=1.5e-5),
        make_row(nbytes=64, seconds=1.01e-5), make_row("native", nbytes=64),
        make_row(nbytes=512),
    )  # fmt: skip
    cells = {v["size"]: (v["series"], v["lead"], v["second"]) for v in values(specification("fastest", *rows))}
    assert cells == {
        "8 B": ("ring", "1.50x", "native, 15 us, 1.50 times as long"),
        "64 B": ("native", "tie", "ring, 10.1 us, 1.01 times as long"),
        "512 B": ("ring", "alone", "none"),
    }


def test_charts_are_given_no_number_that_json_lacks(results):
    (group,) = groups(results)
    for figure in FIGURES:
        json.dumps(figure.specification(group), allow_nan=False)
