"""The findings about the rows of a group, in the order of the page; workloads have findings of their own."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.limits import MEMORY, WIRE, Limit, limit_of
from hpccoll.analysis.mapping_comparison import mapping_findings
from hpccoll.analysis.measurement_quality import quality_findings
from hpccoll.analysis.rank_pairs import pair_findings
from hpccoll.analysis.row_labels import executed_name, fell_back, offloaded
from hpccoll.analysis.sent_bytes import rail_findings
from hpccoll.analysis.series_points import SeriesPoint, busbw_interval, median_seconds
from hpccoll.analysis.wire_bandwidth import wire_ceiling, wire_limit
from hpccoll.common.extensions import contributed
from hpccoll.common.text import Finding, first_few, info, warning
from hpccoll.common.units import format_count, format_rate, format_size
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule.collective import AUTO
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

MAX_REASONS = 2
"""Reasons that a sentence quotes; the table of rows has all of them."""


def group_findings(group: ChartGroup) -> list[Finding]:
    """Return the findings of ``group`` besides what to use: what ran, the highest bandwidth, what weakens the results.

    Warnings come first. A workload has findings of its own instead of those of collectives.
    """
    findings_of_workload = contributed("findings", group.collective)
    make_findings: Callable[[ChartGroup], Iterable[Finding]] = findings_of_workload or _collective_findings
    findings = make_findings(group)
    return sorted([*findings, *quality_findings(group)], key=lambda finding: finding.severity == "info")


def _collective_findings(group: ChartGroup) -> Iterator[Finding]:
    yield from _fallbacks(group)
    yield from _libraries(group)
    yield from _model_ratios(group)
    yield from mapping_findings(group)
    yield from pair_findings(group)
    yield from _highest_busbw(group)
    yield from _limit_shares(group)
    yield from _uncalibrated_wires(group)
    yield from rail_findings(group)


def _highest_busbw(group: ChartGroup) -> Iterator[Finding]:
    points = [p for p in group.usable if p.row.busbw_Bps and p.row.ranked and not _is_burst(p)]
    if points:
        best = max(points, key=_certain_busbw)
        busbw, ends = best.row.busbw_Bps or 0.0, busbw_interval(best)
        auto = max((p.row.busbw_Bps or 0.0 for p in group.usable if p.row.algorithm == AUTO), default=0.0)
        algbw = best.row.algbw_Bps or 0.0 if offloaded(best.row) else None
        low, high = map(format_rate, ends or (0.0, 0.0))
        interval = "" if low == high else f" ({low} to {high} by its 95 % interval)"
        text = f"{format_rate(busbw)}{interval} by {best.series} with {group.place(best)}"
        if algbw is not None:
            text += f", algbw {format_rate(algbw)}: where switches reduce, busbw assumes bytes that no link carries"
        also = f" auto, which chooses among these and is left out, reached {format_rate(auto)}." if auto else ""
        yield info(
            "highest_busbw", f"{text}.{also}", title="Highest busbw", busbw=busbw, interval=ends,
            offloaded_algbw=algbw, auto_busbw=auto, **group.coordinates(best),
        )  # fmt: skip


def _certain_busbw(point: SeriesPoint) -> tuple[bool, bool, float]:
    """Return the sort key of the highest busbw: with cores for all ranks, then by the lower end of its interval.

    A cell of noise has a wide interval, and so a low end. A point without an interval counts only if no other has one.
    """
    ends = busbw_interval(point)
    return not point.row.oversubscribed, ends is not None, ends[0] if ends else point.row.busbw_Bps or 0.0


def _is_burst(point: SeriesPoint) -> bool:
    row, most = point.row, wire_ceiling(point.row, point.wire)
    return most is not None and not wire_limit(row, point.wire) and (row.busbw_Bps or 0.0) > most


SHARE_TITLES = {WIRE: "Share of the wire rate", MEMORY: "Share of the memory rate"}
"""The titles of the findings on limits, by their kind."""


def _limit_shares(group: ChartGroup) -> Iterator[Finding]:
    """Yield, for each kind of limit, what the best series reaches of it at the largest size of each shape."""
    best = dict[tuple[CallKey, str], tuple[Limit, SeriesPoint]]()

    def rank(entry: tuple[Limit, SeriesPoint]) -> tuple[int, float]:
        limit, point = entry
        return point.row.requested_bytes, limit.share

    for point in group.best_placements:
        limit = limit_of(point)
        if limit:
            key = point.key.only("machine", "ranks"), limit.label
            best[key] = max(best.get(key, (limit, point)), (limit, point), key=rank)
    in_order = sorted(best.items(), key=lambda item: (item[0][0].machine, item[0][0].ranks, item[1][0].busbw))
    for kind, title in SHARE_TITLES.items():
        shares = [_share(group, limit, point) for _, (limit, point) in in_order if limit.kind == kind]
        if not shares:
            continue
        text = f"{'; '.join(map(_share_text, shares))}."
        if kind == MEMORY and any(share["share"] > 1 for share in shares):
            text += " More than 100 %: caches save bytes, or the copies were disturbed."
        yield info(f"{kind}_share", text, title=title, best=shares)


def _share(group: ChartGroup, limit: Limit, point: SeriesPoint) -> dict[str, Any]:
    return {
        "series": point.series,
        "share": limit.share,
        "limit": limit.label,
        "nbytes": point.row.requested_bytes,
        "shape": group.shape_label(point.row),
    }


def _share_text(share: Mapping[str, Any]) -> str:
    reached = f"{share['series']} reaches {100 * share['share']:.0f} % of {share['limit']}"
    return f"{reached} at {format_size(share['nbytes'])} on {share['shape']}"


def _uncalibrated_wires(group: ChartGroup) -> Iterator[Finding]:
    """Yield the wires that miss their rate: they were calibrated on a busy machine, and a percentage is too high."""
    wires = [point.wire for point in group.usable if point.row.nodes > 1]
    for label, ratio in sorted({(wire.rate_label, wire.rate_ratio) for wire in wires if wire.rate_ratio}):
        text = (
            f"a wire carried {100 * ratio:.1f} % of the TCP throughput of {label} when the testbed came up: bring it "
            "up again while the machine is idle."
        )
        yield info("wire_uncalibrated", text, title="Wire not calibrated", wire=label, ratio=ratio)


def _fallbacks(group: ChartGroup) -> Iterator[Finding]:
    rows_by_series = defaultdict[str, list[Row]](list)
    for point in group.usable:
        if fell_back(point.row):
            rows_by_series[point.series].append(point.row)
    for series, rows in rows_by_series.items():
        name, requested = executed_name(rows[0]), rows[0].requested
        ran = "no evidence shows what ran" if name == UNKNOWN else f"{name} ran"
        in_brackets = (row.executed.partition(" (")[2].removesuffix(")") for row in rows)
        reasons = tuple(dict.fromkeys(filter(None, (row.evidence for row in rows) if name == UNKNOWN else in_brackets)))
        why = "; ".join(first_few(reasons, MAX_REASONS, "reason")) or "no log gives a reason"
        yield warning(
            "fallback",
            f"{series}: {requested} was requested, but {ran} in {format_count(len(rows), 'row')}: {why}.",
            title="Fallback", series=series, requested=requested, executed=None if name == UNKNOWN else name,
            rows=len(rows), reasons=reasons,
        )  # fmt: skip


def _libraries(group: ChartGroup) -> Iterator[Finding]:
    series: dict[str, dict[str, None]] = defaultdict(dict)
    for point in group.usable:
        if point.library:
            series[point.library][point.series] = None
    for summary, names in series.items():
        of_series = "" if len(series) == 1 else f"{', '.join(names)}: "
        yield info("library", f"{of_series}{summary}.", title="Library", summary=summary, series=tuple(names))


def _model_ratios(group: ChartGroup) -> Iterator[Finding]:
    ratios: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for point in group.usable:
        if point.expected_s:
            ratios[point.series].append((median_seconds(point) / point.expected_s, point.row.requested_bytes))
    for series, of_series in ratios.items():
        ends = sorted({min(of_series), max(of_series)})
        words = [f"{ratio:.2f}{f' (at {group.size_label(n)})' if group.has_size else ''}" for ratio, n in ends]
        text = f"{series} takes {' to '.join(dict.fromkeys(words))} times as long as NCCL expects of what ran."
        yield info("library_model", text, title="NCCL's model", series=series, ratios=tuple(ends))
