"""Pairs of ranks that exchange messages: the median pair, the fastest and the slowest."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster_anywhere
from hpccoll.analysis.row_labels import tier_label
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.common.text import Finding, info
from hpccoll.common.units import format_count, format_rate, format_seconds
from hpccoll.store.call_key import CallKey, rank_pair
from hpccoll.store.rows import Interval


@dataclass(frozen=True, slots=True)
class MedianPair:
    """Points that differ in their pair of ranks, with the median pair that a line shows (of two, the faster)."""

    points: tuple[SeriesPoint, ...]  # the fastest first

    @property
    def point(self) -> SeriesPoint:
        return self.points[(len(self.points) - 1) // 2]

    @property
    def range(self) -> Interval:
        """The times of the fastest and of the slowest pair; of one pair, the interval of its median."""
        fastest, *others = map(median_seconds, self.points)
        return (fastest, others[-1]) if others else self.point.row.interval


def median_pairs(points: Iterable[SeriesPoint]) -> tuple[MedianPair, ...]:
    """Return the pairs of each machine, series, number of ranks and size; of a repeated pair, the last point."""
    by_series: dict[tuple[str, CallKey], dict[tuple[int, int] | None, SeriesPoint]] = defaultdict(dict)
    for point in points:
        by_series[point.series, point.key.without("pair")][rank_pair(point.row)] = point
    return tuple(MedianPair(tuple(sorted(of_series.values(), key=median_seconds))) for of_series in by_series.values())


def curve_points(group: ChartGroup) -> Iterator[tuple[SeriesPoint, Interval]]:
    """Yield the points of curves over size: each point with its interval, or the median pair with the range."""
    if group.many_pairs:
        yield from ((middle.point, middle.range) for middle in median_pairs(group.usable))
    else:
        yield from ((point, point.row.interval) for point in group.usable)


def series_without_tier(point: SeriesPoint) -> str:
    """Return the series of a point without the tier of its pair."""
    return point.series.removesuffix(f" {tier_label(point.row)}")


def map_points(group: ChartGroup) -> list[SeriesPoint]:
    """Return the last point of each pair, on the machine, ranks and nodes with the most pairs.

    There is none if a line stands for one pair, or if only floors were measured.
    """
    points = [point for point in group.usable if not point.row.floor] if group.many_pairs else []
    pairs: dict[CallKey, set[object]] = defaultdict(set)
    for point in points:
        pairs[point.key.only("machine", "ranks", "nodes")].add(rank_pair(point.row))
    shape = max(pairs, key=lambda shape: (len(pairs[shape]), shape.ranks), default=None)
    chosen = (p for p in points if p.key.only("machine", "ranks", "nodes") == shape)
    return list({(series_without_tier(p), p.key): p for p in chosen}.values())


def smallest_and_largest(points: Iterable[SeriesPoint]) -> tuple[list[SeriesPoint], list[SeriesPoint]]:
    """Return the points of the smallest and of the largest size."""
    points = list(points)
    sizes = [point.row.requested_bytes for point in points]
    least, most = min(sizes, default=0), max(sizes, default=0)
    return [p for p in points if p.row.requested_bytes == least], [p for p in points if p.row.requested_bytes == most]


def map_sizes(group: ChartGroup) -> tuple[str, str]:
    """Return the smallest and the largest size of the heat maps of pairs; empty texts if there are no maps."""
    least, most = (
        group.size_label(points[0].row.requested_bytes) if points else ""
        for points in smallest_and_largest(map_points(group))
    )
    return least, most


def pair_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the fastest, the median and the slowest pair of each series, at the smallest and at the largest size."""
    smallest, largest = smallest_and_largest(map_points(group))
    if not smallest:
        return
    yield from _extremes(group, smallest, format_seconds, median_seconds)
    if largest[0].row.requested_bytes > smallest[0].row.requested_bytes:
        yield from _extremes(group, largest, format_rate, lambda point: point.row.busbw_Bps or 0.0)


def _extremes(
    group: ChartGroup, points: Sequence[SeriesPoint], form: Callable[[float], str],
    value: Callable[[SeriesPoint], float],
) -> Iterator[Finding]:  # fmt: skip
    for name in group.legend:
        of_series = sorted((point for point in points if point.series == name), key=median_seconds)
        if len(of_series) > 1:
            fastest, slowest, median = of_series[0], of_series[-1], MedianPair(tuple(of_series)).point
            best, worst = form(value(fastest)), form(value(slowest))
            ratio = median_seconds(slowest) / median_seconds(fastest)
            clear = clearly_faster_anywhere(fastest.row, slowest.row)
            range_text = (
                f"the fastest pair is {fastest.pair_label} with {best}; the slowest pair is {slowest.pair_label} with "
                f"{worst}, {ratio:.2f} times as long" if clear else f"no pair is clearly slower ({best} to {worst})"
            )  # fmt: skip
            yield info(
                "pair_extremes",
                f"the median of {format_count(len(of_series), 'pair')} is {form(value(median))}; {range_text}.",
                title=f"{name}, {group.size_label(median.row.requested_bytes)}, {group.shape_label(median.row)}",
                series=name, nbytes=median.row.requested_bytes, pairs=len(of_series), median=value(median),
                fastest=fastest.pair_label, fastest_value=value(fastest), slowest=slowest.pair_label,
                slowest_value=value(slowest), ratio=ratio, clear=clear,
            )  # fmt: skip
