"""Comparisons of series: pure functions over points.

A comparison is made within one launch, round by round. Each series is represented by the faster of its placements. The
floor and ``auto`` are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hpccoll.report.call_arguments import algorithm_params, rank_pair
from hpccoll.report.chart_groups import SeriesPoint, is_ranked, is_usable
from hpccoll.report.round_statistics import (
    clearly_faster,
    median_interval,
    median_seconds,
    split_by_launch,
    time_ratio,
)
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.round_comparison import disjoint


@dataclass(frozen=True, slots=True)
class Comparison:
    """The series that did the same work in the same launch, fastest first."""

    entries: tuple[SeriesPoint, ...]

    @property
    def fastest(self) -> SeriesPoint:
        return self.entries[0]

    @property
    def ranks(self) -> int:
        return self.fastest.row.ranks

    @property
    def nbytes(self) -> int:
        """The requested size: the moved bytes may differ slightly with the number of ranks."""
        return self.fastest.row.requested_bytes

    @property
    def runner_up_ratio(self) -> float | None:
        """The ratio of the runner-up's time to that of the fastest, round by round; None without a runner-up."""
        return time_ratio(self.entries[1], self.fastest) if len(self.entries) > 1 else None

    @property
    def clear_winner(self) -> str | None:
        """The fastest series; None if it is not clearly faster than all others."""
        clear = all(clearly_faster(self.fastest, entry) for entry in self.entries[1:])
        return self.fastest.series if clear else None

    @property
    def variants(self) -> frozenset[str | None]:
        """The variants of the entries."""
        return frozenset(entry.row.variant for entry in self.entries)

    @property
    def variant(self) -> str | None:
        """The variant that all entries share; None if they differ."""
        return next(iter(self.variants)) if len(self.variants) == 1 else None

    @property
    def mapping(self) -> str:
        """The mapping of ranks to nodes, the same for all entries."""
        return self.fastest.row.mapping

    @property
    def executor(self) -> str:
        """The executor, the same for all entries, in words: ``python executor``."""
        return f"{self.fastest.row.executor} executor"

    @property
    def native(self) -> SeriesPoint | None:
        """The library's own collective at default settings, in the variant that all entries share; None without it."""
        native_points = [e for e in self.entries if e.row.algorithm == NATIVE and not algorithm_params(e.row)]
        return next((e for e in native_points if e.row.variant is None or len(self.variants) == 1), None)


@dataclass(frozen=True, slots=True)
class SizeInterval:
    """Adjacent sizes with the same clear winner, and the range of the runner-up's ratios."""

    clear_winner: str | None
    sizes: tuple[int, ...]
    runner_up_ratios: tuple[float, float]


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


def find_comparisons(points: Iterable[SeriesPoint]) -> tuple[Comparison, ...]:
    """Return one comparison per machine, executor, variant, mapping, ranks, size and pair of ranks, by ranks and size.

    If several runs did the same work, the run with the most series counts; of equals, the later one.
    """
    chosen: dict[tuple[object, ...], Comparison] = {}
    for work, entries in _measured_together(points):
        comparison = Comparison(tuple(sorted(entries, key=median_seconds)))
        previous = chosen.get((*work, comparison.variants))
        if previous is None or len(entries) >= len(previous.entries):
            chosen[*work, comparison.variants] = comparison
    return tuple(sorted(chosen.values(), key=lambda comparison: (comparison.ranks, comparison.nbytes)))


def native_ratios(comparisons: Iterable[Comparison]) -> dict[tuple[str, int], list[tuple[int, float]]]:
    """Return the (bytes, ratio) pairs of each series and number of ranks: its time over native's, round by round."""
    ratios: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for comparison in comparisons:
        if native := comparison.native:
            for entry in comparison.entries:
                if entry is not native:
                    ratios[entry.series, comparison.ranks].append((comparison.nbytes, time_ratio(entry, native)))
    return dict(ratios)


def size_intervals(comparisons: Sequence[Comparison]) -> list[SizeInterval]:
    """Return the comparisons of one rank count, ordered by size, as intervals with the same clear winner."""
    runs = (
        list(run)
        for _, run in groupby(
            (c for c in comparisons if c.runner_up_ratio), key=lambda comparison: comparison.clear_winner
        )
    )
    return [
        SizeInterval(run[0].clear_winner, tuple(c.nbytes for c in run), (min(leads), max(leads)))
        for run in runs
        for leads in [[comparison.runner_up_ratio or 1.0 for comparison in run]]
    ]


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
            measured = *curve, rank_pair(row), row.ranks, row.nodes, row.requested_bytes
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
            key = (point.machine, point.series, rank_pair(row), row.in_place, row.ranks, row.nodes, row.requested_bytes)
            by_point[key].append(point)
    several = (points for points in by_point.values() if len({point.row.run_id for point in points}) > 1)
    return tuple(RepeatedPoint(min(points, key=median_seconds), max(points, key=median_seconds)) for points in several)


def evenly_spaced(values: Sequence[int], count: int) -> list[int]:
    """Return at most ``count`` of the sorted ``values``: evenly spaced, with the first and the last."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]
