"""Comparisons of series: pure functions over points.

A comparison is made within one launch, round by round. The floor and ``auto`` are left out. What to
use is the business of ``hpccoll.analysis.recommendations``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpccoll.analysis.round_comparison import disjoint, paired_rounds, round_ratios
from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.series_points import SeriesPoint, best_placements, median_seconds
from hpccoll.analysis.setting import Choice
from hpccoll.store.call_key import CallKey, rank_pair
from hpccoll.store.rows import Interval
from hpccoll.store.statistics import median_ratio


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


def speedups(points: Sequence[SeriesPoint]) -> tuple[Speedup, ...]:
    """Return how many times as long as each point the library's own collective takes, in the same placement.

    Both were measured by one launch in the same variant. If the library was measured over several
    transports, its fastest call counts. A call with one buffer is compared with both placements.
    """
    usable = [point for point in points if point.row.ranked]
    own_calls: dict[CallKey, list[SeriesPoint]] = defaultdict(list)
    for point in usable:
        if Choice.of(point.row).is_native:
            own_calls[point.key.without("in_place")].append(point)
    gains = []
    for point in usable:
        if Choice.of(point.row).is_native:
            continue
        placements = placement_label(point.row), ""
        own_points = own_calls[point.key.without("in_place")]
        same_placement = (
            native for native in own_points if placement_label(native.row) in placements
        )
        rivals = [native for native in same_placement if paired_rounds(point.row, native.row)]
        if rivals:
            native = min(rivals, key=median_seconds)
            ratios = round_ratios(native.row, point.row)
            ends = (min(ratios), max(ratios)) if len(ratios) > 1 else None
            gains.append(Speedup(point, median_ratio(ratios), ends))
    return tuple(gains)


def efficiencies(points: Iterable[SeriesPoint]) -> tuple[Efficiency, ...]:
    """Return the parallel efficiency of every point with a bandwidth, within one machine."""
    curves: dict[tuple[str, CallKey], list[SeriesPoint]] = defaultdict(list)
    for point in best_placements(points):
        if point.row.busbw_Bps and not rank_pair(point.row):
            scale = "ranks", "nodes", "ranks_per_node", "racks", "aggregators", "root"
            curves[point.series, point.key.without("in_place", *scale)].append(point)
    made = []
    for curve in curves.values():
        base = min(curve, key=lambda point: point.row.ranks)
        base_busbw = base.row.busbw_Bps or 0.0
        made += [
            Efficiency(point, base, (point.row.busbw_Bps or 0.0) / base_busbw) for point in curve
        ]
    return tuple(made)


@dataclass(frozen=True, slots=True)
class RepeatedPoint:
    """A point that several runs measured: the fastest and the slowest measurement."""

    fastest: SeriesPoint
    slowest: SeriesPoint

    @property
    def time_ratio(self) -> float:
        return median_seconds(self.slowest) / median_seconds(self.fastest)

    @property
    def disagrees(self) -> bool:
        fastest = self.fastest.row
        slowest = self.slowest.row
        return disjoint(fastest.interval, slowest.interval)


def repeated_points(points: Iterable[SeriesPoint]) -> tuple[RepeatedPoint, ...]:
    """Return the points that several runs on one machine measured."""
    by_point: dict[tuple[str, CallKey], list[SeriesPoint]] = defaultdict(list)
    for point in points:
        if point.row.usable and not point.row.floor:
            by_point[point.series, point.key].append(point)
    repeated = []
    for same_points in by_point.values():
        runs = {point.row.run_id for point in same_points}
        if len(runs) > 1:
            fastest = min(same_points, key=median_seconds)
            slowest = max(same_points, key=median_seconds)
            repeated.append(RepeatedPoint(fastest, slowest))
    return tuple(repeated)


def evenly_spaced(values: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the sorted ``values``: evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    last = len(values) - 1
    places = [round(number * last / (count - 1)) for number in range(count)]
    return [values[place] for place in places]
