"""Rounds: two points are compared side by side, in those rounds that one launch measured of both."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from hpccoll.report.groups import Point
from hpccoll.store.statistics import median_ratio


def seconds(point: Point) -> float:
    """Return the median time of a usable point."""
    assert point.row.median_s is not None  # noqa: S101 - usable
    return point.row.median_s


Interval: TypeAlias = tuple[float, float] | None
"""The ends of a median's 95 % interval in seconds; None where there were too few iterations for one."""


def interval(point: Point) -> Interval:
    """Return the 95 % interval of the median of a point."""
    low, high = point.row.ci_low_s, point.row.ci_high_s
    return None if low is None or high is None else (low, high)


def apart(faster: Interval, slower: Interval) -> bool:
    """Return whether ``faster`` ends before ``slower`` begins; of what is not known that cannot be said."""
    return faster is not None and slower is not None and faster[1] < slower[0]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one round of a point took in seconds: the median, and its interval."""

    median: float
    interval: Interval


Round = tuple[str, int]
"""The run that measured it, and its number there."""


def rounds(point: Point) -> dict[Round, Taken]:
    """Return what each round of a usable point took; the whole of it where nothing is known of its rounds."""
    row = point.row
    parts = zip(row.round_medians_s, row.round_intervals_s, row.round_run_ids, strict=True)
    return {
        (run, number): Taken(time, ends)
        for number, (time, ends, run) in enumerate(parts, 1)
        if time is not None and run is not None
    } or {(row.run_id, 1): Taken(seconds(point), interval(point))}


def paired(point: Point, other: Point) -> list[tuple[Taken, Taken]]:
    """Return what both took in each round that one launch measured of both."""
    mine, theirs = rounds(point), rounds(other)
    return [(taken, theirs[one]) for one, taken in mine.items() if one in theirs]


def ratios(point: Point, base: Point) -> list[float]:
    """Return how many times as long ``point`` takes in each of their rounds; without one, that of their medians."""
    found = [mine.median / theirs.median for mine, theirs in paired(point, base)]
    return found or [seconds(point) / seconds(base)]


def ratio(point: Point, base: Point) -> float:
    """Return how many times as long ``point`` takes: the median of the ratios of their rounds, else that of medians."""
    return median_ratio(ratios(point, base))


def ahead(point: Point, other: Point) -> bool:
    """Return whether ``point`` is clearly faster: in every round its median is below the interval of the other's.

    That two which are equal come out so by chance is likely enough in one round, and not in several: where there is one
    only, the intervals may not touch. A round without an interval is won by nobody.
    """
    pairs = paired(point, other)
    if len(pairs) == 1:
        return all(apart(mine.interval, theirs.interval) for mine, theirs in pairs)
    return bool(pairs) and all(apart((mine.median, mine.median), theirs.interval) for mine, theirs in pairs)


def joined(points: Iterable[Point]) -> list[list[Point]]:
    """Return the points in parts, so that no round of one part was measured in the launches of another.

    Points of one run are in one part; those of an interrupted job, whose rounds are of several runs, as well.
    """
    parts: list[tuple[set[str], list[Point]]] = []
    for point in points:
        runs, members = {run for run, _ in rounds(point)}, [point]
        for part in [part for part in parts if part[0] & runs]:
            parts.remove(part)
            runs, members = part[0] | runs, [*part[1], *members]
        parts.append((runs, members))
    return [members for _, members in parts]
