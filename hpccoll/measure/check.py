"""The check: fills the buffers before each operation, and compares the result after it."""

import numpy as np
from numpy.typing import NDArray

from hpccoll.measure.payload import TURNS, Array, Payload, bits

Bits = NDArray[np.unsignedinteger]


class Check:
    """Fills the buffers and checks the result, bit for bit and without allocating: it runs between timed iterations.

    The contribution is written anew each time, in either placement, as the program that computes it would: whose cache
    it lies in, and whether it is dirty there, changes the time by up to four.
    """

    def __init__(self, payload: Payload, src: Array, dst: Array, *, in_place: bool, turn: int = 0) -> None:
        """Prepare the values of all turns; the first reset begins the one after ``turn``, the same on all ranks."""
        extra = TURNS - 1
        self.turn, self._count = turn, payload.count
        fills = [(dst, payload.initial(in_place=in_place, extra=extra))]
        if not in_place:
            fills.append((src, payload.source(extra)))
        self._fills = [(self._blocks(buffer, 0), self._blocks(values, extra)) for buffer, values in fills]
        self._dst = self._blocks(dst, 0)
        self._expected = self._blocks(payload.expected(in_place=in_place, extra=extra), extra)
        self._differs = np.empty(self._dst.shape, bool)

    def _blocks(self, values: Array, extra: int) -> Bits:
        return bits(values).reshape(-1, self._count + extra)

    def _now(self, values: Bits) -> Bits:
        return values[:, self.turn : self.turn + self._count]

    def reset(self) -> None:
        """Put the buffers back to what they hold before an operation, the next one."""
        self.turn = (self.turn + 1) % TURNS
        for buffer, values in self._fills:
            np.copyto(buffer, self._now(values))

    def wrong(self) -> int:
        """Return how many elements of dst are wrong."""
        np.not_equal(self._dst, self._now(self._expected), self._differs)
        return int(np.count_nonzero(self._differs))
