"""Statistics of raw times: how long an operation took, and how sure that is."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def durations_max(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the duration of each iteration by the rule ``max``: the longest over ranks, each by its own clock.

    Args:
        start_ns: [iteration, rank].
        end_ns: [iteration, rank].
    """
    return (end_ns - start_ns).max(axis=1)


def durations_span(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the duration of each iteration by the rule ``span``: latest end minus earliest start, on one clock."""
    return end_ns.max(axis=1) - start_ns.min(axis=1)


@lru_cache
def _interval_ranks(n: int) -> tuple[int, int]:
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
    low, high = _interval_ranks(len(ordered))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[high])


def percentile(values: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """Return the nearest-rank percentile ``q`` in per cent, a value that was really seen."""
    return float(np.sort(values)[max(0, math.ceil(q / 100 * len(values)) - 1)])
