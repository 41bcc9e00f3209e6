"""The charts: each a function of a group of rows, and a row in the table at the end."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
from altair.utils.schemapi import debug_mode

from hpccoll.report import axes
from hpccoll.report.colours import INK
from hpccoll.report.compare import Contest, best_placements, contests, efficiencies, strangers
from hpccoll.report.groups import Group, Point
from hpccoll.report.hosts import host_words
from hpccoll.report.matrix import pair_rates, pair_times
from hpccoll.report.pairs import extremes, lines
from hpccoll.report.panels import (
    Chart,
    Datum,
    by_ranks,
    by_size,
    column,
    dashed,
    datum,
    facetted,
    inline,
    interval_words,
    tooltip,
    wire_rule,
)
from hpccoll.report.rails import bytes_of_ports
from hpccoll.report.rounds import Interval, interval, rounds, seconds
from hpccoll.report.wires import HEADER_MODEL, in_sizes, limit, wire_words
from hpccoll.units import format_seconds


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of the report.

    Args:
        name: fit for a file name.
        title: what it shows, with ``{unit}`` for ranks or nodes, ``{by}`` for them and the size, ``{least}`` and
            ``{most}`` for the smallest and the largest size that pairs of ranks were measured at.
        caption: how to read it, with the definition of what is not measured directly.
        draw: the chart of a group, or None where the group has nothing to draw.
        of_pairs: the caption where lines stand for many pairs of ranks, if it is another.
        of_model: what the caption adds where a library says what it expects.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Group], Chart | None]
    of_pairs: str = ""
    of_model: str = ""

    def caption_of(self, group: Group) -> str:
        """Return the caption for ``group``: lines that stand for pairs of ranks are read otherwise."""
        caption = self.of_pairs if group.many_pairs and self.of_pairs else self.caption
        return f"{caption} {self.of_model}" if self.of_model and group.modelled else caption

    def specification(self, group: Group) -> dict[str, object] | None:
        """Return the Vega-Lite specification for ``group``, or None where there is nothing to draw."""
        with debug_mode(arg=False):  # else Altair holds each part of a chart against a schema, as the tests do
            chart = self.draw(group)
            return axes.themed(chart, *self.heading(group), [p.series for p in group.usable]) if chart else None

    def heading(self, group: Group) -> tuple[str, tuple[str, ...]]:
        """Return the title for ``group`` and the lines below it: what was measured where, what the marks mean."""
        machines = group.machines
        where = machines if len(machines) == 1 else [f"machine {i}: {name}" for i, name in enumerate(machines, 1)]
        several = "machines are never joined: each has its own marks and lines" if len(machines) > 1 else ""
        crowded = ", ".join(map(str, _crowded(group)))
        hollow = f"hollow marks: oversubscribed, more ranks than cores ({crowded} {group.unit})" if crowded else ""
        joined = strangers(group.points)
        strange = f"launches on different hosts are joined: {host_words(joined)}" if joined else ""
        on = (f"{group.kind} on {name}" for name in where)
        said = (*on, group.setting, *group.software, several, hollow, strange)
        least, most = extremes(group)
        by = f"{group.unit} and size" if group.sized else group.unit
        title = self.title.format(unit=group.unit, by=by, least=least, most=most)
        return f"{group.collective}: {title}", tuple(filter(None, said))


def _crowded(group: Group) -> list[int]:
    return sorted({group.count(point.row) for point in group.usable if point.row.oversubscribed})


def time_against_size(group: Group) -> Chart | None:
    if not group.sized:
        return None
    data = [
        datum(group, p, seconds(p), ends) | _range(ends) | _ticks(group, p) | {"expected": p.expected_s}
        for p, ends in lines(group)
    ]
    return by_ranks(group, data, axes.time_axis, dashed if group.modelled else None)


def _range(ends: Interval) -> Datum:
    """What a pointer over a line of many pairs of ranks is told."""
    return {"range": interval_words(ends)}


def _ticks(group: Group, point: Point, work: float | None = None) -> Datum:
    """What each of several rounds gave: its time, or how much of ``work`` it did in a second."""
    times = [taken.median for taken in rounds(point).values()]
    if len(times) == 1 or point.row.floor or group.many_pairs:
        return {}
    return {"ticks": times if work is None else [work / time for time in times]}


def busbw_against_size(group: Group) -> Chart | None:
    # A rate is bytes over time: the slow end of the interval is the low end of the bandwidth.
    data = [
        datum(group, p, busbw, ends and (busbw * seconds(p) / ends[1], busbw * seconds(p) / ends[0]))
        | {"wire": limit(p.row, p.wire), "wires": wire_words(p.row, p.wire).removeprefix("the ")}
        | _range(ends)
        | _ticks(group, p, busbw * seconds(p))
        for p, ends in lines(group)
        if not p.row.floor and (busbw := p.row.busbw_Bps)
    ]
    calibrated = any(d["wire"] for d in data)
    return by_ranks(group, data, axes.rate_axis, wire_rule if calibrated else None)


def sent_against_size(group: Group) -> Chart | None:
    if group.many_pairs:
        return None
    # The placement of buffers does not change what is sent.
    data = [
        datum(group, p, sent) | {"expected": in_sizes(p.row, p.row.worker_sent_predicted), "place": ""}
        for p in best_placements(group.points)
        if (sent := in_sizes(p.row, p.row.worker_sent_measured))
    ]
    return by_ranks(group, data, axes.sent_axis, dashed)


def time_against_ranks(group: Group) -> Chart | None:
    data = [datum(group, p, seconds(p), interval(p)) for p in best_placements(group.points)]
    return by_size(group, data, axes.time_axis)


def efficiency_against_ranks(group: Group) -> Chart | None:
    return by_size(group, [datum(group, e.point, e.value) for e in efficiencies(group.points)], axes.percent_axis)


def fastest(group: Group) -> Chart | None:
    found = contests(group.points)
    if not found or group.many_pairs:
        return None
    data = [datum(group, c.winner, seconds(c.winner)) | _advantage(group, c) for c in found]
    sizes = list(dict.fromkeys(group.size(nbytes) for nbytes in sorted({c.nbytes for c in found}, reverse=True)))
    hollow = f"(indexof({_crowded(group)}, datum.value) < 0 ? '' : '\u25cb ') + datum.label"
    base = alt.Chart().encode(
        x=alt.X(f"{group.unit}:O", title=group.unit_words, axis=alt.Axis(labelAngle=0, labelExpr=hollow)),
        y=alt.Y("size:N", title="size", sort=sizes, axis=alt.Undefined if group.sized else None),
    )
    cells = base.mark_rect(stroke=axes.PAPER, strokeWidth=2).encode(
        color=axes.series_colour(group, column(data, "series"), symbol="square"),
        opacity=alt.condition("datum.clear", alt.value(1), alt.value(0.35)),
        tooltip=tooltip("size", "at", "series", "time", "interval", "rounds", "place", "second", "machine"),
    )
    words = base.mark_text(fontSize=12, fontWeight=600).encode(text="lead:N", color=alt.Color("words:N", scale=None))
    width = max(240, 90 * len({c.ranks for c in found}))
    chart = alt.layer(cells, words).properties(width=width, height=26 * len(sizes))
    panels = sorted(set(column(data, "panel")))
    return facetted(chart, data, "panel", 1, panels) if len(panels) > 1 else chart.properties(data=inline(data))


def _advantage(group: Group, contest: Contest) -> Datum:
    """What the map says in a cell; its words keep their contrast where ink and paper change places in the dark."""
    machine = group.machine(contest.winner) if len(group.machines) > 1 else ""
    mapping = contest.mapping if group.several_mappings else ""
    panel = {"panel": ", ".join(filter(None, (machine, contest.variant, mapping)))}
    if contest.lead is None:
        return panel | {"lead": "alone", "second": "none", "clear": False, "words": INK}
    second = contest.entries[1]
    on_ink = group.colours[contest.winner.series] == INK
    return panel | {
        "lead": f"{contest.lead:.2f}x" if contest.leader else "tie",
        "second": f"{second.series}, {format_seconds(seconds(second))}, {contest.lead:.2f} times as long",
        "clear": bool(contest.leader),
        "words": INK if not contest.leader else axes.PAPER if on_ink else axes.WHITE,
    }


BEST = "Of every series the faster of the placements that were measured in the same run, in place and out of place."
TICKS = "Of several rounds: the median of their medians, with a tick at each, and a band that holds their intervals."
OF_PAIRS = (
    "Lines show the median pair of ranks; bands reach from the fastest to the slowest pair. Pairs on one node and "
    "pairs between nodes have their own lines."
)
CELLS = "An empty cell was not measured. Colours are spaced by ratio: equal steps are equal factors."
FIGURES = (
    Figure(
        "fastest",
        "fastest series by {by}",
        "In the cell, how many times as long the runner-up takes, round by round; tie (pale): the fastest is not ahead "
        "of all others in every round, by a median below the 95 % interval of theirs (of one round: by intervals that "
        f"do not touch); alone (pale): nothing to compare with in that run. {BEST}",
        fastest,
    ),
    Figure(
        "time",
        "time against size",
        f"Median over the timed iterations; the band is the 95 % confidence interval of the median. {TICKS} Both axes "
        "are logarithmic. The thin dotted grey line, where there is one, is the floor: what an empty schedule costs.",
        time_against_size,
        f"{OF_PAIRS} Both axes are logarithmic.",
        "Dashed: what NCCL's own model gives for the algorithm and protocol that ran, by the table in its log.",
    ),
    Figure(
        "busbw",
        "bus bandwidth against size",
        "busbw = algbw times the factor of the collective, comparable with nccl-tests; GB/s are 1e9 bytes per second, "
        f"MB/s 1e6. The band is the 95 % confidence interval. {TICKS} Both axes are logarithmic. Where there is a "
        "dashed rule, it is what a wire was calibrated to carry, from the size on from which it does; less may pass it "
        "faster, as a burst.",
        busbw_against_size,
        f"busbw is of the two ranks alone. {OF_PAIRS} Both axes are logarithmic.",
    ),
    Figure(
        "pairs-time",
        "time of each pair of ranks at {least}",
        f"Darker is slower. {CELLS}",
        pair_times,
    ),
    Figure(
        "pairs-busbw",
        "bus bandwidth of each pair of ranks at {most}",
        f"Darker is faster. {CELLS}",
        pair_rates,
    ),
    Figure("scaling", "time against {unit}", f"Median time at a few of the sizes. {BEST}", time_against_ranks),
    Figure(
        "efficiency",
        "parallel efficiency against {unit}",
        "Parallel efficiency: busbw divided by the busbw of the same series and size on the fewest ranks measured on "
        f"the same machine. {BEST}",
        efficiency_against_ranks,
    ),
    Figure(
        "wire",
        "bytes on the wire against size",
        "What the ports of a node sent for one operation, in units of S; dashed: what we count for the schedule, "
        f"without headers. {HEADER_MODEL}",
        sent_against_size,
    ),
    Figure(
        "rails",
        "bytes of each port at the largest size",
        "What a node sent for one operation, in units of S, by the port that it left through, the mean over the nodes "
        "of workers. A library that uses several rails spreads the bytes over them.",
        bytes_of_ports,
    ),
)
"""Every chart of the report, in its order."""
