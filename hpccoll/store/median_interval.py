"""The median of samples and its confidence interval, for the loops that time as for the statistics of a case."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@lru_cache
def interval_ranks(n: int) -> tuple[int, int]:
    """Return the order statistics (0-based) that enclose the median of n samples with at least 95 % confidence.

    The number of samples below the median is binomial (n, 1/2): H. A. David, H. N. Nagaraja, Order
    Statistics, 7.1. Below 6 samples no pair reaches 95 %: the extremes are returned.
    """
    tail, lower = 0.0, 0
    while lower < n // 2:
        tail += math.exp(
            math.lgamma(n + 1)
            - math.lgamma(lower + 1)
            - math.lgamma(n - lower + 1)
            - n * math.log(2)
        )
        if tail > 0.025:
            break
        lower += 1
    return max(lower - 1, 0), n - 1 - max(lower - 1, 0)


def median_interval(values: NDArray[np.int64] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median of ``values`` and its distribution-free 95 % confidence interval (low, high)."""
    ordered = np.sort(values)
    low, high = interval_ranks(len(ordered))
    return median_of_sorted(ordered), float(ordered[low]), float(ordered[high])


def median_of_sorted(ordered: NDArray[Any] | Sequence[float]) -> float:
    """Return the median of sorted values.

    It is that of ``np.median``, which takes ten times as long for a few values, and imports
    numpy.ma when it is first called: that would be while a case is timed.
    """
    half, is_odd = divmod(len(ordered), 2)
    if is_odd:
        return float(ordered[half])
    return float((ordered[half - 1] + ordered[half]) / 2)


def median_in_seconds(nanoseconds: NDArray[np.int64]) -> float | None:
    """Return the median of times in nanoseconds, in seconds; None without any."""
    if not len(nanoseconds):
        return None
    return median_of_sorted(np.sort(nanoseconds)) / 1e9
