"""What a procedure knows of the machine that it diagnoses."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.diagnosis.matchings import RoundRobin, level_matchings, random_matchings, sweep_length
from hpccoll.diagnosis.slot_records import LEAST_RACK, Booleans, Integers

MATCHINGS = 16
"""Slots of the screen. 8 are enough from 256 nodes on; 24 find hardly more."""


AT_ONCE = 256
"""The slots of all pairs that are measured, and looked at, at once: all of them would have nodes^2
times. Effects of nodes follow from the first ones, by far more than a screen has."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, what is known of them, and the random numbers of one diagnosis."""

    # of shape [nodes]: the number of the rack of each, from 0 on; all 0 if racks are unknown
    racks: Integers
    rng: np.random.Generator
    rack_names: Integers  # [racks]: their numbers on the whole machine
    links: bool  # whether single links are looked for, which takes all pairs
    rails: int = 1  # the rails diagnosed beside each other, which share the chance of a false alarm

    @classmethod
    def of(
        cls, racks: Integers, rng: np.random.Generator, *, links: bool, rails: int = 1
    ) -> "Cluster":
        """Return the cluster of nodes with racks of any numbers."""
        names, numbers = np.unique(racks, return_inverse=True)
        return cls(numbers, rng, names, links, rails)

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.racks)

    @property
    def judged_racks(self) -> Integers:
        """The racks with enough nodes to judge; none unless there are enough of them."""
        return judged_racks(self.racks)

    @property
    def has_level_rounds(self) -> bool:
        """Whether few nodes of a rack transfer across at once: if most nodes are in racks that are large enough."""
        sizes = np.bincount(self.racks)
        nodes_in_large_racks = sizes[sizes >= LEAST_RACK].sum()
        return len(sizes) > 1 and 2 * nodes_in_large_racks > self.nodes

    def screen(self) -> Iterator[Integers]:
        """Yield the slots [slots, nodes] of the screen, and then, if links are looked for, those of all other pairs."""
        if self.links:
            yield from self._all_pairs()
        elif self.has_level_rounds:
            yield level_matchings(self.racks, MATCHINGS, self.rng)
        else:
            yield random_matchings(self.nodes, MATCHINGS, self.rng)

    def _all_pairs(self) -> Iterator[Integers]:
        """Yield slots of all pairs, AT_ONCE in each part; a few nodes meet several times."""
        length = sweep_length(self.nodes)
        if length <= AT_ONCE:
            yield random_matchings(self.nodes, length * math.ceil(MATCHINGS / length), self.rng)
            return
        sweep = RoundRobin(self.nodes, self.rng)
        for begin in range(0, length, AT_ONCE):
            yield sweep.slots(begin, begin + AT_ONCE)

    def is_far(self, partners: Integers) -> Booleans:
        """Return which transfers [slots, nodes] are across racks."""
        if len(self.rack_names) == 1:
            return np.zeros(partners.shape, bool)
        return np.asarray(self.racks[partners] != self.racks)


def judged_racks(racks: Sequence[int] | Integers) -> Integers:
    """Return the racks with enough nodes to judge; none unless there are enough of them.

    Args:
        racks: of each node, the number of its rack.
    """
    sizes = np.bincount(np.asarray(racks, np.int64))
    large = np.flatnonzero(sizes >= LEAST_RACK)
    return large if len(large) >= LEAST_RACK else large[:0]
