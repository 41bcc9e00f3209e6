"""Where the units of a schedule lie in the buffers of a rank, in elements."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collectives import Collective
from hpccoll.schedule.words import Part

GRAIN = 128
"""Bounds are multiples of this many bytes where the size allows: two cache lines, and a full NVLink packet."""


def bounds(count: int, pieces: int, grain: int) -> NDArray[np.int64]:
    """Cut ``count`` elements into ``pieces`` as equal as whole grains allow; returns pieces + 1 bounds.

    With fewer than one grain a piece, the cut is by element. The odd elements at the end go to the last piece.
    """
    if count < pieces * grain:
        grain = 1
    edges = np.arange(pieces + 1, dtype=np.int64) * (count // grain) // pieces * grain
    edges[-1] = count
    return edges


@dataclass(frozen=True)
class Cut:
    """A buffer cut by lane and unit.

    A lane is a slice of a channel: it has a schedule of its own and advances by itself. Free units are cut by lane and
    then by unit, so that a lane is contiguous; owned units are blocks, each cut by lane.

    Args:
        collective: decides between the two, and which units each buffer has room for.
        count: elements of the whole buffer (free) or of one block (owned).
        units: units of each lane.
        lanes: the number of lanes.
        itemsize: bytes of an element.
    """

    collective: Collective
    count: int
    units: int
    lanes: int
    itemsize: int

    @cached_property
    def _lanes(self) -> NDArray[np.int64]:
        return bounds(self.count, self.lanes, max(1, GRAIN // self.itemsize))

    @cached_property
    def _edges(self) -> list[NDArray[np.int64]]:
        sizes = [int(size) for size in np.diff(self._lanes)]
        if self.collective.units == "free":
            return [bounds(size, self.units, max(1, GRAIN // self.itemsize)) for size in sizes]
        return [np.arange(self.units + 1, dtype=np.int64) * size for size in sizes]

    def edges(self, lane: int) -> NDArray[np.int64]:
        """Return the bounds of the units of ``lane`` among themselves, ``units + 1`` of them, from 0 up."""
        return self._edges[lane]

    def lengths(self, lane: int, part: Part) -> NDArray[np.int64]:
        """Return the elements of ``part`` in ``lane``; one for each entry of its ranges where they are arrays."""
        edges = self.edges(lane)
        return np.asarray(sum((edges[r.last] - edges[r.first] for r in part.ranges), start=np.int64(0)))

    def spans(self, lane: int, me: int, part: Part) -> list[tuple[int, int]]:
        """Return the element ranges [start, stop) of ``part`` in its buffer at rank ``me``, adjacent ones joined."""
        first, last = int(self._lanes[lane]), int(self._lanes[lane + 1])
        spans: list[tuple[int, int]] = []

        def add(start: int, stop: int) -> None:
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            if start < stop:
                spans.append((start, stop))

        if self.collective.units == "free":
            edges = self.edges(lane) + first
            for r in part.ranges:
                add(int(edges[r.first]), int(edges[r.last]))
        else:
            base = self.collective.holds(part.buffer, me, self.units).start
            for r in part.ranges:
                for unit in range(int(r.first), int(r.last)):
                    add((unit - base) * self.count + first, (unit - base) * self.count + last)
        return spans
