"""The library's own in sentences: over which network it ran, what was asked of it and did not run, what it expects."""

from collections import defaultdict
from collections.abc import Iterator

from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.report.chart_groups import ChartGroup
from hpccoll.report.executed_labels import executed_name, fell_back
from hpccoll.report.round_statistics import median_seconds
from hpccoll.report.series_names import format_count
from hpccoll.store.rows import Row

MAX_REASONS = 2
"""The most reasons that are told of one series: the rows have all of them."""


def fallback_findings(group: ChartGroup) -> Iterator[tuple[str, str]]:
    """Yield for each series that is not what was asked for how many rows that are, and why: a title, a sentence."""
    alike: dict[str, list[Row]] = defaultdict(list)
    for point in group.usable:
        if fell_back(point.row):
            alike[point.series].append(point.row)
    for series, rows in alike.items():
        became = "nothing shows what ran" if executed_name(rows[0]) == UNKNOWN else f"{executed_name(rows[0])} ran"
        reasons = list(dict.fromkeys(filter(None, map(_why, rows))))
        more = f"; and {format_count(len(reasons) - MAX_REASONS, 'other reason')}" if len(reasons) > MAX_REASONS else ""
        why = "; ".join(reasons[:MAX_REASONS]) + more or "no log says why"
        what = f"{rows[0].requested} was asked for and {became} in {format_count(len(rows), 'row')}"
        yield "Not what was asked", f"{series}: {what}: {why}."


def _why(row: Row) -> str | None:
    inner = row.executed.partition(" (")[2].removesuffix(")")
    return row.evidence if executed_name(row) == UNKNOWN else inner


def library_findings(group: ChartGroup) -> Iterator[tuple[str, str]]:
    """Yield what logs say of the library and its network, once for all series that share it: a title, a sentence."""
    series: dict[str, dict[str, None]] = defaultdict(dict)
    for point in group.usable:
        if point.library:
            series[point.library][point.series] = None
    for said, names in series.items():
        yield "Library", f"{said}." if len(series) == 1 else f"{', '.join(names)}: {said}."


def model_findings(group: ChartGroup) -> Iterator[tuple[str, str]]:
    """Yield how long each series takes beside what the library's own model gives: a title, a sentence."""
    ratios: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for point in group.usable:
        if point.expected_s:
            ratios[point.series].append((median_seconds(point) / point.expected_s, point.row.requested_bytes))
    for series, found in ratios.items():
        ends = (f"{ratio:.2f} (at {group.size_label(nbytes)})" for ratio, nbytes in sorted({min(found), max(found)}))
        yield "NCCL's model", f"{series} takes {' to '.join(ends)} times as long as NCCL expects of what ran."
