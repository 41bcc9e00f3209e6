"""Checks results on the host: fills the buffers before each operation and compares them bit for bit after it.

Guards, the memory next to the buffers, are checked too, because the operation must not write there.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.memory_estimate import GENERATIONS
from hpccoll.measure.payload import Payload
from hpccoll.measure.payload_values import Array, bits, guard_words
from hpccoll.transports.guarded_memory import GuardedBuffer

Bits = NDArray[np.unsignedinteger]

EXTRA = GENERATIONS - 1
"""The number of elements by which the values of a unit are longer than the unit. Each generation begins one element
after the previous one, so that one array holds all generations."""

BUFFER_NAMES = ("src", "dst", "the copy of src on the host", "the copy of dst on the host")
"""The buffers of a case, in the order in which transports list them."""


class Guard(NamedTuple):
    """The memory before or after a buffer.

    Args:
        where: the place in words, such as ``before dst``.
        memory: the guard as an array of NumPy or CuPy.
        words: the content of the guard as long as nothing overwrites it.
        on_host: whether the guard belongs to the copy on the host of a GPU buffer.
    """

    where: str
    memory: Any
    words: Bits
    on_host: bool

    def diagnose(self, found: NDArray[Any], rank: str) -> str | None:
        """Return how the content ``found`` of this guard at ``rank`` differs from its words; None if it does not."""
        changed = int(np.count_nonzero(found.view(self.words.dtype) != self.words))
        return f"{rank}: {changed} of {len(found)} elements {self.where} were overwritten" if changed else None


def guards_of(guarded: Sequence[GuardedBuffer], me: int) -> Iterator[Guard]:
    """Yield the guards of the buffers of rank ``me``: at most two for each buffer."""
    for number, (name, buffer) in enumerate(zip(BUFFER_NAMES, guarded, strict=False)):
        itemsize = buffer.memory.itemsize
        for side, at in zip(("before", "after"), buffer.guards(), strict=True):
            if at:
                memory = buffer.memory[at.start : at.stop]
                yield Guard(f"{side} {name}", memory, guard_words(number, me, at, itemsize), buffer.on_host)


class GuardCheck:
    """Compares guards in host memory, eight bytes at a time: for so few bytes NumPy's calls take longer."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = [(bits(np.asarray(guard.memory)), guard.words) for guard in guards]
        self._views = [(_as_uint64(memory), _as_uint64(words)) for memory, words in self._guards]
        self._overwritten = True

    def reset(self) -> None:
        """Restore the words of the guards if any were overwritten."""
        if self._overwritten:
            for memory, words in self._guards:
                np.copyto(memory, words)
            self._overwritten = False

    def wrong(self) -> int:
        """Return the number of elements of guards that were overwritten."""
        for found, words in self._views:
            if found != words:
                self._overwritten = True
        if not self._overwritten:
            return 0
        return sum(int(np.count_nonzero(memory != words)) for memory, words in self._guards)


def _as_uint64(array: Bits) -> memoryview:
    return array.data.cast("B").cast("Q")


class ValueBlocks(NamedTuple):
    """Adjacent units of equal length.

    Args:
        buffer: the units in their buffer, [unit, element].
        values: their values in all generations, EXTRA elements longer.
    """

    buffer: Bits
    values: Bits

    def values_of(self, generation: int) -> Bits:
        return self.values[:, generation : generation + self.buffer.shape[1]]


def _blocks(buffer: Array, values: Sequence[Array]) -> Iterator[ValueBlocks]:
    """Yield the units of a buffer, grouped by length; the units are contiguous in the buffer."""
    begin = 0
    for length, group in groupby(values, len):
        units = list(group)
        rows = bits(np.stack(units) if len(units) > 1 else units[0][np.newaxis])  # no copy of one unit: it is large
        end = begin + len(rows) * (length - EXTRA)
        yield ValueBlocks(bits(buffer[begin:end]).reshape(len(rows), -1), rows)
        begin = end


def elements_of_wrong_size(result: Any, expected: int) -> int:
    """Return the number of wrong elements if the result has not the expected size: all of them; else 0."""
    return 0 if len(result) == expected else expected or len(result)


class Check:
    """Fills the buffers and checks them without allocating memory, because it runs between timed iterations.

    The contribution is rewritten before each operation, in place and out of place, as an application that computes it
    would do. The cache that holds the buffer, and whether its lines are dirty, changes the time by a factor of up to
    four. Reading the contribution after an operation therefore does not affect the next operation.
    """

    def __init__(
        self, payload: Payload, src: Array, dst: Array, result: Array, *, in_place: bool, generation: int = 0,
        guards: Sequence[Guard] = (),
    ) -> None:  # fmt: skip
        """Prepare the values of all generations.

        Args:
            payload: the values.
            src: the buffer of the contribution; not used in place.
            dst: the units of dst that ``payload.filled_units`` names.
            result: the part of dst that is to hold the result. If its size differs from ``payload.expected_length``,
                all elements are wrong.
            in_place: whether dst holds the contribution before the operation.
            generation: the generation before the first one, equal on all ranks; the first reset advances it by 1.
            guards: the memory that the operation must not write.
        """
        self.generation = generation
        self.fills = [*_blocks(dst, payload.initial(in_place=in_place, extra=EXTRA))]
        source = [] if in_place else [*_blocks(src, payload.source(EXTRA))]
        self.fills += source
        self.missized = elements_of_wrong_size(result, payload.expected_length)
        values = [] if self.missized else _blocks(result, payload.expected(in_place=in_place, extra=EXTRA))
        self.compared = [*source, *values]
        self._guards = GuardCheck(guards)
        self.guard_blocks = [
            ValueBlocks(bits(np.asarray(guard.memory))[np.newaxis], guard.words[np.newaxis]) for guard in guards
        ]
        """The guards as blocks whose values are the same in all generations."""

    @cached_property
    def _differs(self) -> NDArray[np.bool]:
        """Room for the results of comparisons, shared by all blocks."""
        return np.empty(max((blocks.buffer.size for blocks in self.compared), default=0), bool)

    def reset(self) -> None:
        """Fill the buffers with the values of the next generation, as they must be before an operation."""
        self.generation = (self.generation + 1) % GENERATIONS
        self._guards.reset()
        for blocks in self.fills:
            np.copyto(blocks.buffer, blocks.values_of(self.generation))

    def wrong(self) -> int:
        """Return the number of wrong elements: in the result, in src, and in the guards."""
        total = self.missized + self._guards.wrong()
        for blocks in self.compared:
            differs = self._differs[: blocks.buffer.size].reshape(blocks.buffer.shape)
            np.not_equal(blocks.buffer, blocks.values_of(self.generation), differs)
            total += int(np.count_nonzero(differs))
        return total
