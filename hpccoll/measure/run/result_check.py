"""Checks results on the host: fills the buffers before each operation and compares them bit for bit after it."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.memory_estimate import GENERATIONS
from hpccoll.measure.run.guards import Bits, Guard, GuardCheck
from hpccoll.measure.run.payload import EXTRA, Array, Payload, bits


class ValueBlocks(NamedTuple):
    """Adjacent units of equal length, [unit, element]; ``values`` are of all generations, EXTRA elements longer."""

    buffer: Bits
    values: Bits

    def values_of(self, generation: int) -> Bits:
        return self.values[:, generation : generation + self.buffer.shape[1]]


def _blocks(buffer: Array, values: Sequence[Array]) -> Iterator[ValueBlocks]:
    """Yield the units of a buffer, grouped by length; the units are contiguous in the buffer."""
    begin = 0
    for length, group in groupby(values, len):
        units = list(group)
        # no copy of one unit: it is large
        rows = bits(np.stack(units) if len(units) > 1 else units[0][np.newaxis])
        end = begin + len(rows) * (length - EXTRA)
        yield ValueBlocks(bits(buffer[begin:end]).reshape(len(rows), -1), rows)
        begin = end


class Check:
    """Fills the buffers and checks them without allocating memory, because it runs between timed iterations.

    The contribution is rewritten before each operation, in place and out of place, as an
    application that computes it would do. The cache that holds the buffer, and whether its lines
    are dirty, changes the time by a factor of up to four. Reading the contribution after an
    operation therefore does not affect the next operation.
    """

    def __init__(
        self,
        payload: Payload,
        src: Array,
        dst: Array,
        result: Array,
        *,
        in_place: bool,
        generation: int = 0,
        guards: Sequence[Guard] = (),
    ) -> None:
        """Prepare the values of all generations; the first reset begins the one after ``generation``.

        ``dst`` has the units that ``payload.filled_units`` names; ``result`` is the part of dst
        that is to hold the result: if its size is not that of the call, all elements are wrong.
        ``guards`` are the memory that the operation must not write.
        """
        self.generation = generation
        self.fills = list(_blocks(dst, payload.initial(in_place=in_place, extra=EXTRA)))
        source = [] if in_place else list(_blocks(src, payload.source(EXTRA)))
        self.fills += source
        self.missized = payload.missized(result)
        values = (
            []
            if self.missized
            else _blocks(result, payload.expected(in_place=in_place, extra=EXTRA))
        )
        self.compared = [*source, *values]
        self._guards = GuardCheck(guards)
        self.guard_blocks = [
            ValueBlocks(bits(np.asarray(guard.memory))[np.newaxis], guard.words[np.newaxis])
            for guard in guards
        ]
        """The guards as blocks whose values are the same in all generations."""

    @cached_property
    def _differs(self) -> NDArray[np.bool]:
        return np.empty(max((blocks.buffer.size for blocks in self.compared), default=0), bool)

    def reset(self) -> None:
        """Fill the buffers with the values of the next generation, as they must be before an operation."""
        self.generation = (self.generation + 1) % GENERATIONS
        self._guards.reset()
        for blocks in self.fills:
            np.copyto(blocks.buffer, blocks.values_of(self.generation))

    def wrong(self) -> int:
        total = self.missized + self._guards.wrong()
        for blocks in self.compared:
            differs = self._differs[: blocks.buffer.size].reshape(blocks.buffer.shape)
            np.not_equal(blocks.buffer, blocks.values_of(self.generation), differs)
            total += int(np.count_nonzero(differs))
        return total
