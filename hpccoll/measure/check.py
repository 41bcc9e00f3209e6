"""The check: fills the buffers before each operation, and compares the result after it."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.measure.payload import TURNS, Payload
from hpccoll.measure.values import Array, bits

Bits = NDArray[np.unsignedinteger]


class _Blocks(NamedTuple):
    """Neighbouring units of one length in a buffer, [unit, element], and their values in all turns, as many longer."""

    buffer: Bits
    values: Bits

    def now(self, turn: int) -> Bits:
        return self.values[:, turn : turn + self.buffer.shape[1]]


def _blocks(buffer: Array, values: Sequence[Array]) -> Iterator[_Blocks]:
    """Yield the units of a buffer, in which they lie one after the other, those of one length together."""
    begin = 0
    for length, alike in groupby(values, len):
        units = list(alike)
        rows = bits(np.stack(units) if len(units) > 1 else units[0][np.newaxis])  # one unit, the largest, as it is
        end = begin + len(rows) * (length - TURNS + 1)
        yield _Blocks(bits(buffer[begin:end]).reshape(len(rows), -1), rows)
        begin = end


class Check:
    """Fills the buffers and checks the result, bit for bit and without allocating: it runs between timed iterations.

    The contribution is written anew each time, in either placement, as the program that computes it would: whose cache
    it lies in, and whether it is dirty there, changes the time by up to four.
    """

    def __init__(
        self, payload: Payload, src: Array, dst: Array, result: Array, *, in_place: bool, turn: int = 0
    ) -> None:
        """Prepare the values of all turns; the first reset begins the one after ``turn``, the same on all ranks.

        Args:
            payload: the values.
            src: where the contribution is, unless in place.
            dst: the units of dst that ``payload.filled`` names.
            result: where the plan leaves what is promised.
            in_place: whether dst begins with the contribution.
            turn: which of the turns has been.
        """
        extra = TURNS - 1
        self.turn = turn
        self._fills = [*_blocks(dst, payload.initial(in_place=in_place, extra=extra))]
        if not in_place:
            self._fills += _blocks(src, payload.source(extra))
        self._expected = [*_blocks(result, payload.expected(in_place=in_place, extra=extra))]
        self._differs = [np.empty(blocks.buffer.shape, bool) for blocks in self._expected]

    def reset(self) -> None:
        """Put the buffers back to what they hold before an operation, the next one."""
        self.turn = (self.turn + 1) % TURNS
        for blocks in self._fills:
            np.copyto(blocks.buffer, blocks.now(self.turn))

    def wrong(self) -> int:
        """Return how many elements of the result are wrong."""
        total = 0
        for blocks, differs in zip(self._expected, self._differs, strict=True):
            np.not_equal(blocks.buffer, blocks.now(self.turn), differs)
            total += int(np.count_nonzero(differs))
        return total
