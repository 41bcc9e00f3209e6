"""Curves of a group of rows: the records of its points, and panels over sizes, over ranks and of collectives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.limits import Limit, limit_of
from hpccoll.analysis.round_comparison import round_statistics
from hpccoll.analysis.row_labels import executed_note, placement_label
from hpccoll.analysis.series_comparisons import evenly_spaced
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.common.units import format_interval, format_rate, format_seconds
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord, ExtraLayers, ValueAxis, distinct
from hpccoll.render.colours import MUTED, PAPER, entry_colour, group_colours, group_shapes
from hpccoll.store.rows import Interval, Row

MAX_SIZES = 4
_MUTED = alt.ColorValue(MUTED)


def chart_record(group: ChartGroup, point: SeriesPoint, value: float, ends: Interval = None) -> ChartRecord:
    """Return the record of ``point`` in a chart: ``value`` with its 95 % interval, and the fields of its tooltip."""
    entry = group.legend[point.series]
    row = point.row
    low, high = ends or (value, value)
    if entry.is_pale:
        low, high = value, value
    record: ChartRecord = {
        "series": point.series,
        "bytes": row.requested_bytes,
        "size": group.size_label(row.requested_bytes),
        "ranks": row.ranks,
        "nodes": row.nodes,
        "at": group.shape_label(row),
        "place": placement_label(row),
        "pair": point.pair_label,
        "machine": group.machine_label(point),
        "run": row.run_id,
        "value": value,
        "low": low,
        "high": high,
        "fill": PAPER if row.oversubscribed else entry_colour(entry),
        "line": _line_of(row),
        **_tooltip_fields(point),
    }
    if entry.is_pale:
        record["tone"] = chart_base.PALE
    return record


def _line_of(row: Row) -> str:
    """Return the key of the dashes of a row's line."""
    if row.floor:
        return chart_base.FLOOR
    return row.kind if row.predicted else chart_base.MEASURED


def _tooltip_fields(point: SeriesPoint) -> ChartRecord:
    """Return what only the tooltip of a point shows."""
    row = point.row
    medians = [statistics.median for statistics in round_statistics(row).values()]
    return {
        "time": format_seconds(median_seconds(point)),
        "interval": interval_label(row.interval) if row.interval or row.ours else "none",
        "rounds": ", ".join(map(format_seconds, medians)) if len(medians) > 1 else "one",
        "ran": executed_note(row),
        "algbw": format_rate(row.algbw_Bps) if row.algbw_Bps else "none",
        "busbw": format_rate(row.busbw_Bps) if row.busbw_Bps else "none",
    }


def records_beside(
    group: ChartGroup, value: Callable[[SeriesPoint], float | None], ends: Callable[[SeriesPoint], Interval]
) -> list[ChartRecord]:
    """Return the records of other programs and of predictions; predictions are in the panels of both placements."""
    others = ((point, number) for point in group.drawn if not point.row.ours and (number := value(point)))
    return [
        chart_record(group, point, number, ends(point)) | ({"place": ""} if point.row.predicted else {})
        for point, number in others
    ]


def interval_label(ends: Interval) -> str:
    """Return an interval as its tooltip has it."""
    return format_interval(ends) if ends else "none: too few iterations"


def group_curves(
    group: ChartGroup, data: Sequence[ChartRecord], x: alt.X, y: ValueAxis, titles: Sequence[str], columns: int,
    below: ExtraLayers = None,
) -> Chart:  # fmt: skip
    """Return lines of series of a group over an axis, in panels with ``titles`` (see ``chart_base.curves``)."""
    grey = alt.Legend(symbolFillColor=MUTED, symbolStrokeColor=MUTED)
    shapes = chart_base.scale_of(chart_base.present(group_shapes(group.legend), data))
    of_series = alt.Shape("series:N", scale=shapes, legend=alt.Legend())
    ran = ("ran",) if any(executed_note(point.row) for point in group.usable) else ()
    pairs = ("pair", "range") if group.many_pairs else ()
    more = ("speedup",) if all("speedup" in d for d in data) else ()
    fields = (
        "series", *ran, "size", "at", *pairs, "place", *more, "time", "interval", "rounds", "algbw", "busbw",
        "machine", "run",
    )  # fmt: skip
    shape = alt.Shape("machine:N", legend=grey) if len(group.machines) > 1 else of_series
    colours = chart_base.present(group_colours(group.legend), data)
    return chart_base.curves(data, x, y, colours, fields, titles=titles, columns=columns, shape=shape, below=below)


def curves_over_size(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, below: ExtraLayers = None
) -> Chart | None:
    """Return lines over sizes, in panels of ranks or nodes and placement; None without data."""
    if not data:
        return None
    data = sorted(data, key=itemgetter("ranks"))
    measured = {d["at"] for d in data if d["line"] in (chart_base.MEASURED, chart_base.FLOOR)}
    placements = sorted({*distinct(data, "place")} - {""}, reverse=True) or [""]
    shown = [
        d | {"panel": ", ".join(filter(None, (str(d["at"]), placement)))}
        for placement in placements
        for d in data
        if d["at"] in measured and d["place"] in (placement, "")  # a series with one placement is in both panels
    ]
    beyond = [d | {"panel": d["at"]} for d in data if d["at"] not in measured]
    shown += beyond
    sizes = chart_base.size_axis(point.row.requested_bytes for point in group.drawn)
    counts = len(measured or distinct(beyond, "at"))
    if counts == 1 and not beyond:
        counts = len(placements)  # beside each other
    fits = counts < 5 and not (measured and beyond and counts == 1)  # a row for each placement
    return group_curves(group, shown, sizes, y, distinct(shown, "panel"), counts if fits else 3, below)


def panels_of_collectives(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, below: ExtraLayers = None
) -> Chart | None:
    """Return lines over sizes in small panels, one for the ``panel`` of each record; None without data."""
    if not data:
        return None
    titles = distinct(data, "panel")
    sizes = chart_base.size_axis(point.row.requested_bytes for point in group.points)
    return group_curves(group, data, sizes, y, titles, min(4, len(titles)), below)


def curves_over_ranks(group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis) -> Chart | None:
    """Return lines over ranks or nodes, in panels of a few sizes; None for one count only, and for pairs of ranks."""
    if group.pairs or len(distinct(data, group.unit)) < 2:
        return None
    measured, predicted = (
        {point.row.requested_bytes for point in group.drawn if point.row.predicted == of_predictions}
        for of_predictions in (False, True)
    )
    sizes = evenly_spaced(sorted((measured & predicted) or measured or predicted), MAX_SIZES)
    titles = [group.size_label(nbytes) for nbytes in sizes]
    shown = [d | {"panel": d["size"]} for d in data if d["size"] in titles]
    return group_curves(group, shown, counts_of(group), y, titles, len(titles))


def counts_of(group: ChartGroup) -> alt.X:
    """Return the axis of the nodes or ranks of a group."""
    return chart_base.count_axis(group.unit, group.unit_title, (group.axis_value(point.row) for point in group.drawn))


def unity_rule(base: alt.Chart) -> list[alt.Chart]:
    """Return a rule at 1, where native is; the axis names it."""
    native = base.transform_aggregate(groupby=["panel"], leftmost="min(bytes)")
    return [
        native.mark_rule(strokeDash=[5, 3]).encode(
            x=alt.XValue(0),
            x2=alt.X2Value("width"),
            y=alt.YDatum(1),
            detail=[],
            opacity=alt.OpacityValue(1),
            color=_MUTED,
        )
    ]


def limit_record(point: SeriesPoint, value: Callable[[Limit], float]) -> ChartRecord:
    """Return the fields of the limit of ``point`` in a chart of ``value``; none without a limit."""
    limit = limit_of(point)
    return {"limit": value(limit), "limit_name": limit.name} if limit else {}


def limit_line(base: alt.Chart, *, above: bool, at_start: bool) -> list[alt.Chart]:
    """Return a line at the limits of the sizes that have one, to the right edge, with its name where no values are.

    Of several rows of a size the loosest limit counts: the largest if values lie below it, else the smallest. The name
    is ``at_start`` of the line if smaller sizes leave room there, at a side that a steep line does not touch: before a
    line ``above`` the values, below a line that rises below them.
    """
    loosest = "max" if above else "min"
    limited = base.transform_filter("isValid(datum.limit)").transform_aggregate(
        limit=f"{loosest}(limit)", groupby=["panel", "machine", "limit_name", "bytes"]
    )
    lines = limited.encode(
        y=alt.Y("limit:Q"), detail=[alt.Detail("machine:N"), alt.Detail("limit_name:N")],
        opacity=alt.OpacityValue(1), color=_MUTED,
    )  # fmt: skip
    line = lines.mark_line(strokeDash=[5, 3], strokeWidth=1)
    ends = lines.transform_window(
        smallest="min(bytes)", largest="max(bytes)", frame=[None, None], groupby=["panel", "machine", "limit_name"]
    )
    end = ends.transform_filter("datum.bytes === datum.largest")
    edge = end.mark_rule(strokeDash=[5, 3]).encode(x2=alt.X2Value("width"))
    named = ends.transform_filter("datum.bytes === datum.smallest") if at_start else end
    name = named.mark_text(fontSize=11, **_NAME_SIDES[at_start, above]).encode(text=alt.Text("limit_name:N"))
    return [line, edge, name if at_start else name.encode(x=alt.XValue("width"))]


_NAME_SIDES: Mapping[tuple[bool, bool], dict[str, Any]] = {
    (True, True): {"align": "right", "baseline": "middle", "dx": -6},
    (True, False): {"align": "left", "baseline": "top", "dx": 3, "dy": 5},
    (False, True): {"align": "right", "baseline": "bottom", "dy": -4},
    (False, False): {"align": "right", "baseline": "top", "dy": 16},
}
"""Where the name of a limit is: at the start or the end of its line, and whether that is above the values."""


def guide_lines(data: Sequence[ChartRecord], *, above: bool) -> ExtraLayers:
    """Return the layers of the lines for which ``data`` has values: expected ones, and limits (see ``limit_line``)."""
    limited = [d for d in data if d.get("limit") is not None]
    limits = partial(limit_line, above=above, at_start=_smallest(limited) > _smallest(data))
    guides = [lines for field, lines in (("expected", expected_lines), ("limit", limits)) if _any_value(data, field)]
    return (lambda base: [layer for lines in guides for layer in lines(base)]) if guides else None


def _smallest(data: Iterable[ChartRecord]) -> int:
    return min((nbytes for d in data if isinstance(nbytes := d.get("bytes"), int)), default=0)


def _any_value(data: Iterable[ChartRecord], field: str) -> bool:
    return any(d.get(field) is not None for d in data)


def expected_lines(base: alt.Chart) -> list[alt.Chart]:
    """Return a dashed line of the expected values of each series."""
    expected = base.transform_filter("isValid(datum.expected)")
    return [expected.mark_line(strokeDash=[4, 3], strokeWidth=1.2).encode(y=alt.Y("expected:Q"))]
