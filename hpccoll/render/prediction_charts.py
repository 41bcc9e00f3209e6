"""The pictures of predictions: the best algorithm by nodes and size, training steps, and the communication wall."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.analysis.chart_groups import predicted_entries
from hpccoll.analysis.series_comparisons import evenly_spaced
from hpccoll.common.terminal import printable
from hpccoll.common.units import format_bit_rate, format_seconds, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord, ValueAxis
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import BLACK, INK, WHITE, group_colours, numbered_colours, series_colour
from hpccoll.training.compression import DENSE

COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2}
"""The panels in a row of times over nodes, by their number."""

OWN_LEGENDS: Mapping[str, Any] = {"color": "independent", "strokeDash": "independent"}
"""Each chart of a picture has the legend of what it shows."""

NOTE = "Dashed: simulated; dotted: modelled. Pale: not the fastest within the whole interval, or over a formula."

EXPOSED = "exposed communication"
PARTS = {
    "compute": series_colour(0),
    "bubble of the pipeline": series_colour(9),
    EXPOSED: series_colour(1),
}
"""The parts of a step, from below, with their colours."""

MOST_LABELS = 6
"""The most bars whose labels have the time next to the exposed share."""

SHARE, BUBBLE = "share of the step", "bubble of a pipeline"

Row = Mapping[str, Any]
"""A row as ``hpccoll predict --json`` or ``hpccoll predict step --json`` prints it."""


def write_prediction_chart(
    rows: Sequence[Row], cells: Sequence[Row], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of predictions as html, svg or png, by the suffix of ``out``; OSError if it cannot be written.

    The ``cells``, the best by nodes and size, are rows with faster_than, factor and clear; the ``lines`` below the
    title say what the predictions are.
    """
    colours = group_colours(predicted_entries(str(row["algorithm"]) for row in rows))
    colours = {_series(row): colours[str(row["algorithm"])] for row in rows}
    charts = [_map(cells, colours)] if cells else []
    charts += [_times(rows, colours)] if len({row["nodes"] for row in rows}) > 1 else []
    whole = alt.vconcat(*charts, spacing=30).resolve_scale(**OWN_LEGENDS)
    _write(whole, out, title, lines, colours, NOTE)


def _series(row: Row) -> str:
    """Return the algorithm, and what is not simulated from the machine's own numbers."""
    note = row["kind"] if row["kind"] == "modelled" else "assumed" if row["assumed"] else ""
    return f"{row['algorithm']} ({note})" if note else str(row["algorithm"])


def _map(cells: Sequence[Row], colours: Mapping[str, str]) -> Chart:
    data: list[ChartRecord] = [
        {
            "nodes": cell["nodes"], "size": format_size(cell["bytes"]), "series": _series(cell),
            "lead": f"{cell['factor']:.2f}x" if cell["factor"] else "", "time": format_seconds(cell["median_s"]),
            "second": cell["faster_than"] or "none", "clear": cell["clear"],
            "text_colour": WHITE if cell["clear"] else BLACK,
        }
        for cell in cells
    ]  # fmt: skip
    sizes = [format_size(nbytes) for nbytes in sorted({cell["bytes"] for cell in cells}, reverse=True)]
    x = alt.X("nodes:O", title="nodes", axis=alt.Axis(labelAngle=0))
    fields = ("size", "nodes", "series", "time", "second", "lead")
    return chart_base.facet_chart(
        chart_base.choice_cells(data, chart_base.present(colours, data), x, sizes, fields), data, (), 1
    )


def _times(rows: Sequence[Row], colours: Mapping[str, str]) -> Chart:
    sizes = evenly_spaced(sorted({row["requested_bytes"] for row in rows}), max(COLUMNS))
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
    return chart_base.curves(
        data, nodes, chart_base.time_axis, colours, ("series", "line", "nodes", "panel", "time"),
        titles=[format_size(nbytes) for nbytes in sizes], columns=COLUMNS[len(sizes)], symbol="stroke", pick=False,
    )  # fmt: skip


def write_step_chart(rows: Sequence[Row], out: Path, title: str, lines: Sequence[str]) -> None:
    """Write the picture of steps over nodes: their parts, and the shares of communication (see above)."""
    several = len({row["compress"] for row in rows}) > 1
    names = [f"{row['gpus']:,}" + f", {row['compress'] or DENSE}" * several for row in rows]
    room = 80 if several or len(rows) <= MOST_LABELS else 40
    charts = [_bars(rows, names, "GPUs", max(WIDTH // 2, room * len(rows)))]
    if len(rows) > 1 and not several:
        keys = {"exposed": "share", "all communication": "communication_share"}
        formulas_alone = {kind for row in rows for kind in row["kinds"]} == {chart_base.MODELLED}
        line = chart_base.MODELLED if formulas_alone else chart_base.SIMULATED
        charts.append(_curves(_over_gpus(rows, keys, "{:.1%}", line), chart_base.share_axis(SHARE)))
    _write_beside(charts, out, title, lines)


def write_scenario_chart(rows: Sequence[Row], out: Path, title: str, lines: Sequence[str]) -> None:
    """Write the picture of scenarios: the parts of the step of each; a row has the name of its ``scenario``."""
    charts = [_bars(rows, [row["scenario"] for row in rows], None, max(420, 150 * len(rows)))]
    _write_beside(charts, out, title, lines)


def write_wall_chart(
    rows: Sequence[Row], bubbles: Sequence[Mapping[str, float]], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of the communication wall; ``bubbles`` are those of pipelines by stages and micro-batches."""
    if len(rows) > 1:
        shares = _over_gpus(rows, {"without overlap": "share", "overlapped": "overlapped_share"}, "{:.3g}")
        factors = _over_gpus(rows, {"GPUs": "fixed_batch_speedup", "Amdahl's limit": "amdahl_limit"}, "{:.3g}")
        charts = [
            _curves(shares, chart_base.share_axis(SHARE)),
            _curves(
                factors, lambda values: chart_base.log_values("speed-up, fixed batch", chart_base.FACTOR_LABEL, values)
            ),
        ]
    else:
        charts = [_bars(rows, [f"{rows[0]['gpus']:,}"], "GPUs", 160)]
    of_stages: list[ChartRecord] = [
        {
            "micro_batches": each["micro_batches"], "series": f"{each['stages']:.0f} stages", "value": each["share"],
            "text": f"{each['share']:.0%}", "line": chart_base.MODELLED,
        }
        for each in sorted(bubbles, key=lambda each: each["stages"])
    ]  # fmt: skip
    charts.append(_curves(of_stages, chart_base.share_axis(BUBBLE), "micro_batches", "micro-batches", first=3))
    hide = rows[-1]["hide_rate_bps"]
    more = [f"Links of {format_bit_rate(hide)} would hide the all-reduce of {rows[-1]['gpus']:,} GPUs."] if hide else []
    _write_beside(charts, out, title, [*lines, *more])


def _bars(rows: Sequence[Row], names: Sequence[str], title: str | None, width: int) -> Chart:
    x = alt.X("name:N", title=title, sort=None,
              axis=alt.Axis(labelAngle=0, labelLimit=180, labelExpr="split(datum.label, ', ')"))  # fmt: skip
    codecs = " and codecs" * any(row.get("compress") for row in rows)
    colours = {name + codecs * (name == EXPOSED): colour for name, colour in PARTS.items()}
    parts: list[ChartRecord] = [
        {"name": name, "part": part, "order": order, "value": value, "time": format_seconds(value)}
        for row, name in zip(rows, names, strict=True)
        for order, (part, value) in enumerate(
            zip(colours, (row["compute_s"], row.get("bubble_s", 0.0), row["exposed_s"]), strict=True)
        )
        if value > 0
    ]
    bars = (
        alt.Chart(chart_base.inline_data(parts))
        .mark_bar(width={"band": 0.7})
        .encode(
            x=x, order=alt.Order("order:O"),
            y=alt.Y("value:Q", title="time of a step", stack="zero",
                    axis=alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL)),
            color=chart_base.colour("part", chart_base.present(colours, parts, "part"), "square"),
            tooltip=chart_base.tooltip("name", "part", "time"),
        )
    )  # fmt: skip
    crowded = len(rows) > MOST_LABELS
    totals: list[ChartRecord] = [
        {
            "name": name, "value": row["step_s"],
            "text": f"{row['share']:.0%}" if crowded else f"{format_seconds(row['step_s'])}, {row['share']:.0%}",
        }
        for row, name in zip(rows, names, strict=True)
    ]  # fmt: skip
    text = alt.Chart(chart_base.inline_data(totals)).mark_text(dy=-8, fontSize=11, color=INK)
    labels = text.encode(x=x, y=alt.Y("value:Q"), text=alt.Text("text:N"))
    layered: Chart = alt.layer(bars, labels).properties(width=width, height=chart_base.HEIGHT)
    return layered


def _over_gpus(
    rows: Sequence[Row], keys: Mapping[str, str], text: str, line: str = chart_base.MODELLED
) -> list[ChartRecord]:
    return [
        {
            "gpus": row["gpus"], "series": name, "value": row[key], "text": text.format(row[key]),
            "line": line,
        }
        for row in rows
        for name, key in keys.items()
    ]  # fmt: skip


def _curves(
    data: Sequence[ChartRecord], y: ValueAxis, field: str = "gpus", title: str = "GPUs", first: int = 1
) -> Chart:
    x = chart_base.count_axis(field, title, (float(str(d[field])) for d in data))
    colours = numbered_colours(chart_base.distinct(data, "series"), first)
    return chart_base.curves(
        data, x, y, colours, ("series", field, "text"), width=WIDTH // 2 - 60, symbol="stroke", pick=False
    )


def _write_beside(charts: Sequence[Chart], out: Path, title: str, lines: Sequence[str]) -> None:
    whole = alt.hconcat(*charts, spacing=40).resolve_scale(**OWN_LEGENDS, y="independent")
    _write(whole, out, title, lines, PARTS)


def _write(
    whole: alt.TopLevelMixin, out: Path, title: str, lines: Sequence[str], names: Mapping[str, str], *notes: str
) -> None:
    themed = chart_base.apply_theme(whole, printable(title), [*map(printable, lines), *notes], names)
    chart_base.write_picture(themed, out)
