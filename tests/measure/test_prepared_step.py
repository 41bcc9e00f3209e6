"""Training steps on four ranks: every collective of every parallelism is right, and runs when the program says so."""

import json
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

import pytest

RANKS = 4
READY, BEGIN, END = range(3)

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def results(mpiexec):
    ended = mpiexec(RANKS, Path(__file__).with_name("step_ranks.py"))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def every_step(results):
    return {**results["steps"], **{f"native {name}": step for name, step in results["native"].items()}}


def operations(step, rank):
    """Return the times of a rank's operations, [operation][ready, begin, end], with their streams."""
    streams = step["streams"][rank]
    times = step["events"][rank]
    return [(stream, times[3 * number : 3 * number + 3]) for number, stream in enumerate(streams)]


def computations(step, rank):
    """Return the begin and the end of each computation of a rank."""
    times = [time for time in step["events"][rank][3 * len(step["streams"][rank]) :] if time >= 0]
    return [times[at : at + 2] for at in range(0, len(times), 2)]


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
        for rank in range(RANKS):
            ran = operations(step, rank)
            assert all(ready <= begin <= end for _, (ready, begin, end) in ran)
            for _, each in groupby(sorted(ran, key=itemgetter(0)), key=itemgetter(0)):
                times = [times for _, times in each]
                assert all(first[END] <= second[BEGIN] for first, second in pairwise(times))


def test_gradients_are_synchronised_during_the_backward_pass_only_with_overlap(results):
    for rank in range(RANKS):
        with_overlap, without = (results["steps"][name] for name in ("resnet50", "without overlap"))
        (_, first), *_ = operations(with_overlap, rank)
        assert first[READY] < computations(with_overlap, rank)[-1][1]
        assert all(times[READY] >= computations(without, rank)[-1][1] for _, times in operations(without, rank))


def test_ranks_compute_as_long_as_the_workload_says_in_every_micro_batch(results):
    for name, passes in (("resnet50", 1), ("accumulated", 3), ("tensor", 1), ("fsdp", 1)):
        for rank in range(RANKS):
            computed = sum(end - begin for begin, end in computations(results["steps"][name], rank))
            assert computed == pytest.approx(passes * 2_000_000, rel=1e-4)
    assert all(begin == end for begin, end in computations(results["nothing"], 0))
    assert all(begin < end for begin, end in computations(results["gemm"], 0))


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
