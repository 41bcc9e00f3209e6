"""Statistics of rounds: two points are compared in the rounds in which one launch measured both."""

from collections.abc import Iterable

from hpccoll.analysis import round_comparison
from hpccoll.analysis.round_comparison import RoundKey
from hpccoll.render.chart_groups import SeriesPoint
from hpccoll.store.statistics import Interval, RoundStatistics, median_ratio


def median_seconds(point: SeriesPoint) -> float:
    """Return the median time of a usable point."""
    assert point.row.median_s is not None  # noqa: S101 - usable
    return point.row.median_s


def median_interval(point: SeriesPoint) -> Interval:
    """Return the 95 % interval of the median of a point."""
    low, high = point.row.ci_low_s, point.row.ci_high_s
    return None if low is None or high is None else (low, high)


def busbw_interval(point: SeriesPoint) -> Interval:
    """Return the ends of the busbw of a point, by the interval of its time; None without one."""
    ends, busbw = median_interval(point), point.row.busbw_Bps or 0.0
    if ends is None or not ends[0]:
        return None
    return busbw * median_seconds(point) / ends[1], busbw * median_seconds(point) / ends[0]


def round_stats(point: SeriesPoint) -> dict[RoundKey, RoundStatistics]:
    """Return the statistics of each round of a usable point; those of the point if its rounds are unknown."""
    return round_comparison.round_statistics(point.row)


def paired_rounds(point: SeriesPoint, other: SeriesPoint) -> list[tuple[RoundStatistics, RoundStatistics]]:
    """Return the statistics of both points in each round in which one launch measured both."""
    return round_comparison.paired_rounds(point.row, other.row)


def round_ratios(point: SeriesPoint, base: SeriesPoint) -> list[float]:
    """Return the time of ``point`` over that of ``base`` in each common round; without one, that of their medians."""
    ratios = [first.median / second.median for first, second in paired_rounds(point, base)]
    return ratios or [median_seconds(point) / median_seconds(base)]


def time_ratio(point: SeriesPoint, base: SeriesPoint) -> float:
    """Return the time of ``point`` over that of ``base``: the median of the ratios of their rounds."""
    return median_ratio(round_ratios(point, base))


def clearly_faster(point: SeriesPoint, other: SeriesPoint) -> bool:
    """Return whether ``point`` is clearly faster than ``other``, by the rule of ``analysis.round_comparison``."""
    return round_comparison.clearly_faster(point.row, other.row)


def split_by_launch(points: Iterable[SeriesPoint]) -> list[list[SeriesPoint]]:
    """Return the points in parts that have no launch in common.

    Points of one run are in one part, and so are those of a resumed job, whose rounds belong to several runs.
    """
    parts: list[tuple[set[str], list[SeriesPoint]]] = []
    for point in points:
        runs, members = {run for run, _ in round_stats(point)}, [point]
        for part in [part for part in parts if part[0] & runs]:
            parts.remove(part)
            runs, members = part[0] | runs, [*part[1], *members]
        parts.append((runs, members))
    return [members for _, members in parts]
