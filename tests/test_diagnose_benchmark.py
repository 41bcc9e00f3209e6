"""tests/benchmarks/diagnose.py: faults that are drawn, what a verdict is worth, and times that are resampled."""

import sys
from pathlib import Path

import numpy as np
import pytest
from simulated_machine import Environment, SimulatedMachine, components

sys.path.append(str(Path(__file__).parent / "benchmarks"))

from resampled_times import BLOCK, RecordedTimes, ResampledTimes, UsedUpError

from hpccoll.analysis.diagnosis.procedure import complete, diagnose
from hpccoll.analysis.diagnosis.recorded import MeasuredSlots, Recorder
from hpccoll.analysis.diagnosis.records import Component, Slots

NODES = 16
SLOW = Component("send", (3,))


def recorded(faults=(), runs=12):
    """Return the times of diagnoses of one simulated machine."""
    machine = SimulatedMachine(NODES, Environment(), faults, np.random.default_rng(1))
    recorders = [Recorder(machine.measure) for _ in range(runs)]
    for seed, recorder in enumerate(recorders):
        complete(diagnose(NODES, seed=seed), recorder)
    return RecordedTimes(recorder.measured for recorder in recorders)


@pytest.fixture(scope="module")
def healthy():
    return recorded()


def replay(times, seed):
    return complete(diagnose(NODES, seed=100 + seed), ResampledTimes(times, np.random.default_rng(seed)).measure)


def test_replays_of_a_healthy_machine_are_healthy_and_those_of_a_slow_node_name_it(healthy):
    assert [components(replay(healthy, seed)) for seed in range(5)] == [set()] * 5
    slow = recorded([(SLOW, 15)])
    assert [components(replay(slow, seed)) for seed in range(5)] == [{SLOW}] * 5


def test_a_pair_has_its_own_transfers_in_both_directions_and_none_of_them_twice(healthy):
    partners = np.tile(np.arange(NODES)[::-1], (30, 1))
    partners[:, [0, NODES - 1]] = [0, NODES - 1]  # they rest
    seconds = ResampledTimes(healthy, np.random.default_rng(2)).measure(Slots(partners, "screen"))
    assert np.array_equal(np.isnan(seconds), partners == np.arange(NODES))
    one, other = np.log(seconds[:, [1, NODES - 2]]).T
    known = healthy.pairs[1, NODES - 2].deviations
    transfers = [np.flatnonzero(np.isclose(known[:, 1] - known[:, 0], gap)).tolist() for gap in other - one]
    assert len({index for (index,) in transfers}) == 30


def test_a_pair_without_further_transfers_is_an_error(healthy):
    many = np.tile(np.arange(NODES)[::-1], (1 + len(healthy.pairs[0, NODES - 1].times), 1))
    with pytest.raises(UsedUpError, match="record more runs"):
        ResampledTimes(healthy, np.random.default_rng(3)).measure(Slots(many, "screen"))


def test_slots_follow_one_another_in_blocks_of_one_run():
    length = BLOCK + 4
    swapped = Slots(np.tile([1, 0], (length, 1)), "screen")
    runs = [[MeasuredSlots(swapped, np.exp(np.tile(run + np.arange(length), (2, 1)).T))] for run in (0.0, 100.0, 200.0)]
    asked = Slots(np.tile([1, 0], (2 * BLOCK, 1)), "screen")
    seconds = ResampledTimes(RecordedTimes(runs), np.random.default_rng(4)).measure(asked)
    for block in np.split(np.log(seconds[:, 0]), 2):
        assert np.diff(block) == pytest.approx(np.ones(BLOCK - 1))
