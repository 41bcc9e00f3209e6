"""The graph of messages between ranks, and its shape: a ring, a torus, trees or levels of switches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Message, Trace

Pair = tuple[int, int]


Tree: TypeAlias = tuple[int, list["Tree"]]
"""A rank and the trees below it."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The pairs of ranks that exchange messages in one or more schedules."""

    ranks: int  # the number of ranks
    first: Mapping[Pair, Message]  # the first message from one rank to another

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Graph":
        first: dict[Pair, Message] = {}
        for trace in traces:
            for m in sorted(trace.messages, key=lambda m: m.departs):
                if not m.copies:
                    first.setdefault((m.source, m.target), m)
        return cls(traces[0].schedule.layout.ranks, first)

    @property
    def links(self) -> set[Pair]:
        """Pairs of ranks that exchange messages, the lower one first."""
        return _undirected(self.first)

    @property
    def neighbours(self) -> dict[int, list[int]]:
        """The ranks with which each rank exchanges messages, in order."""
        adjacent: dict[int, list[int]] = {me: [] for me in range(self.ranks)}
        for a, b in sorted(self.links):
            adjacent[a].append(b)
            if a != b:
                adjacent[b].append(a)
        for peers in adjacent.values():
            peers.sort()
        return adjacent

    def cycle(self) -> list[int] | None:
        """Return the ranks in the order of the one ring that they form, or None."""
        neighbours = self.neighbours
        if self.ranks < 3 or any(len(two) != 2 for two in neighbours.values()):
            return None
        order = [0]
        onwards = next((b for b in neighbours[0] if (0, b) in self.first), neighbours[0][0])
        while onwards:
            before = order[-1]
            order.append(onwards)
            onwards = next(b for b in neighbours[onwards] if b != before)
        return order if len(order) == self.ranks else None

    def torus(self) -> list[list[int]] | None:
        """Return the columns of a torus if ranks exchange messages with row or column neighbours only, else None."""
        links = self.links
        for down in range(2, self.ranks // 2 + 1):
            if self.ranks % down:
                continue
            columns = _undirected(
                (me, me // down * down + (me + 1) % down) for me in range(self.ranks)
            )
            rows = _undirected((me, (me + down) % self.ranks) for me in range(self.ranks))
            if links <= columns | rows and links & columns and links & rows:
                return [list(range(first, first + down)) for first in range(0, self.ranks, down)]
        return None

    def trees(self, root: int | None = None) -> list[Tree] | None:
        """Return the trees that the links form, or None; ``root`` is the root of the call, if it has one.

        Links of a tree go one way first: all towards its root, or all away from it.
        """
        neighbours = self.neighbours
        components = _components(neighbours)
        if len(self.links) != self.ranks - len(components) or not self.links:
            return None
        trees = []
        for component in components:
            top = root if root in component else self._root(component)
            if top is None:
                return None
            trees.append(_tree(neighbours, top, None))
        return trees

    def _root(self, component: set[int]) -> int | None:
        """Return the rank to which all first messages among ``component`` lead, or from which they all come."""
        earliest = []
        for a, b in self.links:
            if a in component:
                directions = [self.first[pair] for pair in ((a, b), (b, a)) if pair in self.first]
                directions.sort(key=lambda m: m.departs)
                if len(directions) > 1 and directions[0].departs == directions[1].departs:
                    return None
                earliest.append(directions[0])
        ends = component - {m.source for m in earliest}
        starts = component - {m.target for m in earliest}
        roots = (ends, starts) if any(m.folds for m in earliest) else (starts, ends)
        for candidates in roots:
            if len(candidates) == 1:
                return next(iter(candidates))
        return None


def _undirected(pairs: Iterable[Pair]) -> set[Pair]:
    return {(min(pair), max(pair)) for pair in pairs}


def _components(neighbours: Mapping[int, Sequence[int]]) -> list[set[int]]:
    left = set(neighbours)
    components = []
    while left:
        reached: set[int] = set()
        fresh = {min(left)}
        while fresh:
            reached |= fresh
            adjacent: set[int] = set()
            for me in fresh:
                adjacent.update(neighbours[me])
            fresh = adjacent - reached
        components.append(reached)
        left -= reached
    return components


def _tree(neighbours: Mapping[int, Sequence[int]], me: int, parent: int | None) -> Tree:
    return me, [_tree(neighbours, child, me) for child in neighbours[me] if child != parent]


def levels(graph: Graph, layout: Layout) -> list[list[int]] | None:
    """Return workers, and above them aggregators by distance; None if no aggregator exchanges messages."""
    neighbours = graph.neighbours
    layers = [list(range(layout.workers))]
    left = set(range(layout.workers, layout.ranks))
    if not any(neighbours[me] for me in left):
        return None
    while left:
        above = sorted(me for me in left if set(neighbours[me]) & set(layers[-1])) or sorted(left)
        layers.append(above)
        left -= set(above)
    return layers


def groups(layout: Layout) -> tuple[str, dict[int, list[int]]]:
    """Return ``node`` and the workers of each, or ``rack`` if nodes have one each; nothing if all have one place."""
    for tier, number in (("node", layout.node), ("rack", layout.rack)):
        groups_of_tier = layout.groups(tier)
        if 1 < len(groups_of_tier) < layout.workers:
            by_number = {number[members[0]]: members for members in groups_of_tier}
            return tier, dict(sorted(by_number.items()))
    return "", {}
