"""Rounds: two points are compared side by side, in those rounds that one launch measured of both."""

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
"""The ends of a median's 95 % interval in seconds; None where there were too few iterations for one."""


def median_interval(point: SeriesPoint) -> Interval:
    """Return the 95 % interval of the median of a point."""
    low, high = point.row.ci_low_s, point.row.ci_high_s
    return None if low is None or high is None else (low, high)


def disjoint(faster: Interval, slower: Interval) -> bool:
    """Return whether ``faster`` ends before ``slower`` begins; of what is not known that cannot be said."""
    return faster is not None and slower is not None and faster[1] < slower[0]


@dataclass(frozen=True, slots=True)
class RoundStats:
    """What one round of a point took in seconds: the median, and its interval."""

    median: float
    interval: Interval


RoundKey = tuple[str, int]
"""The run that measured it, and its number there."""


def round_stats(point: SeriesPoint) -> dict[RoundKey, RoundStats]:
    """Return what each round of a usable point took; the whole of it where nothing is known of its rounds."""
    row = point.row
    parts = zip(row.round_medians_s, row.round_intervals_s, row.round_run_ids, strict=True)
    return {
        (run, number): RoundStats(time, ends)
        for number, (time, ends, run) in enumerate(parts, 1)
        if time is not None and run is not None
    } or {(row.run_id, 1): RoundStats(median_seconds(point), median_interval(point))}


def paired_rounds(point: SeriesPoint, other: SeriesPoint) -> list[tuple[RoundStats, RoundStats]]:
    """Return what both took in each round that one launch measured of both."""
    mine, theirs = round_stats(point), round_stats(other)
    return [(taken, theirs[one]) for one, taken in mine.items() if one in theirs]


def round_ratios(point: SeriesPoint, base: SeriesPoint) -> list[float]:
    """Return how many times as long ``point`` takes in each of their rounds; without one, that of their medians."""
    found = [mine.median / theirs.median for mine, theirs in paired_rounds(point, base)]
    return found or [median_seconds(point) / median_seconds(base)]


def time_ratio(point: SeriesPoint, base: SeriesPoint) -> float:
    """Return how many times as long ``point`` takes: the median of the ratios of their rounds, else that of medians."""
    return median_ratio(round_ratios(point, base))


def clearly_faster(point: SeriesPoint, other: SeriesPoint) -> bool:
    """Return whether ``point`` is clearly faster: in every round its median is below the interval of the other's.

    That two which are equal come out so by chance is likely enough in one round, and not in several: where there is one
    only, the intervals may not touch. A round without an interval is won by nobody.
    """
    pairs = paired_rounds(point, other)
    if len(pairs) == 1:
        return all(disjoint(mine.interval, theirs.interval) for mine, theirs in pairs)
    return bool(pairs) and all(disjoint((mine.median, mine.median), theirs.interval) for mine, theirs in pairs)


def split_by_launch(points: Iterable[SeriesPoint]) -> list[list[SeriesPoint]]:
    """Return the points in parts, so that no round of one part was measured in the launches of another.

    Points of one run are in one part; those of an interrupted job, whose rounds are of several runs, as well.
    """
    parts: list[tuple[set[str], list[SeriesPoint]]] = []
    for point in points:
        runs, members = {run for run, _ in round_stats(point)}, [point]
        for part in [part for part in parts if part[0] & runs]:
            parts.remove(part)
            runs, members = part[0] | runs, [*part[1], *members]
        parts.append((runs, members))
    return [members for _, members in parts]
