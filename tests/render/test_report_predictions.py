"""Predictions next to measured rows: drawn dashed in the same charts, and part of nothing else."""

import csv
import os
from pathlib import Path

import pytest
import raw_examples
from chart_outline import outline, point_lines, values
from golden_page import assert_golden
from predicted_machines import MEASURED, NCCL, cluster, fitted, in_racks

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.group_findings import group_findings
from hpccoll.analysis.recommendations import recommend
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import raw_results as imported_results
from hpccoll.interop.import_results import read_output
from hpccoll.model.machine_file import read_machine
from hpccoll.model.predict import Request, predict
from hpccoll.model.prediction_file import raw_predictions
from hpccoll.render.chart_base import DASHES
from hpccoll.render.charts import FIGURES
from hpccoll.render.report_writer import build_report
from hpccoll.store.hdf5 import write_raw_file
from hpccoll.store.load_results import read_results

BY_NAME = {figure.name: figure for figure in FIGURES}
DRAWN = ("time", "busbw", "scaling")
SIZES = (1 << 12, 1 << 16)
ERRORS = {"cases": 9, "error_median": 0.07, "error_p90": 0.2}
MACHINE = "2 nodes"
"""The machine of the measured rows."""


def measure(path, **about):
    """Write measured rows of ring and native on two nodes, one rank each; return their path."""
    cases = [
        raw_examples.case(size, algorithm=name, op="sum", in_place=in_place)
        for size in SIZES
        for name in ("ring", "native")
        for in_place in (False, True)
    ]
    raw = raw_examples.raw(*(raw_examples.outcome(of, times=raw_examples.times(8)) for of in cases))
    attempt = raw_examples.attempt(**{"machine": MACHINE, **about})
    raw.attempts = [(attempt, raw.attempts[0][1])]
    write_raw_file(raw, path)
    return path


def foresee(path, machine=None, nodes=(2, 4, 8), algorithms=("ring", "rabenseifner"), **more):
    """Write predictions; return their path."""
    request = Request(nodes=nodes, sizes=SIZES, algorithms=algorithms, **more)
    machine = machine or fitted(measured={**MEASURED, "machine": MACHINE}, validation=ERRORS)
    write_raw_file(raw_predictions(predict(machine, request), path), path)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """The files of measured rows and of predictions for the same setting."""
    directory = tmp_path_factory.mktemp("files")
    return measure(directory / "measured.h5"), foresee(directory / "predicted.h5")


@pytest.fixture(scope="module")
def both(paths):
    return read_results(paths)


@pytest.fixture(scope="module")
def measured(paths):
    return read_results(paths[:1])


def test_predictions_are_series_of_their_own_next_to_measured_ones(both, valid):
    """They have the colours of what they predict, go on where nothing was measured, and are in all panels."""
    (group,) = chart_groups(both, recommend(both))
    charts = [valid(BY_NAME[name].specification(group)) for name in DRAWN]
    assert_golden(
        "predicted_charts",
        (line for chart in charts for line in (*outline(chart), *point_lines(chart))),
    )


def test_predictions_change_nothing_else(both, measured):
    (group,), (alone,) = (
        chart_groups(both, recommend(both)),
        chart_groups(measured, recommend(measured)),
    )
    assert group.points == alone.points
    assert group.setting == alone.setting
    assert recommend(both) == recommend(measured)
    assert group_findings(group) == group_findings(alone)
    for figure in FIGURES:
        if figure.name not in DRAWN and (specification := figure.specification(alone)):
            assert values(figure.specification(group)) == values(specification)


def test_predictions_alone_have_charts_and_no_answer(paths, tmp_path):
    results = read_results(paths[1:])
    (group,) = chart_groups(results)
    assert not group.points
    assert {name for name, figure in BY_NAME.items() if figure.specification(group)} == set(DRAWN)
    page = build_report(results, tmp_path / "report", "predicted").read_text()
    assert "Nothing was measured" in page
    assert "No usable result" not in page


def test_predictions_join_the_rows_of_their_machine_and_setting_and_other_kinds_are_series_of_their_own(
    tmp_path,
):
    own = measure(tmp_path / "own.h5")
    other = measure(
        tmp_path / "other.h5", machine="others", run_id="run-2", kind="measured on a testbed"
    )
    idle = raw_examples.raw(raw_examples.outcome(times=raw_examples.times(8, ranks=3, workers=2)))
    idle.attempts = [(raw_examples.attempt(ranks=3, aggregators=1, nodes=2), idle.attempts[0][1])]
    write_raw_file(idle, tmp_path / "idle.h5")
    in_pairs, predicted = (
        in_racks(layout={"ranks_per_node": 2}),
        [foresee(tmp_path / "predicted.h5")],
    )
    with_switches = cluster(aggregators={"kind": "switches"})
    scenarios = {
        "two machines, of which one was fitted": [other, own, *predicted],
        "aggregators are idle": [tmp_path / "idle.h5", *predicted],
        "another element type": [
            own,
            foresee(tmp_path / "b.h5", in_pairs, dtype="float64", ranks_per_node=1),
        ],
        "more ranks on a node": [own, foresee(tmp_path / "c.h5", in_pairs, ranks_per_node=2)],
        "NCCL's own model": [foresee(tmp_path / "d.h5", cluster(nccl=NCCL), algorithms=("ring",))],
        "assumed switches": [
            foresee(tmp_path / "e.h5", with_switches, algorithms=("sharp_emulated",))
        ],
    }
    lines = []
    for title, files in scenarios.items():
        lines.append(f"# {title}")
        for group in chart_groups(read_results(files)):
            series = sorted({point.series for point in group.drawn if point.row.predicted})
            lines.append(
                f"{', '.join(group.machines)}: {len(group.points)} points, {', '.join(series)}"
            )
    assert_golden("prediction_groups", lines)


def test_an_output_of_nccl_tests_and_the_model_of_its_cluster_are_one_picture_measured_solid_predicted_not(
    tmp_path,
):
    """Of two nodes of 8 H100, in the charts of time and of bus bandwidth, and in no answer."""
    output = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
    imported, predicted = tmp_path / "imported.h5", tmp_path / "predicted.h5"
    write_raw_file(
        imported_results({output: read_output(output, SuppliedMetadata())}, imported), imported
    )
    request = Request(
        nodes=[2], sizes=[1 << 10, 1 << 20, 1 << 30], algorithms=("nccl_ring", "nccl_tree")
    )
    write_raw_file(
        raw_predictions(predict(read_machine("8xh100-400g", "cluster"), request), predicted),
        predicted,
    )
    results = read_results([imported, predicted])
    (group,) = chart_groups(results, recommend(results))
    assert recommend(results) == ()
    for name in ("time", "busbw"):
        chart = BY_NAME[name].specification(group)
        drawn = {each["series"]: (each["line"], DASHES[each["line"]]) for each in values(chart)}
        assert drawn == {
            "nccl-tests native (aggregated)": ("measured", [1, 0]),
            "nccl_ring (modelled)": ("modelled", DASHES["modelled"]),
            "nccl_tree (modelled)": ("modelled", DASHES["modelled"]),
        }
        assert [*drawn] == [series for series in group.legend if series in drawn]
    page = build_report(results, tmp_path / "report", "both").read_text()
    assert "all_reduce on 16 ranks of 2 nodes, imported" in page
    assert DASHES["modelled"] != DASHES["measured"]
    assert "dotted: predicted, not measured" in page


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of published data"
)
def test_the_figures_of_that_output_are_published_ones():
    published = Path(os.environ["HPCCOLL_DATA"]) / "published" / "nccl-tests.csv"
    output = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
    with published.open() as file:
        figures = {
            (int(row["bytes"]), row["in_place"] == "yes"): float(row["time_us"])
            for row in csv.DictReader(file)
            if row["machine"].startswith("AWS p5.48xlarge")
            and row["nodes"] == "2"
            and not row["nccl_version"]
            if row["source"].endswith("micro-benchmarks/nccl-tests/README.md")
        }
    ours = read_output(output, SuppliedMetadata()).results
    assert {
        (each.case.bytes, each.case.in_place): each.seconds * 1e6 for each in ours
    } == pytest.approx(figures)
