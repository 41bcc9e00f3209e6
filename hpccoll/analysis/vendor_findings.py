"""Findings about the library's own collectives: what ran instead of the request, the network, NCCL's own model."""

from collections import defaultdict
from collections.abc import Iterator

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.executed_labels import executed_name, fell_back
from hpccoll.analysis.series_points import median_seconds
from hpccoll.common.text import Finding, first_few, info, warning
from hpccoll.common.units import format_count
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.store.rows import Row

MAX_REASONS = 2
"""Reasons that a sentence quotes; the table of rows has all of them."""


def vendor_findings(group: ChartGroup) -> Iterator[Finding]:
    """Yield the fallbacks of each series, then the libraries and their networks, then NCCL's model of each series."""
    yield from _fallbacks(group)
    yield from _libraries(group)
    yield from _model_ratios(group)


def _fallbacks(group: ChartGroup) -> Iterator[Finding]:
    """Yield each series that is not what was requested: what ran (None without evidence), how many rows, and why."""
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
    """Yield each summary of a library and its network, once for all series that share it."""
    series: dict[str, dict[str, None]] = defaultdict(dict)
    for point in group.usable:
        if point.library:
            series[point.library][point.series] = None
    for summary, names in series.items():
        of_series = "" if len(series) == 1 else f"{', '.join(names)}: "
        yield info("library", f"{of_series}{summary}.", title="Library", summary=summary, series=tuple(names))


def _model_ratios(group: ChartGroup) -> Iterator[Finding]:
    """Yield for each series the lowest and the highest ratio of its time to that of the library's own model."""
    ratios: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for point in group.usable:
        if point.expected_s:
            ratios[point.series].append((median_seconds(point) / point.expected_s, point.row.requested_bytes))
    for series, of_series in ratios.items():
        ends = sorted({min(of_series), max(of_series)})
        words = [f"{ratio:.2f}{f' (at {group.size_label(n)})' if group.has_size else ''}" for ratio, n in ends]
        text = f"{series} takes {' to '.join(dict.fromkeys(words))} times as long as NCCL expects of what ran."
        yield info("library_model", text, title="NCCL's model", series=series, ratios=tuple(ends))
