"""Heat maps of pairs of ranks: one cell for each measured pair."""

import json
import math
from collections.abc import Callable, Sequence

import altair as alt

from hpccoll.common.units import format_seconds
from hpccoll.render import chart_axes
from hpccoll.render.chart_groups import ChartGroup, SeriesPoint
from hpccoll.render.chart_panels import Chart, ChartRecord, chart_record, facet_chart, field_values, tooltip
from hpccoll.render.rank_pairs import map_points, series_without_tier, smallest_and_largest
from hpccoll.render.round_statistics import median_seconds
from hpccoll.render.wire_bandwidth import rate_unit
from hpccoll.store.call_key import rank_pair

LIGHT_CELL, DARK_CELL = "#d5e6f5", "#123f6e"
MAX_RANKS_WITH_TEXT = 8
"""Maximum number of ranks whose cells have room for their value."""


def pair_time_map(group: ChartGroup) -> Chart | None:
    """Draw the time of each pair at the smallest size."""
    points = smallest_and_largest(map_points(group))[0]
    return _heatmap(group, points, median_seconds, chart_axes.TIME_LABEL, format_seconds)


def pair_busbw_map(group: ChartGroup) -> Chart | None:
    """Draw the busbw of each pair at the largest size."""
    points = smallest_and_largest(map_points(group))[1]
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    label = f"format(datum.value / {scale}, '.3~r') + ' {unit}'"
    return _heatmap(group, points, lambda p: p.row.busbw_Bps or 0.0, label, lambda value: f"{value / scale:.3g}")


def _heatmap(
    group: ChartGroup,
    points: Sequence[SeriesPoint],
    value: Callable[[SeriesPoint], float],
    label: str,
    format_value: Callable[[float], str],
) -> Chart | None:
    points = [point for point in points if value(point) > 0]
    if not points:
        return None
    ranks = points[0].row.ranks
    values = [value(point) for point in points]
    middle = math.sqrt(min(values) * max(values))
    data = [_cell_record(group, point, value(point), format_value) for point in points]
    every = list(range(ranks))
    named = f"{json.dumps([points[0].rank_label(rank) for rank in every])}[datum.value]"
    base = alt.Chart().encode(
        x=alt.X("second:O", title="second rank", scale=alt.Scale(domain=every), axis=_axis("datum.label")),
        y=alt.Y("first:O", title="first rank", scale=alt.Scale(domain=every), axis=_axis(named)),
    )
    spread = alt.Scale(type="log", range=[LIGHT_CELL, DARK_CELL], domain=[min(values), max(values)], nice=False)
    legend = alt.Legend(type="gradient", labelExpr=label, values=[min(values), middle, max(values)], gradientLength=220)
    side = max(5, min(34, 480 // ranks))
    cells = base.mark_rect(stroke=chart_axes.BACKGROUND, strokeWidth=min(2, side / 10)).encode(
        color=alt.Color("value:Q", scale=spread, legend=legend),
        tooltip=tooltip("series", "pair", "size", "at", "time", "interval", "busbw", "machine", "run"),
    )
    layers = [cells, *(_cell_text(base, middle) if ranks <= MAX_RANKS_WITH_TEXT else ())]
    chart = alt.layer(*layers).properties(width=max(240, side * ranks), height=side * ranks)
    panels = sorted(set(field_values(data, "panel")), key=lambda panel: (panel != "native", panel))
    return facet_chart(chart, data, "panel", min(2, len(panels)), panels)


def _cell_text(base: alt.Chart, middle: float) -> list[alt.Chart]:
    """Return the layers of the values in the cells: dark text on light cells, light text on dark ones."""
    shades = ((f"datum.value <= {middle}", chart_axes.FIXED_BLACK), (f"datum.value > {middle}", chart_axes.FIXED_WHITE))
    return [
        base.mark_text(fontSize=12, fontWeight=600, color=shade)
        .encode(text=alt.Text("text:N"))
        .transform_filter(condition)
        for condition, shade in shades
    ]


def _axis(label: str) -> alt.Axis:
    return alt.Axis(labelAngle=0, labelExpr=label, labelOverlap="greedy")


def _cell_record(
    group: ChartGroup, point: SeriesPoint, value: float, format_value: Callable[[float], str]
) -> ChartRecord:
    first, second = rank_pair(point.row) or (0, 0)
    return chart_record(group, point, value) | {
        "first": first,
        "second": second,
        "panel": series_without_tier(point),
        "text": format_value(value),
    }
