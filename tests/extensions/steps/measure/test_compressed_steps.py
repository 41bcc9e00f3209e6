"""Training steps with compressed gradients on three ranks: their means are right, and what is wrong is found."""

import json
from pathlib import Path

import pytest

RANKS = 3

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def results(mpiexec):
    ended = mpiexec(RANKS, Path(__file__).with_name("compressed_ranks.py"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def steps(results):
    return {name: step for name, step in results.items() if "copies" in step}


def test_all_ranks_end_with_the_same_right_means_with_every_compression_algorithm_and_executor(
    steps,
):
    assert len(steps) == 22
    assert {
        name: step["diagnosis"]
        for name, step in steps.items()
        if step["wrong"] or step["diagnosis"]
    } == {}
    assert {name for name, step in steps.items() if step["copies"] > 1} == set()
    assert (steps["python"]["executor"], steps["gemm"]["executor"]) == ("python", "compiled")


def test_codecs_take_their_turns_between_the_collectives_of_their_bucket(steps):
    for name, step in steps.items():
        operations = [each for each in step["program"] if "label" in each]
        ends = 0
        for number in range(len(operations)):
            ready, begin, end = step["since"][3 * number : 3 * number + 3]
            assert ready <= begin <= end, name
            assert begin >= ends, name
            ends = end


def test_one_wrong_element_and_a_rank_that_does_not_average_are_found(results):
    for changed, not_averaged in results["corrupted"].values():
        assert changed[0] == 1
        assert "bucket 2: 1 of" in changed[1]
        assert not_averaged[0] > RANKS
        assert "bucket 1" in not_averaged[1]


def test_feedback_sends_later_what_topk_has_left_out(results):
    without, with_feedback = results["learned"]
    assert with_feedback < without / 10


def test_without_collectives_nothing_is_encoded(steps):
    assert not steps["null"]["codecs"]


def test_what_a_caller_writes_into_dense_buckets_is_summed_and_left_to_the_caller(results):
    dense = results["dense"]
    assert (dense["sums"], dense["wrong"]) == ([RANKS * (RANKS + 1) / 2], 0)
    assert dense["elements"] > 6000
