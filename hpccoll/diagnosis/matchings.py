"""Slots of disjoint pairs: which nodes transfer at the same time."""

from collections import defaultdict
from collections.abc import Collection

import numpy as np
from numpy.typing import ArrayLike

from hpccoll.diagnosis.records import Integers

ACROSS = 2
"""The nodes of a rack that transfer to another rack in a level round. Two flows hardly meet on one of its uplinks; if
all do at once, on uplinks chosen by a hash, hardly any fault is found."""

Pair = tuple[int, int]


def pair_up(nodes: int, *pairs: ArrayLike) -> Integers:
    """Return a slot [nodes] with some pairs, each [pairs, 2], whose ends all differ; other nodes rest."""
    partners = np.arange(nodes)
    for some in pairs:
        one, other = np.asarray(some, np.int64).reshape(-1, 2).T
        partners[one], partners[other] = other, one
    return partners


def consecutive_pairs(nodes: ArrayLike) -> Integers:
    """Return pairs [pairs, 2] of nodes that follow one another, without the last of an odd number."""
    found = np.asarray(nodes, np.int64)
    return found[: len(found) // 2 * 2].reshape(-1, 2)


def random_matchings(nodes: int, count: int, rng: np.random.Generator) -> Integers:
    """Return slots [count, nodes] that pair all nodes, but one if their number is odd.

    The slots are rounds of the circle method (round robin), in random order, with random labels. No two nodes meet
    twice in a sweep of ``sweep_length`` slots, from the first one on; the next sweep has other labels.
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
        partners[:, last] = (rounds[:, 0] * (self._even // 2)) % last  # the label that would meet itself
        named = np.empty_like(partners)
        named[:, self._label] = self._label[partners]
        of_nodes = named[:, : self._nodes]
        return np.where(of_nodes == self._nodes, np.arange(self._nodes), of_nodes)


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
            across = min(ACROSS, len(order[rack]), len(order[partner])) if rack != partner else 0
            if rack < partner:
                pairs.append(np.stack([order[rack][:across], order[partner][:across]], 1))
            pairs.append(consecutive_pairs(order[rack][across:]))
        slots.append(pair_up(len(racks), *pairs))
    return np.array(slots)


def beside_healthy(
    suspects: Integers,
    healthy: Integers,
    racks: Integers,
    count: int,
    rng: np.random.Generator,
    *,
    asked: Collection[Pair] = (),
) -> Integers:
    """Return slots [count, nodes] with each suspect beside a random healthy node, of its rack if one is free.

    The other healthy nodes are pairs, too, so that the load of the machine is that of the screen: in one of the slots
    those that are asked for, if their nodes are free.
    """
    slots, rack_of = [], racks.tolist()
    for group in [*packed(asked, len(racks)), *[[]] * count][:count]:
        free: dict[int, list[int]] = {}
        for node in rng.permutation(healthy).tolist():
            free.setdefault(rack_of[node], []).append(node)
        mates = [(free.get(rack) or max(free.values(), key=len)).pop() for rack in racks[suspects].tolist()]
        rest = dict.fromkeys(node for nodes in free.values() for node in nodes)
        pairs = [pair for pair in group if rest.keys() >= {*pair}]
        for node in (node for pair in pairs for node in pair):
            del rest[node]
        slots.append(pair_up(len(racks), np.stack([suspects, mates], 1), pairs, consecutive_pairs([*rest])))
    return np.array(slots)


def within_groups(groups: Collection[Integers], nodes: int, count: int, rng: np.random.Generator) -> Integers:
    """Return slots [count, nodes] in which the nodes of each group are pairs of that group; the others rest."""
    shuffled = ([consecutive_pairs(rng.permutation(group)) for group in groups] for _ in range(count))
    return np.array([pair_up(nodes, *pairs) for pairs in shuffled])


def packed(pairs: Collection[Pair], most: int) -> list[list[Pair]]:
    """Return pairs in groups of disjoint ones, at most ``most`` in each.

    Each is in the first group that it fits, those of the nodes with most pairs first, and of equals the lowest: the
    groups are then hardly more than the pairs of one node, and the same whatever order the pairs have.
    """
    groups: list[list[Pair]] = []
    full, busy = 0, defaultdict[int, int](int)  # groups as bits: those without room, and those of each node
    for pair in _most_paired_first(pairs):
        taken = full | busy[pair[0]] | busy[pair[1]]
        k = (~taken & (taken + 1)).bit_length() - 1  # the first bit that is not set
        if k == len(groups):
            groups.append([])
        groups[k].append(pair)
        for node in pair:
            busy[node] |= 1 << k
        full |= (len(groups[k]) >= most) << k
    return groups


def _most_paired_first(pairs: Collection[Pair]) -> list[Pair]:
    if not pairs:
        return []
    ends = np.array([*pairs])
    count = np.bincount(ends.ravel())
    order = np.lexsort((ends[:, 1], ends[:, 0], -count[ends].sum(1)))
    one, other = ends[order].T.tolist()
    return [*zip(one, other, strict=True)]
