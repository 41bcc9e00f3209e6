"""Buffers between guards: memory that no operation may write, so that a check detects writes out of bounds."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Allocate: TypeAlias = Callable[[int, np.dtype[np.generic]], Any]
"""Returns an uninitialised NumPy or CuPy array, given its length and dtype."""

MARGIN_BYTES = 4096
"""The unused bytes on each side of a buffer: one page, so that the buffer keeps the alignment of its memory."""

GUARD_BYTES = 512
"""The bytes of a margin next to the buffer that are guards. Larger guards would displace timed data from the caches."""


class GuardedBuffer(NamedTuple):
    """A buffer inside the memory that was allocated for it."""

    memory: Any
    start: int  # the first element that an operation may write
    stop: int  # the element after the last one that an operation may write
    on_host: bool = False  # whether this is the host copy of a GPU buffer

    @property
    def buffer(self) -> Any:
        return self.memory[self.start : self.stop]

    def narrow(self, span: slice) -> "GuardedBuffer":
        """Return the same memory with a smaller buffer: only its elements ``span`` may be written."""
        return self._replace(start=self.start + span.start, stop=self.start + span.stop)

    def guards(self) -> tuple[range, range]:
        """Return the elements of ``memory`` that are guards, before and after the buffer."""
        length = GUARD_BYTES // self.memory.itemsize
        before = range(max(0, self.start - length), self.start)
        return before, range(self.stop, min(self.stop + length, len(self.memory)))


def allocate_guarded(
    allocate: Allocate,
    count: int,
    dtype: np.dtype[np.generic],
    *,
    front: bool = True,
    on_host: bool = False,
) -> GuardedBuffer:
    """Return a buffer of ``count`` elements between two margins; an empty buffer has no margins.

    Without ``front`` the buffer begins where the memory does.
    """
    margin = MARGIN_BYTES // dtype.itemsize if count else 0
    start = margin if front else 0
    return GuardedBuffer(allocate(start + count + margin, dtype), start, start + count, on_host)


class GuardedBuffers:
    """The base of transports: it keeps each buffer that a transport allocates, with its guards."""

    def __init__(self, allocate: Allocate, *, front: bool = True) -> None:
        self.guarded: list[GuardedBuffer] = []
        self.allocate = allocate
        self._front = front

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Any:
        """Return an uninitialised buffer between guards, which is kept until ``close``."""
        self.guarded.append(allocate_guarded(self.allocate, count, dtype, front=self._front))
        return self.guarded[-1].buffer

    def close(self) -> None:
        """Drop the buffers; Python frees their memory with the last reference."""
        self.guarded.clear()

    def close_alone(self) -> None:
        """Free what this rank holds without the other ranks: after a stall, they may not come."""
        self.close()
