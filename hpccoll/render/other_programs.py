"""The section with results of other programs: next to ours of the same operation, and never ranked."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import altair as alt

from hpccoll.analysis.side_by_side import SideBySide, call_label, operation_label, side_by_side
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.render import chart_axes
from hpccoll.render.chart_panels import Chart, ChartRecord, inline_data, tooltip
from hpccoll.render.html_tables import plain_table
from hpccoll.render.page_frame import chart_figure
from hpccoll.render.series_colours import FOREGROUND, series_colour
from hpccoll.store.rows import Results, Row
from hpccoll.store.schema import IMPORTED
from hpccoll.store.sources import SOURCES

MAX_PANELS = 6
"""The most panels of the chart; further operations are in the table."""

CAPTION = (
    "Dashed: results of other programs, which time differently: the table says how. Solid: ours of the same operation."
)


def other_programs_section(results: Results) -> str:
    """Return the section: a chart of times by size, and the table; empty without imported rows."""
    pairs = side_by_side((row for row in results.rows if row.imported), results.ours.rows)
    if not pairs:
        return ""
    libraries = {run.run_id: str(run.provenance.get("library")) for run in results.runs if run.kind == IMPORTED}
    chart = other_programs_chart(pairs, libraries)
    figure = chart_figure("other-programs-times", "Times that other programs report", chart, CAPTION) if chart else ""
    return f'<h2 id="other-programs">Other programs</h2>{figure}{side_by_side_table(pairs)}'


def side_by_side_table(pairs: Sequence[SideBySide]) -> str:
    """Return results of other programs next to ours as a table, and what their numbers mean."""
    head = ["operation", "theirs", "by", "their timing", "ours", "our timing", "theirs / ours"]
    body = [
        [
            operation_label(pair.theirs), format_seconds(pair.theirs.median_s or 0), pair.theirs.source or "",
            pair.theirs.timing, format_seconds(pair.ours.median_s) if pair.ours and pair.ours.median_s else "none",
            pair.ours.timing if pair.ours else "", f"{pair.factor:.2f}" if pair.factor else "",
        ]
        for pair in pairs
    ]  # fmt: skip
    sources = dict.fromkeys(pair.theirs.source or "" for pair in pairs)
    meanings = "".join(f"<li>{escape(SOURCES[each].title)}: {escape(SOURCES[each].meaning)}.</li>" for each in sources)
    note = (
        f'<div class="note">These numbers are timed differently, and therefore not ranked:<ul>{meanings}'
        "<li>hpccoll: the median over iterations and rounds of the longest duration over ranks, after its barrier."
        "</li></ul></div>"
    )
    return note + plain_table(head, body, tall=len(body) > 15)


def other_programs_chart(
    pairs: Sequence[SideBySide], libraries: Mapping[str, str] | None = None
) -> Mapping[str, object] | None:
    """Return the chart: their times and ours by size, a panel for each operation; None without two sizes of one.

    Args:
        pairs: the results.
        libraries: the library of each imported run, which names its series if there are several.
    """
    of_run = libraries if libraries and len(set(libraries.values())) > 1 else {}
    panels: defaultdict[str, list[SideBySide]] = defaultdict(list)
    for pair in pairs:
        panels[_panel(pair.theirs)].append(pair)
    shown = [panel for panel, each in panels.items() if len({pair.theirs.requested_bytes for pair in each}) > 1]
    points = [point for panel in shown[:MAX_PANELS] for pair in panels[panel] for point in _points(panel, pair, of_run)]
    if not points:
        return None
    names = list(dict.fromkeys(point.series for point in points))
    others = [name for name in names if name not in {point.series for point in points if point.ours}]
    colours = dict.fromkeys(names, FOREGROUND) | {name: series_colour(i) for i, name in enumerate(others)}
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=names, range=list(colours.values())), legend=alt.Legend(title=None)
    )
    dash = alt.StrokeDash("by:N", legend=None, scale=alt.Scale(domain=["ours", "theirs"], range=[[1, 0], [5, 3]]))
    base = alt.Chart().encode(
        x=chart_axes.size_axis(sorted({point.row.requested_bytes for point in points})),
        y=chart_axes.time_axis([point.row.median_s or 0.0 for point in points]), color=colour,
    )  # fmt: skip
    lines = base.mark_line().encode(strokeDash=dash)
    circles = base.mark_point(size=30, filled=True).encode(tooltip=tooltip("series", "size", "time"))
    one: Chart = alt.layer(lines, circles, data=inline_data([point.record for point in points])).properties(
        width=chart_axes.WIDTH // min(2, len(shown)), height=240
    )
    whole = one
    if len(shown) > 1:
        whole = one.facet(facet=alt.Facet("panel:N", title=None, sort=shown), columns=2)
    return chart_axes.apply_theme(whole, "Times that other programs report", [], names)


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of the chart."""

    panel: str
    series: str
    row: Row
    ours: bool

    @property
    def record(self) -> ChartRecord:
        seconds = self.row.median_s or 0.0
        return {
            "panel": self.panel, "by": "ours" if self.ours else "theirs", "series": self.series,
            "bytes": self.row.requested_bytes, "value": seconds, "size": format_size(self.row.requested_bytes),
            "time": format_seconds(seconds),
        }  # fmt: skip


def _points(panel: str, pair: SideBySide, libraries: Mapping[str, str]) -> Iterator[_Point]:
    yield _Point(panel, _series(pair.theirs, libraries.get(pair.theirs.run_id)), pair.theirs, ours=False)
    if pair.ours:
        yield _Point(panel, f"hpccoll {pair.ours.algorithm} ({pair.ours.timing})", pair.ours, ours=True)


def _series(row: Row, library: str | None) -> str:
    """Return the name of the series of a result of another program, with its library if there are several."""
    call = call_label(row.params)
    placement = ", in place" if row.in_place and row.transport in ("nccl", "rccl") else ""
    of_library = f", {library}" if library else ""
    return f"{row.source} {call or row.algorithm} ({row.timing}{placement}{of_library})"


def _panel(row: Row) -> str:
    where = f"{format_count(row.ranks, 'rank')} on {format_count(row.nodes, 'node')}"
    over = f" over {row.transport}" if row.transport != "mpi" else ""
    device = ", buffers on GPUs" if row.device != "cpu" else ""
    return f"{row.collective}{over}, {row.dtype}, {where}{device}"
