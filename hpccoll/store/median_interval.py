"""The median of samples and its confidence interval, for the loops that time as for the statistics of a case."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache
def interval_ranks(n: int) -> tuple[int, int]:
    """Return the order statistics (0-based) that enclose the median of n samples with at least 95 % confidence.

    The number of samples below the median is binomial (n, 1/2): H. A. David, H. N. Nagaraja, Order Statistics, 7.1.
    Below 6 samples no pair reaches 95 %: the extremes are returned.
    """
    tail, lower = 0.0, 0
    while lower < n // 2:
        tail += math.exp(math.lgamma(n + 1) - math.lgamma(lower + 1) - math.lgamma(n - lower + 1) - n * math.log(2))
        if tail > 0.025:
            break
        lower += 1
    return max(lower - 1, 0), n - 1 - max(lower - 1, 0)


def median_interval(values: NDArray[np.int64] | NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the median of ``values`` and its distribution-free 95 % confidence interval (low, high)."""
    ordered = np.sort(values)
    low, high = interval_ranks(len(ordered))
    # Not np.median: it imports numpy.ma when it is first called, which is while a case is timed.
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return float(middle.mean()), float(ordered[low]), float(ordered[high])
