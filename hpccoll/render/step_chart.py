"""The pictures of predicted training steps: steps over nodes, scenarios side by side, and the communication wall."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.common.terminal import printable
from hpccoll.common.units import format_bit_rate, format_seconds
from hpccoll.render import chart_axes
from hpccoll.render.chart_panels import Chart, ChartRecord, inline_data, tooltip
from hpccoll.render.prediction_chart import write_picture
from hpccoll.render.series_colours import FOREGROUND, series_colour

PARTS = {"compute": 0, "bubble of the pipeline": 9, "exposed communication": 1}
"""The parts of a step, from below, with the numbers of their colours."""

MOST_LABELS = 6
"""The most bars whose labels have the time next to the exposed share."""

Row = Mapping[str, Any]


def write_step_chart(rows: Sequence[Row], out: Path, title: str, lines: Sequence[str]) -> None:
    """Write the picture of steps over nodes: their parts, and the shares of communication.

    Args:
        rows: the predictions, as ``hpccoll predict step --json`` prints them.
        out: the path; its suffix is the format, html, svg or png.
        title: the title.
        lines: what the predictions are, below the title.

    Raises:
        OSError: if the file cannot be written.
    """
    bars = _bars(
        rows, alt.X("name:N", title="GPUs", sort=None, axis=alt.Axis(labelAngle=0)), [f"{r['gpus']:,}" for r in rows]
    )
    charts: list[Chart] = [bars.properties(width=chart_axes.WIDTH // 2, height=240)]
    if len(rows) > 1:
        shares = [
            {"gpus": row["gpus"], "what": what, "value": row[key], "text": f"{row[key]:.1%}"}
            for row in rows
            for what, key in (("exposed", "share"), ("all communication", "communication_share"))
        ]
        charts.append(
            _curves(
                [row["gpus"] for row in rows],
                shares,
                "share of the step",
                ["exposed", "all communication"],
                percent=True,
            )
        )
    _write(alt.hconcat(*charts, spacing=40).resolve_scale(color="independent"), out, title, lines)


def write_scenario_chart(rows: Sequence[Row], out: Path, title: str, lines: Sequence[str]) -> None:
    """Write the picture of scenarios: the parts of the step of each.

    Args:
        rows: the predictions, each with the name of its ``scenario``.
        out: the path.
        title: the title.
        lines: what the scenarios are, below the title.

    Raises:
        OSError: if the file cannot be written.
    """
    names = [row["scenario"] for row in rows]
    bars = _bars(rows, alt.X("name:N", title=None, sort=None, axis=alt.Axis(labelAngle=0, labelLimit=180)), names)
    _write(bars.properties(width=max(420, 150 * len(rows)), height=280), out, title, lines)


def write_wall_chart(
    rows: Sequence[Row], bubbles: Sequence[Mapping[str, float]], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of the communication wall.

    Args:
        rows: the steps by the number of GPUs, as ``hpccoll predict step --params --json`` prints them.
        bubbles: the bubbles of pipelines by stages and micro-batches.
        out: the path.
        title: the title.
        lines: what the steps are, below the title.

    Raises:
        OSError: if the file cannot be written.
    """
    charts: list[Chart] = []
    if len(rows) > 1:
        for label, keys, percent in (
            ("share of the step", {"without overlap": "share", "overlapped": "overlapped_share"}, True),
            ("speed-up, fixed batch", {"GPUs": "fixed_batch_speedup", "Amdahl's limit": "amdahl_limit"}, False),
        ):
            data = [
                {"gpus": row["gpus"], "what": what, "value": row[key], "text": f"{row[key]:.3g}"}
                for row in rows
                for what, key in keys.items()
            ]
            charts.append(_curves([row["gpus"] for row in rows], data, label, list(keys), percent=percent))
    else:
        charts.append(
            _bars(
                rows, alt.X("name:N", title="GPUs", axis=alt.Axis(labelAngle=0)), [f"{rows[0]['gpus']:,}"]
            ).properties(width=160, height=240)
        )
    charts.append(_bubble(bubbles))
    spec = alt.hconcat(*charts, spacing=40).resolve_scale(color="independent", y="independent")
    hide = rows[-1]["hide_rate_bps"]
    more = f"Links of {format_bit_rate(hide)} would hide the all-reduce of {rows[-1]['gpus']:,} GPUs." if hide else ""
    _write(spec, out, title, [*lines, *([more] if more else [])])


def _bars(rows: Sequence[Row], x: alt.X, names: Sequence[str]) -> Chart:
    """Return a stacked bar of the parts of each step, with its total and its exposed share."""
    parts = [
        {"name": name, "part": part, "order": order, "value": value, "time": format_seconds(value)}
        for row, name in zip(rows, names, strict=True)
        for order, (part, value) in enumerate(
            zip(PARTS, (row["compute_s"], row.get("bubble_s", 0.0), row["exposed_s"]), strict=True)
        )
        if value > 0
    ]
    present = [part for part in PARTS if any(each["part"] == part for each in parts)]
    colours = alt.Color(
        "part:N", title=None, legend=alt.Legend(symbolType="square"),
        scale=alt.Scale(domain=present, range=[series_colour(PARTS[part]) for part in present]),
    )  # fmt: skip
    bars = (
        alt.Chart(inline_data(parts))
        .mark_bar(width={"band": 0.7})
        .encode(
            x=x, y=alt.Y("value:Q", title="seconds of a step", stack="zero"), color=colours, order=alt.Order("order:O"),
            tooltip=tooltip("name", "part", "time"),
        )
    )  # fmt: skip
    crowded = len(rows) > MOST_LABELS
    totals = [
        {
            "name": name, "value": row["step_s"],
            "text": f"{row['share']:.0%}" if crowded else f"{format_seconds(row['step_s'])}, {row['share']:.0%}",
        }
        for row, name in zip(rows, names, strict=True)
    ]  # fmt: skip
    labels = (
        alt.Chart(inline_data(totals))
        .mark_text(dy=-8, fontSize=11, color=FOREGROUND)
        .encode(x=x, y=alt.Y("value:Q"), text=alt.Text("text:N"))
    )
    layered: Chart = alt.layer(bars, labels)
    return layered


def _curves(
    gpus: Sequence[int], data: Sequence[ChartRecord], title: str, names: Sequence[str], *, percent: bool
) -> Chart:
    """Return curves over GPUs, dashed because they are not measured."""
    x = alt.X(
        "gpus:Q", title="GPUs", axis=alt.Axis(values=gpus, format=",d", labelOverlap="greedy"),
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
    )  # fmt: skip
    y = (
        alt.Y("value:Q", title=title, axis=alt.Axis(format=".0%", tickCount=5), scale=alt.Scale(domain=[0, 1]))
        if percent
        else alt.Y(
            "value:Q", title=title, axis=alt.Axis(tickCount=5), scale=alt.Scale(type="log", nice=False, padding=8)
        )
    )
    colours = alt.Color(
        "what:N", title=None, legend=alt.Legend(symbolType="stroke"),
        scale=alt.Scale(domain=list(names), range=[series_colour(number) for number in range(1, len(names) + 1)]),
    )  # fmt: skip
    base = alt.Chart(inline_data(data)).encode(x=x, y=y, color=colours)
    points = base.mark_point(size=30, fill=chart_axes.BACKGROUND).encode(tooltip=tooltip("what", "gpus", "text"))
    curves: Chart = alt.layer(base.mark_line(strokeDash=[5, 3]), points).properties(
        width=chart_axes.WIDTH // 2 - 60, height=240
    )
    return curves


def _bubble(bubbles: Sequence[Mapping[str, float]]) -> Chart:
    """Return the bubble of pipelines over micro-batches."""
    stages = sorted({each["stages"] for each in bubbles})
    data = [{**each, "what": f"{each['stages']:.0f} stages", "text": f"{each['share']:.0%}"} for each in bubbles]
    names = [f"{each:.0f} stages" for each in stages]
    x = alt.X(
        "micro_batches:Q", title="micro-batches", axis=alt.Axis(format="d", labelOverlap="greedy"),
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
    )  # fmt: skip
    colours = alt.Color(
        "what:N", title=None, legend=alt.Legend(symbolType="stroke"),
        scale=alt.Scale(domain=names, range=[series_colour(number + 3) for number in range(len(names))]),
    )  # fmt: skip
    base = alt.Chart(inline_data(data)).encode(
        x=x, y=alt.Y("share:Q", title="bubble of a pipeline", axis=alt.Axis(format=".0%", tickCount=5)), color=colours
    )
    curves: Chart = alt.layer(base.mark_line(strokeDash=[1, 3]), base.mark_point(size=12, opacity=0).encode(
        tooltip=tooltip("what", "micro_batches", "text")
    )).properties(width=chart_axes.WIDTH // 2 - 60, height=240)  # fmt: skip
    return curves


def _write(chart: Any, out: Path, title: str, lines: Sequence[str]) -> None:
    write_picture(chart_axes.apply_theme(chart, printable(title), list(map(printable, lines)), PARTS), out)
