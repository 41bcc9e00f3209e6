"""Heat maps of pairs of ranks: one cell for each measured pair."""

import json
import math
from collections.abc import Callable, Sequence

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.rank_pairs import map_points, series_without_tier, smallest_and_largest
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.common.units import format_seconds, rate_unit
from hpccoll.render.chart_base import TIME_LABEL, Chart, distinct, facet_chart, tooltip
from hpccoll.render.chart_panels import chart_record
from hpccoll.render.colours import BLACK, PAPER, WHITE
from hpccoll.store.call_key import rank_pair

LIGHT_CELL, DARK_CELL = "#d5e6f5", "#123f6e"
MAX_RANKS_WITH_TEXT = 8
"""Maximum number of ranks whose cells have room for their value."""


def pair_time_map(group: ChartGroup) -> Chart | None:
    """Draw the time of each pair at the smallest size."""
    points = smallest_and_largest(map_points(group))[0]
    return _heatmap(group, points, median_seconds, TIME_LABEL, format_seconds)


def pair_busbw_map(group: ChartGroup) -> Chart | None:
    """Draw the busbw of each pair at the largest size."""
    points = smallest_and_largest(map_points(group))[1]
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    label = f"format(datum.value / {scale}, '.3~r') + ' {unit}'"
    return _heatmap(group, points, lambda p: p.row.busbw_Bps or 0.0, label, lambda value: f"{value / scale:.3g}")


def _heatmap(
    group: ChartGroup, points: Sequence[SeriesPoint], value: Callable[[SeriesPoint], float], label: str,
    format_value: Callable[[float], str],
) -> Chart | None:  # fmt: skip
    points = [point for point in points if value(point) > 0]
    if not points:
        return None
    ranks, values = points[0].row.ranks, [value(point) for point in points]
    middle = math.sqrt(min(values) * max(values))
    data = [
        chart_record(group, point, value(point))
        | {"first": first, "second": second, "panel": series_without_tier(point), "text": format_value(value(point))}
        for point in points
        for first, second in [rank_pair(point.row) or (0, 0)]
    ]
    every = list(range(ranks))
    named = f"{json.dumps([points[0].rank_label(rank) for rank in every])}[datum.value]"
    scale = alt.Scale(domain=every)
    base = alt.Chart().encode(
        x=alt.X("second:O", title="second rank", scale=scale, axis=_axis("datum.label")),
        y=alt.Y("first:O", title="first rank", scale=scale, axis=_axis(named)),
    )
    spread = alt.Scale(type="log", range=[LIGHT_CELL, DARK_CELL], domain=[min(values), max(values)], nice=False)
    legend = alt.Legend(type="gradient", labelExpr=label, values=[min(values), middle, max(values)], gradientLength=220)
    side = max(5, min(34, 480 // ranks))
    cells = base.mark_rect(stroke=PAPER, strokeWidth=min(2, side / 10)).encode(
        color=alt.Color("value:Q", scale=spread, legend=legend),
        tooltip=tooltip("series", "pair", "size", "at", "time", "interval", "busbw", "machine", "run"),
    )
    shade = alt.condition(f"datum.value <= {middle}", alt.value(BLACK), alt.value(WHITE))  # dark text on light cells
    text = base.mark_text(fontSize=12, fontWeight=600).encode(text=alt.Text("text:N"), color=alt.ColorValue(**shade))
    layers = [cells, *([text] if ranks <= MAX_RANKS_WITH_TEXT else ())]
    chart = alt.layer(*layers).properties(width=max(240, side * ranks), height=side * ranks)
    panels = sorted(distinct(data, "panel"), key=lambda panel: (panel != "native", panel))
    return facet_chart(chart, data, panels, min(2, len(panels)))


def _axis(label: str) -> alt.Axis:
    return alt.Axis(labelAngle=0, labelExpr=label, labelOverlap="greedy")
