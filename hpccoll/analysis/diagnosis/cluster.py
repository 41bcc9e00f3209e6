"""What a procedure knows of the machine that it diagnoses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.analysis.diagnosis.matchings import level_matchings, random_matchings, sweep_length
from hpccoll.analysis.diagnosis.records import LEAST_RACK, Booleans, Integers

MATCHINGS = 16
"""Slots of the screen. 8 are enough from 256 nodes on; 24 find hardly more."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, what is known of them, and the random numbers of one diagnosis."""

    racks: Integers  # [nodes]: the number of the rack of each, from 0 on; all 0 if racks are unknown
    rng: np.random.Generator
    rack_names: Integers  # [racks]: their numbers on the whole machine
    links: bool  # whether single links are looked for, which takes all pairs
    rails: int = 1  # the rails diagnosed beside each other, which share the chance of a false alarm

    @classmethod
    def of(cls, racks: Integers, rng: np.random.Generator, *, links: bool, rails: int = 1) -> "Cluster":
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
        size = np.bincount(self.racks)
        return len(size) > 1 and 2 * size[size >= LEAST_RACK].sum() > self.nodes

    def screen(self) -> Integers:
        """Return the slots [slots, nodes] of the screen: all pairs if links are looked for."""
        if self.links:
            length = sweep_length(self.nodes)
            return random_matchings(self.nodes, length * math.ceil(MATCHINGS / length), self.rng)
        if self.has_level_rounds:
            return level_matchings(self.racks, MATCHINGS, self.rng)
        return random_matchings(self.nodes, MATCHINGS, self.rng)

    def is_far(self, partners: Integers) -> Booleans:
        """Return which transfers [slots, nodes] are across racks."""
        return np.asarray(self.racks[partners] != self.racks)


def judged_racks(racks: Sequence[int] | Integers) -> Integers:
    """Return the racks with enough nodes to judge; none unless there are enough of them.

    Args:
        racks: of each node, the number of its rack.
    """
    large = np.flatnonzero(np.bincount(np.asarray(racks, np.int64)) >= LEAST_RACK)
    return large if len(large) >= LEAST_RACK else large[:0]
