"""The values of the payload: they identify their rank and position, and every order of reduction gives the same bits.

A value is a seeded hash of (origin, position), mapped to values that the dtype can reduce exactly over p ranks: for
sums integers whose total stays within the precision; for products signs and powers of two whose product neither
overflows nor underflows; this follows nccl-tests (verifiable/verifiable.h). For minima and maxima values are hashed bit
patterns. Each rank decides every p-th position, and all other ranks have the adjacent number there: whatever moves a
value to another position, or towards zero, therefore shows in the result at ranks that do not decide, too.
"""

from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.memory_estimate import PERIOD
from hpccoll.schedule import Reduction

GUARDS = 1 << 16
"""The seed of the guards of the first buffer; no payload uses it."""

Array = NDArray[np.generic]
DType = np.dtype[np.generic]
Positions = NDArray[np.int64]


def _hash(seed: int, origin: int | Positions, positions: Positions) -> NDArray[np.uint64]:
    """Return hashes (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014)."""
    stream = np.atleast_1d(np.asarray(origin, np.uint64)) + np.uint64((seed << 20) + 1)
    x: NDArray[np.uint64] = positions.astype(np.uint64) + stream * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _float(dtype: DType) -> Any:
    """Return the finfo of a float type: NumPy's, or that of ml_dtypes for types that NumPy does not have."""
    if dtype.kind == "f":
        return np.finfo(dtype.name)
    from ml_dtypes import finfo

    return finfo(dtype)  # type: ignore[no-untyped-call]


def _exact(dtype: DType) -> int:
    """Return the largest n such that all integers up to n are exact."""
    return int(np.iinfo(dtype.name).max) if dtype.kind == "i" else 2 ** (int(_float(dtype).nmant) + 1)


def _numbers(words: NDArray[np.uint64], dtype: DType) -> NDArray[np.unsignedinteger]:
    """Return the bit patterns of positive numbers, one for each of ``words``; the larger pattern is the larger number.

    Floats are normal and finite. Integers are smaller than the value of elements that are not written yet.
    """
    if dtype.kind == "i":
        lowest, end = 1, int(np.iinfo(dtype.name).max) // 4
    else:
        lowest, end = map(int, bits(np.array([_float(dtype).smallest_normal, _float(dtype).max], dtype)))
    return (lowest + words % np.uint64(end - lowest)).astype(f"u{dtype.itemsize}")


def _exponent_range(dtype: DType) -> int:
    """Return the largest exponent of two that a product can reach."""
    return np.iinfo(dtype.name).bits - 2 if dtype.kind == "i" else -int(_float(dtype).minexp)


def _participates(origin: int | Positions, positions: Positions, p: int, most: int) -> NDArray[np.bool]:
    """Return the positions at which ``origin`` is one of the ranks, at most ``most`` of p, with a non-neutral value."""
    period = -(-p // most)
    participates: NDArray[np.bool] = (positions + origin) % period == 0
    return participates


def contribution(
    seed: int, origin: int | Positions, positions: Positions, p: int, dtype: DType, op: str | None
) -> Array:
    """Return the values of ``origin`` at ``positions``, which are broadcast; op is None if nothing is reduced."""
    if op in ("min", "max"):  # at each position one rank has the extreme value, so that its absence shows
        others = ~_participates(origin, positions, p, 1)
        extreme = _numbers(_hash(seed, 0, positions), dtype)
        values: Array = (extreme + others).astype(extreme.dtype).view(dtype)
        return values if op == "min" else np.negative(values)
    words = _hash(seed, origin, positions)
    if op in ("sum", "avg"):
        contributors = min(p, _exact(dtype))
        top = min(_exact(dtype) // contributors, 1 << 16)
        values = np.where(_participates(origin, positions, p, contributors), 1 + words % np.uint64(top), np.uint64(0))
        return values.astype(dtype)
    if op == "prod":
        participates = _participates(origin, positions, p, _exponent_range(dtype))
        sign = np.where(words & np.uint64(1), 1, -1)
        exponent = np.where(words & np.uint64(2), 1, 0 if np.issubdtype(dtype, np.integer) else -1)
        return (sign * np.where(participates, np.exp2(exponent), 1)).astype(dtype)
    return _numbers(words, dtype).view(dtype)


@lru_cache(maxsize=4)  # the reduction over thousands of ranks takes seconds and is the same for all sizes
def reduced_values(seed: int, p: int, dtype: DType, reduction: Reduction) -> Array:
    """Return the reduction of the values of all ranks at positions 0 to PERIOD - 1."""
    positions = np.arange(PERIOD)
    values = (contribution(seed, origin, positions, p, dtype, reduction.name) for origin in range(p))
    return reduce(reduction.fold, values)


def guard_words(number: int, me: int, positions: range, itemsize: int) -> NDArray[np.unsignedinteger]:
    """Return the content of the guards of buffer ``number`` of rank ``me``.

    The words depend on the position, so that a copy from the guards of one buffer to those of another is detected.
    """
    words: NDArray[np.unsignedinteger] = _hash(GUARDS + number, me, np.asarray(positions)).astype(f"u{itemsize}")
    return words


def bits(values: Array) -> NDArray[np.unsignedinteger]:
    """Return values as unsigned integers for comparison: NaN equals itself, and -0.0 differs from 0.0."""
    return values.view(f"u{values.dtype.itemsize}")


def concatenated(units: list[Array], dtype: DType) -> Array:
    """Return the concatenation of units, which may be empty."""
    return np.concatenate(units) if units else np.empty(0, dtype)
