"""The base of every chart: axes, scales, legends, marks, tooltips, panels, the theme, and pictures in files.

A chart is data, records with the fields that its marks and tooltips name, and a few calls of this
module.
"""

import itertools
import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import altair as alt
from altair.utils.schemapi import UndefinedType

from hpccoll.common.errors import check_resources
from hpccoll.common.units import rate_unit
from hpccoll.render.chart_layout import PANEL_GAP, WIDTH, layout_record, text_from
from hpccoll.render.colours import FAINT, FONT, INK, MUTED, PAPER
from hpccoll.store.durable_files import replacing_file

ChartRecord: TypeAlias = dict[str, object]
Chart: TypeAlias = alt.FacetChart | alt.LayerChart
ValueAxis: TypeAlias = Callable[[Iterable[float]], alt.Y]
ExtraLayers: TypeAlias = Callable[[alt.Chart], list[alt.Chart]] | None
"""A function of the base chart that returns the layers below its lines."""

HEIGHT = 200
"""Height in pixels of a panel of curves."""

MAX_PANELS = 8
"""The most panels of a picture for whose parts a page has a chart each."""

SENT_TITLE = "bytes that a node sends (S)"

MEASURED = "measured"
FLOOR = "floor"
MODELLED = "modelled"
SIMULATED = "simulated"
LIBRARY = "library"
DASHES = {
    MEASURED: [1, 0],
    LIBRARY: [9, 3],
    FLOOR: [2, 2],
    MODELLED: [2, 3],
    SIMULATED: [6, 4],
}
"""The dashes of a line by the ``line`` of its records."""

PALE, PALE_OPACITY = "pale", 0.22
"""The ``tone`` of records in the background of a chart of many series, and their opacity."""

VEGA_LEGEND_ENTRIES = 30
"""The entries from which on Vega leaves out the others of a legend."""


def _unit_expression(units: Iterable[tuple[float, str]], least: tuple[float, str]) -> str:
    """Return a Vega expression that writes a value in the largest unit that it reaches."""
    shown = "format(datum.value / {}, '.3~r') + ' {}'"
    expression = ""
    for unit, name in units:
        expression += f"datum.value > {0.999 * unit} ? {shown.format(unit, name)} : "
    return expression + shown.format(*least)


SIZE_LABEL = _unit_expression(
    ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")), (1, "B")
)
TIME_LABEL = _unit_expression(((1.0, "s"), (1e-3, "ms"), (1e-6, "us")), (1e-9, "ns"))
LINEAR_TIME_LABEL = f"datum.value ? {TIME_LABEL} : '0'"


AXIS_MARGIN = 1.4
"""The most by which an axis reaches beyond its smallest and its largest value, as a factor."""

MAX_SIZE_LABELS = 8
"""The number of sizes whose labels fit side by side below half of the width of a page."""

POWERS_OF_16 = [16**exponent for exponent in range(16)]

LABEL_HEIGHT = 22
"""Pixels between the labels of a vertical axis, at least."""

Ends: TypeAlias = tuple[float, float]


def log_ends(values: Iterable[float]) -> Ends:
    """Return the ends of a logarithmic axis: those of ``values`` with room for the marks, at most AXIS_MARGIN."""
    numbers = list(values)
    low = min(numbers)
    high = max(numbers)
    wanted_margin = max(1.08, (high / low) ** 0.05)
    margin = min(AXIS_MARGIN, wanted_margin)
    return low / margin, high * margin


def linear_ends(values: Iterable[float]) -> Ends:
    """Return the ends of a linear axis of values that are not negative, likewise."""
    numbers = list(values)
    low = min(numbers)
    high = max(numbers)
    margin = max(0.06 * (high - low), 0.02 * high)
    lower_end = max(low - margin, low / AXIS_MARGIN)
    upper_end = min(high + margin, high * AXIS_MARGIN)
    return lower_end, upper_end or 1.0


def _log_scale(ends: Ends, base: int = 10) -> alt.Scale:
    return alt.Scale(type="log", base=base, domain=list(ends), nice=False)


def _count_scale(values: Sequence[float], **axis: Any) -> tuple[alt.Scale, alt.Axis]:
    """Return the scale and the axis of counts: a tick at each, and as many labels as there is room for."""
    overlap: Mapping[str, Any] = {
        "labelOverlap": "parity",
        "labelSeparation": 6,
        "labelFlush": False,
    }
    ticks = sorted(set(values))
    return _log_scale(log_ends(values), 2), alt.Axis(values=ticks, **overlap, **axis)


def size_axis(sizes: Iterable[int]) -> alt.X:
    """Return the horizontal axis of ``bytes``, the requested sizes: logarithmic, with a tick at each of ``sizes``."""
    sizes = list(sizes)
    label = SIZE_LABEL
    labelled = _round_sizes(sizes)
    if labelled:
        label = f"indexof({labelled}, datum.value) < 0 ? '' : {SIZE_LABEL}"
    scale, axis = _count_scale(sizes, labelExpr=label)
    return alt.X("bytes:Q", title="size", axis=axis, scale=scale)


def _round_sizes(sizes: Iterable[int]) -> list[int]:
    """Return the sizes that get a label where all do not fit: 4 KiB, 64 KiB, 1 MiB ...; empty if all fit.

    Vega labels every second or fourth tick from the first one on, such as 8 B, 128 B, 2 KiB and 32
    KiB. People think in powers of 16.
    """
    distinct = sorted(set(sizes))
    if len(distinct) <= MAX_SIZE_LABELS:
        return []
    powers_of_16 = [size for size in distinct if size in POWERS_OF_16]
    return powers_of_16 if len(powers_of_16) > 1 else []


def count_axis(field: str, title: str, counts: Iterable[float]) -> alt.X:
    """Return the horizontal axis of counts, such as of nodes, with a tick at each of ``counts``.

    Counts at equal distances, such as 2, 3 and 4, have a linear axis. Any others have a logarithmic
    one, and the title says so unless a constant factor separates them: 2, 4 and 8 look even there.
    """
    ticks = sorted(set(counts))
    scale, axis = _count_scale(ticks, format=",d")
    if _has_constant_factor(ticks):
        return alt.X(f"{field}:Q", title=title, axis=axis, scale=scale)
    if _has_equal_distances(ticks):
        linear = alt.Scale(domain=list(linear_ends(ticks)), nice=False, zero=False)
        return alt.X(f"{field}:Q", title=title, axis=axis, scale=linear)
    return alt.X(f"{field}:Q", title=f"{title}, logarithmic axis", axis=axis, scale=scale)


def _has_constant_factor(ascending: Sequence[float]) -> bool:
    factors = [following / number for number, following in itertools.pairwise(ascending)]
    return all(math.isclose(factor, factors[0]) for factor in factors)


def _has_equal_distances(ascending: Sequence[float]) -> bool:
    distances = [following - number for number, following in itertools.pairwise(ascending)]
    return all(math.isclose(distance, distances[0]) for distance in distances)


_TICK_FACTORS = (
    (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2, 2.2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)
"""Ticks of a decade, from fine to coarse."""


def log_ticks(ends: Ends) -> list[float]:
    """Return the finest ticks whose labels do not touch, at round numbers; empty if the axis is too short for any."""
    low, high = map(math.log10, ends)
    for factors in _TICK_FACTORS:
        exponents = _tick_exponents(factors, low, high)
        if len(exponents) < 2:
            return []
        closest = min(following - exponent for exponent, following in itertools.pairwise(exponents))
        if closest * HEIGHT / (high - low) >= LABEL_HEIGHT:
            return [_without_rounding_error(10**exponent) for exponent in exponents]
    decades = math.ceil((high - low) / 8)
    first = math.ceil(low / decades) * decades
    powers = range(first, math.floor(high) + 1, decades)
    return [_without_rounding_error(10.0**power) for power in powers]


def _tick_exponents(factors: Iterable[float], low: float, high: float) -> list[float]:
    """Return the logarithms, from ``low`` to ``high``, of the products of the factors and the powers of ten."""
    exponents = []
    for power in range(math.floor(low), math.ceil(high) + 1):
        for factor in factors:
            exponent = math.log10(_without_rounding_error(factor * 10.0**power))
            if low <= exponent <= high:
                exponents.append(exponent)
    return exponents


def _without_rounding_error(value: float) -> float:
    return float(f"{value:.6g}")


def log_values(title: str, label: str, values: Iterable[float]) -> alt.Y:
    """Return a logarithmic vertical axis of ``value``; ``label`` is the Vega expression of its labels."""
    scale, axis = log_axis(label, values)
    return alt.Y("value:Q", title=title, axis=axis, scale=scale)


def log_axis(label: str, values: Iterable[float], **axis: Any) -> tuple[alt.Scale, alt.Axis]:
    """Return a logarithmic scale and its axis, with the finest ticks that fit; ``label``: as in ``log_values``."""
    ends = log_ends(values)
    ticks = log_ticks(ends)
    # Vega would drop every other one of our values if there are more than its ``tickCount``.
    where: dict[str, Any] = {"values": ticks} if ticks else {"tickCount": 5}
    return _log_scale(ends), alt.Axis(
        labelExpr=label, labelOverlap="greedy", grid=True, **where, **axis
    )


def _linear_values(title: str, values: Iterable[float], **axis: Any) -> alt.Y:
    scale = alt.Scale(domain=list(linear_ends(values)), nice=False, zero=False)
    ticks = alt.Axis(tickCount=5, **axis)
    return alt.Y("value:Q", title=title, axis=ticks, scale=scale)


time_axis: ValueAxis = partial(log_values, "time per operation (us, ms, s)", TIME_LABEL)
sent_axis: ValueAxis = partial(log_values, SENT_TITLE, "format(datum.value, '.4~r')")


def rate_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of bytes per second, labelled in GB/s or MB/s."""
    rates = list(values)
    scale, unit = rate_unit(max(rates))
    return log_values(f"busbw ({unit})", f"format(datum.value / {scale}, '.3~r')", rates)


def rate_axis_from_zero(values: Iterable[float]) -> alt.Y:
    """Return the linear vertical axis of bytes per second, which begins at 0."""
    rates = list(values)
    scale, unit = rate_unit(max(rates))
    axis = alt.Axis(tickCount=5, labelExpr=f"format(datum.value / {scale}, '.3~r')")
    domain = alt.Scale(domain=[0, max(rates) * 1.12], nice=False)
    return alt.Y("value:Q", title=f"busbw ({unit})", axis=axis, scale=domain)


def linear_rate_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of bytes per second, likewise, but linear."""
    rates = list(values)
    scale, unit = rate_unit(max(rates))
    label = f"format(datum.value / {scale}, '.3~r')"
    return _linear_values(f"busbw ({unit})", rates, labelExpr=label)


FACTOR_LABEL = "format(datum.value, '.3~r') + 'x'"


def ratio_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of speed-ups over native, which includes 1, where native is."""
    label = f"datum.value === 1 ? 'native' : {FACTOR_LABEL}"
    return log_values("speed-up over native", label, [*values, 1.0])


def share_axis(title: str) -> ValueAxis:
    """Return the vertical axis of a fraction: linear, labelled in per cent."""
    return lambda values: _linear_values(title, values, format=".0%")


def step_axis(values: Iterable[float]) -> alt.Y:
    """Return the vertical axis of the seconds of a training step: linear."""
    return _linear_values("time of the step", values, labelExpr=LINEAR_TIME_LABEL)


def colour(field: str, colours: Mapping[str, str], symbol: str | None = None) -> alt.Color:
    """Return the colours of the values of ``field``; ``symbol``: of the legend."""
    scale = scale_of(colours)
    return alt.Color(f"{field}:N", scale=scale, legend=legend_of(symbol))


def legend_of(symbol: str | None = None) -> alt.Legend:
    """Return a legend, of ``symbol`` unless marks have shapes."""
    if symbol:
        return alt.Legend(symbolType=symbol)
    return alt.Legend()


def scale_of(values: Mapping[str, Any]) -> alt.Scale:
    """Return the scale from names to ``values``."""
    return alt.Scale(domain=list(values), range=list(values.values()))


def present(
    values: Mapping[str, str], data: Iterable[ChartRecord], field: str = "series"
) -> dict[str, str]:
    """Return those of ``values`` whose names occur in ``data``, in their order."""
    names = distinct(data, field)
    return {name: value for name, value in values.items() if name in names}


_TOOLTIP_TITLES = {
    "at": "on",
    "ran": "what ran",
    "interval": "95 % interval",
    "rounds": "medians of rounds",
    "place": "buffers",
    "second": "runner-up",
    "above": "threshold",
    "speedup": "speed-up over native",
    "range": "all pairs",
}


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Return the tooltip of a mark with the given fields."""
    return [alt.Tooltip(f"{field}:N", title=_TOOLTIP_TITLES.get(field, field)) for field in fields]


def inline_data(data: Sequence[ChartRecord]) -> alt.InlineData:
    """Return ``data`` as a part of the specification."""
    return alt.InlineData(values=list(data))


def distinct(data: Iterable[ChartRecord], field: str) -> list[str]:
    """Return the different values of ``field`` as text, in order of first use."""
    values = (str(record[field]) for record in data)
    return list(dict.fromkeys(values))


def facet_chart(
    chart: Chart, data: Sequence[ChartRecord], titles: Sequence[str], columns: int
) -> Chart:
    """Return ``chart`` once for each of ``titles``, the values of ``panel``; without titles it is one chart."""
    if not titles:
        return chart.properties(data=inline_data(data))
    two_lines = alt.Header(labelExpr="split(datum.label, ': ')")
    facet = alt.Facet("panel:N", title=None, sort=list(titles), header=two_lines)
    panels: alt.FacetChart = chart.facet(
        facet=facet, columns=columns, data=inline_data(data), spacing=PANEL_GAP
    )
    return panels


def choice_cells(
    data: Sequence[ChartRecord],
    colours: Mapping[str, str],
    x: alt.X,
    sizes: Sequence[str],
    fields: Sequence[str],
) -> Chart:
    """Return a cell for each size and position, in the colour of the ``series`` of its choice, with its ``lead``.

    The ``sizes`` are from above; one empty size has no axis. The ``fields`` are those of the
    tooltip. Cells that are ``tied`` are grey: no choice is advised there.
    """
    fill: alt.Color | alt.ColorValue = alt.ColorValue(MUTED)
    if colours:
        series_colour = colour("series", colours, "square")
        fill = alt.when("datum.tied").then(alt.value(MUTED)).otherwise(series_colour)
    size_labels = alt.Undefined if any(sizes) else None
    y = alt.Y("size:N", title="size", sort=list(sizes), axis=size_labels)
    base = alt.Chart().encode(x=x, y=y)
    opaque_if_clear = alt.condition("datum.clear", alt.value(1), alt.value(0.35))
    opacity = alt.OpacityValue(**opaque_if_clear)
    rectangles = base.mark_rect(stroke=PAPER, strokeWidth=2)
    cells = rectangles.encode(color=fill, tooltip=tooltip(*fields), opacity=opacity)
    text_colour = alt.Color("text_colour:N", scale=None)
    texts = base.mark_text(fontSize=12, fontWeight=600)
    labels = texts.encode(text=alt.Text("lead:N"), color=text_colour)
    columns = len(distinct(data, _field_name(x)))
    width = max(240, 90 * columns)
    height = 26 * len(sizes)
    layers = alt.layer(cells, labels)
    layered: Chart = layers.properties(width=width, height=height, usermeta=text_from(40 * columns))
    return layered


def _field_name(axis: alt.X) -> str:
    name: str = axis.shorthand.split(":")[0]
    return name


def curves(
    data: Sequence[ChartRecord],
    x: alt.X,
    y: ValueAxis,
    colours: Mapping[str, str],
    fields: Sequence[str],
    *,
    titles: Sequence[str] = (),
    columns: int = 1,
    width: int | None = None,
    shape: alt.Shape | None = None,
    symbol: str | None = None,
    mark_size: int = 34,
    below: ExtraLayers = None,
    pick: bool = True,
) -> Chart:
    """Return lines with their intervals over an axis, in panels.

    Args:
        data: the records: ``series`` and ``value``; further, if a chart has them, ``panel``,
            ``low`` and ``high``, ``line`` (a key of DASHES), ``machine``, ``fill`` of the mark, the
            values of rounds as ``ticks``, and the ``tone`` PALE of series that are drawn first,
            behind the others.
        x: the horizontal axis.
        y: returns the vertical axis of some values.
        colours: of the series, in the order in which they are drawn and in the legend.
        fields: of the tooltip.
        titles: of the panels.
        columns: the panels in a row.
        width: of a panel in pixels [an equal part of WIDTH].
        shape: the marks of the points.
        symbol: of the legend if the marks have no shapes.
        mark_size: the area of a mark, in square pixels.
        below: returns the layers below the lines.
        pick: whether a click in the legend picks lines; False in a picture with further charts.
    """
    x_field = _field_name(x)
    records = _in_drawing_order(_completed(data, x_field), colours)
    chosen = None
    if pick:
        chosen = alt.selection_point("pick", fields=["series"], bind="legend")
    y_axis = y(_axis_values(records))
    declared: Any = y_axis.to_dict()
    ends: Ends = declared["scale"]["domain"]
    some_are_pale = any(_is_pale(record) for record in records)
    base = alt.Chart().encode(
        x=x,
        y=y_axis,
        color=colour("series", colours, symbol),
        detail=[alt.Detail("machine:N"), alt.Detail("repeat:N")],
        opacity=_line_opacity(chosen, some_are_pale=some_are_pale),
    )

    valued = base.transform_filter("isValid(datum.value)")
    strokes = valued.mark_line(strokeJoin="round", clip=_clip(records, ends, "value"))
    dash = alt.StrokeDash(
        "series:N", scale=scale_of(_dashes(records, colours)), legend=legend_of(symbol)
    )
    thin = alt.condition(f"datum.line === '{FLOOR}'", alt.value(1), alt.value(2))
    lines = strokes.encode(strokeDash=dash, strokeWidth=alt.StrokeWidthValue(**thin))

    above_floor = valued.transform_filter(f"datum.line !== '{FLOOR}'")
    points = above_floor.mark_point(size=mark_size, strokeWidth=1.6)
    points = points.encode(fill=alt.Fill("fill:N", scale=None), tooltip=tooltip(*fields))
    if shape:
        points = points.encode(shape=shape)
    if chosen:
        points = points.add_params(chosen)

    ticks: list[ChartRecord] = []
    for record in records:
        ticks += _tick_records(record, x_field)
    layers: list[alt.Chart] = []
    if below is not None:
        layers += below(base)
    if any("low" in record for record in records):
        layers.append(_bands(above_floor, chosen, _clip(records, ends, "low", "high")))
    if ticks:
        layers.append(_ticks(base, chosen, _clip(ticks, ends, "tick")))
    layers += [lines, points]
    panel_width = width or WIDTH // max(2, columns)
    layered: Chart = alt.layer(*layers).properties(width=panel_width, height=HEIGHT)
    return facet_chart(layered, [*records, *ticks], titles, columns)


def _is_pale(record: ChartRecord) -> bool:
    return record.get("tone") == PALE


def _in_drawing_order(records: Iterable[ChartRecord], series: Iterable[str]) -> list[ChartRecord]:
    """Return the pale records first, then by ``series``: native is the first, so that the others are drawn over it."""
    place = {name: number for number, name in enumerate(series)}

    def drawn_at(record: ChartRecord) -> tuple[bool, int]:
        return not _is_pale(record), place[str(record["series"])]

    return sorted(records, key=drawn_at)


def _dashes(records: Iterable[ChartRecord], series: Iterable[str]) -> dict[str, list[int]]:
    """Return the dashes of the ``series`` that have records, in their order."""
    line_of = {str(record["series"]): str(record["line"]) for record in records}
    return {name: DASHES[line_of[name]] for name in series if name in line_of}


def _completed(data: Iterable[ChartRecord], x: str) -> list[ChartRecord]:
    """Return complete records: hollow marks on measured lines unless they say otherwise.

    Repeated measurements of a point are numbered, so that a line joins the first ones, another the
    second ones.
    """
    seen: Counter[tuple[object, ...]] = Counter()
    complete = []
    for record in data:
        point = (record["series"], record.get("panel"), record.get("machine"), record[x])
        complete.append({"line": MEASURED, "fill": PAPER, **record, "repeat": seen[point]})
        seen[point] += 1
    return complete


def _axis_values(data: Sequence[ChartRecord]) -> list[float]:
    """Return the values that set the scale: no floors, and no intervals, which may reach far."""
    compared = [record for record in data if record["line"] != FLOOR] or list(data)
    numbers = []
    for record in compared:
        for key in ("value", "limit", "expected"):
            number = record.get(key)
            if isinstance(number, float):
                numbers.append(number)
    return numbers


def _clip(data: Iterable[ChartRecord], ends: Ends, *names: str) -> bool | UndefinedType:
    """Return whether to clip marks: some values, of fields with these names, would draw them beyond the axis.

    Others are not clipped: each clipped line costs a PNG a mask as large as the picture, 20 ms.
    """
    low, high = ends
    for record in data:
        for name in names:
            value = record.get(name)
            if isinstance(value, float) and not low <= value <= high:
                return True
    return alt.Undefined


def _opacity(chosen: alt.Parameter | None, picked: float, faded: float) -> alt.OpacityValue:
    if chosen is None:
        return alt.OpacityValue(picked)
    return alt.OpacityValue(**alt.condition(chosen, alt.value(picked), alt.value(faded)))


def _line_opacity(chosen: alt.Parameter | None, *, some_are_pale: bool) -> alt.OpacityValue:
    """Return the opacity of lines and marks; a click in the legend shows a pale one like any other."""
    if not some_are_pale:
        return _opacity(chosen, 1, 0.12)
    is_pale = alt.datum.tone == PALE
    if chosen is None:
        condition = alt.condition(is_pale, alt.value(PALE_OPACITY), alt.value(1))
        return alt.OpacityValue(**condition)
    picked = alt.when(chosen, empty=False).then(alt.value(1))
    pale = picked.when(chosen, is_pale).then(alt.value(PALE_OPACITY))
    opacity = pale.when(chosen).then(alt.value(1)).otherwise(alt.value(0.12))
    return alt.OpacityValue(**opacity)


def _tick_records(point: ChartRecord, x: str) -> list[ChartRecord]:
    """Return a record of a tick for each round of a point, and remove ``ticks`` from the record of the point."""
    ticks = point.pop("ticks", ())
    if not isinstance(ticks, list):
        return []
    kept = {name: point[name] for name in (x, *_TICK_FIELDS) if name in point}
    return [kept | {"tick": tick} for tick in ticks]


_TICK_FIELDS = "series", "panel", "machine", "repeat", "line"
"""The fields by which ticks are placed and coloured."""


# Bands and ticks are transparent by their fill: each mark that is so by its opacity costs a PNG a
# layer of its own.
_OPAQUE = alt.OpacityValue(1)


def _bands(base: alt.Chart, chosen: alt.Parameter | None, clip: bool | UndefinedType) -> alt.Chart:
    # The intervals of predictions are wide, and overlap: they are paler.
    fill = alt.FillOpacityValue(0.1)
    if chosen:
        pale = alt.when(chosen, alt.datum.line != MEASURED).then(alt.value(0.05))
        opacity = pale.when(chosen).then(alt.value(0.12)).otherwise(alt.value(0.02))
        fill = alt.FillOpacityValue(**opacity)
    area = base.mark_area(clip=clip)
    bands: alt.Chart = area.encode(
        y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), opacity=_OPAQUE, fillOpacity=fill
    )
    return bands


def _ticks(base: alt.Chart, chosen: alt.Parameter | None, clip: bool | UndefinedType) -> alt.Chart:
    # Screen readers have their values from the label of the point.
    with_tick = base.transform_filter("isValid(datum.tick)").mark_tick(
        orient="horizontal", width=9, thickness=1.2, clip=clip, aria=False
    )
    fill = alt.FillOpacityValue(0.8)
    if chosen:
        opacity = alt.condition(chosen, alt.value(0.8), alt.value(0.05))
        fill = alt.FillOpacityValue(**opacity)
    ticks: alt.Chart = with_tick.encode(y=alt.Y("tick:Q"), opacity=_OPAQUE, fillOpacity=fill)
    return ticks


def wrapped(line: str) -> list[str]:
    """Return the lines of a subtitle."""
    return textwrap.wrap(line, 104)


def apply_theme(
    chart: alt.TopLevelMixin, title: str, lines: Sequence[str], names: Iterable[str]
) -> dict[str, object]:
    """Return ``chart`` as a Vega-Lite specification with a wrapped title and the theme of the report.

    The legend has as many columns as the longest of ``names`` allows.
    """
    subtitle: list[str] = []
    for line in lines:
        subtitle += wrapped(line)
    spec: dict[str, Any] = chart.to_dict(validate=False)
    entries = set(names)
    layout = layout_record(spec, entries)
    legend = dict(_LEGEND)
    if len(entries) > VEGA_LEGEND_ENTRIES:
        legend["symbolLimit"] = len(entries)
    legend["columns"] = max(1, WIDTH // layout["label"])
    return spec | {
        "title": {
            "text": title,
            "subtitle": subtitle,
            "anchor": "start",
            "frame": "bounds",
            "offset": 12,
        },
        "config": {**_THEME, "legend": legend},
        "usermeta": layout,
        "background": PAPER,
        "padding": 12,
    }


_AXIS_TITLE = {"titleColor": MUTED, "titleFontSize": 12, "titleFontWeight": "normal"}
_LEGEND: Mapping[str, object] = {
    "orient": "top",
    "title": None,
    "labelColor": INK,
    "labelFontSize": 13,
    "labelLimit": 320,
    "symbolOpacity": 1,
    "symbolSize": 160,
    **_AXIS_TITLE,
}
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
    spec = json.dumps(specification)
    engine = chart_engine()
    svg = engine.vegalite_to_svg(spec)
    contents = {
        ".html": lambda: engine.vegalite_to_html(spec, bundle=True).encode(),
        ".svg": svg.encode,
        # from the SVG: the chart is not laid out twice
        ".png": lambda: engine.svg_to_png(svg, scale=2),
    }
    for path in paths:
        with replacing_file(path.resolve()) as unfinished:
            unfinished.write_bytes(contents[path.suffix]())
