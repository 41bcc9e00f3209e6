"""Calls of libraries over what is expected of them: NCCL's own model, or the fastest schedule."""

from dataclasses import replace
from pathlib import Path

import pytest
from golden_page import assert_golden
from predicted_machines import MEASURED, NCCL, SEGMENT, cluster, fitted
from row_examples import make_row

from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import raw_results, read_output
from hpccoll.judge import library_expectations as library_expectations_module
from hpccoll.judge.library_expectations import library_expectations
from hpccoll.model.machine_file import read_machine
from hpccoll.model.nccl_model import nccl_estimates
from hpccoll.model.predict import Request, predict
from hpccoll.render.model_report import library_lines
from hpccoll.store.hdf5 import write_raw_file
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Results

H100_OUTPUT = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
H100 = read_machine("8xh100-400g", "cluster")
NODES_OF_TWO = cluster(
    layout={"ranks_per_node": 2},
    tiers=dict.fromkeys(("node", "rack"), SEGMENT),
    nccl=NCCL,
    name="pairs",
)
CLUSTER = cluster()


def native(size=1 << 20, **more):
    """Return a row of a call over MPI, or of another library, on two nodes."""
    return make_row(
        "native",
        nbytes=size,
        **{"transport": "mpi", "ranks": 2, "nodes": 2, "ranks_per_node": 1, "seconds": 1e-3} | more,
    )


def nccl(**more):
    return native(**{"transport": "nccl", "device": "cuda", "ranks": 4, "ranks_per_node": 2} | more)


def expected(machine, *rows):
    return [*library_expectations(Results(rows=rows, runs=(), planned=len(rows)), machine)]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The results of an imported output of nccl-tests on two nodes of 8 H100."""
    path = tmp_path_factory.mktemp("imported") / "nccl.h5"
    write_raw_file(
        raw_results({H100_OUTPUT: read_output(H100_OUTPUT, SuppliedMetadata())}, path), path
    )
    return read_results([path])


def test_each_imported_row_is_held_against_what_nccl_would_choose_by_its_own_model(imported):
    shown = []
    (found,) = library_expectations(imported, H100, lambda *counts: shown.append(counts))
    measured = {(row.bytes, row.in_place): row for row in imported.rows}
    rows = list(found.rows())
    assert {(row["bytes"], row["in_place"]) for row in rows} == measured.keys()
    for row in rows:
        estimates = nccl_estimates(H100.nccl, "all_reduce", 2, 8, row["bytes"])
        fastest = min(estimates, key=lambda each: each.seconds)
        theirs = measured[row["bytes"], row["in_place"]]
        chosen = f"nccl_{fastest.algorithm}", {"protocol": fastest.protocol}, fastest.seconds
        assert (row["algorithm"], row["params"], row["median_s"]) == chosen
        assert row["candidates"].keys() == {"nccl_ring", "nccl_tree"}
        assert row["ratio"] == pytest.approx(theirs.median_s / fastest.seconds)
        assert row["busbw_Bps"] == pytest.approx(row["bytes"] / fastest.seconds * 2 * 15 / 16)
        assert (row["measured_busbw_Bps"], row["kind"], row["measured_kind"]) == (
            theirs.busbw_Bps,
            "modelled",
            "imported",
        )
    assert shown == [(1, 1)]


def test_the_text_has_the_median_ratio_the_sizes_outside_and_a_line_for_each_size(imported):
    assert_golden("library_expectations", library_lines([*library_expectations(imported, H100)]))


def test_the_faster_placement_counts_and_sizes_outside_are_ranges_of_one_side():
    usual = predict(
        CLUSTER, Request(nodes=[2], sizes=[1 << 10, 1 << 14, 1 << 18, 1 << 22])
    ).predictions
    fastest = {
        each.nbytes: min(e.value_s for e in usual if e.nbytes == each.nbytes) for each in usual
    }
    factors = dict(zip(sorted(fastest), (2.0, 1.5, 0.5, 1.1), strict=True))
    rows = [
        native(size, in_place=in_place, seconds=fastest[size] * factor * (3 if in_place else 1))
        for size, factor in factors.items()
        for in_place in (False, True)
    ]
    (found,) = expected(CLUSTER, *rows)
    assert {size: call.ratio for size, call in found.by_size.items()} == pytest.approx(factors)
    assert found.ratio_median == pytest.approx(1.3)
    sizes = [[call.row.bytes for call in calls] for calls in found.outside]
    assert sizes == [[1 << 10, 1 << 14], [1 << 18]]


@pytest.mark.parametrize("kind", ["imported", "measured"])
def test_a_call_of_mpi_is_held_against_the_fastest_schedule_and_the_text_says_that_this_is_no_model(
    kind,
):
    (found,) = expected(CLUSTER, native(kind=kind))
    fastest = min(
        predict(CLUSTER, Request(nodes=[2], sizes=[1 << 20])).predictions,
        key=lambda each: each.value_s,
    )
    (row,) = found.rows()
    assert (row["algorithm"], row["kind"], row["median_s"]) == (
        fastest.algorithm,
        "simulated",
        fastest.value_s,
    )
    assert row["ci_low_s"] < row["median_s"] < row["ci_high_s"]
    text = " ".join(library_lines([found]))
    assert "fastest schedule would take" in text
    assert "has no model" in text


@pytest.mark.parametrize(
    ("collective", "dtype", "words"),
    [
        ("all_reduce", "int8", "one float32"),
        ("all_gather", "float64", "one float64 for each of 2 ranks"),
    ],
)
def test_a_size_without_elements_has_a_reason_with_the_type_of_the_prediction_in_rows_and_text(
    collective, dtype, words
):
    """Other programs move bytes, which are held against elements of ours."""
    about = {"collective": collective, "dtype": dtype}
    (found,) = expected(CLUSTER, native(2, **about, in_place=True), native(1 << 10, **about))
    small, large = found.rows()
    assert small["median_s"] is None
    assert words in small["reason"]
    assert (large["reason"], large["ratio"] > 0) == (None, True)
    assert [line for line in library_lines([found]) if small["reason"] in line and "2 B" in line]


def test_a_forced_algorithm_is_held_against_itself():
    (found,) = expected(NODES_OF_TWO, nccl(requested="tree"))
    assert [row["candidates"].keys() for row in found.rows()] == [{"nccl_tree"}]


def test_a_call_of_fewer_ranks_of_each_node_is_held_against_what_is_predicted_of_them():
    (row,) = expected(H100, nccl(ranks=8, ranks_per_node=4))[0].rows()
    of_half = predict(
        H100, Request([2], [1 << 20], ranks_per_node=4, algorithms=["nccl_ring", "nccl_tree"])
    )
    assert row["candidates"] == {each.algorithm: each.value_s for each in of_half.predictions}


def test_a_call_on_one_node_has_what_was_published_beside_the_reason():
    found = expected(H100, nccl(size=64 << 20, nodes=1, ranks=8, ranks_per_node=8))
    (row,) = found[0].rows()
    assert "two nodes and more" in row["reason"]
    assert {near["algorithm"] for near in row["published"]} == {"default (NVLS)"}
    assert "1 node, default (NVLS), busbw in GB/s: 64 MiB: 347 to 368" in " ".join(
        map(str.strip, library_lines(found))
    )


def test_a_ratio_is_outside_as_it_is_printed():
    usual = predict(CLUSTER, Request(nodes=[2], sizes=[1 << 20])).predictions
    fastest = min(each.value_s for each in usual)
    for factor, outside in ((0.796, 0), (0.794, 1), (1.254, 0), (1.256, 1)):
        (found,) = expected(CLUSTER, native(seconds=fastest * factor))
        assert len(found.outside) == outside, factor


NOTHING = {
    "one node": (NODES_OF_TWO, nccl(nodes=1, ranks=2), "two nodes and more"),
    "another collective": (
        NODES_OF_TWO,
        nccl(collective="broadcast", op=None),
        "all_reduce, reduce_scatter",
    ),
    "larger nodes": (
        NODES_OF_TWO,
        nccl(ranks=6, ranks_per_node=3),
        "3 ranks on each node, pairs has 2",
    ),
    "no section": (CLUSTER, nccl(), "no section nccl"),
    "an algorithm that it lacks": (NODES_OF_TWO, nccl(requested="nvls"), "no nvls of all_reduce"),
    "a tree of another collective": (
        NODES_OF_TWO,
        nccl(requested="tree", collective="all_gather", op=None),
        "no tree of all_gather",
    ),
    "MPI on a cluster of GPUs": (NODES_OF_TWO, native(), "nccl on cuda"),
    "RCCL": (NODES_OF_TWO, nccl(transport="rccl", device="rocm"), "rccl on rocm"),
    "unequal nodes": (CLUSTER, native(ranks=3, ranks_per_node=None), "different numbers of ranks"),
    "nodes that the cluster lacks": (
        CLUSTER,
        native(ranks=4, ranks_per_node=2),
        "2 ranks on each node, paper has 1",
    ),
    "pairs": (CLUSTER, native(collective="multi_pair", op=None), "pairs of ranks"),
    "one rank": (CLUSTER, native(ranks=1, nodes=1), "one rank"),
}


@pytest.mark.parametrize("why", NOTHING)
def test_a_call_without_expectation_has_a_reason_in_rows_and_text(why):
    machine, call, words = NOTHING[why]
    (found,) = expected(machine, call)
    (row,) = found.rows()
    assert row["median_s"] is row["ratio"] is row["basis"] is None
    assert words in row["reason"]
    assert row["reason"] in " ".join(line.strip() for line in library_lines([found, found]))
    assert len([line for line in library_lines([found, found]) if "not expected" in line]) == 1


def test_predictions_schedules_wrong_rows_and_those_under_load_are_no_calls_that_something_is_expected_of():
    rows = (
        make_row("ring"),
        native(kind="modelled"),
        native(wrong=1),
        native(status="failed", seconds=1.0),
    )
    rows += (native(load="gemm"),)
    assert expected(CLUSTER, *rows) == []


def test_a_fitted_machine_has_the_costs_of_the_transport_that_was_measured():
    machine = fitted(measured={**MEASURED, "transport": "nccl on cuda"})
    (found,) = expected(machine, native())
    assert "nccl on cuda" in found.reason
    (found,) = expected(fitted(), native())
    assert not found.reason


def test_an_interrupt_leaves_no_fastest_of_the_schedules_that_were_simulated(monkeypatch):
    def interrupted(*arguments):
        return replace(predict(*arguments), interrupted=True)

    monkeypatch.setattr(library_expectations_module, "predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        expected(CLUSTER, native())
