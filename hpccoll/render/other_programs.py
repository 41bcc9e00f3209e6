"""The section with results of other programs: next to ours of the same operation, and never ranked."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.analysis.side_by_side import SideBySide, call_label, side_by_side
from hpccoll.common.text import table_of
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import ChartRecord
from hpccoll.render.colours import INK, numbered_colours
from hpccoll.render.comparison_tables import SIDE_BY_SIDE_COLUMNS, side_by_side_meanings
from hpccoll.store.rows import Results, Row
from hpccoll.store.schema import IMPORTED

MAX_PANELS = 6
"""The most panels of the chart; further operations are in the table."""

CAPTION = (
    "Dashed: results of other programs, which time differently: the table says how. Solid: ours of the same operation."
)


def other_programs(results: Results) -> Mapping[str, object]:
    """Return the section of a report: a chart of times by size, and the table; empty without imported rows."""
    pairs = side_by_side((row for row in results.rows if row.imported), results.ours.rows)
    if not pairs:
        return {}
    libraries = {run.run_id: str(run.provenance.get("library")) for run in results.runs if run.kind == IMPORTED}
    chart = other_programs_chart(pairs, libraries)
    table, meanings = table_of(SIDE_BY_SIDE_COLUMNS, pairs), side_by_side_meanings(pairs)
    return {"title": TITLE, "chart": chart, "caption": CAPTION, "table": table, "meanings": meanings}


def other_programs_chart(
    pairs: Sequence[SideBySide], libraries: Mapping[str, str] | None = None
) -> Mapping[str, object] | None:
    """Return the chart: their times and ours by size, a panel for each operation; None without two sizes of one.

    The ``libraries`` are those of the imported runs, which name their series if there are several.
    """
    of_run = libraries if libraries and len(set(libraries.values())) > 1 else {}
    panels: defaultdict[str, list[SideBySide]] = defaultdict(list)
    for pair in pairs:
        panels[_panel(pair.theirs)].append(pair)
    several = [panel for panel, each in panels.items() if len({pair.theirs.requested_bytes for pair in each}) > 1]
    shown = several[:MAX_PANELS]
    data = [record for panel in shown for pair in panels[panel] for record in _records(panel, pair, of_run)]
    if not data:
        return None
    names = chart_base.distinct(data, "series")
    ours = {d["series"] for d in data if d["line"] == chart_base.MEASURED}
    colours = numbered_colours(name for name in names if name not in ours)
    colours = {name: colours.get(name, INK) for name in names}
    x = chart_base.size_axis(pair.theirs.requested_bytes for panel in shown for pair in panels[panel])
    columns = min(2, len(shown))
    whole = chart_base.curves(
        data, x, chart_base.time_axis, colours, ("series", "size", "time"), titles=shown, columns=columns,
        symbol="stroke",
    )  # fmt: skip
    return chart_base.apply_theme(whole, TITLE, [], names)


TITLE = "Times that other programs report"


def _records(panel: str, pair: SideBySide, libraries: Mapping[str, str]) -> Iterator[ChartRecord]:
    theirs, ours = _series(pair.theirs, libraries.get(pair.theirs.run_id)), pair.ours
    yield _record(panel, theirs, pair.theirs, chart_base.OTHERS)
    if ours:
        yield _record(panel, f"hpccoll {ours.algorithm} ({ours.timing})", ours, chart_base.MEASURED)


def _record(panel: str, series: str, row: Row, line: str) -> ChartRecord:
    seconds = row.median_s or 0.0
    return {
        "panel": panel, "line": line, "series": series, "bytes": row.requested_bytes, "value": seconds,
        "size": format_size(row.requested_bytes), "time": format_seconds(seconds),
    }  # fmt: skip


def _series(row: Row, library: str | None) -> str:
    call = call_label(row.params)
    placement = ", in place" if row.in_place and row.transport in ("nccl", "rccl") else ""
    of_library = f", {library}" if library else ""
    return f"{row.source} {call or row.algorithm} ({row.timing}{placement}{of_library})"


def _panel(row: Row) -> str:
    where = f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}"
    over = f" over {row.transport}" if row.transport != "mpi" else ""
    device = ", buffers on GPUs" if row.device != "cpu" else ""
    return f"{row.collective}{over}, {row.dtype}, {where}{device}"
