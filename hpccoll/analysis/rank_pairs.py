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
        middle = (len(self.points) - 1) // 2
        return self.points[middle]

    @property
    def range(self) -> Interval:
        """The times of the fastest and of the slowest pair; of one pair, the interval of its median."""
        if len(self.points) == 1:
            return self.point.row.interval
        return median_seconds(self.points[0]), median_seconds(self.points[-1])


def median_pairs(points: Iterable[SeriesPoint]) -> tuple[MedianPair, ...]:
    """Return the pairs of each machine, series, number of ranks and size; of a repeated pair, the last point."""
    by_series: dict[tuple[str, CallKey], dict[tuple[int, int] | None, SeriesPoint]] = defaultdict(
        dict
    )
    for point in points:
        pairs = by_series[point.series, point.key.without("pair")]
        pairs[rank_pair(point.row)] = point
    return tuple(_median_pair(pairs.values()) for pairs in by_series.values())


def _median_pair(points: Iterable[SeriesPoint]) -> MedianPair:
    return MedianPair(tuple(sorted(points, key=median_seconds)))


def curve_points(group: ChartGroup) -> Iterator[tuple[SeriesPoint, Interval]]:
    """Yield the points of curves over size: each point with its interval, or the median pair with the range."""
    if group.many_pairs:
        for middle in median_pairs(group.usable):
            yield middle.point, middle.range
    else:
        for point in group.usable:
            yield point, point.row.interval


def series_without_tier(point: SeriesPoint) -> str:
    """Return the series of a point without the tier of its pair."""
    return point.series.removesuffix(f" {tier_label(point.row)}")


def map_points(group: ChartGroup) -> list[SeriesPoint]:
    """Return the last point of each pair, on the machine, ranks and nodes with the most pairs.

    There is none if a line stands for one pair, or if only floors were measured.
    """
    if not group.many_pairs:
        return []
    points = [point for point in group.usable if not point.row.floor]
    pairs: dict[CallKey, set[object]] = defaultdict(set)
    for point in points:
        pairs[_machine_and_shape(point)].add(rank_pair(point.row))
    largest = max(pairs, key=lambda shape: (len(pairs[shape]), shape.ranks), default=None)
    last: dict[tuple[str, CallKey], SeriesPoint] = {}
    for point in points:
        if _machine_and_shape(point) == largest:
            last[series_without_tier(point), point.key] = point
    return list(last.values())


def _machine_and_shape(point: SeriesPoint) -> CallKey:
    return point.key.only("machine", "ranks", "nodes")


def smallest_and_largest(
    points: Iterable[SeriesPoint],
) -> tuple[list[SeriesPoint], list[SeriesPoint]]:
    """Return the points of the smallest and of the largest size."""
    by_size: dict[int, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        by_size[point.row.requested_bytes].append(point)
    if not by_size:
        return [], []
    return by_size[min(by_size)], by_size[max(by_size)]


def map_sizes(group: ChartGroup) -> tuple[str, str]:
    """Return the smallest and the largest size of the heat maps of pairs; empty texts if there are no maps."""
    smallest, largest = smallest_and_largest(map_points(group))
    if not smallest:
        return "", ""
    least = group.size_label(smallest[0].row.requested_bytes)
    most = group.size_label(largest[0].row.requested_bytes)
    return least, most


def pair_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield for each series the median pair and the slow pairs, at the smallest and at the largest size."""
    all_smallest, all_largest = smallest_and_largest(map_points(group))
    for series in group.legend:
        smallest = [point for point in all_smallest if point.series == series]
        largest = [point for point in all_largest if point.series == series]
        if len(smallest) < 2:
            continue
        sizes = [_at_size(group, smallest)]
        if largest[:1] != smallest[:1] and len(largest) > 1:
            sizes.append(_at_size(group, largest))
        yield _pair_finding(group, sizes)


def foremost_pair_findings(results: Results) -> dict[str, list[Finding]]:
    """Return the findings that answer for collectives with many pairs of ranks, in the place of advice for each pair.

    The library's own call, or else the first series, speaks for all, on one node and between nodes.
    """
    results = results.ours
    rows = tuple(row for row in results.rows if rank_pair(row))
    findings: dict[str, list[Finding]] = defaultdict(list)
    for group in chart_groups(replace(results, rows=rows)):
        tiers: dict[str, Finding] = {}
        for finding in pair_findings(group):
            tiers.setdefault(finding.values["tier"], finding)
        if tiers:
            findings[group.collective] += tiers.values()
    return dict(findings)


@dataclass(frozen=True, slots=True)
class _PairsAtSize:
    """The pairs of a series at one size."""

    point: SeriesPoint  # of the median pair
    pairs: int
    slow: SlowPairs | None
    text: str

    @property
    def values(self) -> dict[str, Any]:
        row = self.point.row
        slow = asdict(self.slow) if self.slow else None
        return {
            "nbytes": row.requested_bytes,
            "median_s": row.median_s,
            "pairs": self.pairs,
            "slow": slow,
        }


def _at_size(group: ChartGroup, points: Sequence[SeriesPoint]) -> _PairsAtSize:
    middle = _median_pair(points).point
    slow = slow_pairs(points)
    size = group.size_label(middle.row.requested_bytes)
    time = format_seconds(median_seconds(middle))
    if middle.row.busbw_Bps:
        time += f" ({format_rate(middle.row.busbw_Bps)})"
    which = _slow_text(slow) if slow else "no pair is slow"
    text = f"at {size} the median of {len(points)} pairs takes {time}, and {which}"
    return _PairsAtSize(middle, len(points), slow, text)


def _slow_text(slow: SlowPairs) -> str:
    names = slow.names
    match slow.explanation:
        case "members":
            text = f"all {slow.count} slow pairs contain {join_words(names[0], 'or')}"
        case "racks":
            text = f"the {slow.count} slow pairs are exactly those between racks ({'; '.join(map(host_ranges, names))})"
        case "groups":
            text = f"the {slow.count} slow pairs are exactly those between {join_words(map(host_ranges, names))}"
        case "links":
            verb = "one is" if slow.count == 1 else "ones are"
            text = f"the slow {verb} {'; '.join(map(join_words, names))}"
        case "nothing":
            text = f"{slow.count} pairs are slow, and no host or rank explains them"
    return f"{text} ({format_factor(slow.factor)} as long as the others, by their medians)"


def _pair_finding(group: ChartGroup, sizes: Sequence[_PairsAtSize]) -> Finding:
    point = sizes[0].point
    accused: dict[str, None] = {}
    is_severe = False
    for size in sizes:
        if size.slow and size.slow.explanation in ("members", "links"):
            is_severe = True
        if size.slow and size.slow.explanation == "members":
            accused |= dict.fromkeys(size.slow.names[0])
    remedy = ""
    if accused:
        remedy = (
            f"Measure without {join_words(accused)}: the cause is there if no pair is slow then."
        )
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
