"""What charts are put together from: a record of each point, lines with their intervals, panels side by side."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import altair as alt

from hpccoll.report import axes
from hpccoll.report.calls import placement
from hpccoll.report.compare import spread
from hpccoll.report.executed import told
from hpccoll.report.groups import Group, Point
from hpccoll.report.pairs import pair_words
from hpccoll.report.rounds import Interval, interval, rounds, seconds
from hpccoll.report.wires import format_rate
from hpccoll.units import format_seconds

Datum: TypeAlias = dict[str, object]
Chart: TypeAlias = alt.FacetChart | alt.LayerChart
ValueAxis: TypeAlias = Callable[[Iterable[float]], alt.Y]
Extra: TypeAlias = Callable[[alt.Chart], list[alt.Chart]] | None
"""Layers that a chart has below its lines, from what they share."""

SIZES_SHOWN = 4
GAP = {"row": 20, "column": 40}
"""Pixels between panels: the labels at the ends of two axes need them."""


@dataclass(frozen=True, slots=True)
class Panels:
    """How curves are laid out: one panel for each of ``titles``, ``columns`` of them in a row, over the axis ``x``."""

    titles: Sequence[str]
    columns: int
    x: alt.X


def datum(group: Group, point: Point, value: float, ends: Interval = None) -> Datum:
    """Return what a chart knows of ``point``: ``value`` with its 95 % interval to draw, the rest to tell."""
    low, high = ends or (value, value)
    row, taken = point.row, [one.median for one in rounds(point).values()]
    return {
        "series": point.series,
        "bytes": row.bytes,
        "size": group.size(row.requested_bytes),
        "ranks": row.ranks,
        "nodes": row.nodes,
        "at": group.place(row),
        "place": placement(row),
        "pair": pair_words(point),
        "machine": group.machine(point),
        "run": row.run_id,
        "fill": axes.PAPER if row.oversubscribed else group.colours[point.series],
        "floor": row.floor,
        "value": value,
        "low": low,
        "high": high,
        "time": format_seconds(seconds(point)),
        "interval": interval_words(interval(point)),
        "rounds": ", ".join(map(format_seconds, taken)) if len(taken) > 1 else "one",
        "algbw": format_rate(row.algbw_Bps) if row.algbw_Bps else "none",
        "busbw": format_rate(row.busbw_Bps) if row.busbw_Bps else "none",
        "ran": told(row),
    }


def interval_words(ends: Interval) -> str:
    """Return an interval as a pointer over a mark is told it."""
    return " to ".join(map(format_seconds, ends)) if ends else "none: too few iterations"


def by_ranks(group: Group, data: Sequence[Datum], y: ValueAxis, extra: Extra = None) -> Chart | None:
    """Lines over sizes, in panels of ranks or nodes and placement; None without data."""
    if not data:
        return None
    data = sorted(data, key=lambda d: (d["place"] == "in place", d["ranks"]))
    places = sorted({*column(data, "place")} - {""}, reverse=True) or [""]
    shown = [
        d | {"panel": ", ".join(filter(None, (str(d["at"]), place)))}
        for place in places
        for d in data
        if d["place"] in (place, "")  # where a series has one placement only, it stands beside both of the others
    ]
    titles = list(dict.fromkeys(column(shown, "panel")))
    sizes = axes.size_axis(point.row.bytes for point in group.usable)
    counts = len(set(column(data, "at")))  # a row for each placement, where it has room
    return _curves(group, shown, y, Panels(titles, counts if counts < 5 else 3, sizes), extra)


def by_size(group: Group, data: Sequence[Datum], y: ValueAxis) -> Chart | None:
    """Lines over ranks or nodes, in panels of a few sizes; None where there are not two of them, or pairs of ranks."""
    if group.pairs or len(set(column(data, group.unit))) < 2:
        return None
    sizes = spread(sorted({point.row.requested_bytes for point in group.usable}), SIZES_SHOWN)
    titles = [group.size(nbytes) for nbytes in sizes]
    shown = [d | {"panel": d["size"]} for d in data if d["size"] in titles]
    return _curves(group, shown, y, Panels(titles, len(titles), axes.count_axis(group)))


def _curves(group: Group, data: Sequence[Datum], y: ValueAxis, panels: Panels, extra: Extra = None) -> Chart:
    order = list(group.colours)  # native first, so that the others are drawn over it
    data = sorted(_numbered(data, panels.x.shorthand.split(":")[0]), key=lambda d: order.index(str(d["series"])))
    pick = alt.selection_point("pick", fields=["series"], bind="legend")
    base = alt.Chart().encode(
        x=panels.x,
        y=y(_reach(data)),
        color=axes.series_colour(group, column(data, "series")),
        detail=["machine:N", "repeat:N"],
        opacity=alt.condition(pick, alt.value(1), alt.value(0.12)),
    )
    points = base.transform_filter("isValid(datum.value)")
    real = points.transform_filter("!datum.floor")
    marks = _marks(real, group, column(data, "series")).add_params(pick)
    below = [] if extra is None else extra(base)
    ticks = [tick for d in data for tick in _of_rounds(d)]
    behind = [_bands(real, pick), *([_ticks(base, pick)] if ticks else [])]
    sized: Chart = alt.layer(*below, *behind, _lines(points), marks).properties(
        width=axes.WIDTH // max(2, panels.columns), height=200
    )
    return facetted(sized, [*data, *ticks], "panel", panels.columns, panels.titles)


def _of_rounds(d: Datum) -> list[Datum]:
    """Return a record for each round's tick: the point's own without its value, so that nothing else draws it."""
    ticks = d.pop("ticks", ())
    kept = {name: value for name, value in d.items() if name not in ("value", "low", "high", "wire", "expected")}
    return [kept | {"tick": tick} for tick in ticks] if isinstance(ticks, list) else []


def wire_rule(base: alt.Chart) -> list[alt.Chart]:
    """A rule at what the wire was calibrated to carry, from the size on from which it holds."""
    held = base.transform_filter("isValid(datum.wire)").encode(
        y="max(wire):Q", detail=["machine:N", "wires:N"], opacity=alt.value(1), color=alt.value(axes.MUTED)
    )
    rule = held.mark_rule(strokeDash=[5, 3]).encode(x="min(bytes):Q", x2=alt.value("width"))
    words = held.mark_text(align="right", baseline="bottom", dy=-3, fontSize=11)
    return [rule, words.encode(x=alt.value("width"), text="wires:N")]


def dashed(base: alt.Chart) -> list[alt.Chart]:
    """A dashed line of each series at what is expected, beside what was measured."""
    expected = base.transform_filter("isValid(datum.expected)")
    return [expected.mark_line(strokeDash=[4, 3], strokeWidth=1.2).encode(y=alt.Y("expected:Q"))]


def _bands(base: alt.Chart, pick: alt.Parameter) -> alt.Chart:
    opacity = alt.condition(pick, alt.value(0.2), alt.value(0.03))
    bands: alt.Chart = base.mark_area().encode(y="low:Q", y2="high:Q", opacity=opacity)
    return bands


def _ticks(base: alt.Chart, pick: alt.Parameter) -> alt.Chart:
    """A tick at what each round gave."""
    there = base.transform_filter("isValid(datum.tick)").mark_tick(orient="horizontal", width=9, thickness=1.2)
    ticks: alt.Chart = there.encode(y="tick:Q", opacity=alt.condition(pick, alt.value(0.8), alt.value(0.05)))
    return ticks


def _lines(base: alt.Chart) -> alt.Chart:
    lines: alt.Chart = base.mark_line(strokeJoin="round").encode(
        strokeDash=alt.condition("datum.floor", alt.value([2, 2]), alt.value([1, 0])),
        strokeWidth=alt.condition("datum.floor", alt.value(1), alt.value(2)),
    )
    return lines


def _marks(base: alt.Chart, group: Group, present: Iterable[str]) -> alt.Chart:
    grey = alt.Legend(symbolFillColor=axes.MUTED, symbolStrokeColor=axes.MUTED)
    by_machine = alt.Shape("machine:N", legend=grey)
    pairs = ("pair", "range") if group.many_pairs else ()
    by_library = ("ran",) if any(told(point.row) for point in group.usable) else ()
    marks: alt.Chart = base.mark_point(size=34, strokeWidth=1.6).encode(
        fill=alt.Fill("fill:N", scale=None),
        shape=by_machine if len(group.machines) > 1 else axes.series_shape(group, present),
        tooltip=tooltip(
            "series",
            *by_library,
            "size",
            "at",
            *pairs,
            "place",
            "time",
            "interval",
            "rounds",
            "algbw",
            "busbw",
            "machine",
            "run",
        ),
    )
    return marks


def _numbered(data: Iterable[Datum], x: str) -> list[Datum]:
    """Number repeated measurements of the same point, so that a line joins first with first, second with second."""
    seen: Counter[tuple[object, ...]] = Counter()
    numbered = []
    for d in data:
        key = (d["series"], d["panel"], d["machine"], d[x])
        numbered.append(d | {"repeat": seen[key]})
        seen[key] += 1
    return numbered


def _reach(data: Iterable[Datum]) -> list[float]:
    """What the vertical axis has to reach: values, the ends of their intervals, and what they are set beside."""
    keys = ("value", "low", "high", "wire", "expected")
    return [number for d in data for key in keys if isinstance(number := d.get(key), float)]


def facetted(chart: Chart, data: Sequence[Datum], by: str, columns: int, titles: Sequence[str]) -> Chart:
    """Return ``chart`` once for each of ``titles``, the values of ``by``, ``columns`` in a row."""
    facet = alt.Facet(f"{by}:N", title=None, sort=list(titles))
    panels: alt.FacetChart = chart.facet(facet=facet, columns=columns, data=inline(data), spacing=GAP)
    return panels


def inline(data: Sequence[Datum]) -> alt.InlineData:
    """Return ``data`` as a part of the specification."""
    return alt.InlineData(values=list(data))


def column(data: Iterable[Datum], field: str) -> list[str]:
    """Return ``field`` of all records, as text."""
    return [str(d[field]) for d in data]


_TITLES = {
    "at": "on",
    "ran": "what ran",
    "interval": "95 % interval",
    "rounds": "medians of rounds",
    "place": "buffers",
    "second": "runner-up",
    "range": "all pairs",
}


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Return what a pointer over a mark shows."""
    return [alt.Tooltip(f"{field}:N", title=_TITLES.get(field, field)) for field in fields]
