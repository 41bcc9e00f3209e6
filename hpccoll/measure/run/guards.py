"""Guards: the memory next to the buffers of a case, which its operation must not write."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.hashed_words import hashed_words
from hpccoll.transports.guarded_memory import GuardedBuffer

Bits = NDArray[np.unsignedinteger]

GUARD_SEED = 1 << 16
"""The seed of the words of guards."""

BUFFER_NAMES = ("src", "dst", "the copy of src on the host", "the copy of dst on the host")
"""The buffers of a case, in the order in which transports list them."""


class Guard(NamedTuple):
    """The memory before or after a buffer, an array of NumPy or CuPy, and the words that it holds unless overwritten.

    ``where`` is the place in words, such as ``before dst``; ``on_host`` is whether the guard
    belongs to the copy on the host of a GPU buffer.
    """

    where: str
    memory: Any
    words: Bits
    on_host: bool

    def diagnose(self, content: NDArray[Any], rank: str) -> str | None:
        """Return how the ``content`` of this guard at ``rank`` differs from its words; None if it does not."""
        changed = int(np.count_nonzero(content.view(self.words.dtype) != self.words))
        if not changed:
            return None
        return f"{rank}: {changed} of {len(content)} elements {self.where} were overwritten"


def guards_of(guarded: Sequence[GuardedBuffer], me: int) -> Iterator[Guard]:
    """Yield the guards of the buffers of rank ``me``: at most two for each buffer."""
    for number, (name, buffer) in enumerate(zip(BUFFER_NAMES, guarded, strict=False)):
        itemsize = buffer.memory.itemsize
        for side, at in zip(("before", "after"), buffer.guards(), strict=True):
            if at:
                # They differ between buffers and ranks, so that a copy of guards to others is
                # detected.
                positions = np.arange(at.start, at.start + len(at))
                words = hashed_words(GUARD_SEED + number, me, positions).astype(f"u{itemsize}")
                memory = buffer.memory[at.start : at.stop]
                yield Guard(f"{side} {name}", memory, words, buffer.on_host)


class GuardCheck:
    """Compares guards in host memory, eight bytes at a time: for so few bytes NumPy's calls take longer."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = [
            (np.asarray(guard.memory).view(guard.words.dtype), guard.words) for guard in guards
        ]
        self._views = [(_as_uint64(memory), _as_uint64(words)) for memory, words in self._guards]
        self._overwritten = True

    def reset(self) -> None:
        """Restore the words of the guards if any were overwritten."""
        if self._overwritten:
            for memory, words in self._guards:
                np.copyto(memory, words)
            self._overwritten = False

    def wrong(self) -> int:
        for memory, words in self._views:
            if memory != words:
                self._overwritten = True
        if not self._overwritten:
            return 0
        return sum(int(np.count_nonzero(memory != words)) for memory, words in self._guards)


def _as_uint64(array: Bits) -> memoryview:
    return array.data.cast("B").cast("Q")
