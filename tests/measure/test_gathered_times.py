"""Times are gathered at one rank or at several, and summarised alike."""

import json
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.mpi
RANKS = Path(__file__).with_name("summarised_ranks.py")


@pytest.fixture(scope="module")
def found(mpiexec):
    ended = mpiexec(4, RANKS)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_several_ranks_that_gather_find_what_one_does(found):
    whole, *others = found["times"][:3]
    assert all(times == whole for times in others)
    assert np.shape(whole["start_ns"]) == (20, 4)
    durations = np.subtract(whole["end_ns"], whole["start_ns"])[:, :3]  # without the aggregator
    assert whole["max_ns"] == durations.max(axis=1).tolist()
    assert whole["slowest_rank"] == durations.argmax(axis=1).tolist()
    starts = np.array(whole["start_ns"])
    assert (
        whole["skew_ns"]
        == np.max([np.ptp(starts[:, clock::2], axis=1) for clock in (0, 1)], axis=0).tolist()
    )
    assert whole["device_max_ns"] == np.max(whole["device_ns"], axis=1).tolist()
    assert not whole["span_ns"]  # of two clocks


def test_above_the_limit_fewer_ranks_are_kept_and_all_are_summarised(found):
    whole, few = found["times"][0], found["times"][3:]
    assert found["strides"] == [1, 1, 1, 2, 2, 2]
    for times in few:
        assert times["start_ns"] == np.array(whole["start_ns"])[:, ::2].tolist()
        for name in ("max_ns", "median_ns", "mean_ns", "skew_ns"):
            assert times[name] == whole[name]


def test_arrays_of_every_second_rank_are_gathered(found):
    assert found["kept"] == [[0, 7], [2, 7]]
