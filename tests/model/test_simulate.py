"""What a simulated schedule takes on a machine of one port a rank is what one can say beforehand."""

from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, cases

from hpccoll.model.machine import Link, MachineModel
from hpccoll.model.simulate import simulate
from hpccoll.schedule import COLLECTIVES, Cost, Cut, Layout
from hpccoll.schedule.layout import TIERS

ALL_REDUCE = COLLECTIVES["all_reduce"]
MANY = 64
"""Channels that fill any pipeline here."""


def seconds(case, machine, channels=1, window=1):
    """Simulate a case for a vector of S bytes; what costs a second a byte by ``machine`` costs 1/S of it here."""
    units, lanes = case.slices[0].units, len(case.slices) * channels
    cut = Cut(case.call, 128 * lanes * (units if case.call.collective.units == "divisible" else 1), units, lanes, 1)
    size = case.call.bytes(cut.count, 1)
    links = {tier: Link(link.alpha_s, link.beta_s / size) for tier, link in machine.links.items()}
    return simulate(case.slices, cut, MachineModel(links, machine.gamma_s / size), window)


def machine(alpha=0.0, beta=0.0, gamma=0.0):
    return MachineModel(dict.fromkeys(TIERS, Link(alpha, beta)), gamma)


def taken(case, channels=1, window=1):
    """Return what a case takes: the seconds where only messages, bytes, or folds cost some."""
    return Cost(*(seconds(case, machine(**{name: 1.0}), channels, window) for name in ("alpha", "beta", "gamma")))


def first(algorithm, layout, **parameters):
    return next(cases(COLLECTIVES[algorithm.collective], algorithm, layout, **parameters))


@pytest.mark.parametrize("name", [name for name, (_, algorithm) in ALGORITHMS.items() if algorithm.cost])
def test_in_one_piece_it_takes_what_is_declared(name):
    collective, algorithm = ALGORITHMS[name]
    for p in (1, 2, 3, 4, 6, 7, 8, 13):
        for case in cases(collective, algorithm, Layout.of(p, 1)):
            if len(case.slices) == 1:
                cost, found = algorithm.declared(p), taken(case)
                assert astuple(found) == pytest.approx(astuple(cost))


@pytest.mark.parametrize("channels", [1, 2, 5, 32])
@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_a_chain_takes_what_it_declares_in_any_number_of_segments(p, channels):
    chain = COLLECTIVES["broadcast"].algorithm("chain")
    found, cost = taken(first(chain, Layout.of(p, 1)), channels, window=4), chain.declared(p, channels=channels)
    assert (found.rounds, found.sent) == pytest.approx((cost.rounds, cost.sent))


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
def test_two_trees_of_a_power_of_two_take_what_they_declare_in_one_piece(p):
    trees = ALL_REDUCE.algorithm("double_binary_tree")
    assert taken(first(trees, Layout.of(p, 1))) == trees.declared(p, channels=1, window=1)


@pytest.mark.parametrize(
    ("p", "channels"), [*product((2, 3, 4, 5, 6, 7, 8, 12), (1, 2, 8, 32)), (16, 8), (24, 2), (33, 1), (33, 8)]
)
def test_two_trees_take_about_what_they_declare_where_the_window_holds_what_fills_them(p, channels):
    trees = ALL_REDUCE.algorithm("double_binary_tree")
    found = taken(first(trees, Layout.of(p, 1)), channels, window=MANY)
    cost = trees.declared(p, channels=channels, window=MANY)
    assert found.rounds == pytest.approx(cost.rounds, rel=0.3, abs=1)
    assert found.sent == pytest.approx(cost.sent, rel=0.1, abs=1.5 / channels)
    assert found.reduced == pytest.approx(cost.reduced, rel=0.01)


@pytest.mark.parametrize("p", [8, 16])
def test_with_a_narrow_window_deep_trees_wait_for_it_as_declared(p):
    trees = ALL_REDUCE.algorithm("double_binary_tree")
    narrow, wide = (taken(first(trees, Layout.of(p, 1)), 32, window) for window in (1, MANY))
    assert narrow.sent > 1.5 * wide.sent
    assert narrow.sent == pytest.approx(trees.declared(p, channels=32, window=1).sent, rel=0.2)


@pytest.mark.parametrize(("p", "radix", "depth"), [(1, 32, 1), (4, 32, 1), (8, 4, 2), (9, 3, 2), (5, 4, 1), (16, 2, 1)])
@pytest.mark.parametrize("channels", [1, 2, 8, 32])
def test_emulated_switches_take_about_what_they_declare(p, radix, depth, channels):
    switches = ALL_REDUCE.algorithm("sharp_emulated")
    case = first(switches, Layout.of(p, 1, aggregators=20), radix=radix, depth=depth)
    cost = switches.declared(p, channels=channels, radix=radix, depth=depth)
    found = taken(case, channels, window=8)
    assert found.rounds == pytest.approx(cost.rounds, rel=0.25)
    assert cost.sent * 0.8 < found.sent < cost.sent * 1.35
    assert found.reduced == pytest.approx(cost.reduced)


def test_channels_of_a_ring_cost_their_messages_and_share_the_bytes():
    ring = ALL_REDUCE.algorithm("ring")
    found, cost = taken(first(ring, Layout.of(6, 1)), 4, window=4), ring.declared(6, channels=4, window=4)
    assert (found.rounds, found.sent, found.reduced) == pytest.approx((cost.rounds, cost.sent, cost.reduced))


def test_a_message_costs_what_its_tier_costs():
    links = {"node": Link(1.0, 0.0), "rack": Link(10.0, 0.0), "fabric": Link(100.0, 0.0)}
    for layout, cost in ((Layout((0, 0)), 1), (Layout((0, 1)), 10), (Layout((0, 1), rack=(0, 1)), 100)):
        assert seconds(first(ALL_REDUCE.algorithm("recursive_doubling"), layout), MachineModel(links)) == cost


def test_ranks_of_a_node_share_its_port_but_not_the_way_inside():
    two_nodes, one_node = (first(ALL_REDUCE.algorithm("recursive_doubling"), Layout.of(4, size)) for size in (1, 2))
    between = MachineModel({"node": Link(0.0, 0.0), "rack": Link(0.0, 1.0)})
    assert seconds(two_nodes, between) == pytest.approx(2)
    assert seconds(one_node, between) == pytest.approx(2)  # one of two rounds, in which two ranks share the wire


def test_a_fold_waits_for_its_messages_and_the_next_step_for_the_fold():
    case = first(ALL_REDUCE.algorithm("recursive_doubling"), Layout.of(4, 1))
    assert seconds(case, machine(beta=1.0, gamma=3.0)) == pytest.approx(2 * (1 + 3))


def test_nothing_takes_no_time():
    case = first(ALL_REDUCE.algorithm("null"), Layout.of(4, 1))
    assert not np.any(seconds(case, machine(1, 1, 1)))
