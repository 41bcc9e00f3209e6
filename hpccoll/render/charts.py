"""The charts: a function of a group of rows for each, and the table ``FIGURES`` of all."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.rank_pairs import curve_points
from hpccoll.analysis.recommendations import Recommendation
from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.sent_bytes import largest_points
from hpccoll.analysis.series_points import (
    SeriesPoint,
    best_placements,
    busbw_interval,
    median_seconds,
)
from hpccoll.analysis.speedups import efficiencies, speedups
from hpccoll.analysis.wire_bandwidth import HEADER_MODEL, in_units_of_size
from hpccoll.render import chart_base, chart_panels
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import (
    SENT_TITLE,
    Chart,
    ChartRecord,
    colour,
    distinct,
    facet_chart,
    tooltip,
)
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.chart_maps import choice_map, pair_busbw_map, pair_time_map
from hpccoll.render.chart_panels import (
    busbw_records,
    chart_record,
    curves_over_ranks,
    curves_over_size,
    interval_label,
    records_beside,
    round_ticks,
)
from hpccoll.render.colours import PAPER, numbered_colours
from hpccoll.render.definitions import OVERVIEW
from hpccoll.render.figure import Figure


def time_against_size(group: ChartGroup) -> Chart | None:
    if not group.has_size:
        return None
    data = []
    for point, ends in curve_points(group):
        record = chart_record(group, point, median_seconds(point), ends)
        record |= round_ticks(group, point)
        record |= chart_panels.limit_record(point, lambda limit: limit.seconds)
        data.append(record | {"range": interval_label(ends), "expected": point.expected_s})
    layers = chart_panels.guide_lines(data, above=False)
    data += records_beside(group, median_seconds, lambda point: point.row.interval)
    data = _without_low_floors(data)
    return curves_over_size(group, data, chart_base.time_axis, layers)


def _without_low_floors(data: Sequence[ChartRecord]) -> list[ChartRecord]:
    """Return the records without the floors below the axis, which is that of all others.

    Where one point of a floor is left, it goes, too: its line would be in the legend and nowhere
    else. If only floors were measured, all of them stay.
    """
    operations = [record for record in data if record["line"] != chart_base.FLOOR]
    if not operations:
        return list(data)
    least = min(map(_value, operations))
    floors = [
        record for record in data if record["line"] == chart_base.FLOOR and _value(record) >= least
    ]
    points = Counter(map(_curve_key, floors))
    return operations + [floor for floor in floors if points[_curve_key(floor)] > 1]


def _value(record: ChartRecord) -> float:
    return float(str(record["value"]))


def _curve_key(record: ChartRecord) -> tuple[object, ...]:
    return record["series"], record["at"], record["place"], record["machine"]


def busbw_against_size(group: ChartGroup) -> Chart | None:
    data = busbw_records(group)
    layers = chart_panels.guide_lines(data, above=True)
    data += records_beside(group, lambda point: point.row.busbw_Bps, busbw_interval)
    return curves_over_size(group, data, chart_base.rate_axis, layers)


def sent_against_size(group: ChartGroup) -> Chart | None:
    if group.many_pairs:
        return None
    data = []
    for point in group.best_placements:
        row = point.row
        sent = in_units_of_size(row, row.worker_sent_measured)
        if sent:
            expected = in_units_of_size(row, row.worker_sent_predicted)
            # The placement of buffers does not change the bytes.
            data.append(chart_record(group, point, sent) | {"expected": expected, "place": ""})
    return curves_over_size(group, data, chart_base.sent_axis, chart_panels.expected_lines)


def time_against_ranks(group: ChartGroup) -> Chart | None:
    best = replace(group, imports=best_placements(group.imports))
    data = []
    for point in group.best_placements:
        data.append(chart_record(group, point, median_seconds(point), point.row.interval))
    data += records_beside(best, median_seconds, lambda point: point.row.interval)
    return curves_over_ranks(group, data, chart_base.time_axis)


def efficiency_against_ranks(group: ChartGroup) -> Chart | None:
    data = [
        chart_record(group, efficiency.point, efficiency.value)
        for efficiency in efficiencies(group.points)
    ]
    return curves_over_ranks(group, data, chart_base.share_axis("parallel efficiency (%)"))


def speedup_against_size(group: ChartGroup) -> Chart | None:
    if not group.has_size or group.many_pairs:
        return None
    return curves_over_size(
        group, _speedup_records(group), chart_base.ratio_axis, chart_panels.unity_rule
    )


def speedups_of_collectives(group: ChartGroup) -> Chart | None:
    """Return a small panel for each collective, of the points of an overview group (see ``overview_group``)."""
    data = _speedup_records(group)
    return chart_panels.panels_of_collectives(
        group, data, chart_base.ratio_axis, chart_panels.unity_rule
    )


def _speedup_records(group: ChartGroup) -> list[ChartRecord]:
    records = []
    for speedup in speedups(group.points):
        record = chart_record(group, speedup.point, speedup.value, speedup.ends)
        record["speedup"] = f"{speedup.value:.2f}"
        record["panel"] = speedup.point.row.collective
        records.append(record)
    return records


def busbw_of_collectives(group: ChartGroup) -> Chart | None:
    data = []
    for point in group.points:
        busbw = point.row.busbw_Bps
        if busbw:
            data.append(chart_record(group, point, busbw) | {"panel": point.row.collective})
    return chart_panels.panels_of_collectives(group, data, chart_base.rate_axis)


def overview_group(groups: Sequence[ChartGroup], answers: Answers) -> ChartGroup:
    """Return one group of the points of the foremost setting of every collective, in one placement."""
    points: list[SeriesPoint] = []
    for name in dict.fromkeys(group.collective for group in groups):
        if name in answers.by_collective:
            points += _points_of_answer(groups, answers.foremost(name)[0])
    kinds = " and ".join(dict.fromkeys(point.kind for point in points))
    overview = replace(groups[0], name=OVERVIEW, collective=OVERVIEW, kind=kinds, setting="")
    return replace(overview, points=tuple(points), recommendations=(), imports=(), predictions=())


def _points_of_answer(
    groups: Iterable[ChartGroup], recommendation: Recommendation
) -> list[SeriesPoint]:
    """Return the points of a recommendation, from its first group: the others have fewer rows."""
    for group in groups:
        if group.has_size and recommendation in group.recommendations:
            return [point for point in group.usable if belongs_to_answer(point, recommendation)]
    return []


def belongs_to_answer(point: SeriesPoint, recommendation: Recommendation) -> bool:
    """Return whether a point is a choice of a recommendation, a runner-up, or native, in its setting.

    If the choices serve both placements, the points in place are.
    """
    row = point.row
    in_place = recommendation.setting.in_place
    if in_place is None:
        in_place = True
    if row.in_place != in_place and placement_label(row):
        return False
    choice = recommendation.measured.rows.get(row.key)
    if choice is None:
        return False
    return choice.is_native or choice in recommendation.named


def port_bytes_chart(group: ChartGroup) -> Chart | None:
    """Return a stacked chart of the bytes of each port at the largest size; None if nodes have one port."""
    data = []
    for point in largest_points(group):
        total = sum(point.row.port_sent.values()) or 1
        panel = group.shape_and_machine(point)
        for port, nbytes in point.row.port_sent.items():
            sent = in_units_of_size(point.row, nbytes)
            if sent is not None:
                about = {"port": port, "panel": panel, "part": f"{nbytes / total:.1%}"}
                data.append(chart_record(group, point, sent) | about)
    if not data:
        return None
    ports = sorted(distinct(data, "port"))
    present = distinct(data, "series")
    series = [name for name in group.legend if name in present]
    rectangles = alt.Chart().mark_bar(stroke=PAPER)
    bars = rectangles.encode(
        x=alt.X("value:Q", title=SENT_TITLE, axis=alt.Axis(tickCount=5)),
        y=alt.Y("series:N", title=None, sort=series, axis=alt.Axis(labelLimit=260)),
        color=colour("port", numbered_colours(ports), "square"),
        order=alt.Order("port:N"),
        tooltip=tooltip("series", "port", "part", "size", "at", "time", "machine"),
    )
    sized: Chart = alt.layer(bars).properties(width=WIDTH // 2, height=30 * len(series))
    panels = distinct(data, "panel")
    return facet_chart(sized, data, panels, min(2, len(panels)))


PLACEMENT_NOTE = "Each series is represented by the faster of its in-place and out-of-place calls of the same run."
ROUNDS_NOTE = "With several rounds: the median of their medians, a tick at each, and a band around all intervals."
PAIRS_NOTE = (
    "Lines show the median pair of ranks; bands reach from the fastest to the slowest pair. Pairs on one node and "
    "pairs between nodes have their own lines."
)
LIMIT_NOTE = (
    "A dashed grey line, if any, is a limit: between nodes the calibrated rate of the wire, from the smallest size for "
    "which it holds, which smaller messages may exceed as a burst; on one node a single copy of the data at the rate "
    "of a copy between the same ranks, which calls may exceed where caches save bytes."
)
CELLS_NOTE = (
    "An empty cell was not measured. Colours are spaced by ratio: equal steps are equal factors."
)
OVERVIEW_NOTE = (
    "On the most ranks that had cores of their own; only choices and runners-up are drawn, next to native. Both axes "
    "are logarithmic."
)
OVERVIEW_FIGURES = (
    Figure(
        "speedup",
        "speed-up over native against size",
        speedups_of_collectives,
        "How many times as long the library's own collective takes: above 1 the algorithm is faster. The median of the "
        f"rounds, with a band from the least to the most. {OVERVIEW_NOTE}",
    ),
    Figure(
        "busbw",
        "bus bandwidth against size",
        busbw_of_collectives,
        f"busbw = algbw times the factor of the collective, comparable with nccl-tests. Small messages may "
        f"exceed the rate of a wire, as a burst. {OVERVIEW_NOTE}",
    ),
)
"""The charts of the overview, with a small panel for each collective."""

FIGURES = (
    Figure("choice", "the choice by {by}, and its lead over the next best (pale or grey: not clear)", choice_map,
        "A cell has the colour of the choice, and shows how many times as long the next best takes, round by round. "
        "Pale: it is not clearly faster than all others; grey: nothing is shown to be faster in its range of sizes, as "
        "in the answers; at 0.98x another is faster at this size, by less than a range of its own "
        "must gain: 3 %, or the noise if that is more, for each of its limits; alone: nothing else was measured. "
        "Placements have columns of their own only where they have answers of their own.", has_series=False),
    Figure("speedup", "speed-up over native against size", speedup_against_size,
        "How many times as long the library's own collective takes, in the same placement: above 1 the algorithm is "
        "faster. The median of the rounds, with a band from the least to the most. Both axes are logarithmic."),
    Figure("time", "time against size", time_against_size,
        f"Median over the timed iterations; the band is the 95 % confidence interval of the median. {ROUNDS_NOTE} Both "
        "axes are logarithmic. The thin dotted grey line is the floor, the cost of an empty schedule, where it "
        "reaches into the axis. "
        f"{LIMIT_NOTE}",
        f"{PAIRS_NOTE} Both axes are logarithmic.",
        "Dashed: the time that NCCL's own model predicts for the algorithm and protocol that ran, from its log."),
    Figure("busbw", "bus bandwidth against size", busbw_against_size,
        "busbw = algbw times the factor of the collective, comparable with nccl-tests; GB/s are 1e9 bytes per second, "
        f"MB/s 1e6. The band is the 95 % confidence interval. {ROUNDS_NOTE} Both axes are logarithmic. {LIMIT_NOTE}",
        f"busbw is that of the two ranks alone. {PAIRS_NOTE} Both axes are logarithmic."),
    Figure("pairs-time", "time of each pair of ranks at {least}", pair_time_map,
        f"Darker is slower. {CELLS_NOTE}", has_series=False),
    Figure("pairs-busbw", "bus bandwidth of each pair of ranks at {most}", pair_busbw_map,
        f"Darker is slower. {CELLS_NOTE}", has_series=False),
    Figure("scaling", "time against {unit}", time_against_ranks,
        f"Median time at a few of the sizes. {PLACEMENT_NOTE}", over_ranks=True),
    Figure("efficiency", "parallel efficiency against {unit}", efficiency_against_ranks,
        "Parallel efficiency: busbw divided by the busbw of the same series and size on the fewest ranks measured on "
        f"the same machine. {PLACEMENT_NOTE}", over_ranks=True),
    Figure("wire", "bytes on the wire against size", sent_against_size,
        "Bytes that the ports of a node sent for one operation, in units of S; dashed: bytes counted from the "
        f"schedule, without headers. {HEADER_MODEL}"),
    Figure("rails", "bytes of each port at the largest size", port_bytes_chart,
        "Bytes that each port of a node sent for one operation, in units of S: the mean over the nodes of workers. A "
        "library that uses several rails spreads the bytes over them."),
)  # fmt: skip
"""All charts of collectives, in order."""
