"""The payload: the values that each rank contributes to a case, and the values that each rank must end with.

A value is a seeded hash of (origin, position), mapped to values that the dtype can reduce exactly
over p ranks in every order: for sums integers whose total stays within the precision; for products
signs and powers of two whose product neither overflows nor underflows; this follows nccl-tests
(verifiable/verifiable.h). For minima and maxima values are hashed bit patterns. Each rank decides
every p-th position, and all other ranks have the adjacent number there: whatever moves a value to
another position, or towards zero, therefore shows in the result at ranks that do not decide, too.

The positions of the values repeat with the prime PERIOD and advance by one from operation to
operation. A part that is missing, doubled, displaced, or left over from an earlier operation
therefore differs from the expected values in most of its elements; results/golden/detection.md says
in how many.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.memory_estimate import GENERATIONS, PERIOD, SHORT_BLOCK
from hpccoll.common.hashed_words import hashed_words
from hpccoll.common.units import format_size
from hpccoll.schedule import CollectiveCall, Reduction, unequal_blocks

SAMPLED = 256
"""The maximum number of wrong elements that a diagnosis examines."""

NO_CAUSE = "no single cause explains it"
"""The end of a diagnosis that finds no cause."""

EXTRA = GENERATIONS - 1
"""The number of elements by which the values of a unit in all generations are longer than the unit:
each generation begins one element after the previous one."""

Array = NDArray[np.generic]
DType = np.dtype[np.generic]
Positions = NDArray[np.int64]


def _float(dtype: DType) -> Any:
    """Return the finfo of a float type: NumPy's, or that of ml_dtypes for types that NumPy does not have."""
    if dtype.kind == "f":
        return np.finfo(dtype.name)
    from ml_dtypes import finfo

    return finfo(dtype)  # type: ignore[no-untyped-call]


def _exact(dtype: DType) -> int:
    """Return the largest n such that all integers up to n are exact."""
    return (
        int(np.iinfo(dtype.name).max) if dtype.kind == "i" else 2 ** (int(_float(dtype).nmant) + 1)
    )


def _numbers(words: NDArray[np.uint64], dtype: DType) -> NDArray[np.unsignedinteger]:
    """Return the bit patterns of positive numbers, one for each of ``words``; the larger pattern is the larger number.

    Floats are normal and finite. Integers are smaller than the value of elements that are not
    written yet.
    """
    if dtype.kind == "i":
        lowest = 1
        end = int(np.iinfo(dtype.name).max) // 4
    else:
        lowest, end = map(
            int, bits(np.array([_float(dtype).smallest_normal, _float(dtype).max], dtype))
        )
    return (lowest + words % np.uint64(end - lowest)).astype(f"u{dtype.itemsize}")


def _exponent_range(dtype: DType) -> int:
    if dtype.kind == "i":
        return np.iinfo(dtype.name).bits - 2
    return -int(_float(dtype).minexp)


def _participates(
    origin: int | Positions, positions: Positions, p: int, most: int
) -> NDArray[np.bool]:
    """Return the positions at which ``origin`` is one of the ranks, at most ``most`` of p, with a non-neutral value."""
    period = -(-p // most)
    participates: NDArray[np.bool] = (positions + origin) % period == 0
    return participates


def contribution(
    seed: int, origin: int | Positions, positions: Positions, p: int, dtype: DType, op: str | None
) -> Array:
    """Return the values of ``origin`` at ``positions``, which are broadcast; op is None if nothing is reduced."""
    # at each position one rank has the extreme value, so that its absence shows
    if op in ("min", "max"):
        is_other = ~_participates(origin, positions, p, 1)
        extreme = _numbers(hashed_words(seed, 0, positions), dtype)
        values: Array = (extreme + is_other).astype(extreme.dtype).view(dtype)
        return values if op == "min" else np.negative(values)
    words = hashed_words(seed, origin, positions)
    if op in ("sum", "avg"):
        contributors = min(p, _exact(dtype))
        top = min(_exact(dtype) // contributors, 1 << 16)
        values = np.where(
            _participates(origin, positions, p, contributors),
            1 + words % np.uint64(top),
            np.uint64(0),
        )
        return values.astype(dtype)
    if op == "prod":
        participates = _participates(origin, positions, p, _exponent_range(dtype))
        sign = np.where(words & np.uint64(1), 1, -1)
        exponent = np.where(words & np.uint64(2), 1, 0 if np.issubdtype(dtype, np.integer) else -1)
        return (sign * np.where(participates, np.exp2(exponent), 1)).astype(dtype)
    return _numbers(words, dtype).view(dtype)


# the reduction over thousands of ranks takes seconds and is the same for all sizes
@lru_cache(maxsize=4)
def reduced_values(seed: int, p: int, dtype: DType, reduction: Reduction) -> Array:
    """Return the reduction of the values of all ranks at positions 0 to PERIOD - 1."""
    positions = np.arange(PERIOD)
    values = (
        contribution(seed, origin, positions, p, dtype, reduction.name) for origin in range(p)
    )
    return reduce(reduction.fold, values)


def bits(values: Array) -> NDArray[np.unsignedinteger]:
    """Return values as unsigned integers for comparison: NaN equals itself, and -0.0 differs from 0.0."""
    return values.view(f"u{values.dtype.itemsize}")


def concatenated(units: list[Array], dtype: DType) -> Array:
    """Return the concatenation of units, which may be empty."""
    if units:
        return np.concatenate(units)
    return np.empty(0, dtype)


@dataclass(frozen=True)
class Payload:
    """The values of one rank.

    Methods with an argument ``extra`` return blocks that are ``extra`` elements longer: the values
    from the k-th element on are those of the block k generations later.

    ``count`` is the number of elements of the whole buffer for divisible units, or of one block
    (the mean one, if blocks differ) for per-rank units. With ``floor`` the operation must leave dst
    unchanged. ``generation`` is the number of the operation modulo GENERATIONS; each has other
    values. With ``periodic`` the values of long blocks are returned as one period, which begins
    where the block begins.
    """

    call: CollectiveCall
    reduction: Reduction
    dtype: DType
    count: int
    me: int
    floor: bool = False
    seed: int = 1
    generation: int = 0
    periodic: bool = False

    @property
    def p(self) -> int:
        return self.call.p

    def source(self, extra: int = 0) -> list[Array]:
        """Return the content of src, the contribution of this rank, by units."""
        return [
            self._contribution(self.me, unit, extra)
            for unit in self.call.source(self.me, self.units)
        ]

    def sentinel(self) -> Array:
        """Return the value of elements of dst that are not written yet, as an array of one element.

        It is NaN, or a third of the largest integer, negative for a minimum: folded into a result,
        it shows. No result is equal to it, except that a sum of int32 over 10,000 ranks and more
        may be.
        """
        third = np.iinfo(self.dtype.name).max // 3 if self.dtype.kind == "i" else np.nan
        return np.array([-third if self._op == "min" else third], self.dtype)

    def initial(self, *, in_place: bool, extra: int = 0) -> list[Array]:
        """Return the content of dst before the operation, for the units of ``filled_units``."""
        return [
            self._initial_unit(unit, in_place=in_place, extra=extra)
            for unit in self.filled_units(in_place=in_place)
        ]

    def filled_units(self, *, in_place: bool) -> range:
        """Return the units of dst that hold a contribution or a result; the others are workspace."""
        source = self.call.source(self.me, self.units)
        target = self.call.target(self.me, self.units)
        return max(source, target, key=len) if in_place else target

    def _initial_unit(self, unit: int, *, in_place: bool, extra: int = 0) -> Array:
        if in_place and unit in self.call.source(self.me, self.units):
            return self._contribution(self.me, unit, extra)
        return np.full(self._pattern_length(self.length("dst", unit) + extra), self.sentinel())

    def expected(self, *, in_place: bool, extra: int = 0) -> list[Array]:
        """Return the content that the result units of dst must have after the operation, bit for bit."""
        units = self.call.target(self.me, self.units)
        if self.floor:
            return [self._initial_unit(unit, in_place=in_place, extra=extra) for unit in units]
        return [self._expected_unit(unit, extra) for unit in units]

    @property
    def units(self) -> int:
        if self.call.collective.units == "divisible":
            return 1
        return self.p

    @cached_property
    def _blocks(self) -> NDArray[np.int64] | None:
        return self.call.blocks(self.count)

    def _length(self, origin: int, unit: int) -> int:
        if self._blocks is None:
            return self.count
        return int(self._blocks[origin, unit])

    def length(self, buffer: str, unit: int) -> int:
        """Return the number of elements of a unit of src or dst at this rank."""
        if buffer == "src":
            return self._length(self.me, unit)
        return self._length(unit, self.me)

    def missized(self, result: Any) -> int:
        """Return the number of wrong elements if the result has not the length that the call gives it: all; else 0."""
        expected = sum(self.length("dst", unit) for unit in self.call.target(self.me, self.units))
        if len(result) == expected:
            return 0
        return expected or len(result)

    def _pattern_length(self, length: int) -> int:
        if self.periodic and length > SHORT_BLOCK:
            return PERIOD
        return length

    @property
    def _op(self) -> str | None:
        if not self.call.collective.reduces:
            return None
        return self.reduction.name

    def _scale(self, folded: Array) -> None:
        if self.call.collective.reduces:
            self.reduction.scale(folded, self.p)

    def _position(self, unit: int) -> int:
        """Return the first position of a unit; the distance keeps generations of different units distinct."""
        pattern = self.call.traffic
        if pattern is None:
            longest = self.count
        else:
            longest = unequal_blocks.longest(pattern, self.p, self.count)
        return unit * (longest + GENERATIONS) + self.generation

    def _contribution(self, origin: int, unit: int, extra: int) -> Array:
        length = self._pattern_length(self._length(origin, unit) + extra)
        positions = (self._position(unit) + np.arange(min(length, PERIOD))) % PERIOD
        return np.resize(
            contribution(self.seed, origin, positions, self.p, self.dtype, self._op), length
        )

    def _expected_unit(self, unit: int, extra: int) -> Array:
        parts = self.call.result(self.me, unit)
        if self.call.collective.reduces and len(parts) == self.p:
            whole = reduced_values(self.seed, self.p, self.dtype, self.reduction)
            length = self._pattern_length(self.count + extra)
            folded = np.resize(np.roll(whole, -(self._position(unit) % PERIOD)), length)
        else:
            folded = reduce(
                self.reduction.fold, (self._contribution(*part, extra) for part in sorted(parts))
            )
        self._scale(folded)
        return folded

    def diagnose(
        self, dst: Array, *, in_place: bool, name: Callable[[int], str] = "rank {}".format
    ) -> str | None:
        """Return a description of the errors in the result ``dst``, or None; ``name`` returns the name of a rank."""
        right = concatenated(self.expected(in_place=in_place), self.dtype)
        if len(dst) != len(right):
            return f"{name(self.me)}: the plan says that its result has {len(dst)} elements; expected: {len(right)}"
        wrong = np.flatnonzero(bits(dst) != bits(right))
        if not len(wrong):
            return None
        causes = self._causes(dst, wrong[:: -(-len(wrong) // SAMPLED)], name, in_place=in_place)
        where = f"{len(wrong)} of {len(dst)} elements, from {format_size(int(wrong[0]) * self.dtype.itemsize)} on"
        return f"{name(self.me)}: {where}: {' or '.join(causes[:3]) or NO_CAUSE}"

    def diagnose_source(
        self, src: Array, name: Callable[[int], str] = "rank {}".format
    ) -> str | None:
        """Return how src differs from the contribution, which an operation out of place must not change, or None."""
        changed = np.flatnonzero(bits(src) != bits(concatenated(self.source(), self.dtype)))
        if not len(changed):
            return None
        begin = format_size(int(changed[0]) * self.dtype.itemsize)
        return f"{name(self.me)}: src was overwritten: {len(changed)} of {len(src)} elements, from {begin} on"

    def _causes(
        self, dst: Array, at: NDArray[np.intp], name: Callable[[int], str], *, in_place: bool
    ) -> list[str]:
        """Return the causes that each explain all of the wrong elements ``at``, the most likely first."""
        wrong = bits(dst[at])
        causes = []
        if (wrong == bits(self.sentinel())).all():
            causes.append("never written")
        elif in_place:
            before = [
                self._initial_unit(unit, in_place=True)
                for unit in self.call.target(self.me, self.units)
            ]
            if (wrong == bits(concatenated(before, self.dtype)[at])).all():
                causes.append("still the rank's own contribution")
        if self.floor:
            return causes
        if self.call.collective.reduces:
            causes += (
                f"the contribution of {name(origin)} {word}"
                for origin, word in self._miscounted(wrong, at)
            )
        earlier = (
            replace(self, generation=(self.generation - ago) % GENERATIONS).expected(
                in_place=in_place
            )
            for ago in range(1, GENERATIONS)
        )
        if any((wrong == bits(concatenated(left, self.dtype)[at])).all() for left in earlier):
            causes.append("left by an earlier operation")
        return causes

    def _miscounted(
        self, wrong: NDArray[np.unsignedinteger], at: NDArray[np.intp]
    ) -> Iterator[tuple[int, str]]:
        """Yield the ranks whose contribution explains the wrong elements by being missing or counted twice."""
        begins = np.array([self._position(unit) for unit in self.call.target(self.me, self.units)])
        begins_of_units = begins[at // self.count]
        positions = (begins_of_units + at % self.count) % PERIOD
        origins = np.arange(self.p)[:, np.newaxis]
        # of shape [origin, element]
        values = contribution(self.seed, origins, positions, self.p, self.dtype, self._op)
        fold = self.reduction.fold
        # without dtype NumPy would widen integers
        before = fold.accumulate(values, dtype=self.dtype)
        after = fold.accumulate(values[::-1], dtype=self.dtype)[::-1]
        # empty if p is 1
        missing = np.concatenate([after[1:2], fold(before[:-2], after[2:]), before[-2:-1]])
        for word, candidates in (
            ("is missing", missing),
            ("is counted twice", fold(before[-1], values)),
        ):
            self._scale(candidates)
            explained = (bits(candidates) == wrong).all(axis=1)
            yield from ((int(origin), word) for origin in np.flatnonzero(explained))
