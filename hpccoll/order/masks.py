"""Inputs that reveal an order: a large number and its negative, beside which the small ones of other ranks are lost.

Rank i contributes M, rank j -M, and every other rank the unit u, which is lost beside M: M + u
rounds to M. The result is u times the ranks that are added after M and -M have met. The other ones
are the leaves below the lowest common ancestor of i and j in the summation tree. This is the
masking of P. Xie, Y. Gao, Y. Wang, J. Xue: FPRev, USENIX ATC (2025), here for all elements of a
vector at once.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError, UnusableError

Counts = NDArray[np.int32]
Pair = tuple[int, int]


class Mask(NamedTuple):
    """The large number and the unit of an element type."""

    large: float
    unit: float
    most_ranks: int  # up to here every sum of units is exact


MASKS = {
    "float32": Mask(2.0**100, 1.0, 1 << 24),
    "float64": Mask(2.0**900, 1.0, 1 << 53),
    "float16": Mask(2.0**15, 2.0**-14, 1 << 11),
    "bfloat16": Mask(2.0**100, 1.0, 1 << 8),
}
"""By the name of the type. Sums of float16 in float32, and of the others in float64, lose units, too."""

UNKNOWN = 0
"""The count of leaves that no result of masked inputs has."""


def mask_of(dtype: str, ranks: int) -> Mask:
    """Return the mask of an element type.

    Raises:
        BadInputError: if sums of the type have no order, or it has too few bits for the ranks.
    """
    if dtype not in MASKS:
        raise BadInputError(
            "-d", dtype, f"{', '.join(MASKS)}: sums of integers are the same in every order"
        )
    mask = MASKS[dtype]
    if ranks > mask.most_ranks:
        raise UnusableError(
            f"{ranks} ranks", f"{dtype} has bits to reveal an order of up to {mask.most_ranks}"
        )
    return mask


def pairs_of(ranks: int) -> list[Pair]:
    """Return the pairs of ranks to probe, p (p - 1) / 2 of them, each with a call."""
    return list(combinations(range(ranks), 2))


def masked_value(mask: Mask, pair: Pair, me: int) -> float:
    """Return what rank ``me`` contributes to every element when a pair is probed."""
    if me == pair[0]:
        return mask.large
    if me == pair[1]:
        return -mask.large
    return mask.unit


def leaves_below(result: NDArray[np.generic], mask: Mask, ranks: int) -> Counts:
    """Return for each element the number of leaves below the lowest common ancestor of the pair.

    Args:
        result: the elements of the result of masked inputs.
        mask: their mask.
        ranks: how many contribute.

    Returns:
        counts from 2 to ``ranks``; UNKNOWN where the result is not what any tree would give.
    """
    with np.errstate(all="ignore"):
        kept = result.astype(np.float64) / mask.unit
        leaves = ranks - kept
        is_count = (leaves >= 2) & (leaves <= ranks) & (leaves == np.rint(leaves))
    return np.where(is_count, leaves, UNKNOWN).astype(np.int32)
