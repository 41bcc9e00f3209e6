"""Comparison of mappings of ranks to nodes: their times, and their bytes between racks."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster, time_ratio
from hpccoll.analysis.series_points import SeriesPoint, median_seconds, split_by_launch
from hpccoll.analysis.speedups import evenly_spaced
from hpccoll.analysis.wire_bandwidth import uncounted_reason
from hpccoll.common.text import Finding, info
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

MAX_SIZES = 4
"""Maximum number of sizes that have a column."""


def mapping_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of a table: the time of each series over the fastest of its run; bytes between racks.

    There is a line for each series on each number of ranks, ordered by the time at the largest
    size; no lines if no run measured several mappings.
    """
    by_work = _comparable_points(group)
    rows = [point.row for point in chain.from_iterable(by_work)]
    sizes = evenly_spaced(sorted({row.requested_bytes for row in rows}), MAX_SIZES)
    head = ["time over the fastest's", "on", *map(group.size_label, sizes)]
    if any(row.rack_bytes_predicted is not None for row in rows):
        head.append("between racks")
    body: list[list[str]] = []
    for points in by_work:
        body += (line[: len(head)] for line in _table_lines(group, points, sizes))
    return head, body


def _comparable_points(group: ChartGroup) -> list[list[SeriesPoint]]:
    """Return the points of each number of ranks that launches measured together, if they have several mappings.

    Each series and size has one point, the faster one. Launches of a resumed job count as one.
    """
    if group.many_pairs or not _have_several_mappings(group.usable):
        return []
    by_ranks = defaultdict[CallKey, list[SeriesPoint]](list)
    for point in group.best_placements:
        by_ranks[point.key.only("machine", "ranks", "nodes")].append(point)
    comparable = []
    for points in by_ranks.values():
        for points_of_launch in split_by_launch(points):
            work = _faster_of_each(points_of_launch)
            if _have_several_mappings(work):
                comparable.append(work)
    return comparable


def _have_several_mappings(points: Iterable[SeriesPoint]) -> bool:
    return len({point.row.mapping for point in points}) > 1


def _faster_of_each(points: Sequence[SeriesPoint]) -> list[SeriesPoint]:
    best: dict[tuple[str, int], SeriesPoint] = {}
    for point in points:
        call = point.series, point.row.requested_bytes
        best[call] = min(best.get(call, point), point, key=median_seconds)
    return list(best.values())


def _table_lines(
    group: ChartGroup, points: Sequence[SeriesPoint], sizes: Sequence[int]
) -> Iterator[list[str]]:
    ratios = _ratios_to_fastest(points)

    def order(point: SeriesPoint) -> tuple[int, float]:
        size = point.row.requested_bytes
        return -size, ratios[point.series, size]

    largest = {
        point.series: point for point in sorted(points, key=lambda point: point.row.requested_bytes)
    }
    for point in sorted(largest.values(), key=order):
        cells = []
        for size in sizes:
            ratio = ratios.get((point.series, size))
            cells.append("" if ratio is None else f"{ratio:.2f}x")
        yield [
            point.series,
            group.shape_and_machine(point),
            *cells,
            _bytes_between_racks(point.row),
        ]


def _bytes_between_racks(row: Row) -> str:
    if row.rack_bytes_predicted is not None:
        return f"{row.rack_bytes_predicted / row.bytes:.3f} S"
    return uncounted_reason(row) if row.racks > 1 else ""


def _ratios_to_fastest(points: Sequence[SeriesPoint]) -> dict[tuple[str, int], float]:
    """Return the time over the fastest at the same size, by series and size; no ratio is below 1."""
    by_size: dict[int, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        by_size[point.row.requested_bytes].append(point)
    over_fastest: dict[tuple[str, int], float] = {}
    for nbytes, points_of_size in by_size.items():
        fastest = min(points_of_size, key=median_seconds)
        ratios = {point.series: time_ratio(point.row, fastest.row) for point in points_of_size}
        smallest = min(ratios.values())
        for series, ratio in ratios.items():
            over_fastest[series, nbytes] = ratio / smallest
    return over_fastest


def mapping_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the cost of the slowest mapping of each series, at the largest size with several mappings."""
    for points in _comparable_points(group):
        by_call: dict[tuple[int, str], list[SeriesPoint]] = defaultdict(list)
        for point in points:
            name = point.series.removesuffix(f" {point.row.mapping}")
            by_call[point.row.requested_bytes, name].append(point)
        compared = {call: members for call, members in by_call.items() if len(members) > 1}
        if not compared:
            continue
        largest = max(nbytes for nbytes, _ in compared)
        costs = [
            _cost(name, members)
            for (nbytes, name), members in compared.items()
            if nbytes == largest
        ]
        shape = group.shape_and_machine(points[0])
        title = ", ".join(filter(None, ("Mapping", group.size_label(largest), shape)))
        text = "; ".join(map(_cost_text, costs))
        nbytes = largest if group.has_size else None
        yield info(
            "mapping_cost", f"{text}.", title, nbytes=nbytes, shape=shape, series=tuple(costs)
        )


def _cost_text(cost: Mapping[str, Any]) -> str:
    name, slow = cost["name"], cost["slow"]
    ratio = f"{cost['ratio']:.2f}"
    if not cost["clear"]:
        return f"{name}: no mapping is clearly slower ({slow} {ratio}x)"
    text = f"{name} takes {ratio} times as long {slow} as {cost['fast']}"
    if cost["rack_sizes"]:
        fast_size, slow_size = cost["rack_sizes"]
        text += f", and sends {slow_size:.3g} S between racks instead of {fast_size:.3g} S"
    return text


def _cost(name: str, points: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Return the slowest mapping of a series over its fastest; ``rack_sizes``: their bytes between racks over S."""
    by_time = sorted(points, key=median_seconds)
    fast = by_time[0].row
    slow = by_time[-1].row
    return {
        "name": name,
        "fast": fast.mapping,
        "slow": slow.mapping,
        "ratio": time_ratio(slow, fast),
        "clear": clearly_faster(fast, slow),
        "rack_sizes": _rack_sizes(fast, slow),
    }


def _rack_sizes(fast: Row, slow: Row) -> tuple[float, float] | None:
    """Return the bytes between racks of two rows over S; None if they are unknown or equal."""
    fast_bytes = fast.rack_bytes_predicted
    slow_bytes = slow.rack_bytes_predicted
    if fast_bytes is None or slow_bytes is None or fast_bytes == slow_bytes:
        return None
    return fast_bytes / fast.bytes, slow_bytes / slow.bytes
