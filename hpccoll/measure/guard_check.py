"""Outside: the memory next to the buffers of an operation, which it may not write."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.measure.payload_values import guard_words
from hpccoll.transports.guarded_memory import GuardedBuffer

BUFFERS = ("src", "dst", "the copy of src on the host", "the copy of dst on the host")
"""The buffers of a case, in the order in which transports give them."""


class Guard(NamedTuple):
    """Memory before or after a buffer.

    Args:
        where: it is, in words.
        memory: an array of NumPy or of CuPy.
        words: what it holds as long as nothing writes there.
        on_host: whether it belongs to a copy on the host of a buffer of a GPU.
    """

    where: str
    memory: Any
    words: NDArray[np.unsignedinteger]
    on_host: bool

    def diagnose(self, found: NDArray[Any], rank: str) -> str | None:
        """Return how ``found``, what the memory of ``rank`` holds now, differs from ``words``; None for not at all."""
        changed = int(np.count_nonzero(found.view(self.words.dtype) != self.words))
        return f"{rank}: {changed} of {len(found)} elements {self.where} were overwritten" if changed else None


def guards_of(guarded: Sequence[GuardedBuffer], me: int) -> Iterator[Guard]:
    """Yield the guards of the buffers of rank ``me``: at most two of each."""
    for number, (name, buffer) in enumerate(zip(BUFFERS, guarded, strict=False)):
        itemsize = buffer.memory.itemsize
        for side, at in zip(("before", "after"), buffer.guards(), strict=True):
            if at:
                memory = buffer.memory[at.start : at.stop]
                yield Guard(f"{side} {name}", memory, guard_words(number, me, at, itemsize), buffer.on_host)
