"""Two to seven nodes: what can be told, and what cannot."""

import numpy as np
import pytest
from simulated_machine import SECONDS, Environment, SimulatedMachine, components

from hpccoll.diagnosis.procedure import complete, diagnose
from hpccoll.diagnosis.slot_records import Component

SEEDS = range(3)
ONE, TWO = Component("node", (0,)), Component("node", (1,))


def diagnosed(nodes, *faults, seed=0, expected_s=None):
    machine = SimulatedMachine(nodes, Environment(), faults, np.random.default_rng([seed, nodes]))
    return complete(diagnose(nodes, seed=seed, expected_s=expected_s), machine.measure)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [3, 4, 5, 7])
@pytest.mark.parametrize("kind", ["node", "send", "receive", "link"])
def test_one_fault_of_three_or_more_nodes_is_found(kind, nodes, seed):
    fault = Component(kind, (1, 2) if kind == "link" else (2,))
    found = diagnosed(nodes, (fault, 25), seed=seed)
    assert components(found) == {fault}
    assert [fault.candidates for fault in found.faults] == [()]
    assert found.exclude == (() if kind == "link" else (2,))
    assert found.faults[0].effect == pytest.approx(1 / 0.75, rel=0.05)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [4, 6])
def test_two_slow_nodes_of_four_or_more_are_found(nodes, seed):
    assert diagnosed(nodes, (ONE, 25), (TWO, 25), seed=seed).exclude == (0, 1)


@pytest.mark.parametrize(
    "faults",
    [
        (Component("send", (2,)), Component("receive", (0,))),
        (Component("send", (0,)), Component("send", (1,))),
        (Component("node", (1,)), Component("send", (3,))),
        (Component("link", (0, 1)), Component("receive", (3,))),
        (Component("link", (0, 1)), Component("link", (1, 2))),
    ],
)
@pytest.mark.parametrize("nodes", [4, 6])
def test_two_faults_of_any_kind_are_both_found_with_the_effect_of_each(nodes, faults):
    found = diagnosed(nodes, (faults[0], 20), (faults[1], 30))
    effects = {fault.component: fault.effect for fault in found.faults}
    assert effects == pytest.approx({faults[0]: 1 / 0.8, faults[1]: 1 / 0.7}, rel=0.05)
    assert [fault.candidates for fault in found.faults] == [(), ()]


@pytest.mark.parametrize("nodes", [4, 6])
def test_a_node_with_one_direction_slower_than_the_other_has_both_named(nodes):
    send, receive = Component("send", (1,)), Component("receive", (1,))
    found = diagnosed(nodes, (send, 15), (receive, 40))
    assert components(found) == {send, receive}
    assert found.exclude == (1,)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_without_any_time_does_not_hide_a_slow_one(seed):
    machine = SimulatedMachine(7, Environment(), [(TWO, 25)], np.random.default_rng(seed))

    def measure(slots):
        seconds = machine.measure(slots)
        seconds[:, 5] = np.nan
        return np.where(slots.partners == 5, np.nan, seconds)

    assert components(complete(diagnose(7, seed=seed), measure)) == {TWO}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", range(2, 8))
def test_few_healthy_nodes_are_healthy(nodes, seed):
    assert diagnosed(nodes, seed=seed).faults == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_nodes_a_slow_direction_has_two_candidates_and_none_is_excluded(seed):
    found = diagnosed(2, (Component("send", (0,)), 25), seed=seed)
    (fault,) = found.faults
    assert {*fault.candidates} == {(Component("send", (0,)),), (Component("receive", (1,)),)}
    assert found.exclude == ()


def test_of_two_nodes_a_slow_one_is_not_seen_without_an_expected_time():
    assert diagnosed(2, (ONE, 25)).faults == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_nodes_a_slow_one_is_not_told_from_the_other_nor_from_their_link(seed):
    found = diagnosed(2, (ONE, 25), seed=seed, expected_s=SECONDS)
    (fault,) = found.faults
    assert {(ONE,), (TWO,), (Component("link", (0, 1)),)} <= {*fault.candidates}
    assert found.exclude == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("nodes", [4, 7])
@pytest.mark.parametrize("rate", [0.5, 2])
def test_of_four_nodes_or_more_a_wrong_expected_time_accuses_none_and_hides_none(rate, nodes, seed):
    assert diagnosed(nodes, seed=seed, expected_s=rate * SECONDS).faults == ()
    assert components(diagnosed(nodes, (ONE, 25), seed=seed, expected_s=rate * SECONDS)) == {ONE}


@pytest.mark.parametrize("seed", SEEDS)
def test_of_three_nodes_that_are_faster_than_expected_a_slow_one_is_found(seed):
    assert components(diagnosed(3, (ONE, 25), seed=seed, expected_s=2 * SECONDS)) == {ONE}


def test_two_of_three_slow_nodes_are_three_candidates_with_an_expected_time():
    found = diagnosed(3, (ONE, 25), (TWO, 25), expected_s=SECONDS)
    (fault,) = found.faults
    assert (ONE, TWO) in fault.candidates
    assert found.exclude == ()


@pytest.mark.parametrize("spikes", [0.3, 0.6])
def test_what_disturbs_a_busy_machine_does_not_hide_a_fault_that_is_certain(spikes):
    fault = Component("send", (2,))
    for seed in range(20):
        machine = SimulatedMachine(
            4, Environment(spikes=spikes), [(fault, 90)], np.random.default_rng([seed, 4])
        )
        found = complete(diagnose(4, seed=seed), machine.measure)
        assert (fault, ()) in [(each.component, each.candidates) for each in found.faults]
        assert found.exclude == (2,)
