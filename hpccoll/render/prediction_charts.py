"""The picture of predictions: the best algorithm by nodes and size, and times."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.analysis.chart_groups import predicted_entries
from hpccoll.analysis.speedups import evenly_spaced
from hpccoll.common.terminal import printable
from hpccoll.common.units import format_seconds, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord
from hpccoll.render.colours import BLACK, WHITE, group_colours

COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2}
"""The panels in a row of times over nodes, by their number."""

OWN_LEGENDS: Mapping[str, Any] = {"color": "independent", "strokeDash": "independent"}
"""Each chart of a picture has the legend of what it shows."""

NOTE = "Dashed: simulated; dotted: modelled. Pale: not the fastest within the whole interval, or over a formula."

Row = Mapping[str, Any]
"""A row as ``hpccoll predict --json`` prints it."""


def write_prediction_chart(
    rows: Sequence[Row], cells: Sequence[Row], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of predictions as html, svg or png, by the suffix of ``out``; OSError if it cannot be written.

    The ``cells``, the best by nodes and size, are rows with faster_than, factor and clear; the
    ``lines`` below the title say what the predictions are.
    """
    algorithm_colours = group_colours(predicted_entries(str(row["algorithm"]) for row in rows))
    colours = {_series(row): algorithm_colours[str(row["algorithm"])] for row in rows}
    charts = []
    if cells:
        charts.append(_map(cells, colours))
    if len({row["nodes"] for row in rows}) > 1:
        charts.append(_times(rows, colours))
    whole = alt.vconcat(*charts, spacing=30).resolve_scale(**OWN_LEGENDS)
    write_chart(whole, out, title, lines, colours, NOTE)


def _series(row: Row) -> str:
    """Return the algorithm, and what is not simulated from the machine's own numbers."""
    algorithm = str(row["algorithm"])
    if row["kind"] == "modelled":
        return f"{algorithm} ({row['kind']})"
    return f"{algorithm} (assumed)" if row["assumed"] else algorithm


def _map(cells: Sequence[Row], colours: Mapping[str, str]) -> Chart:
    data = [_cell_record(cell) for cell in cells]
    sizes = sorted({cell["bytes"] for cell in cells}, reverse=True)
    labels = [format_size(nbytes) for nbytes in sizes]
    x = alt.X("nodes:O", title="nodes", axis=alt.Axis(labelAngle=0))
    fields = ("size", "nodes", "series", "time", "second", "lead")
    chart = chart_base.choice_cells(data, chart_base.present(colours, data), x, labels, fields)
    return chart_base.facet_chart(chart, data, (), 1)


def _cell_record(cell: Row) -> ChartRecord:
    lead = f"{cell['factor']:.2f}x" if cell["factor"] else ""
    return {
        "nodes": cell["nodes"],
        "size": format_size(cell["bytes"]),
        "series": _series(cell),
        "lead": lead,
        "time": format_seconds(cell["median_s"]),
        "second": cell["faster_than"] or "none",
        "clear": cell["clear"],
        "text_colour": WHITE if cell["clear"] else BLACK,
    }


def _times(rows: Sequence[Row], colours: Mapping[str, str]) -> Chart:
    sizes = evenly_spaced(sorted({row["requested_bytes"] for row in rows}), max(COLUMNS))
    titles = [format_size(nbytes) for nbytes in sizes]
    data = [_time_record(row) for row in rows if row["requested_bytes"] in sizes]
    nodes = chart_base.count_axis("nodes", "nodes", [row["nodes"] for row in rows])
    fields = ("series", "line", "nodes", "panel", "time")
    return chart_base.curves(
        data,
        nodes,
        chart_base.time_axis,
        colours,
        fields,
        titles=titles,
        columns=COLUMNS[len(sizes)],
        symbol="stroke",
        pick=False,
    )


def _time_record(row: Row) -> ChartRecord:
    seconds = row["median_s"]
    return {
        "nodes": row["nodes"],
        "series": _series(row),
        "panel": format_size(row["requested_bytes"]),
        "value": seconds,
        "low": row["ci_low_s"] or seconds,
        "high": row["ci_high_s"] or seconds,
        "line": row["kind"],
        "time": format_seconds(seconds),
    }


def write_chart(
    whole: alt.TopLevelMixin,
    out: Path,
    title: str,
    lines: Sequence[str],
    names: Mapping[str, str],
    *notes: str,
) -> None:
    """Write a picture with a title, and lines and notes below it; ``names`` are those of what is drawn."""
    below = [*map(printable, lines), *notes]
    themed = chart_base.apply_theme(whole, printable(title), below, names)
    chart_base.write_picture(themed, out)
