"""Curves of a group of rows: the records of its points, and panels over sizes, over ranks and of collectives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.limits import Limit, limit_of
from hpccoll.analysis.rank_pairs import curve_points
from hpccoll.analysis.round_comparison import round_statistics
from hpccoll.analysis.row_labels import executed_note, placement_label
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.speedups import evenly_spaced
from hpccoll.common.units import format_interval, format_rate, format_seconds
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord, ExtraLayers, ValueAxis, distinct
from hpccoll.render.colours import MUTED, PAPER, entry_colour, group_colours, group_shapes
from hpccoll.store.rows import Interval, Row

MAX_SIZES = 4
_MUTED = alt.ColorValue(MUTED)


def chart_record(
    group: ChartGroup, point: SeriesPoint, value: float, ends: Interval = None
) -> ChartRecord:
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
    if row.predicted:
        return row.kind
    return chart_base.MEASURED


def _tooltip_fields(point: SeriesPoint) -> ChartRecord:
    """Return what only the tooltip of a point shows."""
    row = point.row
    interval = "none"
    if row.interval or row.ours:
        interval = interval_label(row.interval)
    medians = [statistics.median for statistics in round_statistics(row).values()]
    rounds = "one"
    if len(medians) > 1:
        rounds = ", ".join(map(format_seconds, medians))
    return {
        "time": format_seconds(median_seconds(point)),
        "interval": interval,
        "rounds": rounds,
        "ran": executed_note(row),
        "algbw": _rate_label(row.algbw_Bps),
        "busbw": _rate_label(row.busbw_Bps),
    }


def _rate_label(rate: float | None) -> str:
    return format_rate(rate) if rate else "none"


def busbw_records(group: ChartGroup) -> list[ChartRecord]:
    """Return the records of the bus bandwidth of each measured point, with its limit."""
    data = []
    for point, ends in curve_points(group):
        busbw = point.row.busbw_Bps
        if point.row.floor or not busbw:
            continue
        work = busbw * median_seconds(point)
        rate_ends = ends and (work / ends[1], work / ends[0])
        record = chart_record(group, point, busbw, rate_ends)
        record |= limit_record(point, lambda limit: limit.busbw)
        record["range"] = interval_label(ends)
        data.append(record | round_ticks(group, point, work))
    return data


def round_ticks(group: ChartGroup, point: SeriesPoint, work: float | None = None) -> ChartRecord:
    """Return the value of each round, if there are several: its time, or ``work`` per second."""
    times = [stats.median for stats in round_statistics(point.row).values()]
    is_pale = group.legend[point.series].is_pale
    if len(times) == 1 or point.row.floor or group.many_pairs or is_pale:
        return {}
    if work is None:
        return {"ticks": times}
    return {"ticks": [work / time for time in times]}


def records_beside(
    group: ChartGroup,
    value: Callable[[SeriesPoint], float | None],
    ends: Callable[[SeriesPoint], Interval],
) -> list[ChartRecord]:
    """Return the records of other programs and of predictions; predictions are in the panels of both placements."""
    records = []
    for point in group.drawn:
        number = value(point)
        if point.row.ours or not number:
            continue
        record = chart_record(group, point, number, ends(point))
        if point.row.predicted:
            record["place"] = ""
        records.append(record)
    return records


def interval_label(ends: Interval) -> str:
    """Return an interval as its tooltip has it."""
    return format_interval(ends) if ends else "none: too few iterations"


def group_curves(
    group: ChartGroup,
    data: Sequence[ChartRecord],
    x: alt.X,
    y: ValueAxis,
    titles: Sequence[str],
    columns: int,
    below: ExtraLayers = None,
) -> Chart:
    """Return lines of series of a group over an axis, in panels with ``titles`` (see ``chart_base.curves``)."""
    if len(group.machines) > 1:
        grey = alt.Legend(symbolFillColor=MUTED, symbolStrokeColor=MUTED)
        shape = alt.Shape("machine:N", legend=grey)
    else:
        shapes = chart_base.present(group_shapes(group.legend), data)
        shape = alt.Shape("series:N", scale=chart_base.scale_of(shapes), legend=alt.Legend())
    fields = _curve_fields(group, data)
    colours = chart_base.present(group_colours(group.legend), data)
    return chart_base.curves(
        data, x, y, colours, fields, titles=titles, columns=columns, shape=shape, below=below
    )


def _curve_fields(group: ChartGroup, data: Iterable[ChartRecord]) -> list[str]:
    """Return the fields of the tooltips of curves."""
    fields = ["series"]
    if any(executed_note(point.row) for point in group.usable):
        fields.append("ran")
    fields += ["size", "at"]
    if group.many_pairs:
        fields += ["pair", "range"]
    fields.append("place")
    if all("speedup" in record for record in data):
        fields.append("speedup")
    return [*fields, "time", "interval", "rounds", "algbw", "busbw", "machine", "run"]


def curves_over_size(
    group: ChartGroup, data: Sequence[ChartRecord], y: ValueAxis, below: ExtraLayers = None
) -> Chart | None:
    """Return lines over sizes, in panels of ranks or nodes and placement; None without data."""
    if not data:
        return None
    data = sorted(data, key=itemgetter("ranks"))
    measured_lines = chart_base.MEASURED, chart_base.LIBRARY, chart_base.FLOOR
    measured = {record["at"] for record in data if record["line"] in measured_lines}
    placements = sorted(set(distinct(data, "place")) - {""}, reverse=True) or [""]
    shown: list[ChartRecord] = []
    for placement in placements:
        for record in data:
            # a series with one placement is in both panels
            is_in_panel = record["place"] in (placement, "")
            if record["at"] in measured and is_in_panel:
                title = filter(None, (str(record["at"]), placement))
                shown.append(record | {"panel": ", ".join(title)})
    beyond = [record | {"panel": record["at"]} for record in data if record["at"] not in measured]
    shown += beyond
    sizes = chart_base.size_axis(point.row.requested_bytes for point in group.drawn)
    counts = len(measured or distinct(beyond, "at"))
    if counts == 1 and not beyond:
        counts = len(placements)  # beside each other
    has_row_per_placement = measured and beyond and counts == 1
    columns = counts
    if counts >= 5 or has_row_per_placement:
        columns = 3
    return group_curves(group, shown, sizes, y, distinct(shown, "panel"), columns, below)


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
    measured: set[int] = set()
    predicted: set[int] = set()
    for point in group.drawn:
        if point.row.predicted:
            predicted.add(point.row.requested_bytes)
        else:
            measured.add(point.row.requested_bytes)
    candidates = (measured & predicted) or measured or predicted
    sizes = evenly_spaced(sorted(candidates), MAX_SIZES)
    titles = [group.size_label(nbytes) for nbytes in sizes]
    shown = [record | {"panel": record["size"]} for record in data if record["size"] in titles]
    return group_curves(group, shown, counts_of(group), y, titles, len(titles))


def counts_of(group: ChartGroup) -> alt.X:
    """Return the axis of the nodes or ranks of a group."""
    counts = (group.axis_value(point.row) for point in group.drawn)
    return chart_base.count_axis(group.unit, group.unit_title, counts)


def unity_rule(base: alt.Chart) -> list[alt.Chart]:
    """Return a rule at 1, where native is; the axis names it."""
    native = base.transform_aggregate(groupby=["panel"], leftmost="min(bytes)")
    dashed = native.mark_rule(strokeDash=[5, 3])
    rule = dashed.encode(
        x=alt.XValue(0),
        x2=alt.X2Value("width"),
        y=alt.YDatum(1),
        detail=[],
        opacity=alt.OpacityValue(1),
        color=_MUTED,
    )
    return [rule]


def limit_record(point: SeriesPoint, value: Callable[[Limit], float]) -> ChartRecord:
    """Return the fields of the limit of ``point`` in a chart of ``value``; none without a limit."""
    limit = limit_of(point)
    if limit is None:
        return {}
    return {"limit": value(limit), "limit_name": limit.name}


def limit_line(base: alt.Chart, *, above: bool, at_start: bool) -> list[alt.Chart]:
    """Return a line at the limits of the sizes that have one, to the right edge, with its name where no values are.

    If a size has several rows, the loosest limit counts: the largest if values lie below it, else
    the smallest. The name is ``at_start`` of the line if smaller sizes leave room there, at a side
    that a steep line does not touch: before a line ``above`` the values, below a line that rises
    below them.
    """
    loosest = "max" if above else "min"
    curve = ["panel", "machine", "limit_name"]
    valid = base.transform_filter("isValid(datum.limit)")
    limited = valid.transform_aggregate(limit=f"{loosest}(limit)", groupby=[*curve, "bytes"])
    lines = limited.encode(
        y=alt.Y("limit:Q"),
        detail=[alt.Detail("machine:N"), alt.Detail("limit_name:N")],
        opacity=alt.OpacityValue(1),
        color=_MUTED,
    )
    line = lines.mark_line(strokeDash=[5, 3], strokeWidth=1)

    whole_curve: list[int | None] = [None, None]
    ends = lines.transform_window(
        smallest="min(bytes)", largest="max(bytes)", frame=whole_curve, groupby=curve
    )
    end = ends.transform_filter("datum.bytes === datum.largest")
    dashed = end.mark_rule(strokeDash=[5, 3])
    edge = dashed.encode(x2=alt.X2Value("width"))

    text = alt.Text("limit_name:N")
    style = _NAME_SIDES[at_start, above]
    if at_start:
        start = ends.transform_filter("datum.bytes === datum.smallest")
        name = start.mark_text(fontSize=11, **style).encode(text=text)
    else:
        name = end.mark_text(fontSize=11, **style).encode(text=text, x=alt.XValue("width"))
    return [line, edge, name]


_NAME_SIDES: Mapping[tuple[bool, bool], dict[str, Any]] = {
    (True, True): {"align": "right", "baseline": "middle", "dx": -6},
    (True, False): {"align": "left", "baseline": "top", "dx": 3, "dy": 5},
    (False, True): {"align": "right", "baseline": "bottom", "dy": -4},
    (False, False): {"align": "right", "baseline": "top", "dy": 16},
}
"""Where the name of a limit is: at the start or the end of its line, and whether that is above the values."""


def guide_lines(data: Sequence[ChartRecord], *, above: bool) -> ExtraLayers:
    """Return the layers of the lines for which ``data`` has values: expected ones, and limits (see ``limit_line``)."""
    has_expected = any(record.get("expected") is not None for record in data)
    limited = [record for record in data if record.get("limit") is not None]
    if not has_expected and not limited:
        return None
    at_start = _smallest(limited) > _smallest(data)

    def layers(base: alt.Chart) -> list[alt.Chart]:
        guides = []
        if has_expected:
            guides += expected_lines(base)
        if limited:
            guides += limit_line(base, above=above, at_start=at_start)
        return guides

    return layers


def _smallest(data: Iterable[ChartRecord]) -> int:
    """Return the smallest size of records; 0 if none has a size."""
    sizes = (record.get("bytes") for record in data)
    return min((nbytes for nbytes in sizes if isinstance(nbytes, int)), default=0)


def expected_lines(base: alt.Chart) -> list[alt.Chart]:
    """Return a dashed line of the expected values of each series."""
    expected = base.transform_filter("isValid(datum.expected)")
    dashed = expected.mark_line(strokeDash=[4, 3], strokeWidth=1.2)
    return [dashed.encode(y=alt.Y("expected:Q"))]
