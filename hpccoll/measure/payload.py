"""The payload: values that say which rank and position they come from, and that any order of folding keeps exact.

A value is a seeded hash of (origin, position), squeezed into what the dtype can fold exactly over p ranks: for sums,
integers whose total stays below the precision; for products, signs and powers of two whose product neither over- nor
underflows; for min and max, any. Positions repeat with the prime PERIOD, so that a part which is missing, doubled,
stale or displaced differs from what is expected in most of its elements. After nccl-tests (verifiable/verifiable.h).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Collective, Reduction
from hpccoll.units import format_size

PERIOD = 65521
"""Elements after which the values repeat: a prime, so that no displacement by whole cache lines below 8 MiB hides."""

Array = NDArray[np.generic]


def _hash(seed: int, origin: int) -> NDArray[np.uint64]:
    """Return PERIOD well-mixed words (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014)."""
    x = np.arange(PERIOD, dtype=np.uint64) + np.uint64(((seed << 20) + origin + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _exact(dtype: np.dtype[np.generic]) -> int:
    """Return the largest n such that all integers up to n, and their sums up to n, are exact."""
    return int(np.iinfo(dtype).max) if np.issubdtype(dtype, np.integer) else 2 ** (np.finfo(dtype).nmant + 1)


def _doublings(dtype: np.dtype[np.generic]) -> int:
    """Return how many factors of two (or halves) a product can take."""
    return int(np.iinfo(dtype).bits) - 2 if np.issubdtype(dtype, np.integer) else -int(np.finfo(dtype).minexp)


def _takes_part(origin: int, p: int, room: int) -> NDArray[np.bool]:
    """Return at which positions ``origin`` is one of the at most ``room`` ranks of p that have a value of weight."""
    turns = -(-p // room)
    return (np.arange(PERIOD) + origin) % turns == 0


def contribution(seed: int, origin: int, p: int, dtype: np.dtype[np.generic], op: str) -> Array:
    """Return the values of rank ``origin`` at positions 0 to PERIOD - 1."""
    words = _hash(seed, origin)
    if op in ("sum", "avg"):
        room = min(p, _exact(dtype))
        top = min(_exact(dtype) // room, 1 << 16)
        values = np.where(_takes_part(origin, p, room), 1 + words % np.uint64(top), np.uint64(0))
    elif op == "prod":
        weighty = _takes_part(origin, p, _doublings(dtype))
        sign = np.where(words & np.uint64(1), 1, -1)
        exponent = np.where(words & np.uint64(2), 1, 0 if np.issubdtype(dtype, np.integer) else -1)
        values = sign * np.where(weighty, np.exp2(exponent), 1)
    else:
        top = min(_exact(dtype), 1 << 16)
        values = (words % np.uint64(top)).astype(np.int64) - top // 2
    return values.astype(dtype)


def _cyclic(values: Array, start: int, length: int) -> Array:
    """Return ``length`` of the periodic values from position ``start`` on."""
    return np.resize(np.roll(values, -(start % PERIOD)), length)


@dataclass(frozen=True)
class Payload:
    """What one rank contributes to a case, and what it must end with.

    Args:
        collective: decides who contributes what to whom.
        reduction: the op.
        dtype: of the elements.
        count: elements of the whole buffer (free units) or of one block (owned units).
        p: workers.
        me: this rank.
        floor: whether nothing is to happen to dst.
        seed: another seed gives other values.
    """

    collective: Collective
    reduction: Reduction
    dtype: np.dtype[np.generic]
    count: int
    p: int
    me: int
    floor: bool = False
    seed: int = 1

    def _values(self, origin: int) -> Array:
        return contribution(self.seed, origin, self.p, self.dtype, self.reduction.name)

    def source(self) -> Array:
        """Return what src holds: this rank's contribution, all of it or its own block."""
        start = self.me * self.count if self.collective.source == "own" else 0
        length = self.count * (self.collective.blocks(self.p) if self.collective.source == "all" else 1)
        return _cyclic(self._values(self.me), start, length)

    def poison(self) -> Array:
        """Return the value that dst holds where nothing has been written, one element."""
        number = np.nan if np.issubdtype(self.dtype, np.floating) else np.iinfo(self.dtype).max // 3
        return np.array([number], self.dtype)

    def initial(self, *, in_place: bool) -> Array:
        """Return what dst holds before the operation."""
        blocks = self.collective.blocks(self.p) if self.collective.target == "all" else 1
        dst = np.resize(self.poison(), self.count * blocks)
        if in_place:
            at = self.me * self.count if self.collective.source == "own" and self.collective.target == "all" else 0
            dst[at : at + len(self.source())] = self.source()
        return dst

    def expected(self, *, in_place: bool) -> Array:
        """Return what dst must hold after the operation, bit for bit."""
        return self.initial(in_place=in_place) if self.floor else self._folded({})

    def _folded(self, times: Mapping[int, int]) -> Array:
        """Return dst if the contribution of each rank in ``times`` were folded that often, and others once."""
        units = 1 if self.collective.units == "free" else self.p
        blocks = []
        for unit in self.collective.holds("dst", self.me, units):
            parts = sorted(self.collective.promises(self.p, self.me, unit))
            blocks.append(self._fold_unit(parts, times))
        dst = np.concatenate(blocks)
        self.reduction.scale(dst, self.p)
        return dst

    def _fold_unit(self, parts: Iterable[tuple[int, int]], times: Mapping[int, int]) -> Array:
        """Fold contributions (origin, unit); free units are all folded alike, as the one unit of a whole buffer."""
        values = (
            np.roll(self._values(origin), -(unit * self.count % PERIOD))
            for origin, unit in parts
            for _ in range(times.get(origin, 1))
        )
        first = next(values, np.resize(self.poison(), PERIOD))
        return np.resize(reduce(self.reduction.fold, values, first), self.count)

    def diagnose(self, dst: Array, *, in_place: bool) -> str | None:
        """Return what is wrong with ``dst`` after the operation, in words, or None where nothing is."""
        expected = self.expected(in_place=in_place)
        wrong = np.flatnonzero(_bits(dst) != _bits(expected))
        if not len(wrong):
            return None
        itemsize = self.dtype.itemsize
        where = f"{len(wrong)} of {len(dst)} elements, from {format_size(int(wrong[0]) * itemsize)} on"
        return f"rank {self.me}: {where}: {self._cause(dst, wrong, in_place=in_place)}"

    def _cause(self, dst: Array, wrong: NDArray[np.intp], *, in_place: bool) -> str:
        def explains(candidate: Array) -> bool:
            return bool((_bits(dst[wrong]) == _bits(candidate[wrong])).all())

        if explains(np.resize(self.poison(), len(dst))):
            return "never written"
        if in_place and explains(self.initial(in_place=True)):
            return "still the rank's own contribution"
        if not self.floor:
            for origin in range(self.p):
                for often, word in ((0, "missing"), (2, "counted twice")):
                    if explains(self._folded({origin: often})):
                        return f"the contribution of rank {origin} is {word}"
        return "not explained by one contribution missing or counted twice"


def _bits(values: Array) -> NDArray[np.unsignedinteger]:
    return values.view(f"u{values.dtype.itemsize}")


class Check:
    """Fills the buffers and checks the result, bit for bit and without allocating: it runs between timed iterations.

    The contribution is written anew each time, in either placement, as the program that computes it would: whose cache
    it lies in, and whether it is dirty there, changes the time by up to four.
    """

    def __init__(self, payload: Payload, src: Array, dst: Array, *, in_place: bool) -> None:
        fills = [(dst, payload.initial(in_place=in_place))]
        if not in_place:
            fills.append((src, payload.source()))
        self._fills = [(_bits(buffer), _bits(values)) for buffer, values in fills]
        self._dst, self._expected = _bits(dst), _bits(payload.expected(in_place=in_place))
        self._differs = np.empty(len(dst), bool)

    def reset(self) -> None:
        """Put the buffers back to what they hold before an operation."""
        for buffer, values in self._fills:
            np.copyto(buffer, values)

    def wrong(self) -> int:
        """Return how many elements of dst are wrong."""
        np.not_equal(self._dst, self._expected, self._differs)
        return int(np.count_nonzero(self._differs))
