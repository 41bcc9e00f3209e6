"""Comparison of mappings of ranks to nodes: their times, and their bytes between racks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.round_comparison import clearly_faster, time_ratio
from hpccoll.analysis.series_comparisons import best_placements, evenly_spaced
from hpccoll.analysis.series_points import SeriesPoint, median_seconds, split_by_launch
from hpccoll.analysis.wire_bandwidth import uncounted_reason
from hpccoll.common.text import Finding, info
from hpccoll.store.call_key import CallKey

MAX_SIZES = 4
"""Maximum number of sizes that have a column."""


def mapping_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of a table: the time of each series over the fastest of its run; bytes between racks.

    There is a line for each series on each number of ranks, ordered by the time at the largest size; no lines if no
    run measured several mappings.
    """
    by_work = _comparable_points(group)
    sizes = evenly_spaced(sorted({point.row.requested_bytes for points in by_work for point in points}), MAX_SIZES)
    racks = any(point.row.rack_bytes_predicted is not None for points in by_work for point in points)
    head = ["time over the fastest's", "on", *map(group.size_label, sizes), *(["between racks"] * racks)]
    body = [line for points in by_work for line in _table_lines(group, points, sizes)]
    return head, [line[: len(head)] for line in body]


def _comparable_points(group: ChartGroup) -> list[list[SeriesPoint]]:
    """Return the points of each number of ranks that launches measured together, if they have several mappings.

    Each series and size has one point, the faster one. Launches of a resumed job count as one.
    """
    compared = len({point.row.mapping for point in group.usable}) > 1 and not group.many_pairs
    by_ranks = defaultdict[CallKey, list[SeriesPoint]](list)
    for point in best_placements(group.points) if compared else ():
        by_ranks[point.key.only("machine", "ranks", "nodes")].append(point)
    works = [_faster_of_each(of_launch) for points in by_ranks.values() for of_launch in split_by_launch(points)]
    return [points for points in works if len({point.row.mapping for point in points}) > 1]


def _faster_of_each(points: Sequence[SeriesPoint]) -> list[SeriesPoint]:
    best: dict[tuple[str, int], SeriesPoint] = {}
    for point in points:
        call = point.series, point.row.requested_bytes
        best[call] = min(best.get(call, point), point, key=median_seconds)
    return [*best.values()]


def _table_lines(group: ChartGroup, points: Sequence[SeriesPoint], sizes: Sequence[int]) -> Iterator[list[str]]:
    over = _ratios_to_fastest(points)
    largest = {point.series: point for point in sorted(points, key=lambda point: point.row.requested_bytes)}
    for point in sorted(
        largest.values(), key=lambda p: (-p.row.requested_bytes, over[p.series, p.row.requested_bytes])
    ):
        crossed = point.row.rack_bytes_predicted
        uncounted = uncounted_reason(point.row) if point.row.racks > 1 else ""
        yield [
            point.series,
            group.shape_and_machine(point),
            *(f"{over[point.series, n]:.2f}x" if (point.series, n) in over else "" for n in sizes),
            f"{crossed / point.row.bytes:.3f} S" if crossed is not None else uncounted,
        ]


def _ratios_to_fastest(points: Sequence[SeriesPoint]) -> dict[tuple[str, int], float]:
    """Return the time over the fastest at the same size, by series and size; no ratio is below 1."""
    by_size: dict[int, list[SeriesPoint]] = defaultdict(list)
    for point in points:
        by_size[point.row.requested_bytes].append(point)
    over: dict[tuple[str, int], float] = {}
    for nbytes, of_size in by_size.items():
        fastest = min(of_size, key=median_seconds)
        ratios = {point.series: time_ratio(point.row, fastest.row) for point in of_size}
        over |= {(series, nbytes): each / min(ratios.values()) for series, each in ratios.items()}
    return over


def mapping_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the cost of the slowest mapping of each series, at the largest size with several mappings."""
    for points in _comparable_points(group):
        by_call: dict[tuple[int, str], list[SeriesPoint]] = defaultdict(list)
        for point in points:
            by_call[point.row.requested_bytes, point.series.removesuffix(f" {point.row.mapping}")].append(point)
        several = {call: of_call for call, of_call in by_call.items() if len(of_call) > 1}
        if several:
            largest = max(nbytes for nbytes, _ in several)
            costs = [_cost(name, of_call) for (nbytes, name), of_call in several.items() if nbytes == largest]
            size, shape = group.size_label(largest), group.shape_and_machine(points[0])
            title, text = ", ".join(filter(None, ("Mapping", size, shape))), f"{'; '.join(map(_cost_text, costs))}."
            yield info(
                "mapping_cost", text, title, nbytes=largest if group.has_size else None, shape=shape,
                series=tuple(costs),
            )  # fmt: skip


def _cost_text(cost: Mapping[str, Any]) -> str:
    name, slow, ratio = cost["name"], cost["slow"], cost["ratio"]
    if not cost["clear"]:
        return f"{name}: no mapping is clearly slower ({slow} {ratio:.2f}x)"
    text = f"{name} takes {ratio:.2f} times as long {slow} as {cost['fast']}"
    if cost["rack_sizes"]:
        of_fast, of_slow = cost["rack_sizes"]
        text += f", and sends {of_slow:.3g} S between racks instead of {of_fast:.3g} S"
    return text


def _cost(name: str, points: Sequence[SeriesPoint]) -> dict[str, Any]:
    """Return the slowest mapping of a series over its fastest; ``rack_sizes``: their bytes between racks over S."""
    best, *_, worst = sorted(points, key=median_seconds)
    crossed = [point.row.rack_bytes_predicted for point in (best, worst)]
    differ = None not in crossed and crossed[0] != crossed[1]
    sizes = tuple((nbytes or 0) / point.row.bytes for nbytes, point in zip(crossed, (best, worst), strict=True))
    return {
        "name": name,
        "fast": best.row.mapping,
        "slow": worst.row.mapping,
        "ratio": time_ratio(worst.row, best.row),
        "clear": clearly_faster(best.row, worst.row),
        "rack_sizes": sizes if differ else None,
    }
