"""The picture of predictions: the best algorithm by nodes and size, and times over nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.analysis.series_comparisons import evenly_spaced
from hpccoll.common.terminal import printable
from hpccoll.common.units import format_seconds, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord
from hpccoll.render.colours import BLACK, WHITE, numbered_colours

MAX_SIZES = 4
"""The most panels of times over nodes."""

NOTE = "Dashed: simulated; dotted: modelled. Pale: not the fastest within the whole interval."


def write_prediction_chart(
    rows: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of predictions as html, svg or png, by the suffix of ``out``.

    The ``rows`` are as ``hpccoll predict --json`` prints them; the ``cells``, the best by nodes and size, are such rows
    with faster_than, factor and clear; the ``lines`` below the title say what the predictions are.

    Raises:
        OSError: if the file cannot be written.
    """
    colours = numbered_colours(dict.fromkeys(map(_series, rows)))
    charts = [_map(cells, colours)] if cells else []
    charts += [_curves(rows, colours)] if len({row["nodes"] for row in rows}) > 1 else []
    whole = alt.vconcat(*charts, spacing=30)
    notes = [*map(printable, lines), NOTE]
    chart_base.write_picture(chart_base.apply_theme(whole, printable(title), notes, colours), out)


def _series(row: Mapping[str, Any]) -> str:
    """Return the algorithm, and what is not simulated from the machine's own numbers."""
    note = row["kind"] if row["kind"] == "modelled" else "assumed" if row["assumed"] else ""
    return f"{row['algorithm']} ({note})" if note else str(row["algorithm"])


def _map(cells: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> Chart:
    """Return a cell for every size and number of nodes, in the colour of the best algorithm, with its lead."""
    data: list[ChartRecord] = [
        {
            "nodes": cell["nodes"], "size": format_size(cell["bytes"]), "series": _series(cell),
            "lead": f"{cell['factor']:.2g}x" if cell["factor"] else "", "time": format_seconds(cell["median_s"]),
            "second": cell["faster_than"] or "none", "clear": cell["clear"],
            "text_colour": WHITE if cell["clear"] else BLACK,
        }
        for cell in cells
    ]  # fmt: skip
    sizes = [format_size(nbytes) for nbytes in sorted({cell["bytes"] for cell in cells}, reverse=True)]
    x = alt.X("nodes:O", title="nodes", axis=alt.Axis(labelAngle=0))
    fields = ("size", "nodes", "series", "time", "second", "lead")
    return chart_base.facet_chart(chart_base.choice_cells(data, colours, x, sizes, fields), data, (), 1)


def _curves(rows: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> Chart:
    """Return times over nodes with their intervals, dashed because they are not measured, in panels of a few sizes."""
    sizes = evenly_spaced(sorted({row["requested_bytes"] for row in rows}), MAX_SIZES)
    data: list[ChartRecord] = [
        {
            "nodes": row["nodes"], "series": _series(row), "panel": format_size(row["requested_bytes"]),
            "value": row["median_s"], "low": row["ci_low_s"] or row["median_s"],
            "high": row["ci_high_s"] or row["median_s"], "line": row["kind"], "time": format_seconds(row["median_s"]),
        }
        for row in rows
        if row["requested_bytes"] in sizes
    ]  # fmt: skip
    nodes = chart_base.count_axis("nodes", "nodes", (row["nodes"] for row in rows))
    titles = [format_size(nbytes) for nbytes in sizes]
    fields = ("series", "line", "nodes", "panel", "time")
    return chart_base.curves(
        data, nodes, chart_base.time_axis, colours, fields, titles=titles, columns=min(2, len(sizes)), symbol="square",
        pick=False,
    )  # fmt: skip
