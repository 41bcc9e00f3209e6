"""Pairs of ranks that exchange messages: the median pair, and the slow ones with what explains them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup, chart_groups
from hpccoll.analysis.row_labels import tier_label
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.slow_pairs import SlowPairs, slow_pairs
from hpccoll.common.text import Finding, info, join_words, warning
from hpccoll.common.units import format_factor, format_rate, format_seconds
from hpccoll.store.call_key import CallKey, rank_pair
from hpccoll.store.host_names import host_ranges
from hpccoll.store.rows import Interval, Results


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
    """Yield for each series the median pair and the slow pairs, at the smallest and at the largest size."""
    ends = smallest_and_largest(map_points(group))
    for series in group.legend:
        smallest, largest = ([point for point in points if point.series == series] for points in ends)
        if len(smallest) > 1:
            several = largest[:1] != smallest[:1] and len(largest) > 1
            yield _pair_finding(group, [_at_size(group, smallest), *([_at_size(group, largest)] if several else [])])


def foremost_pair_findings(results: Results) -> dict[str, list[Finding]]:
    """Return the findings that answer for collectives with many pairs of ranks, in the place of advice for each pair.

    The library's own call, or else the first series, speaks for all, on one node and between nodes.
    """
    results = results.ours
    of_pairs = replace(results, rows=tuple(row for row in results.rows if rank_pair(row)))
    found: dict[str, list[Finding]] = {}
    for group in chart_groups(of_pairs):
        tiers: dict[str, Finding] = {}
        for finding in pair_findings(group):
            tiers.setdefault(finding.values["tier"], finding)
        if tiers:
            found.setdefault(group.collective, []).extend(tiers.values())
    return found


@dataclass(frozen=True, slots=True)
class _PairsAtSize:
    """The pairs of a series at one size."""

    point: SeriesPoint  # of the median pair
    pairs: int
    slow: SlowPairs | None
    text: str

    @property
    def values(self) -> dict[str, Any]:
        slow = asdict(self.slow) if self.slow else None
        row = self.point.row
        return {"nbytes": row.requested_bytes, "median_s": row.median_s, "pairs": self.pairs, "slow": slow}


def _at_size(group: ChartGroup, points: Sequence[SeriesPoint]) -> _PairsAtSize:
    middle, slow = MedianPair(tuple(sorted(points, key=median_seconds))).point, slow_pairs(points)
    rate = f" ({format_rate(middle.row.busbw_Bps)})" if middle.row.busbw_Bps else ""
    text = (
        f"at {group.size_label(middle.row.requested_bytes)} the median of {len(points)} pairs takes "
        f"{format_seconds(median_seconds(middle))}{rate}, and {_slow_text(slow) if slow else 'no pair is slow'}"
    )
    return _PairsAtSize(middle, len(points), slow, text)


def _slow_text(slow: SlowPairs) -> str:
    names = slow.names
    match slow.explanation:
        case "members":
            what = f"all {slow.count} slow pairs contain {join_words(names[0], 'or')}"
        case "racks":
            what = f"the {slow.count} slow pairs are exactly those between racks ({'; '.join(map(host_ranges, names))})"
        case "groups":
            what = f"the {slow.count} slow pairs are exactly those between {join_words(map(host_ranges, names))}"
        case "links":
            what = f"the slow {'one is' if slow.count == 1 else 'ones are'} {'; '.join(map(join_words, names))}"
        case "nothing":
            what = f"{slow.count} pairs are slow, and no host or rank explains them"
    return f"{what} ({format_factor(slow.factor)} as long as the others, by their medians)"


def _pair_finding(group: ChartGroup, sizes: Sequence[_PairsAtSize]) -> Finding:
    point = sizes[0].point
    accused: dict[str, None] = {}
    is_severe = False
    for size in sizes:
        if size.slow and size.slow.explanation in ("members", "links"):
            is_severe = True
        if size.slow and size.slow.explanation == "members":
            accused |= dict.fromkeys(size.slow.names[0])
    remedy = f"Measure without {join_words(accused)}: the cause is there if no pair is slow then." if accused else ""
    text = "; ".join(size.text for size in sizes)
    shape = group.shape_label(point.row)
    finding = warning if is_severe else info
    return finding(
        "pairs",
        f"{text}.",
        title=f"{point.series}, {shape}",
        remedy=remedy,
        series=point.series,
        shape=shape,
        tier=tier_label(point.row),
        sizes=tuple(size.values for size in sizes),
    )
