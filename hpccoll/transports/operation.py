"""What a transport is given to compile, and what it gives back."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Collective, CollectiveCall, Cut, Layout, Part, Reduction, Schedule, out_of_place
from hpccoll.schedule.step import Range
from hpccoll.transports.guarded_memory import GuardedBuffer, GuardedBuffers, allocate_guarded

Array = NDArray[np.generic]


@dataclass(frozen=True)  # with no slots, so that a cut is made once
class Operation:
    """One collective call: the call, its schedules, and the shape of its buffers.

    Args:
        call: the call of a collective.
        layout: of all ranks.
        schedules: the slices of an algorithm, written in place; empty for a vendor's own call.
        count: elements of the whole buffer (divisible units), or of one block, the mean one (per-rank units).
        dtype: of the elements.
        reduction: folds two arrays.
        in_place: whether dst begins with the contribution; else it is in src, and dst begins undefined.
        channels: pieces of each slice that advance independently.
        window: how many channels, each with a lane for every slice, are in flight at once.
    """

    call: CollectiveCall
    layout: Layout
    schedules: tuple[Schedule, ...]
    count: int
    dtype: np.dtype[np.generic]
    reduction: Reduction
    in_place: bool
    channels: int = 1
    window: int = 1

    def __post_init__(self) -> None:
        if len({schedule.units for schedule in self.schedules}) > 1:
            raise ValueError("the slices of an algorithm have one number of units")
        if self.collective.token and self.lanes > 1:
            raise ValueError(f"{self.collective.name} moves one byte a unit, which cannot be cut into lanes")

    @property
    def collective(self) -> Collective:
        return self.call.collective

    @property
    def lanes(self) -> int:
        return len(self.schedules) * self.channels

    @cached_property
    def cut(self) -> Cut:
        return Cut(self.call, self.count, self.schedules[0].units, self.lanes, self.dtype.itemsize)

    @cached_property
    def api_cut(self) -> Cut:
        """The cut that callers know: one unit, or the block of each rank."""
        units = 1 if self.collective.units == "divisible" else self.layout.workers
        return Cut(self.call, self.count, units, 1, self.dtype.itemsize)

    def lane_schedule(self, number: int) -> Schedule:
        """Return the schedule of a lane, for the placement that is asked."""
        schedule = self.schedules[number % len(self.schedules)]
        return schedule if self.in_place else out_of_place(self.call, schedule)

    def elements(self, buffer: str, me: int) -> int:
        """Return the elements of src or dst at rank ``me``; dst has room for all units, its workspace among them."""
        return self.api_cut.elements(buffer, me)

    def result(self, dst: Array, me: int) -> Array:
        """Return the part of dst that is defined at rank ``me`` in the end."""
        return dst[self.span("dst", self.call.target(me, self.api_cut.units), me)]

    def contribution(self, src: Array, dst: Array, me: int) -> Array:
        """Return the part of src, or of dst in place, that rank ``me`` contributes."""
        buffer, name = (dst, "dst") if self.in_place else (src, "src")
        return buffer[self.span(name, self.call.source(me, self.api_cut.units), me)]

    def span(self, buffer: str, units: range, me: int) -> slice:
        """Return where neighbouring units of ``api_cut`` lie in a buffer of rank ``me``."""
        spans = self.api_cut.spans(0, me, Part(buffer, (Range(units.start, units.stop),))) if units else []
        return slice(*spans[0]) if spans else slice(0, 0)


class CompiledPlan(Protocol):
    """An operation compiled for one set of buffers.

    Args:
        result: where the result lies: the units of dst that are defined at this rank in the end. A check compares what
            the case promises, and holds this against it.
    """

    result: Array

    def run(self) -> None:
        """Do the operation once; when it returns, this rank's part of it is complete."""

    def progress(self) -> str:
        """Return how far a run has come, for a person who wonders why it does not end."""

    def close(self) -> None:
        """Free what the plan holds; it cannot run again."""


class Transport(Protocol):
    """How bytes move.

    Args:
        guarded: the buffers that ``empty`` gave, in that order, and then their copies on the host where it made some.
    """

    guarded: list[GuardedBuffer]

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer of ``count`` elements from memory that this transport moves well."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        """Compile ``operation``, on all ranks together, for these buffers (src is not read in place).

        Raises:
            PlanMismatchError: where the ranks' plans do not fit together.
        """

    def close(self) -> None:
        """Free the buffers that it gave, on all ranks together, after its plans."""


class PlanMismatchError(RuntimeError):
    """Two ranks disagree on what they send each other; names both."""


def check_agreement(strange: Sequence[Sequence[int]]) -> None:
    """See that no rank has others whose messages are strange to it, given those of each; on all ranks together.

    Raises:
        PlanMismatchError: on every rank; names both ranks of each pair that disagrees.
    """
    pairs = [(peer, me) for me, peers in enumerate(strange) for peer in peers]
    if pairs:
        words = [f"rank {source} is about to send what rank {target} does not expect" for source, target in pairs]
        raise PlanMismatchError("; ".join(words))


def aligned_empty(count: int, dtype: np.dtype[np.generic], alignment: int = 4096) -> Array:
    """Return an uninitialised array whose first element lies on a page."""
    room = np.empty(count * dtype.itemsize + alignment, np.uint8)
    offset = -room.ctypes.data % alignment
    return room[offset : offset + count * dtype.itemsize].view(dtype)


class HostBuffers(GuardedBuffers):
    """The same of transports whose buffers are ordinary memory of the host."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer: Array = self.keep(allocate_guarded(aligned_empty, count, dtype))
        return buffer


def address(array: Any) -> int:
    """Return where an array of NumPy or of CuPy begins."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
