"""Guards: memory next to a buffer that no operation may write, so that a check sees when one does."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Allocate: TypeAlias = Callable[[int, np.dtype[np.generic]], Any]
"""Returns an uninitialised array of so many elements, of NumPy or of CuPy."""

MARGIN_BYTES = 4096
"""Bytes left free on each side of a buffer: one page, so that a buffer is aligned as the memory it is cut from."""

GUARD_BYTES = 512
"""The bytes of a margin that are guards, those next to the buffer; more of them would displace what is timed from the
caches."""


class GuardedBuffer(NamedTuple):
    """A buffer inside the memory that was allocated for it.

    Args:
        memory: all of it.
        start: element of it at which the part begins that an operation may write.
        stop: element behind the last one of that part.
        on_host: whether this is the copy on the host of a buffer of a GPU.
    """

    memory: Any
    start: int
    stop: int
    on_host: bool = False

    @property
    def buffer(self) -> Any:
        return self.memory[self.start : self.stop]

    def narrow(self, span: slice) -> "GuardedBuffer":
        """Return the same memory, of whose buffer only the elements of ``span`` may be written."""
        return self._replace(start=self.start + span.start, stop=self.start + span.stop)

    def guards(self) -> tuple[range, range]:
        """Return the elements of ``memory`` that are guards, before and after what may be written."""
        length = GUARD_BYTES // self.memory.itemsize
        before = range(max(0, self.start - length), self.start)
        return before, range(self.stop, min(self.stop + length, len(self.memory)))


def allocate_guarded(
    allocate: Allocate, count: int, dtype: np.dtype[np.generic], *, front: bool = True, on_host: bool = False
) -> GuardedBuffer:
    """Return a buffer of ``count`` elements between two margins; an empty one has none.

    Args:
        allocate: gives the memory.
        count: elements of the buffer.
        dtype: of the elements.
        front: whether there is a margin before it; else the buffer begins where the memory does.
        on_host: whether it is the copy on the host of a buffer of a GPU.
    """
    margin = MARGIN_BYTES // dtype.itemsize if count else 0
    start = margin if front else 0
    return GuardedBuffer(allocate(start + count + margin, dtype), start, start + count, on_host)


class GuardedBuffers:
    """What transports have in common: they keep each buffer that they give, with the memory around it."""

    def __init__(self) -> None:
        self.guarded: list[GuardedBuffer] = []

    def keep(self, made: GuardedBuffer) -> Any:
        """Return the buffer of ``made``."""
        self.guarded.append(made)
        return made.buffer

    def close(self) -> None:
        """Let go of the buffers: their memory is freed once nobody names them."""
        self.guarded.clear()
