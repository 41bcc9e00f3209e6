"""The picture of predictions: the best algorithm by nodes and size, and times over nodes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.common.terminal import printable
from hpccoll.common.units import format_seconds, format_size
from hpccoll.render import chart_axes
from hpccoll.render.chart_engine import chart_engine
from hpccoll.render.chart_panels import Chart, field_values, inline_data, tooltip
from hpccoll.render.comparisons import evenly_spaced
from hpccoll.render.series_colours import series_colour
from hpccoll.store.durable_files import replacing_file

MAX_SIZES = 4
"""The most panels of times over nodes."""


def write_prediction_chart(
    rows: Sequence[Mapping[str, Any]], cells: Sequence[Mapping[str, Any]], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of predictions.

    Args:
        rows: the predictions, as ``hpccoll predict --json`` prints them.
        cells: the best by nodes and size: such rows with faster_than, factor and clear.
        out: the path; its suffix is the format, html, svg or png.
        title: the title.
        lines: what the predictions are, below the title.

    Raises:
        OSError: if the file cannot be written.
    """
    names = list(dict.fromkeys(map(_series, rows)))
    colours = alt.Color(
        "series:N", scale=alt.Scale(domain=names, range=[series_colour(i) for i in range(len(names))]),
        legend=alt.Legend(symbolType="square"),
    )  # fmt: skip
    charts: list[Chart] = [_map(cells, colours)] if cells else []
    charts += [_curves(rows, colours)] if len({row["nodes"] for row in rows}) > 1 else []
    keyed = [
        *map(printable, lines),
        "Dashed: simulated; dotted: modelled. Pale: not the fastest within the whole interval.",
    ]
    write_picture(chart_axes.apply_theme(alt.vconcat(*charts, spacing=30), printable(title), keyed, names), out)


def write_picture(specification: Mapping[str, object], out: Path) -> None:
    """Write a Vega-Lite specification as the picture that the suffix of the path says: html, svg or png.

    Raises:
        OSError: if the file cannot be written.
    """
    spec, engine = json.dumps(specification), chart_engine()
    with replacing_file(out.resolve()) as unfinished:
        match out.suffix:
            case ".html":
                unfinished.write_text(engine.vegalite_to_html(spec, bundle=True), encoding="utf-8")
            case ".svg":
                unfinished.write_text(engine.vegalite_to_svg(spec), encoding="utf-8")
            case _:
                unfinished.write_bytes(engine.vegalite_to_png(spec, scale=2))


def _series(row: Mapping[str, Any]) -> str:
    """Return the algorithm, and what is not simulated from the machine's own numbers."""
    note = row["kind"] if row["kind"] == "modelled" else "assumed" if row["assumed"] else ""
    return f"{row['algorithm']} ({note})" if note else str(row["algorithm"])


def _map(cells: Sequence[Mapping[str, Any]], colours: alt.Color) -> Chart:
    """Return a cell for every size and number of nodes, in the colour of the best algorithm, with its lead."""
    data = [
        {
            "nodes": cell["nodes"], "size": format_size(cell["bytes"]), "series": _series(cell),
            "lead": f"{cell['factor']:.2g}x" if cell["factor"] else "", "time": format_seconds(cell["median_s"]),
            "second": cell["faster_than"] or "none", "clear": cell["clear"],
        }
        for cell in cells
    ]  # fmt: skip
    sizes = [format_size(nbytes) for nbytes in sorted({cell["bytes"] for cell in cells}, reverse=True)]
    base = alt.Chart(inline_data(data)).encode(
        x=alt.X("nodes:O", title="nodes", axis=alt.Axis(labelAngle=0)), y=alt.Y("size:N", title="size", sort=sizes)
    )
    squares = base.mark_rect(stroke=chart_axes.BACKGROUND, strokeWidth=2).encode(
        color=colours,
        opacity=alt.OpacityValue(**alt.condition("datum.clear", alt.value(1), alt.value(0.35))),
        tooltip=tooltip("size", "nodes", "series", "time", "second", "lead"),
    )
    shade = alt.condition("datum.clear", alt.value(chart_axes.FIXED_WHITE), alt.value(chart_axes.FIXED_BLACK))
    labels = base.mark_text(fontSize=12, fontWeight=600).encode(
        text=alt.Text("lead:N"),
        color=alt.ColorValue(**shade),
    )
    width = max(240, 70 * len(set(field_values(data, "nodes"))))
    layered: Chart = alt.layer(squares, labels).properties(width=width, height=26 * len(sizes))
    return layered


def _curves(rows: Sequence[Mapping[str, Any]], colours: alt.Color) -> alt.FacetChart:
    """Return times over nodes with their intervals, dashed because they are not measured, in panels of a few sizes."""
    sizes = evenly_spaced(sorted({row["requested_bytes"] for row in rows}), MAX_SIZES)
    data = [
        {
            "nodes": row["nodes"], "series": _series(row), "panel": format_size(row["requested_bytes"]),
            "value": row["median_s"], "low": row["ci_low_s"] or row["median_s"],
            "high": row["ci_high_s"] or row["median_s"], "kind": row["kind"], "time": format_seconds(row["median_s"]),
        }
        for row in rows
        if row["requested_bytes"] in sizes
    ]  # fmt: skip
    counts = sorted({row["nodes"] for row in rows})
    nodes = alt.X(
        "nodes:Q", title="nodes", axis=alt.Axis(values=counts, format="d", labelOverlap="greedy"),
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
    )  # fmt: skip
    seconds = [float(d[key]) for d in data for key in ("low", "high")]
    base = alt.Chart().encode(x=nodes, y=chart_axes.time_axis(seconds), color=colours)
    dashes = alt.StrokeDash(
        "kind:N", legend=None, scale=alt.Scale(domain=["simulated", "modelled"], range=[[5, 3], [1, 3]])
    )
    bands = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    curves = base.mark_line().encode(strokeDash=dashes)
    points = base.mark_point(size=30, fill=chart_axes.BACKGROUND).encode(
        tooltip=tooltip("series", "kind", "nodes", "panel", "time")
    )
    columns = min(2, len(sizes))
    panels: alt.FacetChart = (
        alt.layer(bands, curves, points)
        .properties(width=chart_axes.WIDTH // 2, height=200)
        .facet(
            facet=alt.Facet("panel:N", title=None, sort=[format_size(n) for n in sizes]), columns=columns,
            data=inline_data(data),
        )
    )  # fmt: skip
    return panels
