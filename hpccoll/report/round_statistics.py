"""Statistics of rounds: two points are compared in the rounds in which one launch measured both."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hpccoll.report.chart_groups import SeriesPoint
from hpccoll.store.statistics import median_ratio


def median_seconds(point: SeriesPoint) -> float:
    """Return the median time of a usable point."""
    assert point.row.median_s is not None  # noqa: S101 - usable
    return point.row.median_s


Interval: TypeAlias = tuple[float, float] | None
"""The ends of the 95 % interval of a median in seconds; None with too few iterations."""


def median_interval(point: SeriesPoint) -> Interval:
    """Return the 95 % interval of the median of a point."""
    low, high = point.row.ci_low_s, point.row.ci_high_s
    return None if low is None or high is None else (low, high)


def disjoint(faster: Interval, slower: Interval) -> bool:
    """Return whether ``faster`` ends before ``slower`` begins; False if either is unknown."""
    return faster is not None and slower is not None and faster[1] < slower[0]


@dataclass(frozen=True, slots=True)
class RoundStats:
    """The median time of one round of a point and its interval, in seconds."""

    median: float
    interval: Interval


RoundKey = tuple[str, int]
"""The run that measured a round, and the number of the round."""


def round_stats(point: SeriesPoint) -> dict[RoundKey, RoundStats]:
    """Return the statistics of each round of a usable point; those of the point if its rounds are unknown."""
    row = point.row
    parts = zip(row.round_medians_s, row.round_intervals_s, row.round_run_ids, strict=True)
    return {
        (run, number): RoundStats(time, ends)
        for number, (time, ends, run) in enumerate(parts, 1)
        if time is not None and run is not None
    } or {(row.run_id, 1): RoundStats(median_seconds(point), median_interval(point))}


def paired_rounds(point: SeriesPoint, other: SeriesPoint) -> list[tuple[RoundStats, RoundStats]]:
    """Return the statistics of both points in each round in which one launch measured both."""
    stats, other_stats = round_stats(point), round_stats(other)
    return [(stats[key], other_stats[key]) for key in stats if key in other_stats]


def round_ratios(point: SeriesPoint, base: SeriesPoint) -> list[float]:
    """Return the time of ``point`` over that of ``base`` in each common round; without one, that of their medians."""
    ratios = [first.median / second.median for first, second in paired_rounds(point, base)]
    return ratios or [median_seconds(point) / median_seconds(base)]


def time_ratio(point: SeriesPoint, base: SeriesPoint) -> float:
    """Return the time of ``point`` over that of ``base``: the median of the ratios of their rounds."""
    return median_ratio(round_ratios(point, base))


def clearly_faster(point: SeriesPoint, other: SeriesPoint) -> bool:
    """Return whether ``point`` is clearly faster: in every common round its median is below the other's interval.

    With one round, the intervals must be disjoint, because chance alone often puts a median below an interval. A round
    without an interval has no winner.
    """
    pairs = paired_rounds(point, other)
    if len(pairs) == 1:
        return all(disjoint(first.interval, second.interval) for first, second in pairs)
    return bool(pairs) and all(disjoint((first.median, first.median), second.interval) for first, second in pairs)


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
