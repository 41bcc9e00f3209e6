"""What all charts share: scales and their labels, the colours of lines, the theme, the lines below a title."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import altair as alt

from hpccoll.report.chart_groups import ChartGroup
from hpccoll.report.series_colours import FOREGROUND
from hpccoll.report.wire_bandwidth import rate_unit

BACKGROUND = "#ffffff"
FIXED_WHITE = "#fffffe"  # not PAPER, which turns black in the dark
FIXED_BLACK = "#1f2938"  # not INK, which turns white in the dark
WIDTH = 780
"""Pixels of all panels of a row in a picture; the page draws to its own width."""
SIZE_TITLE = "size (B, KiB, MiB)"
SENT_TITLE = "bytes that a node sends (S)"
MUTED_COLOUR = "#5b6472"
GRID_COLOUR = "#e3e7ed"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

_SIZE_UNITS = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _unit_expression(units: Iterable[tuple[float, str]], least: tuple[float, str]) -> str:
    """A Vega expression: the value in the largest unit that it reaches."""
    shown = "format(datum.value / {}, '.3~r') + ' {}'"
    cases = (f"datum.value > {0.999 * unit} ? {shown.format(unit, name)} : " for unit, name in units)
    return "".join(cases) + shown.format(*least)


SIZE_LABEL = _unit_expression(_SIZE_UNITS, (1, "B"))
TIME_LABEL = _unit_expression(_TIME_UNITS, (1e-9, "ns"))


def size_axis(sizes: Iterable[int]) -> alt.X:
    """The horizontal axis of ``bytes``: logarithmic, labelled in binary units."""
    powers = range(math.floor(math.log2(min(sizes := list(sizes)))), math.ceil(math.log2(max(sizes))) + 1)
    ticks = [2**power for power in powers][:: max(1, math.ceil(len(powers) / 6))]
    axis = alt.Axis(values=ticks, labelExpr=SIZE_LABEL, labelOverlap="greedy", labelFlush=False)
    return alt.X("bytes:Q", title=SIZE_TITLE, axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8))


def count_axis(group: ChartGroup) -> alt.X:
    """The horizontal axis of nodes or ranks: logarithmic, a tick at what was measured."""
    counts = {group.axis_value(point.row) for point in group.usable}
    axis = alt.Axis(values=sorted(counts), format="d", labelOverlap="greedy")
    scale = alt.Scale(type="log", base=2, nice=False, padding=12)
    return alt.X(f"{group.unit}:Q", title=group.unit_title, axis=axis, scale=scale)


def _log_ticks(values: Iterable[float]) -> list[float]:
    """Powers of ten, and the less they span, the more between them; empty for Vega's own."""
    values = list(values)
    low, high = math.log10(min(values)), math.log10(max(values))
    within = (1, 1.5, 2, 3, 5, 7) if high - low < 1 else (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = (n * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for n in within)
    shown = [float(f"{tick:.6g}") for tick in ticks if 10**low <= tick <= 10**high]
    return shown if len(shown) > 1 else []


def _value_axis(title: str, label: str, values: Iterable[float]) -> alt.Y:
    """A vertical axis of ``value``: logarithmic, ``label`` a Vega expression."""
    axis = alt.Axis(labelExpr=label, values=_log_ticks(values) or alt.Undefined, tickCount=5)
    return alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(type="log", nice=False, padding=8))


def time_axis(values: Iterable[float]) -> alt.Y:
    """The vertical axis of seconds, labelled in us, ms or s."""
    return _value_axis("time per operation (us, ms, s)", TIME_LABEL, values)


def rate_axis(values: Iterable[float]) -> alt.Y:
    """The vertical axis of bytes per second, labelled in GB/s or MB/s."""
    scale, unit = rate_unit(max(values := list(values)))
    return _value_axis(f"busbw ({unit})", f"format(datum.value / {scale}, '.3~r')", values)


def sent_axis(values: Iterable[float]) -> alt.Y:
    """The vertical axis of bytes that a node sends, in units of S."""
    return _value_axis(SENT_TITLE, "format(datum.value, '.4~r')", values)


def percent_axis(_values: Iterable[float]) -> alt.Y:
    """The vertical axis of ``value``, a fraction: linear from 0, labelled in per cent."""
    axis = alt.Axis(format=".0%", tickCount=5)
    return alt.Y("value:Q", title="parallel efficiency (%)", axis=axis, scale=alt.Scale(zero=True, nice=True))


def series_colour(group: ChartGroup, present: Iterable[str], symbol: str | None = None) -> alt.Color:
    """The colours of the series that are ``present``, in the order of the report; ``symbol`` is the legend's."""
    legend = alt.Legend(symbolType=symbol) if symbol else alt.Legend()
    return alt.Color("series:N", scale=_scale(group.colours, present), legend=legend)


def series_shape(group: ChartGroup, present: Iterable[str]) -> alt.Shape:
    """The shapes of their marks; colours and shapes have one legend."""
    return alt.Shape("series:N", scale=_scale(group.shapes, present), legend=alt.Legend())


def _scale(looks: Mapping[str, str], present: Iterable[str]) -> alt.Scale:
    present = set(present)
    domain = [name for name in looks if name in present]
    return alt.Scale(domain=domain, range=[looks[name] for name in domain])


def apply_theme(chart: alt.TopLevelMixin, title: str, lines: Sequence[str], names: Iterable[str]) -> dict[str, object]:
    """Return ``chart`` as a Vega-Lite specification with its title, wrapped, and the theme of the report.

    A legend has as many columns as ``names`` leave room for; the page counts again, from the pixels of one.
    """
    wrapped = [short for line in lines for short in textwrap.wrap(line, 104)]
    spec: dict[str, object] = chart.to_dict(validate=False)
    spec["title"] = {"text": title, "subtitle": wrapped, "anchor": "start", "frame": "bounds", "offset": 12}
    label = 40 + max(map(len, names)) * LETTER_WIDTH
    spec["config"] = {**_THEME, "legend": {**_LEGEND, "columns": max(1, WIDTH // label)}}
    spec["usermeta"] = {"label": label}
    spec["background"] = BACKGROUND
    spec["padding"] = 12
    return spec


LETTER_WIDTH = 7
"""Pixels of a letter of a legend, about."""
_LEGEND: Mapping[str, object] = {
    "orient": "top",
    "title": None,
    "labelColor": FOREGROUND,
    "labelFontSize": 13,
    "labelLimit": 320,
    "symbolOpacity": 1,
    "titleColor": MUTED_COLOUR,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
}
_THEME: Mapping[str, object] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED_COLOUR,
        "titleColor": MUTED_COLOUR,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": GRID_COLOUR,
        "domainColor": GRID_COLOUR,
        "tickColor": GRID_COLOUR,
        "titlePadding": 8,
    },
    "header": {"labelColor": FOREGROUND, "labelFontSize": 13, "labelFontWeight": 600, "labelAnchor": "start"},
    "title": {
        "color": FOREGROUND,
        "fontSize": 17,
        "subtitleColor": MUTED_COLOUR,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
        "subtitleLineHeight": 16,
    },
}
