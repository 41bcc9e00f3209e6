"""The map of pairs: a cell for each two ranks that messages went between."""

import json
import math
from collections.abc import Callable, Sequence

import altair as alt

from hpccoll.report import axes
from hpccoll.report.calls import pair
from hpccoll.report.groups import Group, Point
from hpccoll.report.pairs import ends, mapped, way
from hpccoll.report.panels import Chart, Datum, column, datum, facetted, tooltip
from hpccoll.report.rounds import seconds
from hpccoll.report.wires import rate_unit
from hpccoll.units import format_seconds

PALE, DEEP = "#d5e6f5", "#123f6e"
SPELLED = 8
"""Ranks up to which a cell has room for its value."""


def pair_times(group: Group) -> Chart | None:
    """Draw the time of each pair at the smallest size."""
    points = ends(mapped(group))[0] if group.many_pairs else []
    return _matrix(group, points, seconds, axes.TIME_LABEL, format_seconds)


def pair_rates(group: Group) -> Chart | None:
    """Draw the busbw of each pair at the largest size."""
    points = ends(mapped(group))[1] if group.many_pairs else []
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    label = f"format(datum.value / {scale}, '.3~r') + ' {unit}'"
    return _matrix(group, points, lambda p: p.row.busbw_Bps or 0.0, label, lambda value: f"{value / scale:.3g}")


def _matrix(
    group: Group, points: Sequence[Point], value: Callable[[Point], float], label: str, words: Callable[[float], str]
) -> Chart | None:
    points = [point for point in points if value(point) > 0]
    if not points:
        return None
    ranks = points[0].row.ranks
    values = [value(point) for point in points]
    middle = math.sqrt(min(values) * max(values))
    data = [_cell(group, point, value(point), words) for point in points]
    every = list(range(ranks))
    named = f"{json.dumps([points[0].rank(rank) for rank in every])}[datum.value]"
    base = alt.Chart().encode(
        x=alt.X("second:O", title="second rank", scale=alt.Scale(domain=every), axis=_axis("datum.label")),
        y=alt.Y("first:O", title="first rank", scale=alt.Scale(domain=every), axis=_axis(named)),
    )
    spread = alt.Scale(type="log", range=[PALE, DEEP], domain=[min(values), max(values)], nice=False)
    legend = alt.Legend(type="gradient", labelExpr=label, values=[min(values), middle, max(values)], gradientLength=220)
    side = max(5, min(34, 480 // ranks))
    cells = base.mark_rect(stroke=axes.PAPER, strokeWidth=min(2, side / 10)).encode(
        color=alt.Color("value:Q", scale=spread, legend=legend),
        tooltip=tooltip("series", "pair", "size", "at", "time", "interval", "busbw", "machine", "run"),
    )
    layers = [cells, *(_words(base, middle) if ranks <= SPELLED else ())]
    chart = alt.layer(*layers).properties(width=max(240, side * ranks), height=side * ranks)
    panels = sorted(set(column(data, "panel")), key=lambda panel: (panel != "native", panel))
    return facetted(chart, data, "panel", min(2, len(panels)), panels)


def _words(base: alt.Chart, middle: float) -> list[alt.Chart]:
    """The value in each cell, dark on pale and pale on dark."""
    shades = ((f"datum.value <= {middle}", axes.BLACK), (f"datum.value > {middle}", axes.WHITE))
    return [
        base.mark_text(fontSize=12, fontWeight=600, color=shade).encode(text="said:N").transform_filter(there)
        for there, shade in shades
    ]


def _axis(label: str) -> alt.Axis:
    return alt.Axis(labelAngle=0, labelExpr=label, labelOverlap="greedy")


def _cell(group: Group, point: Point, value: float, words: Callable[[float], str]) -> Datum:
    first, second = pair(point.row) or (0, 0)
    return datum(group, point, value) | {"first": first, "second": second, "panel": way(point), "said": words(value)}
