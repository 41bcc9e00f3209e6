"""What all charts share: scales and their labels, the colours of lines, the theme, the lines below a title."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence

import altair as alt

from hpccoll.report.groups import INK, Group

PAPER = "#ffffff"
WHITE = "#fffffe"  # not PAPER, which turns black in the dark
SIZE = "size (B, KiB, MiB)"
MUTED = "#5b6472"
GRID = "#e3e7ed"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

_SIZES = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _steps(units: Iterable[tuple[float, str]], least: tuple[float, str]) -> str:
    """A Vega expression: the value in the largest unit that it reaches."""
    shown = "format(datum.value / {}, '.3~r') + ' {}'"
    cases = (f"datum.value > {0.999 * unit} ? {shown.format(unit, name)} : " for unit, name in units)
    return "".join(cases) + shown.format(*least)


SIZE_LABEL = _steps(_SIZES, (1, "B"))
TIME_LABEL = _steps(_TIMES, (1e-9, "ns"))
RATE_LABEL = "format(datum.value / 1e9, '.3~r')"


def size_axis(sizes: Iterable[int]) -> alt.X:
    """The horizontal axis of ``bytes``: logarithmic, labelled in binary units."""
    powers = range(math.floor(math.log2(min(sizes := list(sizes)))), math.ceil(math.log2(max(sizes))) + 1)
    ticks = [2**power for power in powers][:: max(1, math.ceil(len(powers) / 6))]
    axis = alt.Axis(values=ticks, labelExpr=SIZE_LABEL, labelOverlap="greedy", labelFlush=False)
    return alt.X("bytes:Q", title=SIZE, axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=8))


def rank_axis(ranks: Iterable[int]) -> alt.X:
    """The horizontal axis of ``ranks``: logarithmic, a tick at what was measured."""
    axis = alt.Axis(values=sorted(set(ranks)), format="d", labelOverlap="greedy")
    scale = alt.Scale(type="log", base=2, nice=False, padding=12)
    return alt.X("ranks:Q", title="ranks", axis=axis, scale=scale)


def _ticks(values: Iterable[float]) -> list[float]:
    """Powers of ten, with 2 and 5 between them where the values span less than two and a half."""
    values = list(values)
    low, high = math.log10(min(values)), math.log10(max(values))
    within = (1, 2, 5) if high - low < 2.5 else (1,)
    ticks = (n * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for n in within)
    return [float(f"{tick:.6g}") for tick in ticks if 10**low <= tick <= 10**high]


def time_axis(values: Iterable[float]) -> alt.Y:
    """The vertical axis of ``value`` in seconds: logarithmic, labelled in us, ms or s."""
    axis = alt.Axis(labelExpr=TIME_LABEL, values=_ticks(values))
    return alt.Y(
        "value:Q", title="time per operation (us, ms)", axis=axis, scale=alt.Scale(type="log", nice=False, padding=8)
    )


def rate_axis(values: Iterable[float]) -> alt.Y:
    """The vertical axis of ``value`` in bytes per second: logarithmic, labelled in GB/s."""
    axis = alt.Axis(labelExpr=RATE_LABEL, values=_ticks(values))
    return alt.Y("value:Q", title="busbw (GB/s)", axis=axis, scale=alt.Scale(type="log", nice=False, padding=8))


def percent_axis(_values: Iterable[float]) -> alt.Y:
    """The vertical axis of ``value``, a fraction: linear from 0, labelled in per cent."""
    axis = alt.Axis(format=".0%", tickCount=5)
    return alt.Y("value:Q", title="parallel efficiency (%)", axis=axis, scale=alt.Scale(zero=True, nice=True))


def series_colour(group: Group, present: Iterable[str], symbol: str) -> alt.Color:
    """The colours of the series that are ``present``, in the order of the report, with a legend of ``symbol``."""
    present = set(present)
    domain = [name for name in group.colours if name in present]
    scale = alt.Scale(domain=domain, range=[group.colours[name] for name in domain])
    return alt.Color("series:N", scale=scale, legend=alt.Legend(symbolType=symbol))


def themed(chart: alt.TopLevelMixin, title: str, lines: Sequence[str]) -> dict[str, object]:
    """Return ``chart`` as a Vega-Lite specification with its title, wrapped, and the theme of the report."""
    wrapped = [short for line in lines for short in textwrap.wrap(line, 104)]
    spec: dict[str, object] = chart.to_dict()
    spec["title"] = {"text": title, "subtitle": wrapped, "anchor": "start", "frame": "bounds", "offset": 12}
    spec["config"] = _THEME
    spec["background"] = PAPER
    spec["padding"] = 12
    return spec


_THEME: Mapping[str, object] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "titlePadding": 8,
    },
    "header": {"labelColor": INK, "labelFontSize": 13, "labelFontWeight": 600, "labelAnchor": "start"},
    "legend": {
        "orient": "top",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 13,
        "labelLimit": 320,
        "symbolOpacity": 1,
        "titleColor": MUTED,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "title": {
        "color": INK,
        "fontSize": 17,
        "subtitleColor": MUTED,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
        "subtitleLineHeight": 16,
    },
}
