"""The charts: a function of a group of rows for each, and the table ``FIGURES`` of all."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
from altair.utils.schemapi import debug_mode

from hpccoll.report import chart_axes
from hpccoll.report.chart_groups import ChartGroup, SeriesPoint
from hpccoll.report.chart_panels import (
    Chart,
    ChartRecord,
    chart_record,
    curves_over_ranks,
    curves_over_size,
    expected_lines,
    facet_chart,
    field_values,
    inline_data,
    interval_label,
    tooltip,
    wire_rule,
)
from hpccoll.report.comparisons import Comparison, best_placements, efficiencies, find_comparisons, mixed_hosts
from hpccoll.report.host_ranges import jobs_and_hosts
from hpccoll.report.pair_heatmap import pair_busbw_map, pair_time_map
from hpccoll.report.rail_usage import port_bytes_chart
from hpccoll.report.rank_pairs import curve_points, map_sizes
from hpccoll.report.round_statistics import median_interval, median_seconds, round_stats
from hpccoll.report.series_colours import FOREGROUND
from hpccoll.report.wire_bandwidth import HEADER_MODEL, in_units_of_size, wire_label, wire_limit
from hpccoll.store.statistics import Interval
from hpccoll.units import format_seconds


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of the report.

    Args:
        name: a unique name that is valid in a file name.
        title: a format string with ``{unit}`` (ranks or nodes), ``{by}`` (the unit and the size), ``{least}`` and
            ``{most}`` (the smallest and the largest size of pairs of ranks).
        caption: how to read the chart, with the definition of derived quantities.
        draw: a function that returns the chart of a group; None if there is nothing to draw.
        pairs_caption: the caption if lines stand for several pairs of ranks; empty: ``caption``.
        model_caption: an addition to the caption if a library's own model predicts times.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[ChartGroup], Chart | None]
    pairs_caption: str = ""
    model_caption: str = ""

    def group_caption(self, group: ChartGroup) -> str:
        """Return the caption for ``group``."""
        caption = self.pairs_caption if group.many_pairs and self.pairs_caption else self.caption
        return f"{caption} {self.model_caption}" if self.model_caption and group.modelled else caption

    def specification(self, group: ChartGroup) -> dict[str, object] | None:
        """Return the Vega-Lite specification for ``group``; None if there is nothing to draw."""
        with debug_mode(arg=False):  # no validation by schema: the tests do that
            chart = self.draw(group)
            return (
                chart_axes.apply_theme(chart, *self.heading(group), [p.series for p in group.usable]) if chart else None
            )

    def heading(self, group: ChartGroup) -> tuple[str, tuple[str, ...]]:
        """Return the title for ``group`` and the lines below it: machines, setting, and the meaning of marks."""
        machines = group.machines
        where = machines if len(machines) == 1 else [f"machine {i}: {name}" for i, name in enumerate(machines, 1)]
        several = "each machine has its own marks and lines" if len(machines) > 1 else ""
        python = PYTHON_NOTE if group.several_executors else ""
        crowded = ", ".join(map(str, _oversubscribed_counts(group)))
        hollow = f"hollow marks: oversubscribed, more ranks than cores ({crowded} {group.unit})" if crowded else ""
        joined = mixed_hosts(group.points)
        mixed = f"launches on different hosts are joined: {jobs_and_hosts(joined)}" if joined else ""
        on = (f"{group.kind} on {name}" for name in where)
        lines = (*on, group.setting, *group.emulations, several, python, hollow, mixed)
        least, most = map_sizes(group)
        by = f"{group.unit} and size" if group.has_size else group.unit
        title = self.title.format(unit=group.unit, by=by, least=least, most=most)
        return f"{group.collective}: {title}", tuple(filter(None, lines))


PYTHON_NOTE = "(python): by the Python executor; small messages take microseconds longer"


def _oversubscribed_counts(group: ChartGroup) -> list[int]:
    return sorted({group.axis_value(point.row) for point in group.usable if point.row.oversubscribed})


def time_against_size(group: ChartGroup) -> Chart | None:
    if not group.has_size:
        return None
    data = [
        chart_record(group, p, median_seconds(p), ends)
        | _range_field(ends)
        | _round_ticks(group, p)
        | {"expected": p.expected_s}
        for p, ends in curve_points(group)
    ]
    return curves_over_size(group, data, chart_axes.time_axis, expected_lines if group.modelled else None)


def _range_field(ends: Interval) -> ChartRecord:
    """Return the tooltip field of a line of several pairs of ranks."""
    return {"range": interval_label(ends)}


def _round_ticks(group: ChartGroup, point: SeriesPoint, work: float | None = None) -> ChartRecord:
    """Return the value of each of several rounds: its time, or ``work`` per second."""
    times = [stats.median for stats in round_stats(point).values()]
    if len(times) == 1 or point.row.floor or group.many_pairs:
        return {}
    return {"ticks": times if work is None else [work / time for time in times]}


def busbw_against_size(group: ChartGroup) -> Chart | None:
    # The upper end of the interval of the time is the lower end of the bandwidth.
    data = [
        chart_record(
            group, p, busbw, ends and (busbw * median_seconds(p) / ends[1], busbw * median_seconds(p) / ends[0])
        )
        | {"wire": wire_limit(p.row, p.wire), "wires": wire_label(p.row, p.wire).removeprefix("the ")}
        | _range_field(ends)
        | _round_ticks(group, p, busbw * median_seconds(p))
        for p, ends in curve_points(group)
        if not p.row.floor and (busbw := p.row.busbw_Bps)
    ]
    calibrated = any(d["wire"] for d in data)
    return curves_over_size(group, data, chart_axes.rate_axis, wire_rule if calibrated else None)


def sent_against_size(group: ChartGroup) -> Chart | None:
    if group.many_pairs:
        return None
    # The placement of buffers does not change the bytes.
    data = [
        chart_record(group, p, sent) | {"expected": in_units_of_size(p.row, p.row.worker_sent_predicted), "place": ""}
        for p in best_placements(group.points)
        if (sent := in_units_of_size(p.row, p.row.worker_sent_measured))
    ]
    return curves_over_size(group, data, chart_axes.sent_axis, expected_lines)


def time_against_ranks(group: ChartGroup) -> Chart | None:
    data = [chart_record(group, p, median_seconds(p), median_interval(p)) for p in best_placements(group.points)]
    return curves_over_ranks(group, data, chart_axes.time_axis)


def efficiency_against_ranks(group: ChartGroup) -> Chart | None:
    return curves_over_ranks(
        group, [chart_record(group, e.point, e.value) for e in efficiencies(group.points)], chart_axes.percent_axis
    )


def fastest_map(group: ChartGroup) -> Chart | None:
    comparisons = find_comparisons(group.points)
    if not comparisons or group.many_pairs:
        return None
    data = [chart_record(group, c.fastest, median_seconds(c.fastest)) | _lead_fields(group, c) for c in comparisons]
    sizes = list(
        dict.fromkeys(group.size_label(nbytes) for nbytes in sorted({c.nbytes for c in comparisons}, reverse=True))
    )
    hollow = f"(indexof({_oversubscribed_counts(group)}, datum.value) < 0 ? '' : '\u25cb ') + datum.label"
    base = alt.Chart().encode(
        x=alt.X(f"{group.unit}:O", title=group.unit_title, axis=alt.Axis(labelAngle=0, labelExpr=hollow)),
        y=alt.Y("size:N", title="size", sort=sizes, axis=alt.Undefined if group.has_size else None),
    )
    cells = base.mark_rect(stroke=chart_axes.BACKGROUND, strokeWidth=2).encode(
        color=chart_axes.series_colour(group, field_values(data, "series"), symbol="square"),
        opacity=alt.condition("datum.clear", alt.value(1), alt.value(0.35)),
        tooltip=tooltip("size", "at", "series", "time", "interval", "rounds", "place", "second", "machine"),
    )
    labels = base.mark_text(fontSize=12, fontWeight=600).encode(
        text="lead:N", color=alt.Color("text_colour:N", scale=None)
    )
    width = max(240, 90 * len({c.ranks for c in comparisons}))
    chart = alt.layer(cells, labels).properties(width=width, height=26 * len(sizes))
    panels = sorted(set(field_values(data, "panel")))
    return facet_chart(chart, data, "panel", 1, panels) if len(panels) > 1 else chart.properties(data=inline_data(data))


def _lead_fields(group: ChartGroup, comparison: Comparison) -> ChartRecord:
    """Return the fields of a cell of the map; its text colour keeps its contrast in dark mode."""
    machine = group.machine_label(comparison.fastest) if len(group.machines) > 1 else ""
    executor = comparison.executor if group.several_executors else ""
    mapping = comparison.mapping if group.several_mappings else ""
    panel = {"panel": ", ".join(filter(None, (machine, executor, comparison.variant, mapping)))}
    if comparison.runner_up_ratio is None:
        return panel | {"lead": "alone", "second": "none", "clear": False, "text_colour": FOREGROUND}
    second = comparison.entries[1]
    on_ink = group.colours[comparison.fastest.series] == FOREGROUND
    return panel | {
        "lead": f"{comparison.runner_up_ratio:.2f}x" if comparison.clear_winner else "tie",
        "second": f"{second.series}, {format_seconds(median_seconds(second))}, "
        f"{comparison.runner_up_ratio:.2f} times as long",
        "clear": bool(comparison.clear_winner),
        "text_colour": FOREGROUND
        if not comparison.clear_winner
        else chart_axes.BACKGROUND
        if on_ink
        else chart_axes.FIXED_WHITE,
    }


PLACEMENT_NOTE = "Each series is represented by the faster of its in-place and out-of-place calls of the same run."
ROUNDS_NOTE = "With several rounds: the median of their medians, a tick at each, and a band around all intervals."
PAIRS_NOTE = (
    "Lines show the median pair of ranks; bands reach from the fastest to the slowest pair. Pairs on one node and "
    "pairs between nodes have their own lines."
)
CELLS_NOTE = "An empty cell was not measured. Colours are spaced by ratio: equal steps are equal factors."
FIGURES = (
    Figure(
        "fastest",
        "fastest series by {by}",
        "A cell shows how many times as long the runner-up takes, round by round. tie (pale): the fastest is not ahead "
        "of all others in every round, with a median below their 95 % intervals (with one round: with disjoint "
        f"intervals). alone (pale): the run has no other series. {PLACEMENT_NOTE}",
        fastest_map,
    ),
    Figure(
        "time",
        "time against size",
        f"Median over the timed iterations; the band is the 95 % confidence interval of the median. {ROUNDS_NOTE} Both "
        "axes are logarithmic. The thin dotted grey line, if any, is the floor: the cost of an empty schedule.",
        time_against_size,
        f"{PAIRS_NOTE} Both axes are logarithmic.",
        "Dashed: the time that NCCL's own model predicts for the algorithm and protocol that ran, from its log.",
    ),
    Figure(
        "busbw",
        "bus bandwidth against size",
        "busbw = algbw times the factor of the collective, comparable with nccl-tests; GB/s are 1e9 bytes per second, "
        f"MB/s 1e6. The band is the 95 % confidence interval. {ROUNDS_NOTE} Both axes are logarithmic. A "
        "dashed rule, if any, is the calibrated rate of the wire, from the smallest size for which it holds; smaller "
        "messages may exceed it as a burst.",
        busbw_against_size,
        f"busbw is that of the two ranks alone. {PAIRS_NOTE} Both axes are logarithmic.",
    ),
    Figure(
        "pairs-time",
        "time of each pair of ranks at {least}",
        f"Darker is slower. {CELLS_NOTE}",
        pair_time_map,
    ),
    Figure(
        "pairs-busbw",
        "bus bandwidth of each pair of ranks at {most}",
        f"Darker is faster. {CELLS_NOTE}",
        pair_busbw_map,
    ),
    Figure(
        "scaling",
        "time against {unit}",
        f"Median time at a few of the sizes. {PLACEMENT_NOTE}",
        time_against_ranks,
    ),
    Figure(
        "efficiency",
        "parallel efficiency against {unit}",
        "Parallel efficiency: busbw divided by the busbw of the same series and size on the fewest ranks measured on "
        f"the same machine. {PLACEMENT_NOTE}",
        efficiency_against_ranks,
    ),
    Figure(
        "wire",
        "bytes on the wire against size",
        "Bytes that the ports of a node sent for one operation, in units of S; dashed: bytes counted from the "
        f"schedule, without headers. {HEADER_MODEL}",
        sent_against_size,
    ),
    Figure(
        "rails",
        "bytes of each port at the largest size",
        "Bytes that each port of a node sent for one operation, in units of S: the mean over the nodes of workers. A "
        "library that uses several rails spreads the bytes over them.",
        port_bytes_chart,
    ),
)
"""All charts of the report, in order."""
