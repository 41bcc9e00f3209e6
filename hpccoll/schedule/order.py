"""Order: the interpreter that computes in which order a schedule adds the contributions to each element.

A place of a buffer holds the number of a summation tree: a contribution is a leaf, a fold a node.
The trees of the results say whether all ranks get the same bits, whether all elements are added in
one order, and how far a sum may be from the exact one. Two schedules, sizes or layouts give the
same bits for all values if, and only if, their trees are equal.

The error of a sum of floats is at most d u / (1 - d u) times the sum of the magnitudes, where d is
the depth of the tree and u the unit roundoff of the type: N. J. Higham: The accuracy of floating
point summation, SIAM J. Sci. Comput. 14 (1993) 783-799.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collective import CollectiveCall
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.place_walk import Extent, FoldPlaces, Ints, PlaceMemory
from hpccoll.schedule.reduction import BFLOAT16
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.summation_tree import (
    Digests,
    SummationTree,
    leaf,
    leaf_digests,
    node,
    node_digests,
)

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    BFLOAT16: 2.0**-8,
}
"""The largest relative error of one addition, by element type; integers have none."""

ORDERED_OPS = "sum", "avg", "prod"
"""The reductions whose bits depend on the order; those of min and max do not."""

MOST_CELLS = 1 << 25
"""The most places of all ranks that are walked at once: 128 MiB."""


def has_order(op: str, dtype: str) -> bool:
    """Return whether the bits of a reduction depend on its order."""
    return op in ORDERED_OPS and dtype in UNIT_ROUNDOFF


def error_bound(depth: int, dtype: str) -> float | None:
    """Return the largest error of a sum over the sum of its magnitudes; None if nothing bounds it.

    Underflow and overflow are left out.
    """
    roundoff = depth * UNIT_ROUNDOFF[dtype]
    if roundoff >= 1:
        return None
    return roundoff / (1 - roundoff)


class Forest:
    """Trees under numbers, so that a buffer is an array of numbers: 1 + rank is a leaf, 0 is undefined."""

    def __init__(self, ranks: int, folds: int = 0) -> None:
        leaves = 1 + ranks
        room = leaves + folds
        self._children = np.zeros((room, 2), np.int32)
        self._depth = np.zeros(room, np.int32)
        self._digest = np.zeros(room, np.uint64)
        self._digest[1:leaves] = leaf_digests(np.arange(ranks))
        self._leaves = leaves
        self._count = leaves

    def join(self, held: Ints, arriving: Ints) -> Ints:
        """Return the numbers of the sums of two trees each."""
        first = self._count
        self._count += len(held)
        self._make_room()
        numbers = slice(first, self._count)
        self._children[numbers, 0] = held
        self._children[numbers, 1] = arriving
        self._depth[numbers] = 1 + np.maximum(self._depth[held], self._depth[arriving])
        self._digest[numbers] = node_digests(self._digest[held], self._digest[arriving])
        return np.arange(first, self._count)

    def _make_room(self) -> None:
        if self._count <= len(self._depth):
            return
        room = max(self._count, 2 * len(self._depth))
        added = room - len(self._depth)
        self._children = np.concatenate([self._children, np.zeros((added, 2), np.int32)])
        self._depth = np.concatenate([self._depth, np.zeros(added, np.int32)])
        self._digest = np.concatenate([self._digest, np.zeros(added, np.uint64)])

    def depths(self, numbers: Ints) -> Ints:
        """Return how many additions the contributions of trees pass through at most."""
        return self._depth[numbers].astype(np.int64)

    def digests(self, numbers: Ints) -> Digests:
        """Return the digests of trees."""
        return self._digest[numbers]

    def tree(self, number: int) -> SummationTree:
        """Return the tree of a number."""
        numbers = {number}
        pending = [number]
        while pending:
            current = pending.pop()
            if current >= self._leaves:
                children = self._children[current].tolist()
                numbers.update(children)
                pending.extend(children)
        trees: dict[int, SummationTree] = {}
        for current in sorted(numbers):  # a sum has a larger number than what it adds
            if current < self._leaves:
                trees[current] = leaf(current - 1)
            else:
                held, arriving = self._children[current].tolist()
                trees[current] = node(trees[held], trees[arriving])
        return trees[number]


class _Sums(PlaceMemory):
    """What is folded in some of the places of all buffers, as numbers of trees."""

    def __init__(
        self, call: CollectiveCall, extent: Extent, places: range, forest: Forest, *, in_place: bool
    ) -> None:
        super().__init__(call, extent, places, in_place=in_place, dtype=np.int32)
        self.forest = forest

    def contributions(self, me: int, places: Ints) -> Ints:
        return np.full(len(places), 1 + me)

    def fold(self, held: Ints, arriving: Ints, _at: FoldPlaces) -> Ints:
        return self.forest.join(held, arriving)


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class ScheduleOrder:
    """The trees of the results of one schedule."""

    edges: Ints  # the units where the places begin, and the last one ends, ascending
    numbers: Ints  # the number of the tree of each place, at the first rank that has the result
    disagree: NDArray[np.bool]  # the places at which ranks have different trees
    digests: Digests  # of the tree of each place; of those of all ranks if they disagree
    depths: Ints  # of each place, the most of all ranks
    forest: Forest

    def tree(self, place: int) -> SummationTree:
        """Return the tree of a place, at the first rank that has the result."""
        return self.forest.tree(int(self.numbers[place]))

    def without_trees(self) -> "ScheduleOrder":
        """Return the order without its trees, which take most of its memory."""
        return replace(self, forest=Forest(0))

    @cached_property
    def ranks_agree(self) -> bool:
        """Whether all ranks have the same tree everywhere."""
        return not self.disagree.any()


def order_of(call: CollectiveCall, schedule: Schedule, *, in_place: bool = True) -> ScheduleOrder:
    """Return the trees of the results of a schedule of a reducing collective.

    Args:
        call: the call of the collective.
        schedule: one of its slices, which is proven.
        in_place: whether dst starts with the contributions, or src.

    Raises:
        ScheduleError: if something undefined is read.
    """
    extent = Extent.of(call, schedule)
    forest = Forest(schedule.layout.workers, extent.folds)
    numbers = np.zeros(extent.count, np.int64)
    disagree = np.zeros(extent.count, bool)
    depths = np.zeros(extent.count, np.int64)
    rank_digests = np.zeros(extent.count, np.uint64)
    groups = -(-extent.count * schedule.layout.ranks // MOST_CELLS)
    for places in extent.groups(groups):
        sums = _Sums(call, extent, places, forest, in_place=in_place)
        sums.run()
        for me in range(schedule.layout.workers):
            held = sums.places_of(call.target(me, schedule.units))
            result = sums.buffers["dst"][me, held]
            here = slice(places.start + held.start, places.start + held.stop)
            numbers[here] = np.where(numbers[here], numbers[here], result)
            digests = forest.digests(result)
            disagree[here] |= forest.digests(numbers[here]) != digests
            depths[here] = np.maximum(depths[here], forest.depths(result))
            rank_digests[here] += node_digests(leaf_digests(np.full(len(result), me)), digests)
    digests = np.where(disagree, rank_digests, forest.digests(numbers))
    return ScheduleOrder(extent.edges, numbers, disagree, digests, depths, forest)


@dataclass(frozen=True, slots=True)
class ElementOrder:
    """Which elements of the result have which tree: runs of neighbours with one tree."""

    edges: Ints  # where the runs begin, and the last one ends, in elements
    digests: Digests  # of the tree of each run

    @classmethod
    def of_runs(cls, starts: Ints, digests: Digests, count: int) -> "ElementOrder":
        """Return the order of ``count`` elements from runs, ascending; neighbours of one tree are joined."""
        change = np.ones(len(digests), bool)
        change[1:] = digests[1:] != digests[:-1]
        return cls(np.append(starts[change], count), digests[change])

    @property
    def trees(self) -> int:
        """The number of different trees."""
        return len(np.unique(self.digests))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits; those of the tree if all elements have one, whatever the size."""
        if len(self.digests) == 1:
            return f"{int(self.digests[0]):016x}"
        places = leaf_digests(self.edges[:-1])
        total = node_digests(places, self.digests).sum(dtype=np.uint64)
        return f"{int(node_digests(np.array([total]), leaf_digests(self.edges[-1:]))[0]):016x}"

    def agrees_with(self, order: "ElementOrder") -> bool:
        """Return whether the elements that both have, from the first one on, have the same trees."""
        return len(self.different_from(order)) == 0

    def different_from(self, order: "ElementOrder") -> Ints:
        """Return where the runs of elements begin that both have, and whose trees differ."""
        common = min(self.edges[-1], order.edges[-1])
        begins = np.union1d(self.edges[:-1], order.edges[:-1])
        begins = begins[begins < common]
        different: Ints = begins[self.digests_at(begins) != order.digests_at(begins)]
        return different

    def digests_at(self, elements: Ints) -> Digests:
        """Return the digests of the trees of elements."""
        return self.digests[np.searchsorted(self.edges, elements, side="right") - 1]


class _Runs(NamedTuple):
    """Runs of elements of one place each."""

    starts: Ints  # the first elements
    slices: Ints  # the slice of each
    places: Ints  # its place in the slice


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class BufferOrder:
    """The trees of a whole buffer: the orders of the slices, and where the cut puts their units."""

    slices: tuple[ScheduleOrder, ...]
    cut: Cut

    @cached_property
    def _runs(self) -> _Runs:
        """The runs of all lanes, ascending."""
        lanes = [self._runs_of_lane(lane) for lane in range(self.cut.lanes)]
        columns = [np.concatenate(column) for column in zip(*lanes, strict=True)]
        in_order = np.argsort(columns[0], kind="stable")
        return _Runs(*(column[in_order] for column in columns))

    def _runs_of_lane(self, lane: int) -> _Runs:
        number = lane % len(self.slices)
        edges = self.slices[number].edges
        starts, stops = self.cut.positions(lane, edges[:-1], edges[1:])
        some = np.flatnonzero(starts < stops)
        return _Runs(starts[some], np.full(len(some), number), some)

    @cached_property
    def elements(self) -> ElementOrder:
        """Which elements have which tree."""
        runs = self._runs
        digests = np.zeros(len(runs.starts), np.uint64)
        for number, order in enumerate(self.slices):
            here = runs.slices == number
            digests[here] = order.digests[runs.places[here]]
        count = self.cut.call.collective.blocks(self.cut.call.p) * self.cut.count
        return ElementOrder.of_runs(runs.starts, digests, count)

    @property
    def ranks_agree(self) -> bool:
        """Whether all ranks have the same trees."""
        return all(order.ranks_agree for order in self.slices)

    @property
    def depth(self) -> int:
        """The most additions that a contribution passes through."""
        return max(int(order.depths.max()) for order in self.slices)

    def trees(self) -> Iterator[tuple[int, SummationTree]]:
        """Yield each different tree, by digest, in the order of the first elements that have it."""
        yielded: set[int] = set()
        runs = self._runs
        for number, place in zip(runs.slices.tolist(), runs.places.tolist(), strict=True):
            digest = int(self.slices[number].digests[place])
            if digest not in yielded:
                yielded.add(digest)
                yield digest, self.slices[number].tree(place)


def buffer_order(
    call: CollectiveCall, schedules: Sequence[Schedule], cut: Cut, *, in_place: bool = True
) -> BufferOrder:
    """Return the trees of all elements; ``schedules`` are the slices, whose lanes ``cut`` has."""
    return BufferOrder(tuple(order_of(call, s, in_place=in_place) for s in schedules), cut)


def ranks_agree(
    call: CollectiveCall, schedules: Sequence[Schedule], *, in_place: bool = True
) -> bool:
    """Return whether all ranks end with the same trees, and so with the same bits; see ``order_of``."""
    if not call.collective.has_op:
        return True
    return all(order_of(call, s, in_place=in_place).ranks_agree for s in schedules)
