"""Training steps on four ranks: every collective of every parallelism is right, and runs when the program says so."""

import json
from pathlib import Path

import pytest
from step_times import are_in_order, computations, operations

from hpccoll.extensions.steps.measure.step_computations import READY

RANKS = 4

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def results(mpiexec):
    ended = mpiexec(RANKS, Path(__file__).with_name("step_ranks.py"))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def steps(results):
    return {name: step for name, step in results.items() if "wrong" in step}


def test_the_results_of_all_collectives_are_right_in_every_parallelism_with_every_executor(steps):
    assert {name: step["wrong"] for name, step in steps.items() if step["wrong"]} == {}
    assert (len(steps), steps["python"]["executor"]) == (22, "python")


def test_an_operation_left_out_and_a_changed_buffer_are_found(results):
    faults = results["faults"]
    assert (faults["left out"] > 0, faults["changed"], "element" in faults["named"]) == (
        True,
        RANKS,
        True,
    )


def test_operations_begin_when_they_are_ready_and_those_of_a_stream_one_after_the_other(steps):
    assert all(are_in_order(rank) for step in steps.values() for rank in step["of_ranks"])


def test_gradients_are_synchronised_during_the_backward_pass_only_with_overlap(steps):
    for with_overlap, without in zip(
        *(steps[name]["of_ranks"] for name in ("resnet50", "without overlap")), strict=True
    ):
        assert operations(with_overlap)[0][READY] < computations(with_overlap)[-1][1]
        assert all(times[READY] >= computations(without)[-1][1] for times in operations(without))


def test_ranks_compute_as_long_as_the_workload_says_in_every_micro_batch(steps):
    for name, passes in (("resnet50", 1), ("accumulated", 3), ("tensor", 1), ("fsdp", 1)):
        for rank in steps[name]["of_ranks"]:
            computed = sum(end - begin for begin, end in computations(rank))
            assert computed == pytest.approx(passes * 2_000_000, rel=1e-4)
    assert all(begin == end for begin, end in computations(steps["nothing"]))
    assert all(begin < end for begin, end in computations(steps["gemm"]))


def test_bytes_between_nodes_are_those_of_the_gradients(steps):
    step = steps["resnet50"]
    crossings = 2  # of the ring of four ranks on two nodes
    assert step["wire_bytes"] == pytest.approx(
        crossings * 2 * (RANKS - 1) / RANKS * step["bytes"], rel=0.02
    )
    assert (steps["null"]["wire_bytes"], steps["native resnet50"]["wire_bytes"]) == (0, None)


def test_a_mesh_that_does_not_fit_and_a_collective_that_one_group_cannot_run_are_refused_on_all_ranks(
    results,
):
    mesh, *of_group = results["refusals"]
    assert "parallel" in mesh
    assert ["one that runs on these nodes" in each for each in of_group] == [True] * RANKS


@pytest.mark.parametrize("name", ["tensor", "experts", "hsdp", "three axes of two"])
def test_what_ran_is_named_after_an_operation_that_has_the_requested_algorithm(steps, name):
    executed, evidence = steps[name]["executed"]
    assert executed == "ring"
    assert "operations one of" in evidence
