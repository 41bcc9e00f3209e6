"""The findings about the rows of a group, in the order of the page; workloads have findings of their own."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    make_findings: Callable[[ChartGroup], Iterable[Finding]] = (
        findings_of_workload or _collective_findings
    )
    findings = [*make_findings(group), *quality_findings(group)]
    return sorted(findings, key=lambda finding: finding.severity == "info")


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
    with_busbw = [point for point in group.usable if point.row.busbw_Bps]
    points = [point for point in with_busbw if point.row.ranked and not _is_burst(point)]
    if not points:
        return
    best = max(points, key=_certain_busbw)
    busbw = best.row.busbw_Bps or 0.0
    ends = busbw_interval(best)
    low, high = map(format_rate, ends or (0.0, 0.0))
    interval = "" if low == high else f" ({low} to {high} by its 95 % interval)"
    text = f"{format_rate(busbw)}{interval} by {best.series} with {group.place(best)}"
    algbw = None
    if offloaded(best.row):
        algbw = best.row.algbw_Bps or 0.0
        text += f", algbw {format_rate(algbw)}: where switches reduce, busbw assumes bytes that no link carries"
    text += "."
    auto = max(
        (point.row.busbw_Bps or 0.0 for point in with_busbw if point.row.algorithm == AUTO),
        default=0.0,
    )
    if auto:
        text += f" auto, which chooses among these and is left out, reached {format_rate(auto)}."
    yield info(
        "highest_busbw",
        text,
        title="Highest busbw",
        busbw=busbw,
        interval=ends,
        offloaded_algbw=algbw,
        auto_busbw=auto,
        **group.coordinates(best),
    )


def _certain_busbw(point: SeriesPoint) -> tuple[bool, bool, float]:
    """Return the sort key of the highest busbw: with cores for all ranks, then by the lower end of its interval.

    A noisy case has a wide interval, and so a low end. A point without an interval counts only if
    no other has one.
    """
    has_cores = not point.row.oversubscribed
    ends = busbw_interval(point)
    if ends is None:
        return has_cores, False, point.row.busbw_Bps or 0.0
    return has_cores, True, ends[0]


def _is_burst(point: SeriesPoint) -> bool:
    row = point.row
    most = wire_ceiling(row, point.wire)
    if most is None or wire_limit(row, point.wire):
        return False
    return (row.busbw_Bps or 0.0) > most


SHARE_TITLES = {WIRE: "Share of the wire rate", MEMORY: "Share of the memory rate"}
"""The titles of the findings on limits, by their kind."""


def _limit_shares(group: ChartGroup) -> Iterator[Finding]:
    """Yield, for each kind of limit, what the best series reaches of it at the largest size of each shape."""
    best = dict[tuple[CallKey, str], tuple[Limit, SeriesPoint]]()

    def rank(entry: tuple[Limit, SeriesPoint]) -> tuple[int, float]:
        limit, point = entry
        return point.row.requested_bytes, limit.share

    def order(item: tuple[tuple[CallKey, str], tuple[Limit, SeriesPoint]]) -> tuple[Any, ...]:
        (key, _), (limit, _) = item
        return key.machine, key.ranks, limit.busbw

    for point in group.best_placements:
        limit = limit_of(point)
        if limit:
            key = point.key.only("machine", "ranks"), limit.label
            best[key] = max(best.get(key, (limit, point)), (limit, point), key=rank)
    in_order = sorted(best.items(), key=order)
    for kind, title in SHARE_TITLES.items():
        shares = [
            _share(group, limit, point) for _, (limit, point) in in_order if limit.kind == kind
        ]
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
    percent = f"{100 * share['share']:.0f} %"
    reached = f"{share['series']} reaches {percent} of {share['limit']}"
    return f"{reached} at {format_size(share['nbytes'])} on {share['shape']}"


def _uncalibrated_wires(group: ChartGroup) -> Iterator[Finding]:
    """Yield the wires that miss their rate: they were calibrated on a busy machine, and a percentage is too high."""
    missing: set[tuple[str, float]] = set()
    for point in group.usable:
        wire = point.wire
        if point.row.nodes > 1 and wire.rate_ratio:
            missing.add((wire.rate_label, wire.rate_ratio))
    for label, ratio in sorted(missing):
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
        yield _fallback(series, rows)


def _fallback(series: str, rows: Sequence[Row]) -> Finding:
    """Return the finding on a series that did not run what was requested, with the reasons that logs give."""
    name = executed_name(rows[0])
    requested = rows[0].requested
    is_unknown = name == UNKNOWN
    if is_unknown:
        ran = "no evidence shows what ran"
        evidence = [row.evidence for row in rows]
    else:
        ran = f"{name} ran"
        evidence = [row.executed.partition(" (")[2].removesuffix(")") for row in rows]
    reasons = tuple(dict.fromkeys(filter(None, evidence)))
    why = "; ".join(first_few(reasons, MAX_REASONS, "reason")) or "no log gives a reason"
    return warning(
        "fallback",
        f"{series}: {requested} was requested, but {ran} in {format_count(len(rows), 'row')}: {why}.",
        title="Fallback",
        series=series,
        requested=requested,
        executed=None if is_unknown else name,
        rows=len(rows),
        reasons=reasons,
    )


def _libraries(group: ChartGroup) -> Iterator[Finding]:
    series: dict[str, dict[str, None]] = defaultdict(dict)
    for point in group.usable:
        if point.library:
            series[point.library][point.series] = None
    for summary, names in series.items():
        text = f"{summary}."
        if len(series) > 1:
            text = f"{', '.join(names)}: {text}"
        yield info("library", text, title="Library", summary=summary, series=tuple(names))


def _model_ratios(group: ChartGroup) -> Iterator[Finding]:
    ratios: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for point in group.usable:
        if point.expected_s:
            ratio = median_seconds(point) / point.expected_s
            ratios[point.series].append((ratio, point.row.requested_bytes))
    for series, ratios_of_series in ratios.items():
        ends = sorted({min(ratios_of_series), max(ratios_of_series)})
        words: dict[str, None] = {}
        for ratio, nbytes in ends:
            size = f" (at {group.size_label(nbytes)})" if group.has_size else ""
            words[f"{ratio:.2f}{size}"] = None
        text = f"{series} takes {' to '.join(words)} times as long as NCCL expects of what ran."
        yield info("library_model", text, title="NCCL's model", series=series, ratios=tuple(ends))
