"""The graph of messages between ranks, and its shape: a ring, a torus, trees or levels of switches."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Message, Trace

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tree:
    """A rank and the trees below it."""

    rank: int
    below: tuple["Tree", ...]

    @property
    def depth(self) -> int:
        """The levels, the rank's own among them."""
        return 1 + max((tree.depth for tree in self.below), default=0)


@dataclass(frozen=True, slots=True)
class Graph:
    """The pairs of ranks that exchange messages in one or more schedules.

    Args:
        ranks: the number of ranks.
        first: the first message from one rank to another.
    """

    ranks: int
    first: Mapping[Pair, Message]

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> "Graph":
        first: dict[Pair, Message] = {}
        ranks = 0
        for trace in traces:
            ranks = trace.schedule.layout.ranks
            for m in sorted(trace.messages, key=lambda m: m.departs):
                if not m.copies:
                    first.setdefault((m.source, m.target), m)
        return cls(ranks, first)

    @property
    def links(self) -> set[Pair]:
        """Pairs of ranks that exchange messages, the lower one first."""
        return {(min(pair), max(pair)) for pair in self.first}

    @property
    def neighbours(self) -> dict[int, list[int]]:
        """The ranks with which each rank exchanges messages, in order."""
        adjacent: dict[int, set[int]] = defaultdict(set)
        for a, b in self.links:
            adjacent[a].add(b)
            adjacent[b].add(a)
        return {me: sorted(adjacent[me]) for me in range(self.ranks)}

    def cycle(self) -> list[int] | None:
        """Return the ranks in the order of the one ring that they form, or None."""
        neighbours = self.neighbours
        if self.ranks < 3 or any(len(two) != 2 for two in neighbours.values()):
            return None
        order = [0]
        onwards = next((b for b in neighbours[0] if (0, b) in self.first), neighbours[0][0])
        while onwards != 0:
            before, me = order[-1], onwards
            order.append(me)
            onwards = next(b for b in neighbours[me] if b != before)
        return order if len(order) == self.ranks else None

    def torus(self) -> list[list[int]] | None:
        """Return the columns of a torus if ranks exchange messages with row or column neighbours only, else None."""
        for down in range(2, self.ranks // 2 + 1):
            directions = {self._direction(*link, down) for link in self.links} if self.ranks % down == 0 else set()
            if directions == {"row", "column"}:
                return [list(range(first, first + down)) for first in range(0, self.ranks, down)]
        return None

    def _direction(self, a: int, b: int, down: int) -> str:
        """Return whether two ranks are neighbours in a ``row`` or a ``column`` of ``down`` consecutive ranks."""
        across = self.ranks // down
        if a // down == b // down and (b - a) % down in (1, down - 1):
            return "column"
        return "row" if a % down == b % down and (b - a) // down % across in (1, across - 1) else ""

    def trees(self, root: int | None = None) -> list[Tree] | None:
        """Return the trees that the links form, or None.

        Links of a tree go one way first: all towards its root, or all away from it.

        Args:
            root: the root of the call, if it has one.
        """
        components = _components(self.neighbours)
        if len(self.links) != self.ranks - len(components) or not self.links:
            return None
        trees = []
        for component in components:
            top = root if root in component else self._root(component)
            if top is None:
                return None
            trees.append(_tree(self.neighbours, top, None))
        return trees

    def _root(self, component: Sequence[int]) -> int | None:
        """Return the rank to which all first messages among ``component`` lead, or from which they all come."""
        earliest = []
        for link in (link for link in self.links if link[0] in component):
            one, *other = sorted(
                (self.first[pair] for pair in (link, link[::-1]) if pair in self.first), key=lambda m: m.departs
            )
            if other and other[0].departs == one.departs:
                return None
            earliest.append(one)
        sources, targets = {m.source for m in earliest}, {m.target for m in earliest}
        ends, starts = [me for me in component if me not in sources], [me for me in component if me not in targets]
        folds = any(m.folds for m in earliest)
        roots = (ends, starts) if folds else (starts, ends)
        return next((candidates[0] for candidates in roots if len(candidates) == 1), None)


def _components(neighbours: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Return the ranks that are joined by links, group by group."""
    left, components = set(neighbours), []
    while left:
        reached, fresh = set(), {min(left)}
        while fresh:
            reached |= fresh
            fresh = {b for a in fresh for b in neighbours[a]} - reached
        components.append(sorted(reached))
        left -= reached
    return components


def _tree(neighbours: Mapping[int, Sequence[int]], me: int, parent: int | None) -> Tree:
    below = [_tree(neighbours, child, me) for child in neighbours[me] if child != parent]
    return Tree(me, tuple(below))


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


def groups(layout: Layout) -> list[list[int]] | None:
    """Return the workers node by node, or rack by rack if nodes have one each; None if there is one place."""
    for positions in (layout.node, layout.rack):
        nodes: dict[int, list[int]] = defaultdict(list)
        for me in range(layout.workers):
            nodes[positions[me]].append(me)
        if 1 < len(nodes) < layout.workers:
            return [nodes[position] for position in sorted(nodes)]
    return None
