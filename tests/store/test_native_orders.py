"""Native rows get the order that was revealed of the same call, and no other one."""

from dataclasses import replace

import pytest
import raw_examples
from cli_runner import invoke
from compared_runs import run as run_of_results
from revealed_examples import order_of_sizes, ranges_of_chains, revealed
from row_examples import make_row

from hpccoll.order.order_file import ProbedSize
from hpccoll.store import hdf5
from hpccoll.store.load_results import NO_ROW_OF_ORDERS, read_results
from hpccoll.store.native_orders import NativeOrders
from hpccoll.store.raw_results import RawResults
from hpccoll.store.row_orders import with_orders

RANGES = [order_of_sizes([4, 8, 64])]
PROVENANCE = {
    "mpi": {"version": "MPICH 5.0.2", "threads": "funneled"},
    "variables": {"SLURM_JOB_ID": "7", "NCCL_DEBUG": "INFO"},
    "hosts": ["node1"],
}


def order_of(row, *files, **changes):
    """Return the order that a row of a run gets from files."""
    run = replace(RUN, **changes)
    (ordered,) = with_orders([row], NativeOrders(files or [revealed(RANGES)], [run]))
    return ordered.order


RUN = run_of_results(PROVENANCE)


def native(nbytes=8, **changes):
    values = {"transport": "mpi", **changes}
    return make_row("native", 3, nbytes, **values)


def test_a_native_row_has_the_digest_of_its_size_and_no_other_row_has():
    assert order_of(native(8)) == f"{8:016x}"
    assert order_of(native(64, in_place=True)) == f"{64:016x}"
    assert order_of(native(32)) is None  # between two probed sizes
    assert order_of(native(1 << 20)) is None
    assert order_of(make_row("null", 3, 8)) is None
    (row,) = with_orders([native()], NativeOrders([revealed(RANGES)], [RUN]))
    assert row.ranks_agree


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 4},
        {"nodes": 3},
        {"collective": "reduce_scatter"},
        {"dtype": "float64"},
        {"op": "avg"},
        {"transport": "nccl"},
        {"device": "cuda"},
        {"aggregators": 1},
        {"kind": "modelled"},
        {"run_id": "run-2"},
    ],
)
def test_a_row_of_another_call_or_place_has_none(changes):
    assert order_of(replace(native(), **changes)) is None


@pytest.mark.parametrize(
    "provenance",
    [
        {"mpi": {"version": "MPICH 5.0.1", "threads": "funneled"}},
        {"mpi": {"version": "MPICH 5.0.2", "threads": "multiple"}},
        {"variables": {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring"}},
        {"mpi": None},
    ],
)
def test_a_run_of_another_library_or_setting_has_none(provenance):
    assert order_of(native(), provenance=PROVENANCE | provenance) is None
    assert order_of(native(), variant="mpich-ring") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"kinds": ("tree", "varying")},
        {"kinds": ("fused",)},
        {"ranks_agree": False},
        {"repeats": False},
        {"history": ranges_of_chains()[0].history},
    ],
)
def test_an_order_that_is_not_one_tree_in_all_calls_is_given_to_no_row(changes):
    file = revealed([order_of_sizes([8], **changes)])
    assert order_of(native(), file) is None


def test_in_place_has_none_where_it_adds_otherwise():
    file = revealed([order_of_sizes([8], in_place_agrees=False)])
    assert order_of(native(), file) == f"{8:016x}"
    assert order_of(native(in_place=True), file) is None


def test_on_several_nodes_the_mapping_must_be_that_of_the_file():
    placed = {"ranks": 4, "nodes": 2, "ranks_per_node": 2}
    file = revealed(RANGES, ranks=4, nodes=2, ranks_per_node=(2, 2), mapping="cyclic")
    assert order_of(replace(native(), **placed, mapping="cyclic"), file)
    assert order_of(replace(native(), **placed, mapping="block"), file) is None
    mixed = replace(file, mapping="mixed")
    assert order_of(replace(native(), **placed, mapping="mixed"), mixed) is None


def test_files_that_contradict_each_other_give_none():
    (sizes,) = RANGES
    digests = tuple(replace(size, digest="f" * 16) for size in sizes.sizes)
    contradiction = revealed([replace(sizes, sizes=digests)])
    elsewhere = revealed([order_of_sizes([1 << 20])])
    assert order_of(native(), revealed(RANGES), elsewhere)
    assert order_of(native(), revealed(RANGES), contradiction) is None


TWO_NODES = {"ranks": 2, "nodes": 2, "ranks_per_node": (1, 1)}


def write_native_run(path):
    """Write a run of native and ring on two nodes, and return its file."""
    cases = [raw_examples.case(64, algorithm=name) for name in ("native", "ring")]
    path.parent.mkdir(exist_ok=True)
    raw = RawResults(path=path, job=raw_examples.job(*cases))
    raw.attempts.append((raw_examples.attempt(provenance=PROVENANCE), []))
    for case in cases:
        raw.record(raw_examples.outcome(case, executed=case.algorithm))
    hdf5.write_raw_file(raw, path)
    return path


def test_a_file_among_the_paths_lets_a_table_keep_the_bits_of_native(tmp_path):
    run = write_native_run(tmp_path / "run.h5")
    (ring,) = (row for row in read_results([run]).rows if row.algorithm == "ring")
    size = ProbedSize(bytes=64, digest=ring.order)
    order = tmp_path / "order.json"
    revealed([replace(order_of_sizes([64]), sizes=(size,))], **TWO_NODES).save(order)
    assert {row.order for row in read_results([run, order]).rows} == {ring.order}
    table = tmp_path / "table.json"
    made = invoke("tune", run, order, "--out", table, "--keep-bits-of", "native")
    assert made.code == 0, made.err
    assert made.out.startswith("kept: 2 of 2 results")


def test_a_report_with_an_order_takes_the_place_of_that_without(tmp_path):
    run = write_native_run(tmp_path / "results" / "run.h5")
    order = tmp_path / "order.json"
    revealed([order_of_sizes([64])], **TWO_NODES).save(order)
    without = invoke("report", run.parent)
    assert invoke("report", run.parent, order).code == without.code
    assert (run.parent / "report").is_dir()


def test_a_file_that_no_row_has_is_remarked_on_and_alone_it_is_refused(tmp_path):
    run = write_native_run(tmp_path / "run.h5")
    order = tmp_path / "order.json"
    revealed(RANGES, library="Open MPI v5.0.11", **TWO_NODES).save(order)
    results = read_results([run, order])
    assert NO_ROW_OF_ORDERS in results.notes
    assert not [row for row in results.rows if row.algorithm == "native" and row.order]
    assert invoke("report", order).is_bad_input("path")
