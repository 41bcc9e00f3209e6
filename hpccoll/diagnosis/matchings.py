"""Slots of disjoint pairs: which nodes transfer at the same time."""

from collections import defaultdict
from collections.abc import Collection
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from hpccoll.diagnosis.slot_records import Integers

ACROSS = 2
"""The nodes of a rack that transfer to another rack in a level round. Two flows hardly meet on one
of its uplinks; if all do at once, on uplinks chosen by a hash, hardly any fault is found."""

Pair = tuple[int, int]


def pair_up(nodes: int, *pairs: ArrayLike) -> Integers:
    """Return a slot [nodes] with some pairs, each [pairs, 2], whose ends all differ; other nodes rest."""
    partners = np.arange(nodes)
    for group in pairs:
        first, second = np.asarray(group, np.int64).reshape(-1, 2).T
        partners[first] = second
        partners[second] = first
    return partners


def consecutive_pairs(nodes: ArrayLike) -> Integers:
    """Return pairs [pairs, 2] of nodes that follow one another, without the last of an odd number."""
    ends = np.asarray(nodes, np.int64)
    even = len(ends) // 2 * 2
    return ends[:even].reshape(-1, 2)


def random_matchings(nodes: int, count: int, rng: np.random.Generator) -> Integers:
    """Return slots [count, nodes] that pair all nodes, but one if their number is odd.

    The slots are rounds of the circle method (round robin), in random order, with random labels. No
    two nodes meet twice in a sweep of ``sweep_length`` slots, from the first one on; the next sweep
    has other labels.
    """
    sweeps: list[Integers] = []
    for start in range(0, count, sweep_length(nodes)):
        sweep = RoundRobin(nodes, rng)
        sweeps.append(sweep.slots(0, count - start))
    return np.concatenate(sweeps)


class RoundRobin:
    """Slots in which each of some nodes meets each other one once, in random order, with random labels."""

    def __init__(self, nodes: int, rng: np.random.Generator) -> None:
        self._nodes = nodes
        self._even = nodes + nodes % 2
        self._rounds = rng.permutation(sweep_length(nodes))
        self._label = rng.permutation(self._even)

    def slots(self, begin: int, end: int) -> Integers:
        """Return the slots [slots, nodes] from ``begin`` on, before ``end``; the whole sweep has nodes^2 numbers."""
        rounds = self._rounds[begin:end, None]
        labels = np.arange(self._even)
        last = self._even - 1  # the centre of the circle
        partners = (rounds - labels) % last
        partners = np.where(partners == labels, last, partners)
        # the label that would meet itself
        partners[:, last] = (rounds[:, 0] * (self._even // 2)) % last
        named = np.empty_like(partners)
        named[:, self._label] = self._label[partners]
        partners_of_nodes = named[:, : self._nodes]
        return np.where(partners_of_nodes == self._nodes, np.arange(self._nodes), partners_of_nodes)


def sweep_length(nodes: int) -> int:
    """Return the slots in which each node meets each other node once."""
    return nodes - 1 + nodes % 2


def level_matchings(racks: Integers, count: int, rng: np.random.Generator) -> Integers:
    """Return slots [count, nodes] in which ACROSS nodes of a rack transfer to one other rack, the others within theirs.

    Args:
        racks: [nodes]: the number of the rack of each node, from 0 on.
        count: how many slots.
        rng: draws the pairs of racks and of nodes.
    """
    members = [np.flatnonzero(racks == rack) for rack in range(racks.max() + 1)]
    slots = []
    for opposite in random_matchings(len(members), count, rng):
        order = [rng.permutation(nodes) for nodes in members]
        pairs = []
        for rack, partner in enumerate(opposite):
            here = order[rack]
            there = order[partner]
            across = 0
            if rack != partner:
                across = min(ACROSS, len(here), len(there))
            if rack < partner:
                pairs.append(np.stack([here[:across], there[:across]], 1))
            pairs.append(consecutive_pairs(here[across:]))
        slots.append(pair_up(len(racks), *pairs))
    return np.array(slots)


def beside_healthy(
    suspects: Integers,
    healthy: Integers,
    racks: Integers,
    count: int,
    rng: np.random.Generator,
    *,
    requested_pairs: Collection[Pair] = (),
) -> Integers:
    """Return slots [count, nodes] with each suspect beside a random healthy node, of its rack if one is free.

    The other healthy nodes are pairs, too, so that the load of the machine is that of the screen:
    one of the slots has the ``requested_pairs``, if their nodes are free.
    """
    slots = []
    groups = packed(requested_pairs, len(racks))
    for slot in range(count):
        free = _by_rack(rng.permutation(healthy), racks)
        mates = []
        for rack in racks[suspects].tolist():
            nodes = free.get(rack) or max(free.values(), key=len)
            mates.append(nodes.pop())
        rest = dict.fromkeys(chain.from_iterable(free.values()))
        group = groups[slot] if slot < len(groups) else []
        asked_pairs = [pair for pair in group if rest.keys() >= set(pair)]
        for node in chain.from_iterable(asked_pairs):
            del rest[node]
        pairs = np.stack([suspects, mates], 1)
        slots.append(pair_up(len(racks), pairs, asked_pairs, consecutive_pairs(list(rest))))
    return np.array(slots)


def _by_rack(nodes: Integers, racks: Integers) -> dict[int, list[int]]:
    """Return nodes by their rack, in the order in which they are given."""
    by_rack: dict[int, list[int]] = {}
    for node, rack in zip(nodes.tolist(), racks[nodes].tolist(), strict=True):
        by_rack.setdefault(rack, []).append(node)
    return by_rack


def within_groups(
    groups: Collection[Integers], nodes: int, count: int, rng: np.random.Generator
) -> Integers:
    """Return slots [count, nodes] in which the nodes of each group are pairs of that group; the others rest."""
    slots = []
    for _ in range(count):
        pairs = [consecutive_pairs(rng.permutation(group)) for group in groups]
        slots.append(pair_up(nodes, *pairs))
    return np.array(slots)


def packed(pairs: Collection[Pair], most: int) -> list[list[Pair]]:
    """Return pairs in groups of disjoint ones, at most ``most`` in each.

    Each is in the first group that it fits, those of the nodes with most pairs first, and of equals
    the lowest: the groups are then hardly more than the pairs of one node, and the same whatever
    order the pairs have.
    """
    groups: list[list[Pair]] = []
    full = 0  # groups as bits: those without room
    busy = defaultdict[int, int](int)  # and those of each node
    for pair in _most_paired_first(pairs):
        taken = full | busy[pair[0]] | busy[pair[1]]
        first_free = ~taken & (taken + 1)  # the lowest bit that is not set
        number = first_free.bit_length() - 1
        if number == len(groups):
            groups.append([])
        groups[number].append(pair)
        for node in pair:
            busy[node] |= first_free
        if len(groups[number]) >= most:
            full |= first_free
    return groups


def _most_paired_first(pairs: Collection[Pair]) -> list[Pair]:
    if not pairs:
        return []
    ends = np.array(list(pairs))
    pairs_of_node = np.bincount(ends.ravel())
    most_paired = -pairs_of_node[ends].sum(1)
    order = np.lexsort((ends[:, 1], ends[:, 0], most_paired))
    first, second = ends[order].T.tolist()
    return list(zip(first, second, strict=True))
