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


LEAST_COLUMNS = 3
"""The columns from which on the map shows more than the answers do."""


def choice_map(group: ChartGroup) -> Chart | None:
    """Return the map, in which placements with answers of their own have columns.

    None if nothing was compared, or if the part with a core for each rank has too few columns.
    """
    compared = _compared(group)
    first_part = _compared((group.whole or group).fitting)
    if not compared or group.many_pairs or len(first_part) < LEAST_COLUMNS:
        return None
    data: list[ChartRecord] = []
    sizes: set[int] = set()
    for recommendation in compared:
        data += _choice_cells(group, recommendation, compared)
        sizes |= recommendation.verdicts.keys()
    labels = list(dict.fromkeys(group.size_label(nbytes) for nbytes in sorted(sizes)))
    labels.reverse()
    columns = distinct(sorted(data, key=itemgetter("position")), "at")
    axis = alt.Axis(labelAngle=0, labelExpr="split(datum.label, ', ')", labelOverlap=False)
    x = alt.X("at:N", title=group.unit_title, sort=columns, axis=axis)
    colours = present(group_colours(group.legend), [cell for cell in data if not cell["tied"]])
    chart = choice_cells(data, colours, x, labels, ("size", "on", "series", "time", "second"))
    panels = distinct(data, "panel")
    if len(panels) == 1:
        panels = []
    return facet_chart(chart, data, panels, 2)


def _compared(group: ChartGroup) -> list[Recommendation]:
    return [advice for advice in group.recommendations if advice.is_compared]


PLACEMENTS: Mapping[bool | None, tuple[str, ...]] = {
    None: (),
    True: ("in place",),
    False: ("out of place",),
}


def column_label(group: ChartGroup, recommendation: Recommendation) -> str:
    """Return what a column of a map stands for, in the words of the whole group: ``2 ranks, in place, bfloat16``."""
    setting = recommendation.setting
    whole_group = group.whole or group
    compared = [candidate for candidate in whole_group.recommendations if candidate.is_compared]
    words = _panel_words(recommendation, compared)
    return ", ".join((setting.shape_label, *PLACEMENTS[setting.in_place], *words))


def _panel_words(
    recommendation: Recommendation, compared: Sequence[Recommendation]
) -> tuple[str, ...]:
    """Return what distinguishes the panel of a recommendation: its setting without ranks and placement."""
    without_placements = Answers(map(_without_placement, compared))
    return without_placements.setting_details(_without_placement(recommendation))


def _without_placement(recommendation: Recommendation) -> Recommendation:
    return replace(recommendation, setting=replace(recommendation.setting, in_place=None))


def _choice_cells(
    group: ChartGroup, recommendation: Recommendation, compared: Sequence[Recommendation]
) -> Iterator[ChartRecord]:
    """Yield a cell for each size."""
    setting = recommendation.setting
    count = setting.ranks if group.ranks_per_node is None else setting.nodes
    label = str(count)
    if recommendation.measured.oversubscribed:
        label = f"\u25cb {count}"
    column: ChartRecord = {
        "panel": ", ".join(_panel_words(recommendation, compared)),
        "on": column_label(group, recommendation),
        "at": ", ".join((label, *PLACEMENTS[setting.in_place])),
        "position": (count, setting.in_place is True),
    }
    tied = _tied_sizes(recommendation)
    for verdict in recommendation.verdicts.values():
        cell: ChartRecord = {
            "size": group.size_label(verdict.nbytes),
            "time": format_seconds(verdict.seconds),
            "series": group.series_of(verdict.choice, recommendation),
            "tied": verdict.nbytes in tied,
        }
        fields = _verdict_fields(group, verdict, recommendation)
        if cell["tied"] and verdict.verdict == "tie":
            fields["lead"] = "tie"
        yield column | cell | fields


def _tied_sizes(recommendation: Recommendation) -> set[int]:
    """Return the sizes of the ranges in which nothing is shown to be faster."""
    tied: set[int] = set()
    for chosen in recommendation.ranges:
        if chosen.strength == "none":
            tied |= {verdict.nbytes for verdict in chosen.verdicts}
    return tied


def _verdict_fields(
    group: ChartGroup, verdict: SizeVerdict, recommendation: Recommendation
) -> ChartRecord:
    """Return the fields of a cell that say how sure it is; its text colour keeps its contrast in dark mode."""
    if verdict.runner_up is None or verdict.lead is None:
        return {"lead": "alone", "second": "none", "clear": False, "text_colour": INK}
    runner_up = group.series_of(verdict.runner_up, recommendation)
    text_colour = INK
    is_clear = verdict.verdict == "clear"
    if is_clear:
        entry = group.legend[group.series_of(verdict.choice, recommendation)]
        text_colour = PAPER if entry_colour(entry) == INK else WHITE
    return {
        "lead": f"{verdict.lead:.2f}x",
        "second": f"{runner_up}, {verdict.lead:.2f} times as long",
        "clear": is_clear,
        "text_colour": text_colour,
    }


def pair_time_map(group: ChartGroup) -> Chart | None:
    """Draw the time of each pair at the smallest size."""
    points, _ = smallest_and_largest(map_points(group))
    return _heatmap(group, points, median_seconds, TIME_LABEL, format_seconds)


def pair_busbw_map(group: ChartGroup) -> Chart | None:
    """Draw the busbw of each pair at the largest size."""
    _, points = smallest_and_largest(map_points(group))
    largest = max(map(_busbw, points), default=0.0)
    scale, unit = rate_unit(largest)
    label = f"format(datum.value / {scale}, '.3~r') + ' {unit}'"
    return _heatmap(
        group, points, _busbw, label, lambda busbw: f"{busbw / scale:.3g}", slow_is_low=True
    )


def _busbw(point: SeriesPoint) -> float:
    return point.row.busbw_Bps or 0.0


def _heatmap(
    group: ChartGroup,
    points: Sequence[SeriesPoint],
    value: Callable[[SeriesPoint], float],
    label: str,
    format_value: Callable[[float], str],
    *,
    slow_is_low: bool = False,
) -> Chart | None:
    """Return the map of a value of each pair, on a logarithmic scale of shades; None if no pair has one above 0."""
    points = [point for point in points if value(point) > 0]
    if not points:
        return None
    data: list[ChartRecord] = []
    values: list[float] = []
    for point in points:
        number = value(point)
        values.append(number)
        first, second = rank_pair(point.row) or (0, 0)
        pair = {
            "first": first,
            "second": second,
            "panel": series_without_tier(point),
            "text": format_value(number),
        }
        data.append(chart_record(group, point, number) | pair)
    least = min(values)
    most = max(values)
    middle = math.sqrt(least * most)
    if slow_is_low:
        shades = [DARK_CELL, LIGHT_CELL]
        is_light = f"datum.value > {middle}"
    else:
        shades = [LIGHT_CELL, DARK_CELL]
        is_light = f"datum.value <= {middle}"
    scale = alt.Scale(type="log", range=shades, domain=[least, most], nice=False)
    legend = alt.Legend(
        title="dark is slow",
        type="gradient",
        labelExpr=label,
        values=[least, middle, most],
        gradientLength=220,
    )
    colours = alt.Color("value:Q", scale=scale, legend=legend)
    named = points[0]
    ranks = range(named.row.ranks)
    rows = [named.rank_label(rank) for rank in ranks]
    if named.names_hosts:
        columns = rows
        titles = "first host", "second host"
    else:
        columns = [str(rank) for rank in ranks]
        titles = "first rank", "second rank"
    fields = ("series", "pair", "size", "at", "time", "interval", "busbw", "machine", "run")
    chart = pair_cells(rows, columns, titles, colours, is_light, fields)
    panels = sorted(distinct(data, "panel"), key=lambda panel: (panel != "native", panel))
    return facet_chart(chart, data, panels, min(2, len(panels)))


def pair_cells(
    rows: Sequence[str],
    columns: Sequence[str],
    titles: tuple[str, str],
    colours: alt.Color,
    light: str,
    fields: Sequence[str],
    *,
    borders: bool = False,
) -> Chart:
    """Return a cell for each pair: in row ``first`` and column ``second``, two numbers; with ``text`` if there is room.

    Args:
        rows: the labels of the rows.
        columns: the labels of the columns.
        titles: of the axes: of rows, of columns.
        colours: of the cells.
        light: a Vega expression: whether a cell is light, so that its text is dark.
        fields: of the tooltip.
        borders: whether records without a pair have ``border``: lines before that row, and before
            that column.
    """
    count = len(rows)
    side = max(5, min(34, 480 // count))
    scale = alt.Scale(domain=list(range(count)))
    x: dict[str, Any] = {"title": titles[1], "scale": scale, "axis": _axis(columns)}
    y: dict[str, Any] = {"title": titles[0], "scale": scale, "axis": _axis(rows)}
    base = alt.Chart().encode(x=alt.X("second:O", **x), y=alt.Y("first:O", **y))
    pairs = base.transform_filter("isValid(datum.first)")
    gap = min(2, side / 10)
    rectangles = pairs.mark_rect(stroke=PAPER, strokeWidth=gap)
    layers = [rectangles.encode(color=colours, tooltip=tooltip(*fields))]
    if count <= MAX_RANKS_WITH_TEXT:
        shade = alt.condition(light, alt.value(BLACK), alt.value(WHITE))
        texts = pairs.mark_text(fontSize=12, fontWeight=600)
        layers.append(texts.encode(text=alt.Text("text:N"), color=alt.ColorValue(**shade)))
    if borders:
        with_border = alt.Chart().transform_filter("isValid(datum.border)")
        border = with_border.mark_rule(color=BLACK, strokeWidth=1.5)
        before_column = alt.X("border:O", bandPosition=0, **x)
        before_row = alt.Y("border:O", bandPosition=0, **y)
        layers += [border.encode(x=before_column), border.encode(y=before_row)]
    height = side * count
    width = max(240, height)
    return alt.layer(*layers).properties(width=width, height=height, usermeta=text_from(36 * count))


def _axis(names: Sequence[str]) -> alt.Axis:
    labels = json.dumps(list(names))
    return alt.Axis(labelAngle=0, labelExpr=f"{labels}[datum.value]", labelOverlap="greedy")
