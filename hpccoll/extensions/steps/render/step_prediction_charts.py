"""The pictures of predicted training steps: steps by nodes, scenarios, and the communication wall."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt

from hpccoll.common.units import format_bit_rate, format_seconds
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord, ValueAxis
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import INK, numbered_colours, series_colour
from hpccoll.render.prediction_charts import OWN_LEGENDS, write_chart

EXPOSED = "exposed communication"
PARTS = {
    "compute": series_colour(0),
    "bubble of the pipeline": series_colour(9),
    EXPOSED: series_colour(1),
}
"""The parts of a step, from below, with their colours."""

ROOM, LITTLE_ROOM = 96, 40
"""Pixels of a bar whose label has the time and both shares, and of one that has the exposed share only."""
MOST_LABELS = 6
"""The most bars beside curves of the shares that have ROOM."""
LABEL_LINE = 13
"""Pixels of a line of a label."""

SHARE, BUBBLE = "share of the step", "bubble of a pipeline"

Row = Mapping[str, Any]
"""A row as ``hpccoll predict step --json`` prints it."""


def write_step_chart(rows: Sequence[Row], out: Path, title: str, lines: Sequence[str]) -> None:
    """Write the picture of steps over nodes: their parts, and the shares of communication (see above)."""
    several = len({row["compress"] for row in rows}) > 1
    names = []
    for row in rows:
        gpus = f"{row['gpus']:,}"
        names.append(f"{gpus}, {row['compress'] or DENSE}" if several else gpus)
    room = ROOM if several or len(rows) <= MOST_LABELS else LITTLE_ROOM
    labels = [_label(row, room) for row in rows]
    charts = [_bars(rows, names, labels, "GPUs", max(WIDTH // 2, room * len(rows)))]
    if len(rows) > 1 and not several:
        keys = {"exposed": "share", "all communication": "communication_share"}
        formulas_alone = {kind for row in rows for kind in row["kinds"]} == {chart_base.MODELLED}
        if formulas_alone:
            line = chart_base.MODELLED
        else:
            line = chart_base.SIMULATED
        shares = _over_gpus(rows, keys, "{:.1%}", line)
        charts.append(_curves(shares, chart_base.share_axis(SHARE)))
    _write_beside(charts, out, title, lines)


def write_scenario_chart(
    rows: Sequence[Row], names: Sequence[str], out: Path, title: str, lines: Sequence[str]
) -> None:
    """Write the picture of scenarios: the parts of the step of each, and its shares."""
    labels = [_label(row, ROOM) for row in rows]
    chart = _bars(rows, names, labels, None, max(420, 150 * len(rows)))
    _write_beside([chart], out, title, lines)


def write_wall_chart(
    rows: Sequence[Row],
    bubbles: Sequence[Mapping[str, float]],
    out: Path,
    title: str,
    lines: Sequence[str],
) -> None:
    """Write the picture of the communication wall; ``bubbles`` are those of pipelines by stages and micro-batches."""
    last = rows[-1]
    charts: list[Chart] = []
    if len(rows) > 1:
        charts += _wall_curves(rows)
    else:
        label = _label(last, ROOM)
        charts.append(_bars(rows, [f"{last['gpus']:,}"], [label], "GPUs", 160))
    charts.append(_bubble_curves(bubbles))
    below = list(lines)
    if last["hide_rate_bps"]:
        rate = format_bit_rate(last["hide_rate_bps"])
        below.append(f"Links of {rate} would hide the all-reduce of {last['gpus']:,} GPUs.")
    _write_beside(charts, out, title, below)


def _wall_curves(rows: Sequence[Row]) -> list[Chart]:
    """Return the shares of communication, and the speed-ups of a fixed batch, over the number of GPUs."""
    shares = _over_gpus(
        rows, {"without overlap": "share", "overlapped": "overlapped_share"}, "{:.3g}"
    )
    factors = _over_gpus(
        rows, {"GPUs": "fixed_batch_speedup", "Amdahl's limit": "amdahl_limit"}, "{:.3g}"
    )
    factor_axis = partial(chart_base.log_values, "speed-up, fixed batch", chart_base.FACTOR_LABEL)
    return [_curves(shares, chart_base.share_axis(SHARE)), _curves(factors, factor_axis)]


def _bubble_curves(bubbles: Sequence[Mapping[str, float]]) -> Chart:
    """Return the share of the bubble of pipelines over micro-batches, a curve for each number of stages."""
    data: list[ChartRecord] = []
    for bubble in sorted(bubbles, key=lambda bubble: bubble["stages"]):
        share = bubble["share"]
        record: ChartRecord = {
            "micro_batches": bubble["micro_batches"],
            "series": f"{bubble['stages']:.0f} stages",
            "value": share,
            "text": f"{share:.0%}",
            "line": chart_base.MODELLED,
        }
        data.append(record)
    return _curves(data, chart_base.share_axis(BUBBLE), "micro_batches", "micro-batches", first=3)


def _label(row: Row, room: int) -> list[str]:
    """Return the lines above a bar: the time, the share of all communication, and the exposed one, perhaps at best."""
    exposed = f"{row['share']:.1%}"
    if room < ROOM:
        return [exposed]
    lines = [format_seconds(row["step_s"])]
    # Stages of a pipeline also wait for late messages: then the exposed share has all communication.
    if row["communication_s"] > row["exposed_s"]:
        lines.append(f"all {row['communication_s'] / row['step_s']:.0%}")
    if row.get("exposed_at_best"):
        lines.append("best case:")
    return [*lines, f"exposed {exposed}"]


def _bars(
    rows: Sequence[Row],
    names: Sequence[str],
    labels: Sequence[Sequence[str]],
    title: str | None,
    width: int,
) -> Chart:
    """Return a bar for each row, of the parts of its step, with a label of some lines above it."""
    has_codecs = any(row.get("compress") for row in rows)
    colours = dict(PARTS)
    if has_codecs:
        colours = {
            f"{EXPOSED} and codecs" if part == EXPOSED else part: colour
            for part, colour in PARTS.items()
        }
    parts: list[ChartRecord] = []
    totals: list[ChartRecord] = []
    for row, name, label in zip(rows, names, labels, strict=True):
        parts += _part_records(row, name, list(colours))
        for number, line in enumerate(reversed(label)):
            totals.append({"name": name, "value": row["step_s"], "text": line, "line": number})
    axis = alt.Axis(labelAngle=0, labelLimit=180, labelExpr="split(datum.label, ', ')")
    x = alt.X("name:N", title=title, sort=None, axis=axis)
    times = alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL)
    label_room = LABEL_LINE * max(map(len, labels)) + LABEL_LINE
    highest = max(row["step_s"] for row in rows)
    top = highest * chart_base.HEIGHT / (chart_base.HEIGHT - label_room)
    scale = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("value:Q", title="time of a step", stack="zero", axis=times, scale=scale)
    colour = chart_base.colour("part", chart_base.present(colours, parts, "part"), "square")
    bars = alt.Chart(chart_base.inline_data(parts)).mark_bar(width={"band": 0.7})
    bars = bars.encode(
        x=x,
        order=alt.Order("order:O"),
        y=y,
        color=colour,
        tooltip=chart_base.tooltip("name", "part", "time"),
    )
    layers = [bars]
    for number in range(max(map(len, labels))):
        line_texts = [record for record in totals if record["line"] == number]
        texts = alt.Chart(chart_base.inline_data(line_texts)).mark_text(
            dy=-8 - LABEL_LINE * number, fontSize=11, color=INK
        )
        layers.append(texts.encode(x=x, y=alt.Y("value:Q", scale=scale), text=alt.Text("text:N")))
    layered: Chart = alt.layer(*layers).properties(width=width, height=chart_base.HEIGHT)
    return layered


def _part_records(row: Row, name: str, parts: Sequence[str]) -> Iterator[ChartRecord]:
    """Yield the parts of the step of a row that take time, from below."""
    seconds = (row["compute_s"], row.get("bubble_s", 0.0), row["exposed_s"])
    for order, (part, value) in enumerate(zip(parts, seconds, strict=True)):
        if value > 0:
            yield {
                "name": name,
                "part": part,
                "order": order,
                "value": value,
                "time": format_seconds(value),
            }


def _over_gpus(
    rows: Sequence[Row], keys: Mapping[str, str], text: str, line: str = chart_base.MODELLED
) -> list[ChartRecord]:
    """Return the points of curves over the number of GPUs; ``keys`` of rows by the names of the curves."""
    records: list[ChartRecord] = []
    for row in rows:
        for name, key in keys.items():
            value = row[key]
            records.append(
                {
                    "gpus": row["gpus"],
                    "series": name,
                    "value": value,
                    "text": text.format(value),
                    "line": line,
                }
            )
    return records


def _curves(
    data: Sequence[ChartRecord],
    y: ValueAxis,
    field: str = "gpus",
    title: str = "GPUs",
    first: int = 1,
) -> Chart:
    x = chart_base.count_axis(field, title, (float(str(record[field])) for record in data))
    colours = numbered_colours(chart_base.distinct(data, "series"), first)
    fields = ("series", field, "text")
    return chart_base.curves(
        data, x, y, colours, fields, width=WIDTH // 2 - 60, symbol="stroke", pick=False
    )


def _write_beside(charts: Sequence[Chart], out: Path, title: str, lines: Sequence[str]) -> None:
    whole = alt.hconcat(*charts, spacing=40).resolve_scale(**OWN_LEGENDS, y="independent")
    write_chart(whole, out, title, lines, PARTS)
