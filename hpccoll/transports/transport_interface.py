"""Operations and the plans that transports compile from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Collective, CollectiveCall, Cut, Layout, Part, Reduction, Schedule, out_of_place
from hpccoll.schedule.step import Range
from hpccoll.transports.guarded_memory import GuardedBuffer, GuardedBuffers, allocate_guarded

Array = NDArray[np.generic]


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class Operation:
    """One collective call: the call, its schedules, and the shape of its buffers.

    Args:
        call: the call of a collective.
        layout: the layout of all ranks.
        schedules: the schedules of an algorithm's slices, in their in-place form; empty for a vendor's own call.
        count: the elements of the whole buffer (divisible units), or of the mean block (per-rank units).
        dtype: the dtype of the elements.
        reduction: the reduction, which folds two arrays.
        in_place: whether dst holds the contribution; otherwise src holds it, and dst is undefined at the start.
        channels: the number of pieces of each slice that advance independently.
        window: the number of channels in flight at once; each has a lane for every slice.
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
            raise ValueError("all slices of an algorithm must have the same number of units")
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
        """The cut of the collective's API: one unit, or one block for each rank."""
        units = 1 if self.collective.units == "divisible" else self.layout.workers
        return Cut(self.call, self.count, units, 1, self.dtype.itemsize)

    def lane_schedule(self, number: int) -> Schedule:
        """Return the schedule of a lane, in or out of place as the operation is."""
        schedule = self.schedules[number % len(self.schedules)]
        return schedule if self.in_place else out_of_place(self.call, schedule)

    def elements(self, buffer: str, me: int) -> int:
        """Return the length of src or dst at rank ``me`` in elements; dst holds all units, including its workspace."""
        return self.api_cut.elements(buffer, me)

    def result(self, dst: Array, me: int) -> Array:
        """Return the part of dst that is defined at rank ``me`` after the operation."""
        return dst[self.span("dst", self.call.target(me, self.api_cut.units), me)]

    def contribution(self, src: Array, dst: Array, me: int) -> Array:
        """Return the part of src (in place: of dst) that rank ``me`` contributes."""
        buffer, name = (dst, "dst") if self.in_place else (src, "src")
        return buffer[self.span(name, self.call.source(me, self.api_cut.units), me)]

    def span(self, buffer: str, units: range, me: int) -> slice:
        """Return the elements of consecutive units of ``api_cut`` in a buffer of rank ``me``."""
        spans = self.api_cut.spans(0, me, Part(buffer, (Range(units.start, units.stop),))) if units else []
        return slice(*spans[0]) if spans else slice(0, 0)


class CompiledPlan(Protocol):
    """An operation compiled for one set of buffers.

    Args:
        result: the part of dst that is defined at this rank after the operation. The check compares it with the
            expected result.
    """

    result: Array

    @property
    def run(self) -> Callable[[], None]:
        """A function that runs the operation once; on its return, this rank's part is complete.

        The caller guarantees that a GPU is idle, because a wait inside would be timed: ``GpuCheck.reset``, which
        precedes each run of the timing loop, warm-up and counting pass included, returns when the GPU has finished.
        """

    def progress(self) -> str:
        """Return a description of how far a run has come, for reports on stalled runs."""

    def close(self) -> None:
        """Free the plan's resources; it cannot run again."""


class Transport(Protocol):
    """A way to move bytes.

    Args:
        guarded: the buffers from ``empty``, in that order, and then their host copies, if any.
    """

    guarded: list[GuardedBuffer]

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer of ``count`` elements in memory suited to this transport."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        """Compile ``operation`` for these buffers; all ranks call this together. In place, src is unused.

        Raises:
            PlanMismatchError: if the plans of the ranks do not match.
        """

    def close(self) -> None:
        """Free the buffers after all plans are closed; all ranks call this together."""


class PlanMismatchError(RuntimeError):
    """Two ranks disagree on the messages between them; the message names both."""


def check_agreement(mismatched_peers: Sequence[Sequence[int]]) -> None:
    """Check that the plans of all ranks match; all ranks call this with the same argument.

    Args:
        mismatched_peers: for each rank, the peers that would send messages that it does not expect.

    Raises:
        PlanMismatchError: on every rank, if any pair disagrees; names both ranks of each pair.
    """
    pairs = [(peer, me) for me, peers in enumerate(mismatched_peers) for peer in peers]
    if pairs:
        raise PlanMismatchError(
            "; ".join(
                f"rank {source} would send messages that rank {target} does not expect" for source, target in pairs
            )
        )


def aligned_empty(count: int, dtype: np.dtype[np.generic], alignment: int = 4096) -> Array:
    """Return an uninitialised array whose first element is aligned to ``alignment`` bytes."""
    memory = np.empty(count * dtype.itemsize + alignment, np.uint8)
    offset = -memory.ctypes.data % alignment
    return memory[offset : offset + count * dtype.itemsize].view(dtype)


class HostBuffers(GuardedBuffers):
    """The base of transports whose buffers are ordinary host memory."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer: Array = self.keep(allocate_guarded(aligned_empty, count, dtype))
        return buffer


def address(array: Any) -> int:
    """Return the address of the first element of a NumPy or CuPy array."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)
