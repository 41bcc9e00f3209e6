"""Charts of cells: what to use at each size and number of ranks, and heat maps of pairs of ranks."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.rank_pairs import map_points, series_without_tier, smallest_and_largest
from hpccoll.analysis.recommendations import Recommendation, SizeVerdict
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.common.units import format_seconds, rate_unit
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import (
    TIME_LABEL,
    Chart,
    ChartRecord,
    choice_cells,
    distinct,
    facet_chart,
    present,
    tooltip,
)
from hpccoll.render.chart_layout import text_from
from hpccoll.render.chart_panels import chart_record
from hpccoll.render.colours import BLACK, INK, PAPER, WHITE, entry_colour, group_colours
from hpccoll.store.call_key import rank_pair

LIGHT_CELL, DARK_CELL = "#d5e6f5", "#123f6e"
MAX_RANKS_WITH_TEXT = 8
"""Maximum number of ranks whose cells have room for their value."""


def choice_map(group: ChartGroup) -> Chart | None:
    """Return the map, in which placements with answers of their own have columns; None if nothing was compared."""
    compared = [each for each in group.recommendations if each.is_compared]
    if not compared or group.many_pairs:
        return None
    data = [cell for each in compared for cell in _choice_cells(group, each, compared)]
    sizes = list(dict.fromkeys(group.size_label(n) for n in sorted({n for e in compared for n in e.verdicts})))[::-1]
    columns = distinct(sorted(data, key=itemgetter("position")), "at")
    lines = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ', ')", labelOverlap=False)
    x = alt.X("at:N", title=group.unit_title, sort=columns, axis=lines)
    colours = present(group_colours(group.legend), [cell for cell in data if not cell["tied"]])
    chart = choice_cells(data, colours, x, sizes, ("size", "on", "series", "time", "second"))
    panels = distinct(data, "panel")
    return facet_chart(chart, data, panels if len(panels) > 1 else (), 2)


PLACEMENTS: Mapping[bool | None, tuple[str, ...]] = {None: (), True: ("in place",), False: ("out of place",)}


def column_label(group: ChartGroup, recommendation: Recommendation) -> str:
    """Return what a column of a map stands for, in the words of the whole group: ``2 ranks, in place, bfloat16``."""
    setting = recommendation.setting
    compared = [each for each in (group.whole or group).recommendations if each.is_compared]
    return ", ".join((setting.shape_label, *PLACEMENTS[setting.in_place], *_panel_words(recommendation, compared)))


def _panel_words(recommendation: Recommendation, compared: Sequence[Recommendation]) -> tuple[str, ...]:
    """Return what distinguishes the panel of a recommendation: its setting without ranks and placement."""
    each, *others = (
        replace(each, setting=replace(each.setting, in_place=None)) for each in (recommendation, *compared)
    )
    return Answers(others).setting_details(each)


def _choice_cells(
    group: ChartGroup, recommendation: Recommendation, compared: Sequence[Recommendation]
) -> Iterator[ChartRecord]:
    """Yield a cell for each size."""
    setting = recommendation.setting
    count = setting.ranks if group.ranks_per_node is None else setting.nodes
    mark = "\u25cb " if recommendation.measured.oversubscribed else ""
    placement = PLACEMENTS[setting.in_place]
    tied = {each.nbytes for part in recommendation.ranges if part.strength == "none" for each in part.verdicts}
    for verdict in recommendation.verdicts.values():
        yield {
            "panel": ", ".join(_panel_words(recommendation, compared)), "on": column_label(group, recommendation),
            "at": ", ".join((f"{mark}{count}", *placement)), "position": (count, setting.in_place is True),
            "size": group.size_label(verdict.nbytes), "time": format_seconds(verdict.seconds),
            "series": group.series_of(verdict.choice, recommendation), "tied": verdict.nbytes in tied,
        } | _verdict_fields(group, verdict, recommendation)  # fmt: skip


def _verdict_fields(group: ChartGroup, verdict: SizeVerdict, recommendation: Recommendation) -> ChartRecord:
    """Return the fields of a cell that say how sure it is; its text colour keeps its contrast in dark mode."""
    if verdict.runner_up is None or verdict.lead is None:
        return {"lead": "alone", "second": "none", "clear": False, "text_colour": INK}
    clear = verdict.verdict == "clear"
    on_ink = entry_colour(group.legend[group.series_of(verdict.choice, recommendation)]) == INK
    return {
        "lead": "tie" if verdict.verdict == "tie" else f"{verdict.lead:.2f}x",
        "second": f"{group.series_of(verdict.runner_up, recommendation)}, {verdict.lead:.2f} times as long",
        "clear": clear,
        "text_colour": INK if not clear else PAPER if on_ink else WHITE,
    }


def pair_time_map(group: ChartGroup) -> Chart | None:
    """Draw the time of each pair at the smallest size."""
    points = smallest_and_largest(map_points(group))[0]
    return _heatmap(group, points, median_seconds, TIME_LABEL, format_seconds)


def pair_busbw_map(group: ChartGroup) -> Chart | None:
    """Draw the busbw of each pair at the largest size."""
    points = smallest_and_largest(map_points(group))[1]
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    label = f"format(datum.value / {scale}, '.3~r') + ' {unit}'"
    return _heatmap(
        group, points, lambda p: p.row.busbw_Bps or 0.0, label, lambda value: f"{value / scale:.3g}", slow_is_low=True
    )


def _heatmap(
    group: ChartGroup, points: Sequence[SeriesPoint], value: Callable[[SeriesPoint], float], label: str,
    format_value: Callable[[float], str], *, slow_is_low: bool = False,
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
    end = "host" if points[0].names_hosts else "rank"
    names = [points[0].rank_label(rank) for rank in range(ranks)]
    shades = [DARK_CELL, LIGHT_CELL] if slow_is_low else [LIGHT_CELL, DARK_CELL]
    spread = alt.Scale(type="log", range=shades, domain=[min(values), max(values)], nice=False)
    ends = [min(values), middle, max(values)]
    legend = alt.Legend(title="dark is slow", type="gradient", labelExpr=label, values=ends, gradientLength=220)
    chart = pair_cells(
        names, names if end == "host" else [*map(str, range(ranks))], (f"first {end}", f"second {end}"),
        alt.Color("value:Q", scale=spread, legend=legend), f"datum.value {'>' if slow_is_low else '<='} {middle}",
        ("series", "pair", "size", "at", "time", "interval", "busbw", "machine", "run"),
    )  # fmt: skip
    panels = sorted(distinct(data, "panel"), key=lambda panel: (panel != "native", panel))
    return facet_chart(chart, data, panels, min(2, len(panels)))


def pair_cells(
    rows: Sequence[str], columns: Sequence[str], titles: tuple[str, str], colours: alt.Color, light: str,
    fields: Sequence[str], *, borders: bool = False,
) -> Chart:  # fmt: skip
    """Return a cell for each pair: in row ``first`` and column ``second``, two numbers; with ``text`` if there is room.

    Args:
        rows: the labels of the rows.
        columns: the labels of the columns.
        titles: of the axes: of rows, of columns.
        colours: of the cells.
        light: a Vega expression: whether a cell is light, so that its text is dark.
        fields: of the tooltip.
        borders: whether records without a pair have ``border``: lines before that row, and before that column.
    """
    count = len(rows)
    scale = alt.Scale(domain=[*range(count)])
    x: dict[str, Any] = {"title": titles[1], "scale": scale, "axis": _axis(columns)}
    y: dict[str, Any] = {"title": titles[0], "scale": scale, "axis": _axis(rows)}
    base = alt.Chart().encode(x=alt.X("second:O", **x), y=alt.Y("first:O", **y))
    pairs = base.transform_filter("isValid(datum.first)")
    side = max(5, min(34, 480 // count))
    cells = pairs.mark_rect(stroke=PAPER, strokeWidth=min(2, side / 10)).encode(color=colours, tooltip=tooltip(*fields))
    shade = alt.condition(light, alt.value(BLACK), alt.value(WHITE))
    text = pairs.mark_text(fontSize=12, fontWeight=600).encode(text=alt.Text("text:N"), color=alt.ColorValue(**shade))
    layers = [cells, *([text] if count <= MAX_RANKS_WITH_TEXT else ())]
    if borders:
        border = alt.Chart().transform_filter("isValid(datum.border)").mark_rule(color=BLACK, strokeWidth=1.5)
        layers.append(border.encode(x=alt.X("border:O", bandPosition=0, **x)))
        layers.append(border.encode(y=alt.Y("border:O", bandPosition=0, **y)))
    return alt.layer(*layers).properties(
        width=max(240, side * count), height=side * count, usermeta=text_from(36 * count)
    )


def _axis(names: Sequence[str]) -> alt.Axis:
    return alt.Axis(labelAngle=0, labelExpr=f"{json.dumps([*names])}[datum.value]", labelOverlap="greedy")
