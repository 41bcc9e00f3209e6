"""Parts of charts: the record of a point, lines with their intervals, and panels of curves."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

import altair as alt

from hpccoll.analysis.call_labels import placement_label
from hpccoll.common.units import format_seconds
from hpccoll.render import chart_axes
from hpccoll.render.chart_groups import ChartGroup, SeriesPoint
from hpccoll.render.comparisons import evenly_spaced
from hpccoll.render.executed_labels import executed_note
from hpccoll.render.round_statistics import median_interval, median_seconds, round_stats
from hpccoll.render.wire_bandwidth import format_rate
from hpccoll.store.statistics import Interval

ChartRecord: TypeAlias = dict[str, object]
Chart: TypeAlias = alt.FacetChart | alt.LayerChart
ValueAxis: TypeAlias = Callable[[Iterable[float]], alt.Y]
ExtraLayers: TypeAlias = Callable[[alt.Chart], list[alt.Chart]] | None
"""A function of the base chart that returns the layers below its lines."""

MAX_SIZES = 4
PANEL_GAP = {"row": 20, "column": 40}
"""Pixels between panels, for the labels at the ends of their axes."""
MUTED = alt.ColorValue(chart_axes.MUTED_COLOUR)


@dataclass(frozen=True, slots=True)
class PanelLayout:
    """The layout of curves: one panel for each of ``titles``, ``columns`` panels in a row, over the axis ``x``."""

    titles: Sequence[str]
    columns: int
    x: alt.X


def chart_record(group: ChartGroup, point: SeriesPoint, value: float, ends: Interval = None) -> ChartRecord:
    """Return the record of ``point`` in a chart: ``value`` with its 95 % interval, and the fields of its tooltip."""
    low, high = ends or (value, value)
    row, medians = point.row, [stats.median for stats in round_stats(point).values()]
    return {
        "series": point.series,
        "bytes": row.bytes,
        "size": group.size_label(row.requested_bytes),
        "ranks": row.ranks,
        "nodes": row.nodes,
        "at": group.shape_label(row),
        "place": placement_label(row),
        "pair": point.pair_label,
        "machine": group.machine_label(point),
        "run": row.run_id,
        "fill": chart_axes.BACKGROUND if row.oversubscribed else group.colours[point.series],
        "floor": row.floor,
        "predicted": row.kind if row.predicted else "",
        "value": value,
        "low": low,
        "high": high,
        "time": format_seconds(median_seconds(point)),
        "interval": interval_label(median_interval(point)),
        "rounds": ", ".join(map(format_seconds, medians)) if len(medians) > 1 else "one",
        "algbw": format_rate(row.algbw_Bps) if row.algbw_Bps else "none",
        "busbw": format_rate(row.busbw_Bps) if row.busbw_Bps else "none",
        "ran": executed_note(row),
    }


def predicted_records(
    group: ChartGroup, value: Callable[[SeriesPoint], float | None], ends: Callable[[SeriesPoint], Interval]
) -> list[ChartRecord]:
    """Return the records of predictions, which belong to the panels of both placements.

    Args:
        group: the group.
        value: the value of a prediction; None if it has none.
        ends: its interval.
    """
    usable = (point for point in group.drawn if point.row.predicted)
    return [
        chart_record(group, point, number, ends(point)) | {"place": ""} for point in usable if (number := value(point))
    ]


def interval_label(ends: Interval) -> str:
    """Return an interval as its tooltip has it."""
    return " to ".join(map(format_seconds, ends)) if ends else "none: too few iterations"


def curves_over_size(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, extra: ExtraLayers = None
) -> Chart | None:
    """Return lines over sizes, in panels of ranks or nodes and placement; None without data."""
    if not data:
        return None
    data = sorted(data, key=itemgetter("ranks"))
    measured = {d["at"] for d in data if not d["predicted"]}
    placements = sorted({*field_values(data, "place")} - {""}, reverse=True) or [""]
    shown = [
        d | {"panel": ", ".join(filter(None, (str(d["at"]), placement)))}
        for placement in placements
        for d in data
        if d["at"] in measured and d["place"] in (placement, "")  # a series with one placement is in both panels
    ]
    beyond = [d | {"panel": d["at"]} for d in data if d["at"] not in measured]
    shown += beyond
    titles = list(dict.fromkeys(field_values(shown, "panel")))
    sizes = chart_axes.size_axis(point.row.bytes for point in group.drawn)
    counts = len(measured or set(field_values(beyond, "at")))
    fits = counts < 5 and not (measured and beyond and counts == 1)  # a row for each placement
    return curves(group, shown, y, PanelLayout(titles, counts if fits else 3, sizes), extra)


def panels_of_collectives(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, extra: ExtraLayers = None
) -> Chart | None:
    """Return lines over sizes in small panels, one for the ``panel`` of each record; None without data."""
    if not data:
        return None
    titles = list(dict.fromkeys(field_values(data, "panel")))
    sizes = chart_axes.size_axis(point.row.bytes for point in group.points)
    return curves(group, data, y, PanelLayout(titles, min(4, len(titles)), sizes), extra)


def curves_over_ranks(group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis) -> Chart | None:
    """Return lines over ranks or nodes, in panels of a few sizes; None for one count only, and for pairs of ranks."""
    if group.pairs or len(set(field_values(data, group.unit))) < 2:
        return None
    measured, predicted = (
        {point.row.requested_bytes for point in group.drawn if point.row.predicted == of_predictions}
        for of_predictions in (False, True)
    )
    sizes = evenly_spaced(sorted((measured & predicted) or measured or predicted), MAX_SIZES)
    titles = [group.size_label(nbytes) for nbytes in sizes]
    shown = [d | {"panel": d["size"]} for d in data if d["size"] in titles]
    return curves(group, shown, y, PanelLayout(titles, len(titles), chart_axes.count_axis(group)))


def curves(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, panels: PanelLayout, extra: ExtraLayers = None
) -> Chart:
    """Return lines over an axis, in panels.

    Args:
        group: the group.
        data: the records; ``panel`` is the title of the panel of each.
        y: returns the vertical axis of some values.
        panels: the panels, and the horizontal axis.
        extra: returns the layers below the lines.
    """
    order = list(group.colours)  # native first, so that the others are drawn over it
    data = sorted(_number_repeats(data, panels.x.shorthand.split(":")[0]), key=lambda d: order.index(str(d["series"])))
    pick = alt.selection_point("pick", fields=["series"], bind="legend")
    base = alt.Chart().encode(
        x=panels.x,
        y=y(_axis_values(data)),
        color=chart_axes.series_colour(group, field_values(data, "series")),
        detail=[alt.Detail("machine:N"), alt.Detail("repeat:N")],
        opacity=alt.OpacityValue(**alt.condition(pick, alt.value(1), alt.value(0.12))),
    )
    points = base.transform_filter("isValid(datum.value)")
    real = points.transform_filter("!datum.floor")
    more = ("speedup",) if all("speedup" in d for d in data) else ()
    shapes = _point_chart(real, group, field_values(data, "series"), more).add_params(pick)
    below = [] if extra is None else extra(base)
    ticks = [tick for d in data for tick in _tick_records(d)]
    behind = [_bands(real, pick), *([_ticks(base, pick)] if ticks else [])]
    sized: Chart = alt.layer(*below, *behind, _lines(points), shapes).properties(
        width=chart_axes.WIDTH // max(2, panels.columns), height=200
    )
    return facet_chart(sized, [*data, *ticks], "panel", panels.columns, panels.titles)


def _tick_records(d: ChartRecord) -> list[ChartRecord]:
    """Return a record for each round: that of the point without its value, so that only the tick is drawn."""
    ticks = d.pop("ticks", ())
    kept = {name: value for name, value in d.items() if name not in ("value", "low", "high", "wire", "expected")}
    return [kept | {"tick": tick} for tick in ticks] if isinstance(ticks, list) else []


def unity_rule(base: alt.Chart) -> list[alt.Chart]:
    """Return a rule at 1, where native is."""
    native = base.transform_aggregate(groupby=["panel"], leftmost="min(bytes)").encode(
        x=alt.XValue("width"), y=alt.YDatum(1), detail=[], opacity=alt.OpacityValue(1), color=MUTED
    )
    rule = native.mark_rule(strokeDash=[5, 3]).encode(x=alt.XValue(0), x2=alt.X2Value("width"))
    # Next to the panel, where no line passes under it.
    return [rule, native.mark_text(align="left", baseline="middle", dx=4, fontSize=11, text="native")]


def wire_rule(base: alt.Chart) -> list[alt.Chart]:
    """Return a rule at the calibrated rate of the wire, from the smallest size for which it holds."""
    calibrated = base.transform_filter("isValid(datum.wire)").encode(
        y=alt.Y("max(wire):Q"),
        detail=[alt.Detail("machine:N"), alt.Detail("wires:N")],
        opacity=alt.OpacityValue(1),
        color=MUTED,
    )
    rule = calibrated.mark_rule(strokeDash=[5, 3]).encode(x=alt.X("min(bytes):Q"), x2=alt.X2Value("width"))
    label = calibrated.mark_text(align="right", baseline="bottom", dy=-3, fontSize=11)
    return [rule, label.encode(x=alt.XValue("width"), text=alt.Text("wires:N"))]


def expected_lines(base: alt.Chart) -> list[alt.Chart]:
    """Return a dashed line of the expected values of each series."""
    expected = base.transform_filter("isValid(datum.expected)")
    return [expected.mark_line(strokeDash=[4, 3], strokeWidth=1.2).encode(y=alt.Y("expected:Q"))]


def _bands(base: alt.Chart, pick: alt.Parameter) -> alt.Chart:
    # The intervals of predictions are wide, and overlap: they are paler.
    pale = alt.when(pick, alt.datum.predicted != "").then(alt.value(0.05))
    opacity = pale.when(pick).then(alt.value(0.2)).otherwise(alt.value(0.03))
    bands: alt.Chart = base.mark_area().encode(
        y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), opacity=alt.OpacityValue(**opacity)
    )
    return bands


def _ticks(base: alt.Chart, pick: alt.Parameter) -> alt.Chart:
    """Return a tick at the value of each round."""
    with_tick = base.transform_filter("isValid(datum.tick)").mark_tick(orient="horizontal", width=9, thickness=1.2)
    opacity = alt.condition(pick, alt.value(0.8), alt.value(0.05))
    ticks: alt.Chart = with_tick.encode(y=alt.Y("tick:Q"), opacity=alt.OpacityValue(**opacity))
    return ticks


def _lines(base: alt.Chart) -> alt.Chart:
    dash = (
        alt.when("datum.floor")
        .then(alt.value([2, 2]))
        .when("datum.predicted === 'modelled'")
        .then(alt.value([1, 3]))
        .when("datum.predicted")
        .then(alt.value([6, 4]))
        .otherwise(alt.value([1, 0]))
    )
    width = alt.condition("datum.floor", alt.value(1), alt.value(2))
    lines: alt.Chart = base.mark_line(strokeJoin="round").encode(
        strokeDash=alt.StrokeDashValue(**dash), strokeWidth=alt.StrokeWidthValue(**width)
    )
    return lines


def _point_chart(base: alt.Chart, group: ChartGroup, present: Iterable[str], more: Iterable[str]) -> alt.Chart:
    """Return the marks of the series that are ``present``; their tooltips have the fields ``more``, too."""
    grey = alt.Legend(symbolFillColor=chart_axes.MUTED_COLOUR, symbolStrokeColor=chart_axes.MUTED_COLOUR)
    by_machine = alt.Shape("machine:N", legend=grey)
    pairs = ("pair", "range") if group.many_pairs else ()
    by_library = ("ran",) if any(executed_note(point.row) for point in group.usable) else ()
    shapes: alt.Chart = base.mark_point(size=34, strokeWidth=1.6).encode(
        fill=alt.Fill("fill:N", scale=None),
        shape=by_machine if len(group.machines) > 1 else chart_axes.series_shape(group, present),
        tooltip=tooltip(
            "series",
            *by_library,
            "size",
            "at",
            *pairs,
            "place",
            *more,
            "time",
            "interval",
            "rounds",
            "algbw",
            "busbw",
            "machine",
            "run",
        ),
    )
    return shapes


def _number_repeats(data: Iterable[ChartRecord], x: str) -> list[ChartRecord]:
    """Number repeated measurements of a point, so that a line joins the first ones, another the second ones."""
    seen: Counter[tuple[object, ...]] = Counter()
    numbered = []
    for d in data:
        key = (d["series"], d["panel"], d["machine"], d[x])
        numbered.append(d | {"repeat": seen[key]})
        seen[key] += 1
    return numbered


def _axis_values(data: Iterable[ChartRecord]) -> list[float]:
    """Return the values that the vertical axis has to include: with intervals, wire rates and expected values."""
    keys = ("value", "low", "high", "wire", "expected")
    return [number for d in data for key in keys if isinstance(number := d.get(key), float)]


def facet_chart(chart: Chart, data: Sequence[ChartRecord], by: str, columns: int, titles: Sequence[str]) -> Chart:
    """Return ``chart`` once for each of ``titles``, the values of ``by``, ``columns`` in a row."""
    facet = alt.Facet(f"{by}:N", title=None, sort=list(titles))
    panels: alt.FacetChart = chart.facet(facet=facet, columns=columns, data=inline_data(data), spacing=PANEL_GAP)
    return panels


def inline_data(data: Sequence[ChartRecord]) -> alt.InlineData:
    """Return ``data`` as a part of the specification."""
    return alt.InlineData(values=list(data))


def field_values(data: Iterable[ChartRecord], field: str) -> list[str]:
    """Return the values of ``field`` in all records, as text."""
    return [str(d[field]) for d in data]


_TOOLTIP_TITLES = {
    "at": "on",
    "ran": "what ran",
    "interval": "95 % interval",
    "rounds": "medians of rounds",
    "place": "buffers",
    "second": "runner-up",
    "speedup": "speed-up over native",
    "range": "all pairs",
}


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Return the tooltip of a mark with the given fields."""
    return [alt.Tooltip(f"{field}:N", title=_TOOLTIP_TITLES.get(field, field)) for field in fields]
