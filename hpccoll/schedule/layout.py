"""The layout of the ranks: workers and aggregators, and the node, rack and rail of each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isqrt, lcm

import numpy as np
from numpy.typing import NDArray

TIERS = ("rank", "node", "rack", "fabric")
"""The tiers of a message: to the rank itself, inside its node, inside its rack, or between racks."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The ranks of a job: the workers first, in order, then the aggregators."""

    node: tuple[int, ...]  # the node of each rank, workers before aggregators
    rack: tuple[int, ...] = ()  # the rack of each rank [one rack]
    rail: tuple[int, ...] = ()  # the rail (network port of a node) that each rank uses [one rail]
    aggregators: int = 0  # ranks, the last ones, that contribute nothing and end with nothing

    def __post_init__(self) -> None:
        for name in ("rack", "rail"):
            locations = getattr(self, name) or (0,) * len(self.node)
            if len(locations) != len(self.node):
                raise ValueError(f"{name} names {len(locations)} places for {len(self.node)} ranks")
            object.__setattr__(self, name, locations)
        if not 0 <= self.aggregators < len(self.node):
            raise ValueError(
                f"{self.aggregators} aggregators among {len(self.node)} ranks leave no worker"
            )

    @classmethod
    def of(cls, workers: int, ranks_per_node: int | None = None, aggregators: int = 0) -> "Layout":
        """Return ``workers`` in blocks of ``ranks_per_node`` [all on one node]; aggregators have nodes of their own."""
        if workers < 1:
            raise ValueError(f"{workers} workers are none")
        per_node = ranks_per_node or workers
        nodes = -(-workers // per_node)
        homes = [me // per_node for me in range(workers)]
        return cls((*homes, *range(nodes, nodes + aggregators)), aggregators=aggregators)

    def with_aggregators(self, count: int) -> "Layout":
        """Return this layout with ``count`` aggregators added, each on a node of its own.

        If there is one rack, they are in it. If there are more racks, each rack has an aggregator,
        provided that there are enough, and the other aggregators are in no rack of workers.
        """
        nodes = self.nodes
        racks = self.racks
        if racks == 1:
            above_racks = [0] * count
        elif racks <= count:
            above_racks = [*range(racks), *range(2 * racks, racks + count)]
        else:
            above_racks = list(range(racks, racks + count))
        return Layout(
            node=(*self.node, *range(nodes, nodes + count)),
            rack=(*self.rack, *above_racks),
            rail=(*self.rail, *[0] * count),
            aggregators=count,
        )

    def subset(self, group: Sequence[int]) -> "Layout":
        """Return the layout of some of the ranks, workers before aggregators, numbered in the order given."""
        return Layout(
            node=tuple(self.node[me] for me in group),
            rack=tuple(self.rack[me] for me in group),
            rail=tuple(self.rail[me] for me in group),
            aggregators=sum(me >= self.workers for me in group),
        )

    def renumbered(self) -> "Layout":
        """Return the layout with nodes, racks and rails numbered from 0 in the order of their first ranks."""
        return Layout(
            _renumbered(self.node), _renumbered(self.rack), _renumbered(self.rail), self.aggregators
        )

    def groups(self, tier: str) -> list[list[int]]:
        """Return the workers on each node, in each rack or on each rail, as ``tier`` says."""
        groups: dict[int, list[int]] = {}
        for me, location in enumerate(getattr(self, tier)[: self.workers]):
            groups.setdefault(location, []).append(me)
        return list(groups.values())

    @property
    def ranks(self) -> int:
        return len(self.node)

    @property
    def workers(self) -> int:
        return len(self.node) - self.aggregators

    @property
    def nodes(self) -> int:
        """The nodes that hold workers."""
        return len(set(self.node[: self.workers]))

    @property
    def racks(self) -> int:
        """The racks that hold workers."""
        return len(set(self.rack[: self.workers]))

    @property
    def ranks_per_node(self) -> int | None:
        """The workers on every node, or None where the nodes differ."""
        counts = set(Counter(self.node[: self.workers]).values())
        if len(counts) > 1:
            return None
        return counts.pop()

    @property
    def mapping(self) -> str:
        """How consecutive ranks lie on the nodes: ``block``, ``cyclic`` or ``mixed``."""
        node = self.node[: self.workers]
        # how often the next rank is on another node
        changes = sum(a != b for a, b in pairwise(node))
        if changes == self.nodes - 1:
            return "block"
        if changes == len(node) - 1:
            return "cyclic"
        return "mixed"

    def tier(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for messages from ``source[i]`` to ``target[i]``, how far they go, as an index of TIERS."""
        node = np.array(self.node)
        rack = np.array(self.rack)
        same_node = node[source] == node[target]
        same_rack = rack[source] == rack[target]
        return np.select([source == target, same_node, same_rack], [0, 1, 2], 3)


def _renumbered(places: tuple[int, ...]) -> tuple[int, ...]:
    """Return the places of all ranks, numbered from 0 in the order of their first ranks."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    return tuple(map(numbers.__getitem__, places))


def least_period(values: NDArray[np.integer]) -> int:
    """Return the least divisor d of the length of ``values`` for which each of them is the one d places before."""
    count = len(values)
    small = [divisor for divisor in range(1, isqrt(count) + 1) if count % divisor == 0]
    large = [count // divisor for divisor in reversed(small)]
    for period in (*small, *large):
        if np.array_equal(values[period:], values[: count - period]):
            return period
    return 1


@lru_cache(maxsize=8)
def equal_block(layout: Layout) -> int:
    """Return the least number of consecutive ranks that look like all that follow them.

    Each node, port, rack and uplink is used by ranks of one block alone, at the same places in each
    block: how far a rank is from the first one that shares with it repeats after a block. The ports
    of aggregators differ from others.
    """
    if layout.aggregators:
        return layout.ranks
    node = np.array(layout.node)
    rack = np.array(layout.rack)
    rail = np.array(layout.rail)
    rails = int(rail.max()) + 1
    shared = [node, node * rails + rail]
    if (rack != rack[0]).any():
        shared += [rack, rack * rails + rail]
    everyone = np.arange(layout.ranks)
    away = []
    for owner in shared:
        first = np.empty(int(owner.max()) + 1, np.int64)
        # the last one that is assigned, which is the first rank, remains
        first[owner[::-1]] = everyone[::-1]
        away.append(everyone - first[owner])
    return lcm(*map(least_period, away))
