"""The values: which say the rank and the position that they come from, and that any order of folding keeps exact.

A value is a seeded hash of (origin, position), squeezed into what the dtype can fold exactly over p ranks: for sums
integers whose total stays below the precision; for products, signs and powers of two whose product neither over- nor
underflows; for minima and maxima any, of which each rank decides every p-th. After nccl-tests
(verifiable/verifiable.h).
"""

from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Reduction
from hpccoll.spec.memory import PERIOD

GUARDS = 1 << 16
"""The seed of guards of the first buffer: no payload has it."""

Array = NDArray[np.generic]
DType = np.dtype[np.generic]
Positions = NDArray[np.int64]


def _hash(seed: int, origin: int | Positions, positions: Positions) -> NDArray[np.uint64]:
    """Return well-mixed words (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014)."""
    stream = np.atleast_1d(np.asarray(origin, np.uint64)) + np.uint64((seed << 20) + 1)
    x: NDArray[np.uint64] = positions.astype(np.uint64) + stream * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _float(dtype: DType) -> Any:
    """Return what NumPy's finfo says of floats, and ml_dtypes of those that NumPy lacks."""
    if dtype.kind == "f":
        return np.finfo(dtype.name)
    from ml_dtypes import finfo

    return finfo(dtype)  # type: ignore[no-untyped-call]


def _exact(dtype: DType) -> int:
    """Return the largest n such that all integers up to n, and their sums up to n, are exact."""
    return int(np.iinfo(dtype.name).max) if dtype.kind == "i" else 2 ** (int(_float(dtype).nmant) + 1)


def _doublings(dtype: DType) -> int:
    """Return how many factors of two (or halves) a product can take."""
    return np.iinfo(dtype.name).bits - 2 if dtype.kind == "i" else -int(_float(dtype).minexp)


def _takes_part(origin: int | Positions, positions: Positions, p: int, room: int) -> NDArray[np.bool]:
    """Return at which positions ``origin`` is one of the at most ``room`` ranks of p that have a value of weight."""
    turns = -(-p // room)
    taking: NDArray[np.bool] = (positions + origin) % turns == 0
    return taking


def contribution(
    seed: int, origin: int | Positions, positions: Positions, p: int, dtype: DType, op: str | None
) -> Array:
    """Return the values of ``origin`` at ``positions``, the two broadcast; op is None where nothing is folded."""
    words = _hash(seed, origin, positions)
    if op in ("sum", "avg"):
        room = min(p, _exact(dtype))
        top = min(_exact(dtype) // room, 1 << 16)
        values = np.where(_takes_part(origin, positions, p, room), 1 + words % np.uint64(top), np.uint64(0))
        return values.astype(dtype)
    if op == "prod":
        weighty = _takes_part(origin, positions, p, _doublings(dtype))
        sign = np.where(words & np.uint64(1), 1, -1)
        exponent = np.where(words & np.uint64(2), 1, 0 if np.issubdtype(dtype, np.integer) else -1)
        return (sign * np.where(weighty, np.exp2(exponent), 1)).astype(dtype)
    values = (words % np.uint64(min(_exact(dtype), 1 << 16))).astype(np.int64)
    if op is not None:  # the ranks take turns to have the least value, or the greatest: each is missed if it is missing
        decides = _takes_part(origin, positions, p, 1)
        values = np.where(decides if op == "min" else ~decides, -1 - values, values)
    return values.astype(dtype)


@lru_cache(maxsize=4)  # thousands of ranks take seconds to fold, for every size of a sweep the same
def reduced_values(seed: int, p: int, dtype: DType, reduction: Reduction) -> Array:
    """Return the values of all ranks, folded, at positions 0 to PERIOD - 1."""
    positions = np.arange(PERIOD)
    values = (contribution(seed, origin, positions, p, dtype, reduction.name) for origin in range(p))
    return reduce(reduction.fold, values)


def guard_words(number: int, me: int, positions: range, itemsize: int) -> NDArray[np.unsignedinteger]:
    """Return what guards hold at ``positions`` of buffer ``number`` of a rank: elsewhere they hold something else.

    So what is copied from behind one buffer to behind another is seen.
    """
    words: NDArray[np.unsignedinteger] = _hash(GUARDS + number, me, np.asarray(positions)).astype(f"u{itemsize}")
    return words


def bits(values: Array) -> NDArray[np.unsignedinteger]:
    """Return values as they are compared: NaN equals itself, and -0.0 is not 0.0."""
    return values.view(f"u{values.dtype.itemsize}")


def concatenated(units: list[Array], dtype: DType) -> Array:
    """Return units one after the other, as they lie in a buffer; there may be none."""
    return np.concatenate(units) if units else np.empty(0, dtype)
