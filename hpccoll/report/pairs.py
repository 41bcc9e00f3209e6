"""Pairs of ranks, where messages go between two: the one in the middle, the ends of the range, and which they are."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpccoll.report.calls import pair, tier
from hpccoll.report.groups import Group, Point
from hpccoll.report.naming import counted
from hpccoll.report.rounds import Interval, interval, seconds
from hpccoll.report.wires import format_rate
from hpccoll.units import format_seconds


@dataclass(frozen=True, slots=True)
class Middle:
    """What a line shows of points that differ in their pair of ranks: the median one (the faster of two)."""

    points: tuple[Point, ...]  # the fastest first

    @property
    def point(self) -> Point:
        return self.points[(len(self.points) - 1) // 2]

    @property
    def range(self) -> Interval:
        """The times of the fastest and of the slowest pair; of one pair the interval of its median."""
        return (seconds(self.points[0]), seconds(self.points[-1])) if len(self.points) > 1 else interval(self.point)


def middles(points: Iterable[Point]) -> tuple[Middle, ...]:
    """Return the points of each machine, line, number of ranks and size; of each pair of ranks the last measured."""
    alike: dict[tuple[object, ...], dict[tuple[int, int] | None, Point]] = defaultdict(dict)
    for point in points:
        row = point.row
        alike[point.machine, point.series, row.ranks, row.nodes, row.requested_bytes][pair(row)] = point
    return tuple(Middle(tuple(sorted(found.values(), key=seconds))) for found in alike.values())


def lines(group: Group) -> Iterator[tuple[Point, Interval]]:
    """Yield what curves over size show: each point with its interval, or the pair in the middle with the range."""
    if group.many_pairs:
        yield from ((middle.point, middle.range) for middle in middles(group.usable))
    else:
        yield from ((point, interval(point)) for point in group.usable)


def pair_words(point: Point) -> str:
    """Return the two ranks of a point, with their hosts where there are several; nothing where all take part."""
    two = pair(point.row)
    return f"ranks {' and '.join(map(point.rank, two))}" if two else ""


def way(point: Point) -> str:
    """Return the name of a point's line without how far the ranks are apart."""
    return point.series.removesuffix(f" {tier(point.row)}")


def mapped(group: Group) -> list[Point]:
    """Return the points of all pairs of the shape that most of them were measured on, each measured last."""
    pairs: dict[tuple[str, int, int], set[object]] = defaultdict(set)
    for point in group.usable:
        pairs[point.machine, point.row.ranks, point.row.nodes].add(pair(point.row))
    shape = max(pairs, key=lambda shape: (len(pairs[shape]), shape[1]))
    chosen = (p for p in group.usable if (p.machine, p.row.ranks, p.row.nodes) == shape and not p.row.floor)
    last = {(way(p), pair(p.row), p.row.requested_bytes): p for p in chosen}
    return list(last.values())


def ends(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Return the points of the smallest and of the largest size."""
    points = list(points)
    sizes = [point.row.requested_bytes for point in points]
    least, most = min(sizes), max(sizes)
    return [p for p in points if p.row.requested_bytes == least], [p for p in points if p.row.requested_bytes == most]


def extremes(group: Group) -> tuple[str, str]:
    """Return the smallest and the largest size of a map of pairs in words; nothing where there is no map."""
    if not group.many_pairs:
        return "", ""
    least, most = (group.size(points[0].row.requested_bytes) for points in ends(mapped(group)))
    return least, most


def pair_findings(group: Group) -> Iterator[tuple[str, str]]:
    """Yield of each line which pairs are the fastest and the slowest at both ends of the sizes: a title, a sentence."""
    if not group.many_pairs:
        return
    least, most = ends(mapped(group))
    yield from _said(group, least, _time)
    if most[0].row.requested_bytes > least[0].row.requested_bytes:
        yield from _said(group, most, _rate)


def _said(group: Group, points: Sequence[Point], value: Callable[[Point], str]) -> Iterator[tuple[str, str]]:
    for name in group.colours:
        found = sorted((point for point in points if point.series == name), key=seconds)
        if len(found) > 1:
            fastest, slowest, middle = found[0], found[-1], Middle(tuple(found)).point
            times = seconds(slowest) / seconds(fastest)
            says = (
                f"{value(middle)} is the median of {counted(len(found), 'pair')}; "
                f"fastest are {pair_words(fastest)} with {value(fastest)}; "
                f"slowest are {pair_words(slowest)} with {value(slowest)}, {times:.2f} times as long."
            )
            yield f"{name}, {group.size(middle.row.requested_bytes)}, {group.place(middle.row)}", says


def _time(point: Point) -> str:
    return format_seconds(seconds(point))


def _rate(point: Point) -> str:
    return format_rate(point.row.busbw_Bps or 0.0)
