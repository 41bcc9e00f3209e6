"""Slots of pairs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from hpccoll.diagnosis.matchings import (
    beside_healthy,
    level_matchings,
    packed,
    random_matchings,
    sweep_length,
    within_groups,
)

SEEDS = some.integers(0, 2**32)


def assert_disjoint_pairs(slots):
    nodes = np.arange(slots.shape[1])
    assert (np.take_along_axis(slots, slots, 1) == nodes).all()


def pairs(slots):
    slot, node = np.nonzero(slots > np.arange(slots.shape[1]))
    return [(int(a), int(b)) for a, b in zip(node, slots[slot, node], strict=True)]


@given(nodes=some.integers(2, 70), count=some.integers(1, 150), seed=SEEDS)
def test_random_matchings_pair_all_nodes_but_one_of_an_odd_number(nodes, count, seed):
    slots = random_matchings(nodes, count, np.random.default_rng(seed))
    assert slots.shape == (count, nodes)
    assert_disjoint_pairs(slots)
    assert ((slots == np.arange(nodes)).sum(1) == nodes % 2).all()


@given(nodes=some.integers(2, 70), seed=SEEDS)
def test_a_sweep_has_every_pair_once(nodes, seed):
    found = pairs(random_matchings(nodes, sweep_length(nodes), np.random.default_rng(seed)))
    assert len(found) == len(set(found)) == nodes * (nodes - 1) // 2


@given(nodes=some.integers(4, 70), seed=SEEDS)
def test_no_pair_meets_twice_in_a_part_of_a_sweep(nodes, seed):
    found = pairs(random_matchings(nodes, sweep_length(nodes) // 2, np.random.default_rng(seed)))
    assert len(found) == len(set(found))


@given(
    sizes=some.lists(some.integers(1, 12), min_size=2, max_size=12),
    count=some.integers(1, 20),
    seed=SEEDS,
)
def test_in_level_rounds_two_nodes_of_a_rack_transfer_across_to_one_rack_and_one_rests_at_most(
    sizes, count, seed
):
    racks = np.repeat(np.arange(len(sizes)), sizes)
    slots = level_matchings(racks, count, np.random.default_rng(seed))
    assert slots.shape == (count, len(racks))
    assert_disjoint_pairs(slots)
    for slot in slots:
        for rack in range(len(sizes)):
            targets = racks[slot[racks == rack]]
            across = targets[targets != rack]
            assert len(across) <= 2
            assert len(set(across)) <= 1
            assert (slot[racks == rack] == np.flatnonzero(racks == rack)).sum() <= 1


@given(nodes=some.integers(8, 60), share=some.integers(4, 8), racks=some.integers(1, 6), seed=SEEDS)
def test_suspects_are_beside_healthy_nodes_and_the_others_are_pairs(nodes, share, racks, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)
    suspects, healthy = order[: nodes // share], order[nodes // share :]
    asked = {
        (int(min(pair)), int(max(pair)))
        for pair in (rng.choice(healthy, 2, replace=False) for _ in range(4))
    }
    slots = beside_healthy(
        suspects, healthy, rng.integers(racks, size=nodes), 5, rng, requested_pairs=asked
    )
    assert_disjoint_pairs(slots)
    assert np.isin(slots[:, suspects], healthy).all()
    assert ((slots == np.arange(nodes)).sum(1) <= 1).all()


def test_suspects_are_beside_nodes_of_their_rack_if_some_are_free():
    racks = np.repeat(np.arange(4), 8)
    suspects = np.array([0, 9, 10])
    healthy = np.setdiff1d(np.arange(32), suspects)
    slots = beside_healthy(suspects, healthy, racks, 6, np.random.default_rng(1))
    assert (racks[slots[:, suspects]] == racks[suspects]).all()


def test_pairs_that_are_asked_for_are_measured_beside_suspects():
    suspects, racks = np.array([0]), np.arange(32) // 8
    asked = [(a, b) for a in range(8, 16) for b in range(24, 32)]  # no mate of node 0 is among them
    slots = beside_healthy(
        suspects, np.arange(1, 32), racks, 12, np.random.default_rng(1), requested_pairs=asked
    )
    assert all((slots[:, a] == b).any() for a, b in asked)


def test_groups_transfer_within_groups():
    groups = np.arange(5), np.arange(5, 20)
    slots = within_groups(groups, 20, 9, np.random.default_rng(1))
    assert_disjoint_pairs(slots)
    assert ((slots < 5) == (np.arange(20) < 5)).all()


@given(
    ends=some.lists(some.tuples(some.integers(0, 20), some.integers(21, 40)), unique=True),
    most=some.integers(1, 9),
)
def test_packed_pairs_are_disjoint_none_is_lost_and_their_order_is_that_of_the_nodes(ends, most):
    groups = packed(ends, most)
    assert packed(ends[::-1], most) == groups  # a set has any order
    assert sorted(pair for group in groups for pair in group) == sorted(ends)
    for group in groups:
        assert len({node for pair in group for node in pair}) == 2 * len(group) <= 2 * most


@pytest.mark.parametrize("nodes", [16, 17])
def test_sweeps_differ(nodes):
    slots = random_matchings(nodes, 3 * sweep_length(nodes), np.random.default_rng(1))
    sweeps = np.split(slots, 3)
    assert all((one != other).any() for one, other in pairwise(sweeps))
