"""Comparisons of series: pure functions over points.

A comparison is made within one launch, round by round. The floor and ``auto`` are left out. What to use is the business
of ``hpccoll.analysis.recommendations``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hpccoll.analysis.measured_choices import choice_of, setting_of
from hpccoll.analysis.round_comparison import disjoint
from hpccoll.render.call_arguments import call_arguments, placement_label, rank_pair
from hpccoll.render.chart_groups import SeriesPoint, is_ranked, is_usable
from hpccoll.render.round_statistics import (
    median_interval,
    median_seconds,
    paired_rounds,
    round_ratios,
    split_by_launch,
)
from hpccoll.store.statistics import Interval, median_ratio


@dataclass(frozen=True, slots=True)
class Speedup:
    """The time of native over that of ``point``: the median of the rounds, and their ends if there are several."""

    point: SeriesPoint
    value: float
    ends: Interval


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The busbw of ``point`` over that of ``base``: the same series and size on the fewest ranks."""

    point: SeriesPoint
    base: SeriesPoint
    value: float


def best_placements(points: Iterable[SeriesPoint]) -> tuple[SeriesPoint, ...]:
    """Return the faster of in place and out of place for each run, series, ranks and size, without floor and auto."""
    return tuple(point for _, entries in _measured_together(points) for point in entries)


def _measured_together(points: Iterable[SeriesPoint]) -> Iterator[tuple[tuple[object, ...], list[SeriesPoint]]]:
    """Yield the coordinates of each work, and the faster placement of each series that one launch measured of it."""
    by_work: dict[tuple[object, ...], list[SeriesPoint]] = defaultdict(list)
    for point in points:
        row = point.row
        if is_usable(row) and is_ranked(row):
            by_work[
                point.machine, row.executor, rank_pair(row), row.mapping, row.ranks, row.nodes, row.requested_bytes
            ].append(point)
    for work, of_work in by_work.items():
        for of_launch in split_by_launch(of_work):
            best: dict[str, SeriesPoint] = {}
            for point in of_launch:
                best[point.series] = min(best.get(point.series, point), point, key=median_seconds)
            yield work, [*best.values()]


def speedups(points: Sequence[SeriesPoint]) -> tuple[Speedup, ...]:
    """Return how many times as long as each point the library's own collective takes, in the same placement.

    Both were measured by one launch in the same variant; of several transports, the fastest call of the library counts.
    A call with one buffer is compared with both placements.
    """
    usable = [point for point in points if is_usable(point.row) and is_ranked(point.row)]
    own_calls: dict[tuple[object, ...], list[SeriesPoint]] = defaultdict(list)
    for point in usable:
        if choice_of(point.row).is_native:
            own_calls[_call(point)].append(point)
    found = []
    for point in usable:
        placement = placement_label(point.row)
        rivals = [
            native
            for native in own_calls[_call(point)]
            if placement_label(native.row) in (placement, "") and paired_rounds(point, native)
        ]
        if rivals and not choice_of(point.row).is_native:
            native = min(rivals, key=median_seconds)
            ratios = round_ratios(native, point)
            ends = (min(ratios), max(ratios)) if len(ratios) > 1 else None
            found.append(Speedup(point, median_ratio(ratios), ends))
    return tuple(found)


def _call(point: SeriesPoint) -> tuple[object, ...]:
    """Return what identifies a call in either placement; ``points`` may be of several collectives (the overview)."""
    row = point.row
    setting = replace(setting_of(row), in_place=None)
    return point.machine, row.executor, setting, row.dtype, row.op, row.root, rank_pair(row), row.requested_bytes


def efficiencies(points: Iterable[SeriesPoint]) -> tuple[Efficiency, ...]:
    """Return the parallel efficiency of every point with a bandwidth, within one machine."""
    curves: dict[tuple[object, ...], list[SeriesPoint]] = defaultdict(list)
    for point in best_placements(points):
        if point.row.busbw_Bps and not rank_pair(point.row):
            curves[point.machine, point.series, point.row.requested_bytes].append(point)
    return tuple(
        Efficiency(point, base, (point.row.busbw_Bps or 0.0) / base.row.busbw_Bps)
        for curve in curves.values()
        for base in [min(curve, key=lambda point: point.row.ranks)]
        for point in curve
        if base.row.busbw_Bps
    )


def mixed_hosts(points: Iterable[SeriesPoint]) -> tuple[tuple[str, frozenset[str]], ...]:
    """Return jobs and hosts of launches that a curve joins, if not all ran on a subset of the hosts of the largest."""
    curves: dict[tuple[object, ...], dict[tuple[str, frozenset[str]], None]] = defaultdict(dict)
    times: Counter[tuple[object, ...]] = Counter()
    for point in points:
        row = point.row
        if is_usable(row) and point.hosts:
            curve = point.machine, point.series, row.in_place
            measured = *curve, *call_arguments(row).values(), row.root, row.ranks, row.nodes, row.requested_bytes
            repetition = times[measured]  # a repeated measurement is another curve
            curves[*curve, repetition][row.job, frozenset(point.hosts)] = None
            times[measured] += 1
    joined = (launch for launches in curves.values() if not _are_nested(launches) for launch in launches)
    return tuple(dict.fromkeys(joined))


def _are_nested(launches: Iterable[tuple[str, frozenset[str]]]) -> bool:
    hosts = [hosts for _, hosts in launches]
    return all(some <= max(hosts, key=len) for some in hosts)


@dataclass(frozen=True, slots=True)
class RepeatedPoint:
    """A point that several runs measured: the fastest and the slowest measurement."""

    fastest: SeriesPoint
    slowest: SeriesPoint

    @property
    def time_ratio(self) -> float:
        """The time of the slowest measurement over that of the fastest."""
        return median_seconds(self.slowest) / median_seconds(self.fastest)

    @property
    def disagrees(self) -> bool:
        return disjoint(median_interval(self.fastest), median_interval(self.slowest))


def repeated_points(points: Iterable[SeriesPoint]) -> tuple[RepeatedPoint, ...]:
    """Return the points that several runs on one machine measured."""
    by_point: dict[tuple[object, ...], list[SeriesPoint]] = defaultdict(list)
    for point in points:
        row = point.row
        if is_usable(row) and not row.floor:
            call = *call_arguments(row).values(), row.root, row.in_place
            key = (point.machine, point.series, call, row.ranks, row.nodes, row.requested_bytes)
            by_point[key].append(point)
    several = (points for points in by_point.values() if len({point.row.run_id for point in points}) > 1)
    return tuple(RepeatedPoint(min(points, key=median_seconds), max(points, key=median_seconds)) for points in several)


def evenly_spaced(values: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the sorted ``values``: evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
