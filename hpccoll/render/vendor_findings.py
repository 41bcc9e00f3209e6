"""Findings about the library's own collectives: what ran instead of the request, the network, NCCL's own model."""

from collections import defaultdict
from collections.abc import Iterator

from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.render.chart_groups import ChartGroup
from hpccoll.render.executed_labels import executed_name, fell_back
from hpccoll.render.report_finding import ReportFinding, info, warning
from hpccoll.render.round_statistics import median_seconds
from hpccoll.store.rows import Row


def vendor_findings(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield the fallbacks of each series, then the libraries and their networks, then NCCL's model of each series."""
    yield from _fallbacks(group)
    yield from _libraries(group)
    yield from _model_ratios(group)


def _fallbacks(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield each series that is not what was requested: what ran (None without evidence), how many rows, and why."""
    rows_by_series: dict[str, list[Row]] = defaultdict(list)
    for point in group.usable:
        if fell_back(point.row):
            rows_by_series[point.series].append(point.row)
    for series, rows in rows_by_series.items():
        name = executed_name(rows[0])
        yield warning(
            "fallback",
            series=series,
            requested=rows[0].requested,
            executed=None if name == UNKNOWN else name,
            rows=len(rows),
            reasons=tuple(dict.fromkeys(filter(None, map(_reason, rows)))),
        )


def _reason(row: Row) -> str | None:
    in_brackets = row.executed.partition(" (")[2].removesuffix(")")
    return row.evidence if executed_name(row) == UNKNOWN else in_brackets


def _libraries(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield each summary of a library and its network, once for all series that share it."""
    series: dict[str, dict[str, None]] = defaultdict(dict)
    for point in group.usable:
        if point.library:
            series[point.library][point.series] = None
    for summary, names in series.items():
        yield info("library", summary=summary, series=tuple(names), shared=len(series) == 1)


def _model_ratios(group: ChartGroup) -> Iterator[ReportFinding]:
    """Yield for each series the lowest and the highest ratio of its time to that of the library's own model."""
    ratios: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for point in group.usable:
        if point.expected_s:
            ratios[point.series].append((median_seconds(point) / point.expected_s, point.row.requested_bytes))
    for series, of_series in ratios.items():
        ends = sorted({min(of_series), max(of_series)})
        sized = tuple((ratio, nbytes if group.has_size else None) for ratio, nbytes in ends)
        yield info("library_model", series=series, ratios=sized)
