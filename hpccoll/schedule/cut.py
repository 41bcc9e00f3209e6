"""Where the units of a schedule lie in the buffers of a rank, in elements."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.step import Part

if TYPE_CHECKING:
    from hpccoll.schedule.collective import CollectiveCall

GRAIN = 128
"""Bounds are multiples of this many bytes where the size allows: two cache lines, and a full NVLink packet."""


Numbers: TypeAlias = int | NDArray[np.int64]


def edge(number: Numbers, count: Numbers, pieces: int, grain: int) -> NDArray[np.int64]:
    """Return where piece ``number`` begins of ``count`` elements in pieces as equal as whole grains allow.

    With fewer than one grain a piece, the cut is by element. The odd elements at the end go to the
    last piece.
    """
    counts = np.asarray(count, np.int64)
    grains = np.where(counts < pieces * grain, 1, grain)
    begin = number * (counts // grains) // pieces * grains
    return np.where(number == np.int64(pieces), counts, begin)


def bounds(count: Numbers, pieces: int, grain: int) -> NDArray[np.int64]:
    """Return where every piece begins and the last one ends, see ``edge``: pieces + 1 bounds, on a last axis."""
    numbers = np.arange(pieces + 1, dtype=np.int64)
    counts = np.asarray(count, np.int64)[..., np.newaxis]
    return edge(numbers, counts, pieces, grain)


@dataclass(frozen=True)
class Cut:
    """A buffer cut by lane and unit.

    A lane is a slice of a channel (lanes.py). Divisible units are cut by lane and then by unit, so
    that a lane is contiguous; per-rank units are blocks, each cut by lane.
    """

    # decides between the two, which units src has, and whether blocks are unequal
    call: "CollectiveCall"
    # elements of the whole buffer (divisible units), or of one block, the mean one (per-rank units)
    count: int
    units: int  # units of each lane
    lanes: int  # the number of lanes
    itemsize: int  # bytes of an element

    @property
    def grain(self) -> int:
        """Elements of a grain."""
        return max(1, GRAIN // self.itemsize)

    @property
    def _divisible(self) -> bool:
        return self.call.collective.units == "divisible"

    @cached_property
    def _lanes(self) -> NDArray[np.int64]:
        return bounds(self.count, self.lanes, self.grain)

    @cached_property
    def _edges(self) -> list[NDArray[np.int64]]:
        sizes = [int(size) for size in np.diff(self._lanes)]
        if self._divisible:
            return [bounds(size, self.units, self.grain) for size in sizes]
        return [np.arange(self.units + 1, dtype=np.int64) * size for size in sizes]

    def edges(self, lane: int) -> NDArray[np.int64]:
        """Return the bounds of the equal units of ``lane`` among themselves, ``units + 1`` of them, from 0 up."""
        return self._edges[lane]

    def positions(
        self, lane: int, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where ranges of equal units of ``lane`` begin and end in the buffer of all units, in elements.

        A range of per-rank units, which do not lie side by side, is one block.
        """
        if self._divisible:
            edges = self.edges(lane) + self._lanes[lane]
            return edges[first], edges[last]
        begins = first * self.count
        return begins + self._lanes[lane], begins + self._lanes[lane + 1]

    def lengths(self, lane: int, part: Part, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements that ``part``, whose ranges are arrays over the ranks ``at``, has there in ``lane``."""
        total = np.zeros(len(at), np.int64)
        for r in part.ranges:
            first, last = (np.broadcast_to(np.asarray(end, np.int64), len(at)) for end in r)
            if self.call.traffic is None:
                total += self.edges(lane)[last] - self.edges(lane)[first]
            else:
                which, units = units_of_ranges(first, last)
                sizes = self.sizes(part.buffer, at[which], units)
                begin = edge(lane, sizes, self.lanes, self.grain)
                end = edge(lane + 1, sizes, self.lanes, self.grain)
                np.add.at(total, which, end - begin)
        return total

    def sizes(self, buffer: str, me: Numbers, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements of unequal blocks: of ``units`` of ``buffer`` at one rank, or at a rank for each."""
        blocks = self.call.blocks(self.count)
        if blocks is None or buffer == "tmp":
            raise ValueError(f"{buffer} has no unequal blocks")
        sizes: NDArray[np.int64] = blocks[me, units] if buffer == "src" else blocks[units, me]
        return sizes

    def elements(self, buffer: str, me: int) -> int:
        """Return the elements that src or dst has at rank ``me``, dst with all units."""
        if self.call.traffic is not None:
            if me >= self.call.p:
                return 0
            return int(self.sizes(buffer, me, np.arange(self.call.p)).sum())
        blocks = len(self.call.source(me, self.units)) if buffer == "src" else self.units
        if self._divisible and blocks:
            return self.count
        return blocks * self.count

    def spans(self, lane: int, me: int, part: Part) -> list[tuple[int, int]]:
        """Return the element ranges [start, stop) of ``part`` in its buffer at rank ``me``, adjacent ones joined."""
        spans: list[tuple[int, int]] = []
        for start, stop in self._pieces(lane, me, part):
            if spans and spans[-1][1] == start:
                spans[-1] = spans[-1][0], stop
            elif start < stop:
                spans.append((start, stop))
        return spans

    def _pieces(self, lane: int, me: int, part: Part) -> Iterator[tuple[int, int]]:
        """Yield the element range of each range of divisible units, or of each block."""
        if self._divisible:
            edges = self.edges(lane) + self._lanes[lane]
            for r in part.ranges:
                yield int(edges[r.first]), int(edges[r.last])
        elif self.call.traffic is None:
            start = int(self._lanes[lane])
            stop = int(self._lanes[lane + 1])
            first_block = self._first_block(part.buffer, me)
            for unit in part.units:
                block = (unit - first_block) * self.count
                yield block + start, block + stop
        else:
            offsets = _offsets(self, part.buffer, me)
            for unit in part.units:
                yield int(offsets[unit, lane]), int(offsets[unit, lane + 1])

    def _first_block(self, buffer: str, me: int) -> int:
        """Return the unit at the start of a buffer: src has only the blocks that rank ``me`` contributes."""
        if buffer != "src":
            return 0
        contributed = self.call.source(me, self.units)
        return contributed[0] if contributed else 0


@lru_cache(maxsize=64)  # of a rank: what all ranks have is too much for each of them to keep
def _offsets(cut: Cut, buffer: str, me: int) -> NDArray[np.int64]:
    """Return where the lanes of unequal blocks lie in ``buffer`` at rank ``me``, [unit, lane + 1]."""
    sizes = cut.sizes(buffer, me, np.arange(cut.call.p))
    starts = sizes.cumsum() - sizes
    return bounds(sizes, cut.lanes, cut.grain) + starts[:, np.newaxis]


def units_of_ranges(
    first: NDArray[np.int64], last: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the units of the ranges [first[i], last[i]), one after the other, and before them the i of each."""
    lengths = last - first
    if len(lengths) and lengths.min() == lengths.max() == 1:
        return np.arange(len(first)), first
    which = np.repeat(np.arange(len(lengths)), lengths)
    # how many units precede the range of each
    before = np.repeat(lengths.cumsum() - lengths, lengths)
    return which, np.arange(lengths.sum()) - before + first[which]
