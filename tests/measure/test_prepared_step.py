"""Training steps on four ranks: every collective of every parallelism is right, and runs when the program says so."""

import json
from pathlib import Path

import pytest
from step_times import are_in_order, computations, operations

from hpccoll.measure.step_computations import READY

RANKS = 4

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def results(mpiexec):
    ended = mpiexec(RANKS, Path(__file__).with_name("step_ranks.py"))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def every_step(results):
    return {**results["steps"], **{f"native {name}": step for name, step in results["native"].items()}}


def test_the_results_of_all_collectives_are_right_in_every_parallelism(results):
    assert {name: step["wrong"] for name, step in every_step(results).items() if step["wrong"]} == {}
    assert len(results["steps"]) == 13


def test_the_executors_and_computations_give_right_results_too(results):
    for name in ("null", "python", "gemm", "nothing", "afterwards"):
        assert results[name]["wrong"] == 0
    assert results["python"]["executor"] == "python"


def test_an_operation_left_out_and_a_changed_buffer_are_found(results):
    faults = results["faults"]
    assert faults["left out"] > 0
    assert faults["changed"] == RANKS
    assert "element" in faults["named"]


def test_operations_begin_when_they_are_ready_and_those_of_a_stream_one_after_the_other(results):
    for step in every_step(results).values():
        assert all(map(are_in_order, step["of_ranks"]))


def test_gradients_are_synchronised_during_the_backward_pass_only_with_overlap(results):
    for with_overlap, without in zip(
        *(results["steps"][name]["of_ranks"] for name in ("resnet50", "without overlap")), strict=True
    ):
        assert operations(with_overlap)[0][READY] < computations(with_overlap)[-1][1]
        assert all(times[READY] >= computations(without)[-1][1] for times in operations(without))


def test_ranks_compute_as_long_as_the_workload_says_in_every_micro_batch(results):
    for name, passes in (("resnet50", 1), ("accumulated", 3), ("tensor", 1), ("fsdp", 1)):
        for rank in results["steps"][name]["of_ranks"]:
            computed = sum(end - begin for begin, end in computations(rank))
            assert computed == pytest.approx(passes * 2_000_000, rel=1e-4)
    assert all(begin == end for begin, end in computations(results["nothing"]["of_ranks"][0]))
    assert all(begin < end for begin, end in computations(results["gemm"]["of_ranks"][0]))


def test_bytes_between_nodes_are_those_of_the_gradients(results):
    step = results["steps"]["resnet50"]
    crossings = 2  # of the ring of four ranks on two nodes
    assert step["wire_bytes"] == pytest.approx(crossings * 2 * (RANKS - 1) / RANKS * step["bytes"], rel=0.02)
    assert results["null"]["wire_bytes"] == 0
    assert results["native"]["resnet50"]["wire_bytes"] is None


def test_a_mesh_that_does_not_fit_the_ranks_is_refused(results):
    assert "parallel" in results["refusal"]
    assert "4" in results["refusal"]


def test_a_collective_that_only_one_group_cannot_run_is_refused_on_all_ranks(results):
    assert len(set(results["refusals of a group"])) == 1
    assert "one that runs on these nodes" in results["refusals of a group"][0]


@pytest.mark.parametrize("name", ["tensor", "experts", "hsdp", "three axes of two"])
def test_what_ran_is_named_after_an_operation_that_has_the_requested_algorithm(results, name):
    executed, evidence = results["steps"][name]["executed"]
    assert executed == "ring"
    assert "operations one of" in evidence
