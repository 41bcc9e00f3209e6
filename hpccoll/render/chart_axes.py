"""Axes, colour scales and the theme of all charts."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import altair as alt

from hpccoll.render.chart_groups import ChartGroup
from hpccoll.render.series_colours import FOREGROUND
from hpccoll.render.wire_bandwidth import rate_unit

BACKGROUND = "#ffffff"
FIXED_WHITE = "#fffffe"  # unlike BACKGROUND, white in dark mode as well
FIXED_BLACK = "#1f2938"  # unlike FOREGROUND, dark in dark mode as well
WIDTH = 780
"""Width in pixels of a row of panels in a picture file; the page fits charts to its own width."""
SIZE_TITLE = "size (B, KiB, MiB)"
SENT_TITLE = "bytes that a node sends (S)"
MUTED_COLOUR = "#5b6472"
GRID_COLOUR = "#e3e7ed"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

_SIZE_UNITS = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _unit_expression(units: Iterable[tuple[float, str]], least: tuple[float, str]) -> str:
    """Return a Vega expression that writes a value in the largest unit that it reaches."""
    shown = "format(datum.value / {}, '.3~r') + ' {}'"
    cases = (f"datum.value > {0.999 * unit} ? {shown.format(unit, name)} : " for unit, name in units)
    return "".join(cases) + shown.format(*least)


SIZE_LABEL = _unit_expression(_SIZE_UNITS, (1, "B"))
TIME_LABEL = _unit_expression(_TIME_UNITS, (1e-9, "ns"))
LINEAR_TIME_LABEL = f"datum.value ? {TIME_LABEL} : '0'"


def size_axis(sizes: Iterable[int]) -> alt.X:
    """Return the horizontal axis of ``bytes``: logarithmic, labelled in binary units."""
    powers = range(math.floor(math.log2(min(sizes := list(sizes)))), math.ceil(math.log2(max(sizes))) + 1)
    ticks = [2**power for power in powers][:: max(1, math.ceil(len(powers) / 6))]
    axis = alt.Axis(values=ticks, labelExpr=SIZE_LABEL, labelOverlap="greedy", labelFlush=False)
    return alt.X("bytes:Q", title=SIZE_TITLE, axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8))


def count_axis(group: ChartGroup) -> alt.X:
    """Return the horizontal axis of nodes or ranks: logarithmic, with a tick at each count."""
    counts = {group.axis_value(point.row) for point in group.drawn}
    axis = alt.Axis(values=sorted(counts), format="d", labelOverlap="greedy")
    scale = alt.Scale(type="log", base=2, nice=False, padding=12)
    return alt.X(f"{group.unit}:Q", title=group.unit_title, axis=axis, scale=scale)


def _log_ticks(values: Iterable[float]) -> list[float]:
    """Return ticks at powers of ten, with more ticks between them for a narrow range; empty: Vega chooses."""
    values = list(values)
    low, high = math.log10(min(values)), math.log10(max(values))
    factors = (1, 1.5, 2, 3, 5, 7) if high - low < 1 else (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = (n * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for n in factors)
    shown = [float(f"{tick:.6g}") for tick in ticks if 10**low <= tick <= 10**high]
    return shown if len(shown) > 1 else []


def _value_axis(title: str, label: str, values: Iterable[float]) -> alt.Y:
    """Return a logarithmic vertical axis of ``value``; ``label`` is the Vega expression of its labels."""
    axis = alt.Axis(labelExpr=label, values=_log_ticks(values) or alt.Undefined, tickCount=5)
    return alt.Y("value:Q", title=title, axis=axis, scale=alt.Scale(type="log", nice=False, padding=8))


def time_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of seconds, labelled in us, ms or s."""
    return _value_axis("time per operation (us, ms, s)", TIME_LABEL, values)


def rate_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of bytes per second, labelled in GB/s or MB/s."""
    scale, unit = rate_unit(max(values := list(values)))
    return _value_axis(f"busbw ({unit})", f"format(datum.value / {scale}, '.3~r')", values)


def ratio_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of speed-ups over native, which includes 1."""
    return _value_axis("speed-up over native", "format(datum.value, '.3~r') + 'x'", [*values, 1.0])


def sent_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of the bytes that a node sends, in units of S."""
    return _value_axis(SENT_TITLE, "format(datum.value, '.4~r')", values)


def percent_axis(_values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of a fraction: linear from 0, labelled in per cent."""
    axis = alt.Axis(format=".0%", tickCount=5)
    return alt.Y("value:Q", title="parallel efficiency (%)", axis=axis, scale=alt.Scale(zero=True, nice=True))


def series_colour(group: ChartGroup, present: Iterable[str], symbol: str | None = None) -> alt.Color:
    """Return the colours of the series that are ``present``, in the order of the report; ``symbol``: of the legend."""
    legend = alt.Legend(symbolType=symbol) if symbol else alt.Legend()
    return alt.Color("series:N", scale=_scale(group.colours, present), legend=legend)


def series_shape(group: ChartGroup, present: Iterable[str]) -> alt.Shape:
    """Return the shapes of the marks of the series that are ``present``; Vega merges both legends."""
    return alt.Shape("series:N", scale=_scale(group.shapes, present), legend=alt.Legend())


def _scale(values: Mapping[str, str], present: Iterable[str]) -> alt.Scale:
    present = set(present)
    domain = [name for name in values if name in present]
    return alt.Scale(domain=domain, range=[values[name] for name in domain])


def apply_theme(chart: alt.TopLevelMixin, title: str, lines: Sequence[str], names: Iterable[str]) -> dict[str, object]:
    """Return ``chart`` as a Vega-Lite specification with a wrapped title and the theme of the report.

    The legend has as many columns as the longest of ``names`` allows; the page recomputes them for its own width.
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
"""Approximate width in pixels of a letter of the legend."""
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
