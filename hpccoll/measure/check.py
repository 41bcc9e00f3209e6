"""The check: fills the buffers before each operation, and compares what it may and may not write after it."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.measure.guard_check import Guard
from hpccoll.measure.payload import Payload
from hpccoll.measure.payload_values import Array, bits
from hpccoll.spec.memory import GENERATIONS

Bits = NDArray[np.unsignedinteger]

EXTRA = GENERATIONS - 1
"""Elements by which the values of a unit are longer than the unit: a turn begins one element after the one before."""


class _Blocks(NamedTuple):
    """Neighbouring units of one length in a buffer, [unit, element], and their values in all turns, as many longer."""

    buffer: Bits
    values: Bits

    def now(self, generation: int) -> Bits:
        return self.values[:, generation : generation + self.buffer.shape[1]]


def _blocks(buffer: Array, values: Sequence[Array]) -> Iterator[_Blocks]:
    """Yield the units of a buffer, in which they lie one after the other, those of one length together."""
    begin = 0
    for length, alike in groupby(values, len):
        units = list(alike)
        rows = bits(np.stack(units) if len(units) > 1 else units[0][np.newaxis])  # one unit, the largest, as it is
        end = begin + len(rows) * (length - EXTRA)
        yield _Blocks(bits(buffer[begin:end]).reshape(len(rows), -1), rows)
        begin = end


class GuardCheck:
    """Compares guards in the memory of the host, eight bytes at a time: NumPy's calls take longer for so few."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = [(bits(np.asarray(guard.memory)), guard.words) for guard in guards]
        self._views = [(_eights(memory), _eights(words)) for memory, words in self._guards]
        self._spoiled = True

    def reset(self) -> None:
        """Have guards hold their words, where they do not."""
        if self._spoiled:
            for memory, words in self._guards:
                np.copyto(memory, words)
            self._spoiled = False

    def wrong(self) -> int:
        """Return how many elements of guards have been written."""
        for found, words in self._views:
            if found != words:
                self._spoiled = True
        if not self._spoiled:
            return 0
        return sum(int(np.count_nonzero(memory != words)) for memory, words in self._guards)


def _eights(array: Bits) -> memoryview:
    return array.data.cast("B").cast("Q")


def wrong_size(result: Any, expected: int) -> int:
    """Return how many elements are wrong because the result has another size than is expected: all, or none."""
    return 0 if len(result) == expected else expected or len(result)


class Check:
    """Fills the buffers and checks them, bit for bit and without allocating: it runs between timed iterations.

    The contribution is written anew each time, in either placement, as the program that computes it would: whose cache
    it lies in, and whether it is dirty there, changes the time by up to four. So to have read it after the operation
    changes nothing for the next one.
    """

    def __init__(
        self, payload: Payload, src: Array, dst: Array, result: Array, *, in_place: bool, generation: int = 0,
        guards: Sequence[Guard] = (),
    ) -> None:  # fmt: skip
        """Prepare the values of all turns; the first reset begins the one after ``generation``, the same on all ranks.

        Args:
            payload: the values.
            src: where the contribution is, unless in place.
            dst: the units of dst that ``payload.filled_units`` names.
            result: where the result is to be; one of another size than ``payload`` promises is wrong in all elements.
            in_place: whether dst begins with the contribution.
            generation: which of the turns has been.
            guards: memory that the operation may not write.
        """
        self.generation = generation
        self._fills = [*_blocks(dst, payload.initial(in_place=in_place, extra=EXTRA))]
        source = [] if in_place else [*_blocks(src, payload.source(EXTRA))]
        self._fills += source
        self._misfit = wrong_size(result, payload.expected_length)
        values = [] if self._misfit else _blocks(result, payload.expected(in_place=in_place, extra=EXTRA))
        compared = [*source, *values]
        room = np.empty(max((blocks.buffer.size for blocks in compared), default=0), bool)  # for each in its turn
        self._compared = [(blocks, room[: blocks.buffer.size].reshape(blocks.buffer.shape)) for blocks in compared]
        self._guards = GuardCheck(guards)

    def reset(self) -> None:
        """Put the buffers back to what they hold before an operation, the next one."""
        self.generation = (self.generation + 1) % GENERATIONS
        self._guards.reset()
        for blocks in self._fills:
            np.copyto(blocks.buffer, blocks.now(self.generation))

    def wrong(self) -> int:
        """Return how many elements are wrong: of the result, of src, and next to the buffers."""
        total = self._misfit + self._guards.wrong()
        for blocks, differs in self._compared:
            np.not_equal(blocks.buffer, blocks.now(self.generation), differs)
            total += int(np.count_nonzero(differs))
        return total
