"""An operation: one collective call with its schedules, and where its contribution and its result lie in buffers.

The pieces of its buffer, channels and slices of them, are lanes, which run in sequences: see
lanes.py.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.collective import Collective, CollectiveCall
from hpccoll.schedule.cut import Cut
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.out_of_place import out_of_place
from hpccoll.schedule.reduction import Reduction
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part, Range
from hpccoll.schedule.walk import Trace, trace_schedule

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class Operation:
    """One collective call: the call, its schedules, and the shape of its buffers."""

    call: CollectiveCall
    layout: Layout  # the layout of all ranks
    # the schedules of an algorithm's slices, in their in-place form; empty for a vendor's own call
    slices: tuple[Schedule, ...]
    # the elements of the whole buffer (divisible units), or of the mean block (per-rank units)
    count: int
    dtype: np.dtype[np.generic]  # the dtype of the elements
    reduction: Reduction  # the reduction, which folds two arrays
    # whether dst holds the contribution; otherwise src holds it, and dst is undefined at the start
    in_place: bool
    channels: int = 1  # the number of pieces of the buffer, each cut into the slices
    window: int = 1  # the number of channels in flight at once

    def __post_init__(self) -> None:
        if len({schedule.units for schedule in self.slices}) > 1:
            raise ValueError("all slices of an algorithm must have the same number of units")
        if self.collective.token and self.lanes > 1:
            raise ValueError(
                f"{self.collective.name} moves one byte a unit, which cannot be cut into lanes"
            )

    @property
    def collective(self) -> Collective:
        return self.call.collective

    @property
    def description(self) -> str:
        """What all ranks must agree on."""
        return f"{self.collective.name} {self.count} {self.dtype} {self.reduction.name}"

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return len(self.slices) * self.channels

    @cached_property
    def cut(self) -> Cut:
        return Cut(self.call, self.count, self.slices[0].units, self.lanes, self.dtype.itemsize)

    @cached_property
    def traces(self) -> list[Trace]:
        """The messages of the schedule of each slice."""
        return [trace_schedule(self.lane_schedule(number)) for number in range(len(self.slices))]

    @cached_property
    def api_cut(self) -> Cut:
        """The cut of the collective's API: one unit, or one block for each rank."""
        units = 1 if self.collective.units == "divisible" else self.layout.workers
        return Cut(self.call, self.count, units, 1, self.dtype.itemsize)

    @property
    def sequences(self) -> list[range]:
        """The lanes of each sequence, in the order in which they run."""
        return lane_sequences(len(self.slices), self.lanes, self.window)

    def lane_schedule(self, number: int) -> Schedule:
        """Return the schedule of a lane, in or out of place as the operation is."""
        schedule = self.slices[number % len(self.slices)]
        if self.in_place:
            return schedule
        return out_of_place(self.call, schedule)

    def elements(self, buffer: str, me: int) -> int:
        """Return the length of src or dst at rank ``me`` in elements; dst holds all units, including its workspace."""
        return self.api_cut.elements(buffer, me)

    def result(self, dst: Array, me: int) -> Array:
        """Return the part of dst that is defined at rank ``me`` after the operation."""
        units = self.call.target(me, self.api_cut.units)
        return dst[self.span("dst", units, me)]

    def contribution(self, src: Array, dst: Array, me: int) -> Array:
        """Return the part of src (in place: of dst) that rank ``me`` contributes."""
        units = self.call.source(me, self.api_cut.units)
        if self.in_place:
            return dst[self.span("dst", units, me)]
        return src[self.span("src", units, me)]

    def span(self, buffer: str, units: range, me: int) -> slice:
        """Return the elements of consecutive units of ``api_cut`` in a buffer of rank ``me``."""
        if not units:
            return slice(0, 0)
        part = Part(buffer, (Range(units.start, units.stop),))
        spans = self.api_cut.spans(0, me, part)
        return slice(*spans[0]) if spans else slice(0, 0)
