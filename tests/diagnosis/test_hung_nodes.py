"""Nodes and links that do not answer."""

import numpy as np
import pytest
from simulated_machine import Environment, MachineWithRails, SimulatedMachine, components

from hpccoll.diagnosis.procedure import complete, diagnose
from hpccoll.diagnosis.slot_records import Component, Floats, Slots


def machine(nodes, *faults, hung=(), seed=0):
    return SimulatedMachine(nodes, Environment(), faults, np.random.default_rng(seed), hung)


def counted(measure):
    """Return a function that measures, and the list of the deadlines that it has waited for."""
    missed = []

    def measure_and_count(slots: Slots) -> Floats:
        times = measure(slots)
        missed.extend(times[np.isinf(times).any(1)])
        return times

    return measure_and_count, missed


@pytest.mark.parametrize("nodes", [3, 4, 8, 64])
def test_a_hung_node_is_named_after_two_deadlines_and_the_others_are_diagnosed(nodes):
    measure, missed = counted(machine(nodes, hung=[2]).measure)
    found = complete(diagnose(nodes, seed=1), measure)
    assert (components(found), found.exclude, len(missed)) == ({Component("hung", (2,))}, (2,), 2)
    assert (found.noise > 0) == (nodes > 2)


@pytest.mark.parametrize(("nodes", "hung"), [(8, [0, 3, 5]), (64, [1, 2, 63]), (5, [0, 4])])
def test_several_hung_nodes_are_all_named(nodes, hung):
    found = complete(diagnose(nodes, seed=1), machine(nodes, hung=hung).measure)
    assert components(found) == {Component("hung", (node,)) for node in hung}


def test_a_slow_node_keeps_its_number_beside_a_hung_one():
    found = complete(
        diagnose(32, seed=1), machine(32, (Component("node", (20,)), 30), hung=[4]).measure
    )
    assert components(found) == {Component("hung", (4,)), Component("node", (20,))}
    assert found.exclude == (4, 20)


def test_of_two_nodes_that_do_not_answer_both_are_candidates():
    found = complete(diagnose(2, seed=1), machine(2, hung=[1]).measure)
    (fault,) = found.faults
    assert fault.candidates == ((Component("hung", (0,)),), (Component("hung", (1,)),))
    assert (found.exclude, np.isnan(found.noise)) == ((), True)


def test_a_node_that_hangs_on_one_rail_is_a_hung_node():
    rails = MachineWithRails([machine(16), machine(16, hung=[6], seed=1)])
    found = complete(diagnose(16, seed=1, rails=2), rails.measure)
    assert (components(found), found.exclude) == ({Component("hung", (6,))}, (6,))


def test_a_node_that_hangs_on_all_rails_is_named_after_two_deadlines():
    measure, missed = counted(
        MachineWithRails(machine(16, hung=[6], seed=k) for k in range(4)).measure
    )
    assert components(complete(diagnose(16, seed=1, rails=4), measure)) == {Component("hung", (6,))}
    assert len(missed) == 2


def silent_link(simulated, pair, times):
    """Return a function that measures a machine in which a pair does not answer, the first so many times."""
    left = [times]

    def measure(slots: Slots) -> Floats:
        seconds = simulated.measure(slots)
        silent = np.flatnonzero(slots.partners[:, pair[0]] == pair[1])
        if not (silent.size and left[0]):
            return seconds
        left[0] -= 1
        seconds[silent[0], [*pair]] = np.inf
        return seconds[: silent[0] + 1]

    return measure


def test_a_link_that_never_answers_is_a_fault_of_neither_of_its_nodes():
    found = complete(diagnose(16, seed=1), silent_link(machine(16), (3, 9), times=1000))
    assert [(fault.component, fault.effect) for fault in found.faults] == [
        (Component("link", (3, 9)), np.inf)
    ]
    assert found.exclude == ()


def test_a_pair_that_misses_once_is_forgiven():
    assert complete(diagnose(16, seed=1), silent_link(machine(16), (3, 9), times=1)).faults == ()


def test_a_node_that_stops_later_is_named():
    healthy, stopped, seen = machine(16), machine(16, hung=[5]), []

    def measure(slots: Slots) -> Floats:
        seen.append(slots)
        return (healthy if len(seen) < 4 else stopped).measure(slots)

    assert components(complete(diagnose(16, seed=1), measure)) == {Component("hung", (5,))}


def test_if_more_than_a_quarter_of_the_nodes_does_not_answer_none_is_excluded():
    for count in (4, 5):
        machine = SimulatedMachine(
            16, Environment(), [], np.random.default_rng(1), hung=range(count)
        )
        diagnosis = complete(diagnose(16, seed=1), machine.measure)
        assert len(diagnosis.exclude) == (count if count == 4 else 0)
        assert diagnosis.too_many == (count == 5)


@pytest.mark.parametrize("hung", [(0, 1), (0, 1, 2)])
def test_if_at_most_one_of_three_nodes_answers_none_is_excluded(hung):
    assert complete(diagnose(3, seed=0), machine(3, hung=hung).measure).exclude == ()
