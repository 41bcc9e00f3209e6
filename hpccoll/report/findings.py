"""The findings about the rows of a group, in the order of the page, and the table of ratios to native."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from hpccoll.report.chart_groups import ChartGroup, SeriesPoint, is_ranked
from hpccoll.report.comparisons import (
    Comparison,
    SizeInterval,
    best_placements,
    find_comparisons,
    native_ratios,
    size_intervals,
)
from hpccoll.report.executed_labels import offloaded
from hpccoll.report.mapping_comparison import mapping_findings
from hpccoll.report.measurement_quality import agreement_findings, convergence_finding, weakness_findings
from hpccoll.report.rail_usage import rail_findings
from hpccoll.report.rank_pairs import pair_findings
from hpccoll.report.report_finding import ReportFinding, info
from hpccoll.report.round_statistics import median_interval, median_seconds
from hpccoll.report.vendor_findings import vendor_findings
from hpccoll.report.wire_bandwidth import wire_ceiling, wire_label, wire_limit, wire_share
from hpccoll.schedule.collective import AUTO
from hpccoll.units import format_size


def group_findings(group: ChartGroup) -> list[ReportFinding]:
    """Return the findings of ``group``: the fastest series, the highest bandwidth, and what weakens the results.

    If the intervals of nearly all rows are too wide, that comes first.
    """
    findings = [
        *([] if group.many_pairs else _fastest(group, find_comparisons(group.points))),
        *vendor_findings(group),
        *mapping_findings(group),
        *pair_findings(group),
        *_highest_busbw(group),
        *_wire_shares(group),
        *rail_findings(group),
        *agreement_findings(group),
        *weakness_findings(group),
    ]
    not_converged, nearly_all = convergence_finding(group)
    if not_converged is None:
        return findings
    return [not_converged, *findings] if nearly_all else [*findings, not_converged]


def native_ratio_table(group: ChartGroup) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of a table: the lowest and the highest time over native's, by series and ranks."""
    ratios = native_ratios(find_comparisons(group.points))
    labels = {point.row.ranks: group.shape_label(point.row) for point in group.usable}
    ranks = sorted({ranks for _, ranks in ratios})
    names = dict.fromkeys(series for series, _ in ratios)
    body = [[n, *(_range(group, ratios.get((n, p), ())) for p in ranks)] for n in group.colours if n in names]
    return ["time over native's", *(labels[p] for p in ranks)], body


def _range(group: ChartGroup, pairs: Sequence[tuple[int, float]]) -> str:
    if not pairs:
        return "not measured"
    if not group.has_size:
        return " to ".join(f"{ratio:.2f}x" for ratio in sorted({ratio for _, ratio in pairs}))
    ends = sorted(
        {min(pairs, key=lambda pair: pair[1]), max(pairs, key=lambda pair: pair[1])}, key=lambda pair: pair[1]
    )
    return " to ".join(f"{ratio:.2f}x ({format_size(nbytes)})" for nbytes, ratio in ends)


def _fastest(group: ChartGroup, comparisons: Sequence[Comparison]) -> Iterator[ReportFinding]:
    """Yield the clear winners of each shape, machine, executor, variant and mapping."""

    def ranks_and_label(comparison: Comparison) -> tuple[int, str]:
        machine = f" on {group.machine_label(comparison.fastest)}" if len(group.machines) > 1 else ""
        executor = f", {comparison.executor}" if group.several_executors else ""
        variant = f", {comparison.variant}" if comparison.variant else ""
        mapping = f", {comparison.mapping}" if group.several_mappings else ""
        return comparison.ranks, group.shape_label(comparison.fastest.row) + machine + executor + variant + mapping

    for (_, label), members in groupby(sorted(comparisons, key=ranks_and_label), key=ranks_and_label):
        if intervals := size_intervals(list(members)):
            yield _winners(group, label, intervals)


def _winners(group: ChartGroup, shape: str, intervals: Sequence[SizeInterval]) -> ReportFinding:
    """Return the clear winners in order of the first size that they lead at, and the sizes without one."""
    by_winner: dict[str | None, list[SizeInterval]] = defaultdict(list)
    for interval in intervals:
        by_winner[interval.clear_winner].append(interval)
    undecided = by_winner.pop(None, [])
    leaders = []
    for series, won in by_winner.items():
        ratios = [ratio for interval in won for ratio in interval.runner_up_ratios]
        leaders.append({"series": series, "sizes": _size_ranges(won), "ratios": (min(ratios), max(ratios))})
    return info(
        "fastest",
        shape=shape,
        has_size=group.has_size,
        leaders=tuple(leaders),
        undecided=_size_ranges(undecided),
        undecided_sizes=sum(len(interval.sizes) for interval in undecided),
    )


def _size_ranges(intervals: Sequence[SizeInterval]) -> tuple[tuple[int, int], ...]:
    return tuple((interval.sizes[0], interval.sizes[-1]) for interval in intervals)


def _highest_busbw(group: ChartGroup) -> Iterator[ReportFinding]:
    points = [p for p in group.usable if p.row.busbw_Bps and is_ranked(p.row)]
    if points:
        best = max(points, key=lambda point: point.row.busbw_Bps or 0.0)
        yield info(
            "highest_busbw",
            busbw=best.row.busbw_Bps or 0.0,
            interval=_busbw_interval(best),
            burst=_burst(best),
            offloaded_algbw=best.row.algbw_Bps or 0.0 if offloaded(best.row) else None,
            auto_busbw=max((p.row.busbw_Bps or 0.0 for p in group.usable if p.row.algorithm == AUTO), default=0.0),
            **group.coordinates(best),
        )


def _busbw_interval(point: SeriesPoint) -> tuple[float, float] | None:
    """Return the ends of the busbw of a point, by the interval of its time; None without one."""
    ends, busbw = median_interval(point), point.row.busbw_Bps or 0.0
    if ends is None or not ends[0]:
        return None
    return busbw * median_seconds(point) / ends[1], busbw * median_seconds(point) / ends[0]


def _burst(point: SeriesPoint) -> dict[str, object] | None:
    """Return the calibrated wire that a small message exceeded as a burst; None if busbw may exceed the wire."""
    row, wire = point.row, point.wire
    most = wire_ceiling(row, wire)
    if most is None or wire_limit(row, wire) or (row.busbw_Bps or 0.0) <= most:
        return None
    return {"wire": wire_label(row, wire), "rate": most}


def _wire_shares(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield the share of the wires in use that the best series reaches at the largest size, on each number of nodes.

    A wire that misses its rate was calibrated on a busy machine: a percentage of its rate would be too high.
    """
    best: dict[tuple[str, int, float], tuple[int, float, SeriesPoint]] = {}
    for point in best_placements(group.points):
        if reached := wire_share(point.row, point.wire):
            key = point.machine, point.row.ranks, wire_limit(point.row, point.wire) or 0.0
            entry = (point.row.requested_bytes, reached, point)
            best[key] = max(best.get(key, entry), entry, key=lambda entry: entry[:2])
    clauses = tuple(
        {
            "series": point.series,
            "share": reached,
            "wire": wire_label(point.row, point.wire),
            "nbytes": nbytes,
            "shape": group.shape_label(point.row),
        }
        for _, (nbytes, reached, point) in sorted(best.items(), key=lambda item: item[0])
    )
    if clauses:
        yield info("wire_share", best=clauses)
    wires = [point.wire for point in group.usable if point.row.nodes > 1]
    for label, ratio in sorted({(wire.rate_label, wire.rate_ratio) for wire in wires if wire.rate_ratio}):
        yield info("wire_below_rate", wire=label, ratio=ratio)
