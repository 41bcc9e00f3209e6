"""The charts: each a function of a group of rows, and a row in the table at the end."""

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt

from hpccoll.report import axes
from hpccoll.report.compare import Contest, best_placements, contests, efficiencies, interval, seconds
from hpccoll.report.groups import INK, Group
from hpccoll.report.panels import Chart, Datum, by_ranks, by_size, column, datum, facetted, inline, tooltip
from hpccoll.units import format_seconds, format_size


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of the report.

    Args:
        name: fit for a file name.
        title: what it shows.
        caption: how to read it, with the definition of what is not measured directly.
        draw: the chart of a group, or None where the group has nothing to draw.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Group], Chart | None]

    def specification(self, group: Group) -> dict[str, object] | None:
        """Return the Vega-Lite specification for ``group``, or None where there is nothing to draw."""
        chart = self.draw(group)
        return axes.themed(chart, *self.heading(group)) if chart else None

    def heading(self, group: Group) -> tuple[str, tuple[str, ...]]:
        """Return the title for ``group`` and the lines below it: what was measured where, what the marks mean."""
        machines = group.machines
        where = machines if len(machines) == 1 else [f"machine {i}: {name}" for i, name in enumerate(machines, 1)]
        several = "machines are never joined: each has its own marks and lines" if len(machines) > 1 else ""
        crowded = ", ".join(map(str, _crowded(group)))
        hollow = f"hollow marks: oversubscribed, more ranks than cores ({crowded} ranks)" if crowded else ""
        lines = (*(f"{group.kind} on {name}" for name in where), group.setting, several, hollow)
        return f"{group.collective}: {self.title}", tuple(filter(None, lines))


def _crowded(group: Group) -> list[int]:
    return sorted({point.row.ranks for point in group.usable if point.row.oversubscribed})


def time_against_size(group: Group) -> Chart | None:
    return by_ranks(group, [datum(group, p, seconds(p), *interval(p)) for p in group.usable], axes.time_axis)


def busbw_against_size(group: Group) -> Chart | None:
    # A rate is bytes over time: the slow end of the interval is the low end of the bandwidth.
    data = [
        datum(group, p, busbw, *(busbw * seconds(p) / t for t in reversed(interval(p))))
        for p in group.usable
        if not p.row.floor and (busbw := p.row.busbw_Bps)
    ]
    return by_ranks(group, data, axes.rate_axis)


def time_against_ranks(group: Group) -> Chart | None:
    data = [datum(group, p, seconds(p), *interval(p)) for p in best_placements(group.points)]
    return by_size(group, data, axes.time_axis)


def efficiency_against_ranks(group: Group) -> Chart | None:
    return by_size(group, [datum(group, e.point, e.value) for e in efficiencies(group.points)], axes.percent_axis)


def fastest(group: Group) -> Chart | None:
    found = contests(group.points)
    if not found:
        return None
    data = [datum(group, c.winner, seconds(c.winner)) | _advantage(group, c) for c in found]
    sizes = [format_size(nbytes) for nbytes in sorted({c.nbytes for c in found}, reverse=True)]
    hollow = f"(indexof({_crowded(group)}, datum.value) < 0 ? '' : '\u25cb ') + datum.label"
    base = alt.Chart().encode(
        x=alt.X("ranks:O", title="ranks", axis=alt.Axis(labelAngle=0, labelExpr=hollow)),
        y=alt.Y("size:N", title=axes.SIZE, sort=sizes),
    )
    cells = base.mark_rect(stroke=axes.PAPER, strokeWidth=2).encode(
        color=axes.series_colour(group, column(data, "series"), symbol="square"),
        opacity=alt.condition("datum.clear", alt.value(1), alt.value(0.35)),
        tooltip=tooltip("size", "ranks", "series", "time", "interval", "place", "second", "machine"),
    )
    words = base.mark_text(fontSize=12, fontWeight=600).encode(text="lead:N", color=alt.Color("words:N", scale=None))
    width = max(240, 90 * len({c.ranks for c in found}))
    chart = alt.layer(cells, words).properties(width=width, height=26 * len(sizes))
    machines = sorted(set(column(data, "machine")))
    return facetted(chart, data, "machine", 1, machines) if len(machines) > 1 else chart.properties(data=inline(data))


def _advantage(group: Group, contest: Contest) -> Datum:
    """What the map says in a cell; its words keep their contrast where ink and paper change places in the dark."""
    if contest.lead is None:
        return {"lead": "alone", "second": "none", "clear": False, "words": INK}
    second = contest.entries[1]
    on_ink = group.colours[contest.winner.series] == INK
    return {
        "lead": f"{contest.lead:.2f}x" if contest.leader else "tie",
        "second": f"{second.series}, {format_seconds(seconds(second))}, {contest.lead:.2f} times as long",
        "clear": bool(contest.leader),
        "words": INK if not contest.leader else axes.PAPER if on_ink else axes.WHITE,
    }


BEST = "Of every series the faster of the placements that were measured in the same run, in place and out of place."
FIGURES = (
    Figure(
        "time",
        "time against size",
        "Median over the timed iterations; the band is the 95 % confidence interval of the median. Both axes are "
        "logarithmic. The thin dotted grey line, where there is one, is the floor: what an empty schedule costs.",
        time_against_size,
    ),
    Figure(
        "busbw",
        "bus bandwidth against size",
        "busbw = algbw times the factor of the collective, comparable with nccl-tests; GB/s are 1e9 bytes per second. "
        "The band is the 95 % confidence interval. Both axes are logarithmic.",
        busbw_against_size,
    ),
    Figure("scaling", "time against ranks", f"Median time at a few of the sizes. {BEST}", time_against_ranks),
    Figure(
        "efficiency",
        "parallel efficiency against ranks",
        "Parallel efficiency: busbw divided by the busbw of the same series and size on the fewest ranks measured on "
        f"the same machine. {BEST}",
        efficiency_against_ranks,
    ),
    Figure(
        "fastest",
        "fastest series by ranks and size",
        "In the cell, how many times as long the runner-up takes; tie (pale): the 95 % intervals of the two touch; "
        f"alone (pale): nothing to compare with in that run. {BEST}",
        fastest,
    ),
)
"""Every chart of the report, in its order."""
