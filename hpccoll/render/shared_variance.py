"""The part of the variance between rounds that all series of a call share: the part of the machine."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hpccoll.render.call_arguments import rank_pair
from hpccoll.render.chart_groups import SeriesPoint
from hpccoll.render.round_statistics import round_stats

SIGNIFICANCE = 0.01
"""The probability that noise alone passes the test."""

VARIANCE_FLOOR = 1e-12
"""A variance of logarithms below the resolution of clocks, against a division by zero."""


def shared_variance(points: Iterable[SeriesPoint]) -> float | None:
    """Return the part of the variance between rounds, of the logarithm of times, that all series of a call share.

    A machine that changes from round to round slows all series; noise slows one of them. The value is the intraclass
    correlation of a two-way layout, rounds by series, pooled over the calls (P. E. Shrout and J. L. Fleiss, Intraclass
    correlations, Psychological Bulletin 86, 1979), where each series has its own level. The value is None if Fisher's F
    test does not distinguish it from noise, for example with few rounds or series.

    Args:
        points: the usable points of a group.
    """
    of_rounds, of_rest = np.zeros(2), np.zeros(2)  # sum of squares, degrees of freedom
    series = 0.0  # weighted by degrees of freedom
    for logs in _log_times(points):
        p, n = logs.shape
        centred = logs - logs.mean(axis=1, keepdims=True)
        round_means = centred.mean(axis=0)
        of_rounds += p * (round_means**2).sum(), n - 1
        of_rest += ((centred - round_means) ** 2).sum(), (p - 1) * (n - 1)
        series += p * (n - 1)
    if not of_rest[1]:
        return None
    between, within = of_rounds[0] / of_rounds[1], of_rest[0] / of_rest[1]
    if between <= within:  # SciPy takes a fifth of a second to import
        return None
    from scipy.special import fdtrc

    if fdtrc(of_rounds[1], of_rest[1], between / max(within, VARIANCE_FLOOR)) > SIGNIFICANCE:
        return None
    shared = (between - within) * of_rounds[1] / series
    return float(shared / (shared + within))


def _log_times(points: Iterable[SeriesPoint]) -> Iterator[NDArray[np.float64]]:
    """Yield the logarithms of the times of each call on each number of ranks, by series and round."""
    by_call: dict[tuple[object, ...], list[dict[tuple[str, int], float]]] = defaultdict(list)
    for point in points:
        row = point.row
        if not row.floor:
            call = row.dtype, row.op, row.requested_bytes, row.root, rank_pair(row)
            by_call[*call, row.ranks, row.nodes, row.run_id].append(
                {n: stats.median for n, stats in round_stats(point).items()}
            )
    for series in by_call.values():
        common = sorted(set.intersection(*map(set, series)))
        if len(series) > 1 and len(common) > 1:
            yield np.log([[times[key] for key in common] for times in series])
