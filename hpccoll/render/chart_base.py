"""The base of every chart: axes, scales, legends, marks, tooltips, panels, the theme, and pictures in files.

A chart is data, records with the fields that its marks and tooltips name, and a few calls of this module.
"""

import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import altair as alt

from hpccoll.common.errors import check_resources
from hpccoll.common.units import rate_unit
from hpccoll.render.colours import FAINT, FONT, INK, MUTED, PAPER
from hpccoll.store.durable_files import replacing_file

ChartRecord: TypeAlias = dict[str, object]
Chart: TypeAlias = alt.FacetChart | alt.LayerChart
ValueAxis: TypeAlias = Callable[[Iterable[float]], alt.Y]
ExtraLayers: TypeAlias = Callable[[alt.Chart], list[alt.Chart]] | None
"""A function of the base chart that returns the layers below its lines."""

WIDTH = 780
"""Width in pixels of a row of panels in a picture file; the page fits charts to its own width."""

HEIGHT = 200
"""Height in pixels of a panel of curves."""

PANEL_GAP = {"row": 20, "column": 40}
"""Pixels between panels, for the labels at the ends of their axes."""

SENT_TITLE = "bytes that a node sends (S)"

MEASURED, FLOOR, MODELLED, SIMULATED, OTHERS = "measured", "floor", "modelled", "simulated", "of other programs"
DASHES = {MEASURED: [1, 0], FLOOR: [2, 2], MODELLED: [1, 3], SIMULATED: [6, 4], OTHERS: [5, 3]}
"""The dashes of a line by the ``line`` of its records."""


def _unit_expression(units: Iterable[tuple[float, str]], least: tuple[float, str]) -> str:
    """Return a Vega expression that writes a value in the largest unit that it reaches."""
    shown = "format(datum.value / {}, '.3~r') + ' {}'"
    cases = (f"datum.value > {0.999 * unit} ? {shown.format(unit, name)} : " for unit, name in units)
    return "".join(cases) + shown.format(*least)


SIZE_LABEL = _unit_expression(((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")), (1, "B"))
TIME_LABEL = _unit_expression(((1.0, "s"), (1e-3, "ms"), (1e-6, "us")), (1e-9, "ns"))
LINEAR_TIME_LABEL = f"datum.value ? {TIME_LABEL} : '0'"


def size_axis(sizes: Iterable[int]) -> alt.X:
    """Return the horizontal axis of ``bytes``: logarithmic, labelled in binary units."""
    powers = range(math.floor(math.log2(min(sizes := list(sizes)))), math.ceil(math.log2(max(sizes))) + 1)
    ticks = [2**power for power in powers][:: max(1, math.ceil(len(powers) / 6))]
    axis = alt.Axis(values=ticks, labelExpr=SIZE_LABEL, labelOverlap="greedy", labelFlush=False)
    return alt.X(
        "bytes:Q", title="size (B, KiB, MiB)", axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8)
    )


def count_axis(field: str, title: str, counts: Iterable[float]) -> alt.X:
    """Return a logarithmic horizontal axis of counts, such as of nodes, with a tick at each of ``counts``."""
    axis = alt.Axis(values=sorted(set(counts)), format=",d", labelOverlap="greedy")
    return alt.X(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=12))


def _log_ticks(values: Iterable[float]) -> list[float]:
    """Return ticks at powers of ten, with more ticks between them for a narrow range; empty: Vega chooses."""
    values = list(values)
    low, high = math.log10(min(values)), math.log10(max(values))
    fine = (1, 1.5, 2, 3, 5, 7) if high - low > 0.4 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8)
    factors = fine if high - low < 1 else (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = (n * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for n in factors)
    shown = [float(f"{tick:.6g}") for tick in ticks if 10**low <= tick <= 10**high]
    return shown if len(shown) > 1 else []


def log_values(title: str, label: str, values: Iterable[float]) -> alt.Y:
    """Return a logarithmic vertical axis of ``value``; ``label`` is the Vega expression of its labels."""
    axis = alt.Axis(labelExpr=label, values=_log_ticks(values) or alt.Undefined, tickCount=5)
    return alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(type="log", nice=False, padding=8))


time_axis: ValueAxis = partial(log_values, "time per operation (us, ms, s)", TIME_LABEL)
sent_axis: ValueAxis = partial(log_values, SENT_TITLE, "format(datum.value, '.4~r')")


def rate_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of bytes per second, labelled in GB/s or MB/s."""
    scale, unit = rate_unit(max(values := list(values)))
    return log_values(f"busbw ({unit})", f"format(datum.value / {scale}, '.3~r')", values)


FACTOR_LABEL = "format(datum.value, '.3~r') + 'x'"


def ratio_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of speed-ups over native, which includes 1."""
    return log_values("speed-up over native", FACTOR_LABEL, [*values, 1.0])


def share_axis(title: str) -> ValueAxis:
    """Return the vertical axis of a fraction: linear from 0, labelled in per cent."""
    axis = alt.Axis(format=".0%", tickCount=5)
    return lambda _values: alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(zero=True, nice=True))


def step_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of the seconds of a training step: linear."""
    axis = alt.Axis(labelExpr=LINEAR_TIME_LABEL, tickCount=5)
    scale = alt.Scale(zero=False, nice=True, domainMin=0.0 if min(values) < 0.5 * max(values) else alt.Undefined)
    return alt.Y("value:Q", title="time of the step", axis=axis, scale=scale)


def colour(field: str, colours: Mapping[str, str], symbol: str | None = None) -> alt.Color:
    """Return the colours of the values of ``field``; ``symbol``: of the legend."""
    legend = alt.Legend(symbolType=symbol) if symbol else alt.Legend()
    return alt.Color(f"{field}:N", scale=scale_of(colours), legend=legend)


def scale_of(values: Mapping[str, str]) -> alt.Scale:
    """Return the scale from names to ``values``."""
    return alt.Scale(domain=[*values], range=[*values.values()])


def present(values: Mapping[str, str], data: Iterable[ChartRecord], field: str = "series") -> dict[str, str]:
    """Return those of ``values`` whose names occur in ``data``, in their order."""
    names = distinct(data, field)
    return {name: value for name, value in values.items() if name in names}


_TOOLTIP_TITLES = {
    "at": "on", "ran": "what ran", "interval": "95 % interval", "rounds": "medians of rounds", "place": "buffers",
    "second": "runner-up", "speedup": "speed-up over native", "range": "all pairs",
}  # fmt: skip


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Return the tooltip of a mark with the given fields."""
    return [alt.Tooltip(f"{field}:N", title=_TOOLTIP_TITLES.get(field, field)) for field in fields]


def inline_data(data: Sequence[ChartRecord]) -> alt.InlineData:
    """Return ``data`` as a part of the specification."""
    return alt.InlineData(values=list(data))


def distinct(data: Iterable[ChartRecord], field: str) -> list[str]:
    """Return the different values of ``field`` as text, in order of first use."""
    return list(dict.fromkeys(str(d[field]) for d in data))


def facet_chart(chart: Chart, data: Sequence[ChartRecord], titles: Sequence[str], columns: int) -> Chart:
    """Return ``chart`` once for each of ``titles``, the values of ``panel``; without titles it is one chart."""
    if not titles:
        return chart.properties(data=inline_data(data))
    facet = alt.Facet("panel:N", title=None, sort=list(titles))
    panels: alt.FacetChart = chart.facet(facet=facet, columns=columns, data=inline_data(data), spacing=PANEL_GAP)
    return panels


def choice_cells(
    data: Sequence[ChartRecord], colours: Mapping[str, str], x: alt.X, sizes: Sequence[str], fields: Sequence[str]
) -> Chart:
    """Return a cell for each size and position, in the colour of the ``series`` of its choice, with its ``lead``.

    The ``sizes`` are from above; one empty size has no axis. The ``fields`` are those of the tooltip.
    """
    y = alt.Y("size:N", title="size", sort=list(sizes), axis=alt.Undefined if any(sizes) else None)
    base = alt.Chart().encode(x=x, y=y)
    cells = base.mark_rect(stroke=PAPER, strokeWidth=2).encode(
        color=colour("series", colours, "square"), tooltip=tooltip(*fields),
        opacity=alt.OpacityValue(**alt.condition("datum.clear", alt.value(1), alt.value(0.35))),
    )  # fmt: skip
    labels = base.mark_text(fontSize=12, fontWeight=600).encode(
        text=alt.Text("lead:N"), color=alt.Color("text_colour:N", scale=None)
    )
    width = max(240, 90 * len(distinct(data, x.shorthand.split(":")[0])))
    layered: Chart = alt.layer(cells, labels).properties(width=width, height=26 * len(sizes))
    return layered


def curves(
    data: Sequence[ChartRecord], x: alt.X, y: ValueAxis, colours: Mapping[str, str], fields: Sequence[str], *,
    titles: Sequence[str] = (), columns: int = 1, width: int | None = None, shape: alt.Shape | None = None,
    symbol: str | None = None, below: ExtraLayers = None, pick: bool = True,
) -> Chart:  # fmt: skip
    """Return lines with their intervals over an axis, in panels.

    Args:
        data: the records: ``series`` and ``value``; further, if a chart has them, ``panel``, ``low`` and ``high``,
            ``line`` (a key of DASHES), ``machine``, ``fill`` of the mark, and the values of rounds as ``ticks``.
        x: the horizontal axis.
        y: returns the vertical axis of some values.
        colours: of the series, in the order in which they are drawn and in the legend.
        fields: of the tooltip.
        titles: of the panels.
        columns: the panels in a row.
        width: of a panel in pixels [an equal part of WIDTH].
        shape: the marks of the points.
        symbol: of the legend if the marks have no shapes.
        below: returns the layers below the lines.
        pick: whether a click in the legend picks lines; not in a picture of several charts.
    """
    order = list(colours)  # native first, so that the others are drawn over it
    data = sorted(_completed(data, x.shorthand.split(":")[0]), key=lambda d: order.index(str(d["series"])))
    chosen = alt.selection_point("pick", fields=["series"], bind="legend") if pick else None
    base = alt.Chart().encode(
        x=x,
        y=y(_axis_values(data)),
        color=colour("series", colours, symbol),
        detail=[alt.Detail("machine:N"), alt.Detail("repeat:N")],
        opacity=_opacity(chosen, 1, 0.12),
    )
    valued = base.transform_filter("isValid(datum.value)")
    dash = alt.StrokeDash("line:N", legend=None, scale=alt.Scale(domain=[*DASHES], range=[*DASHES.values()]))
    thin = alt.condition(f"datum.line === '{FLOOR}'", alt.value(1), alt.value(2))
    lines = valued.mark_line(strokeJoin="round").encode(strokeDash=dash, strokeWidth=alt.StrokeWidthValue(**thin))
    above_floor = valued.transform_filter(f"datum.line !== '{FLOOR}'")
    points = above_floor.mark_point(size=34, strokeWidth=1.6).encode(
        fill=alt.Fill("fill:N", scale=None), tooltip=tooltip(*fields), **({"shape": shape} if shape else {})
    )
    ticks = [tick for d in data for tick in _tick_records(d)]
    bands = [_bands(above_floor, chosen)] if any("low" in d for d in data) else []
    behind = [*([] if below is None else below(base)), *bands, *([_ticks(base, chosen)] if ticks else [])]
    layered: Chart = alt.layer(*behind, lines, points.add_params(chosen) if chosen else points).properties(
        width=width or WIDTH // max(2, columns), height=HEIGHT
    )
    return facet_chart(layered, [*data, *ticks], titles, columns)


def _completed(data: Iterable[ChartRecord], x: str) -> list[ChartRecord]:
    """Return complete records: hollow marks on measured lines unless they say otherwise.

    Repeated measurements of a point are numbered, so that a line joins the first ones, another the second ones.
    """
    seen: Counter[tuple[object, ...]] = Counter()
    complete = []
    for d in data:
        key = (d["series"], d.get("panel"), d.get("machine"), d[x])
        complete.append({"line": MEASURED, "fill": PAPER, **d, "repeat": seen[key]})
        seen[key] += 1
    return complete


def _axis_values(data: Iterable[ChartRecord]) -> list[float]:
    keys = ("value", "low", "high", "limit", "expected")
    return [number for d in data for key in keys if isinstance(number := d.get(key), float)]


def _opacity(chosen: alt.Parameter | None, picked: float, others: float) -> alt.OpacityValue:
    if chosen is None:
        return alt.OpacityValue(picked)
    return alt.OpacityValue(**alt.condition(chosen, alt.value(picked), alt.value(others)))


def _tick_records(d: ChartRecord) -> list[ChartRecord]:
    """Return a record for each round: that of the point without its value, so that only the tick is drawn."""
    ticks = d.pop("ticks", ())
    kept = {name: value for name, value in d.items() if name not in ("value", "low", "high", "limit", "expected")}
    return [kept | {"tick": tick} for tick in ticks] if isinstance(ticks, list) else []


def _bands(base: alt.Chart, chosen: alt.Parameter | None) -> alt.Chart:
    # The intervals of predictions are wide, and overlap: they are paler.
    opacity = alt.OpacityValue(0.15)
    if chosen:
        pale = alt.when(chosen, alt.datum.line != MEASURED).then(alt.value(0.05))
        opacity = alt.OpacityValue(**pale.when(chosen).then(alt.value(0.2)).otherwise(alt.value(0.03)))
    bands: alt.Chart = base.mark_area().encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), opacity=opacity)
    return bands


def _ticks(base: alt.Chart, chosen: alt.Parameter | None) -> alt.Chart:
    with_tick = base.transform_filter("isValid(datum.tick)").mark_tick(orient="horizontal", width=9, thickness=1.2)
    ticks: alt.Chart = with_tick.encode(y=alt.Y("tick:Q"), opacity=_opacity(chosen, 0.8, 0.05))
    return ticks


LETTER_WIDTH = 7
"""Approximate width in pixels of a letter of the legend."""


def apply_theme(chart: alt.TopLevelMixin, title: str, lines: Sequence[str], names: Iterable[str]) -> dict[str, object]:
    """Return ``chart`` as a Vega-Lite specification with a wrapped title and the theme of the report.

    The legend has as many columns as the longest of ``names`` allows; the page recomputes them for its own width.
    """
    wrapped = [short for line in lines for short in textwrap.wrap(line, 104)]
    spec: dict[str, object] = chart.to_dict(validate=False)
    label = 40 + max(map(len, names)) * LETTER_WIDTH
    return spec | {
        "title": {"text": title, "subtitle": wrapped, "anchor": "start", "frame": "bounds", "offset": 12},
        "config": {**_THEME, "legend": {**_LEGEND, "columns": max(1, WIDTH // label)}},
        "usermeta": {"label": label},
        "background": PAPER,
        "padding": 12,
    }


_AXIS_TITLE = {"titleColor": MUTED, "titleFontSize": 12, "titleFontWeight": "normal"}
_LEGEND: Mapping[str, object] = {
    "orient": "top", "title": None, "labelColor": INK, "labelFontSize": 13, "labelLimit": 320, "symbolOpacity": 1,
    **_AXIS_TITLE,
}  # fmt: skip
_THEME: Mapping[str, object] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED, "labelFontSize": 12, "gridColor": FAINT, "domainColor": FAINT, "tickColor": FAINT,
        "titlePadding": 8, **_AXIS_TITLE,
    },
    "header": {"labelColor": INK, "labelFontSize": 13, "labelFontWeight": 600, "labelAnchor": "start"},
    "title": {
        "color": INK, "fontSize": 17, "subtitleColor": MUTED, "subtitleFontSize": 12, "subtitlePadding": 6,
        "subtitleLineHeight": 16,
    },
}  # fmt: skip

V8_BYTES = 64 << 30
"""The address space that V8 reserves when it starts, measured with vl-convert 1.8; little of it is ever used."""

FILES, THREADS = 16, 16
"""More files than V8 and the runtime around it open, and about as many threads as they start."""


@cache  # V8 has reserved its address space once it has started
def chart_engine() -> ModuleType:
    """Return vl_convert, which draws charts; ResourceError if V8 cannot start: it would end the process by a signal."""
    check_resources("charts", V8_BYTES, files=FILES, threads=THREADS)
    import vl_convert

    return vl_convert


def write_picture(specification: Mapping[str, object], *paths: Path) -> None:
    """Write a Vega-Lite specification as html, svg or png, by the suffixes of the paths; OSError if one cannot be."""
    spec, engine = json.dumps(specification), chart_engine()
    svg = engine.vegalite_to_svg(spec)
    contents = {
        ".html": lambda: engine.vegalite_to_html(spec, bundle=True).encode(),
        ".svg": svg.encode,
        ".png": lambda: engine.svg_to_png(svg, scale=2),  # from the SVG: the chart is not laid out twice
    }
    for path in paths:
        with replacing_file(path.resolve()) as unfinished:
            unfinished.write_bytes(contents[path.suffix]())
