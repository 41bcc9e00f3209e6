"""Where the units of a schedule lie in the buffers of a rank, in elements."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collectives import Promise
from hpccoll.schedule.words import Part

GRAIN = 128
"""Bounds are multiples of this many bytes where the size allows: two cache lines, and a full NVLink packet."""


def bounds(count: int | NDArray[np.int64], pieces: int, grain: int) -> NDArray[np.int64]:
    """Cut ``count`` elements into ``pieces`` as equal as whole grains allow; returns pieces + 1 bounds, on a last axis.

    With fewer than one grain a piece, the cut is by element. The odd elements at the end go to the last piece.
    """
    counts = np.asarray(count, np.int64)[..., np.newaxis]
    grains = np.where(counts < pieces * grain, 1, grain)
    edges = np.arange(pieces + 1, dtype=np.int64) * (counts // grains) // pieces * grains
    edges[..., -1:] = counts
    return edges


@dataclass(frozen=True)
class Cut:
    """A buffer cut by lane and unit.

    A lane is a slice of a channel: it has a schedule of its own and advances by itself. Free units are cut by lane and
    then by unit, so that a lane is contiguous; owned units are blocks, each cut by lane.

    Args:
        promise: decides between the two, which units src has, and whether blocks are unequal.
        count: elements of the whole buffer (free) or of one block (owned), the mean one where they are unequal.
        units: units of each lane.
        lanes: the number of lanes.
        itemsize: bytes of an element.
    """

    promise: Promise
    count: int
    units: int
    lanes: int
    itemsize: int

    @property
    def _grain(self) -> int:
        return max(1, GRAIN // self.itemsize)

    @property
    def _free(self) -> bool:
        return self.promise.collective.units == "free"

    @cached_property
    def _lanes(self) -> NDArray[np.int64]:
        return bounds(self.count, self.lanes, self._grain)

    @cached_property
    def _unequal(self) -> NDArray[np.int64] | None:
        """The bounds of the lanes in every block, [from, to, lane + 1]; None where blocks are equal."""
        blocks = self.promise.blocks(self.count)
        return None if blocks is None else bounds(blocks, self.lanes, self._grain)

    @cached_property
    def _edges(self) -> list[NDArray[np.int64]]:
        sizes = [int(size) for size in np.diff(self._lanes)]
        if self._free:
            return [bounds(size, self.units, self._grain) for size in sizes]
        return [np.arange(self.units + 1, dtype=np.int64) * size for size in sizes]

    def edges(self, lane: int) -> NDArray[np.int64]:
        """Return the bounds of the equal units of ``lane`` among themselves, ``units + 1`` of them, from 0 up."""
        return self._edges[lane]

    def lengths(self, lane: int, part: Part, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements that ``part``, whose ranges are arrays over the ranks ``at``, has there in ``lane``."""
        total = np.zeros(len(at), np.int64)
        for r in part.ranges:
            if self._unequal is None:
                edges = self.edges(lane)
                total += edges[r.last] - edges[r.first]
            else:
                spread = (np.broadcast_to(units, len(at)) for units in r)
                found = [self._of_blocks(lane, part.buffer, *places) for places in zip(at, *spread, strict=True)]
                total += np.array(found, np.int64)  # of no ranks, too
        return total

    def _of_blocks(self, lane: int, buffer: str, me: int, first: int, last: int) -> int:
        blocks = self._blocks(buffer, me)[first:last]
        return int((blocks[:, lane + 1] - blocks[:, lane]).sum())

    def _blocks(self, buffer: str, me: int) -> NDArray[np.int64]:
        """Return the bounds of the lanes in the unequal blocks of ``buffer`` at rank ``me``, [unit, lane + 1]."""
        if self._unequal is None or buffer == "tmp":
            raise ValueError(f"{buffer} has no unequal blocks")
        return self._unequal[me] if buffer == "src" else self._unequal[:, me]

    def elements(self, buffer: str, me: int) -> int:
        """Return the elements that src or dst has at rank ``me``, dst with all units."""
        if self._unequal is not None:
            return int(self._blocks(buffer, me)[:, -1].sum()) if me < self.promise.p else 0
        held = len(self.promise.source(me, self.units)) if buffer == "src" else self.units
        return self.count if self._free and held else held * self.count

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
        if self._free:
            edges = self.edges(lane) + self._lanes[lane]
            yield from ((int(edges[r.first]), int(edges[r.last])) for r in part.ranges)
            return
        units = [unit for r in part.ranges for unit in range(int(r.first), int(r.last))]
        if self._unequal is None:
            first, last = int(self._lanes[lane]), int(self._lanes[lane + 1])
            source = self.promise.source(me, self.units) if part.buffer == "src" else ()
            base = source[0] if source else 0
            yield from (((unit - base) * self.count + first, (unit - base) * self.count + last) for unit in units)
        else:
            blocks = self._blocks(part.buffer, me)
            begins = np.concatenate([[0], blocks[:, -1].cumsum()])
            yield from ((int(begins[u] + blocks[u, lane]), int(begins[u] + blocks[u, lane + 1])) for u in units)
