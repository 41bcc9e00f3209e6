"""The charts: each a function of a group of rows, and a row in the table at the end."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import altair as alt

from hpccoll.report import axes
from hpccoll.report.compare import Contest, best_placements, contests, efficiencies, interval, seconds, spread
from hpccoll.report.groups import INK, Group, Point, counted
from hpccoll.units import format_seconds, format_size

Datum: TypeAlias = dict[str, object]
Axis: TypeAlias = Callable[[Iterable[float]], alt.Y]
Chart: TypeAlias = alt.FacetChart | alt.LayerChart

SIZES_SHOWN = 4
BEST = "Of every series the faster of the placements that were measured in the same run, in place and out of place."


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
        """Return the title for ``group`` and the lines below it."""
        return axes.heading(group, self.title, _marks(group))


def _crowded(group: Group) -> list[int]:
    return sorted({point.row.ranks for point in group.usable if point.row.oversubscribed})


def _marks(group: Group) -> tuple[str, ...]:
    crowded = _crowded(group)
    ranks = ", ".join(map(str, crowded))
    several = "each machine has its own marker and its own lines" if len(group.machines) > 1 else ""
    oversubscribed = f"hollow circles: oversubscribed, more ranks than cores ({ranks} ranks)" if crowded else ""
    return tuple(filter(None, (several, oversubscribed)))


def time_against_size(group: Group) -> Chart | None:
    points = group.usable
    return _by_ranks(group, [_datum(group, p, seconds(p), *interval(p)) for p in points], axes.time_axis)


def busbw_against_size(group: Group) -> Chart | None:
    points = [p for p in group.usable if p.row.busbw_Bps and not p.row.floor]
    # A rate is a constant over time: the slow end of the interval is the low end of the bandwidth.
    data = [
        _datum(group, p, bw, *(bw * seconds(p) / t for t in interval(p))) for p in points if (bw := p.row.busbw_Bps)
    ]
    return _by_ranks(group, data, axes.rate_axis)


def time_against_ranks(group: Group) -> Chart | None:
    points = best_placements(group.points)
    return _by_size(group, [_datum(group, p, seconds(p), *interval(p)) for p in points], axes.time_axis)


def efficiency_against_ranks(group: Group) -> Chart | None:
    data = [
        _datum(group, e.point, e.value) | {"base": counted(e.base.row.ranks, "rank")}
        for e in efficiencies(group.points)
    ]
    return _by_size(group, data, axes.percent_axis)


def fastest(group: Group) -> Chart | None:
    data = [_datum(group, c.winner, seconds(c.winner)) | _advantage(group, c) for c in contests(group.points)]
    if not data:
        return None
    sizes = sorted({c.nbytes for c in contests(group.points)}, reverse=True)
    ranks = alt.X("ranks:O", title="ranks", axis=alt.Axis(labelAngle=0, labelExpr=_hollow(group)))
    size = alt.Y("size:N", title=axes.SIZE, sort=[format_size(n) for n in sizes])
    base = alt.Chart().encode(x=ranks, y=size)
    colour = alt.Color(
        "series:N", scale=axes.series_scale(group, _all(data, "series")), legend=alt.Legend(symbolType="square")
    )
    cells = base.mark_rect(stroke=axes.PAPER, strokeWidth=2).encode(
        color=colour,
        opacity=alt.condition("datum.tie", alt.value(0.35), alt.value(1)),
        tooltip=_tooltip("size", "ranks", "series", "time", "interval", "place", "second", "machine"),
    )
    words = base.mark_text(fontSize=12, fontWeight=600).encode(text="lead:N", color=alt.Color("words:N", scale=None))
    chart = alt.layer(cells, words).properties(
        width=max(240, 90 * len(set(_all(data, "ranks")))), height=26 * len(sizes)
    )
    return (
        _facetted(chart, data, "machine", columns=1)
        if len(group.machines) > 1
        else chart.properties(data=_values(data))
    )


def _hollow(group: Group) -> str:
    return f"(indexof({_crowded(group)}, datum.value) < 0 ? '' : '\u25cb ') + datum.label"


def _advantage(group: Group, contest: Contest) -> Datum:
    """What the map says in a cell; its words keep their contrast where ink and paper change places in the dark."""
    if contest.lead is None:
        return {"lead": "alone", "second": "none", "tie": True, "words": INK}
    second = contest.entries[1]
    on_ink = group.colours[contest.winner.series] == INK
    return {
        "lead": f"{contest.lead:.2f}x" if contest.leader else "tie",
        "second": f"{second.series}, {format_seconds(seconds(second))} ({contest.lead:.2f}x)",
        "tie": contest.leader is None,
        "words": INK if contest.leader is None else axes.PAPER if on_ink else axes.WHITE,
    }


def _datum(group: Group, point: Point, value: float, low: float | None = None, high: float | None = None) -> Datum:
    row = point.row
    return {
        "series": point.series,
        "bytes": row.bytes,
        "size": format_size(row.requested_bytes),
        "requested": row.requested_bytes,
        "ranks": row.ranks,
        "nodes": row.nodes,
        "place": "in place" if row.in_place else "out of place",
        "machine": group.machine(point),
        "run": row.run_id,
        "fill": axes.PAPER if row.oversubscribed else group.colours[point.series],
        "floor": row.floor,
        "value": value,
        "low": low,
        "high": high,
        "time": format_seconds(seconds(point)),
        "interval": " to ".join(format_seconds(t) for t in interval(point)),
        "busbw": f"{row.busbw_Bps / 1e9:.3g} GB/s" if row.busbw_Bps else "none",
    }


def _by_ranks(group: Group, data: list[Datum], y: Axis) -> Chart | None:
    """Panels of ranks and placement; lines over sizes."""
    if not data:
        return None
    for datum in data:
        nodes = f" on {datum['nodes']} nodes" if datum["nodes"] != 1 else ""
        datum["panel"] = f"{counted(datum['ranks'], 'rank')}{nodes}, {datum['place']}"
    panels = dict.fromkeys(d["panel"] for d in sorted(data, key=lambda d: (d["place"] == "in place", d["ranks"])))
    columns = min(3, len(panels))
    return _curves(group, data, axes.size_axis(p.row.bytes for p in group.usable), y, list(panels), columns)


def _by_size(group: Group, data: list[Datum], y: Axis) -> Chart | None:
    """Panels of a few sizes; lines over ranks."""
    ranks = {p.row.ranks for p in group.usable}
    if len({d["ranks"] for d in data}) < 2:
        return None
    sizes = spread(sorted({p.row.requested_bytes for p in group.usable}), SIZES_SHOWN)
    shown = [datum | {"panel": datum["size"]} for datum in data if datum["requested"] in sizes]
    return _curves(group, shown, axes.rank_axis(ranks), y, [format_size(n) for n in sizes], min(4, len(sizes)))


def _curves(group: Group, data: list[Datum], x: alt.X, y: Axis, panels: Sequence[object], columns: int) -> Chart:
    data = _numbered(data, x.shorthand.split(":")[0])
    scale = axes.series_scale(group, _all(data, "series"))
    pick = alt.selection_point("pick", fields=["series"], bind="legend")
    faded = alt.condition(pick, alt.value(1), alt.value(0.12))
    base = alt.Chart().encode(x=x, y=y(_reach(data)), detail=["machine:N", "repeat:N"], opacity=faded)
    dash = alt.condition("datum.floor", alt.value([2, 2]), alt.value([1, 0]))
    line = base.mark_line(strokeJoin="round").encode(
        color=alt.Color("series:N", scale=scale, legend=alt.Legend(symbolType="circle")),
        strokeDash=dash,
        strokeWidth=alt.condition("datum.floor", alt.value(1), alt.value(2)),
    )
    band = base.mark_area(opacity=0.2).encode(
        y="low:Q", y2="high:Q", color="series:N", opacity=alt.condition(pick, alt.value(0.2), alt.value(0.03))
    )
    shape = alt.Shape("machine:N", legend=_GREY) if len(group.machines) > 1 else alt.Undefined
    marks = base.mark_point(size=34, strokeWidth=1.6).encode(
        color=alt.Color("series:N", scale=scale),
        fill=alt.Fill("fill:N", scale=None),  # a fill with a scale and no legend would take the colours' legend away
        shape=shape,
        tooltip=_tooltip("series", "size", "ranks", "place", "time", "interval", "busbw", "machine", "run"),
    )
    real = "!datum.floor"
    layers = alt.layer(band.transform_filter(real), line, marks.transform_filter(real).add_params(pick))
    return _facetted(layers.properties(width=780 // max(2, columns), height=200), data, "panel", columns, panels)


def _facetted(
    chart: alt.LayerChart, data: list[Datum], by: str, columns: int, panels: Sequence[object] | None = None
) -> Chart:
    facet = alt.Facet(f"{by}:N", title=None, sort=list(panels) if panels else alt.Undefined)
    return chart.facet(facet=facet, columns=columns, data=_values(data))


def _numbered(data: Iterable[Datum], x: str) -> list[Datum]:
    """Number repeated measurements of the same point, so that a line joins first with first, second with second."""
    seen: Counter[tuple[object, ...]] = Counter()
    numbered = []
    for datum in data:
        key = (datum["series"], datum["panel"], datum["machine"], datum[x])
        numbered.append(datum | {"repeat": seen[key]})
        seen[key] += 1
    return sorted(numbered, key=lambda datum: str(datum["series"]))


def _reach(data: Iterable[Datum]) -> list[float]:
    """What the vertical axis has to reach: values and the ends of their intervals."""
    return [number for d in data for key in ("value", "low", "high") if isinstance(number := d[key], float)]


def _values(data: list[Datum]) -> alt.InlineData:
    return alt.InlineData(values=data)


def _all(data: Iterable[Datum], field: str) -> list[str]:
    return [str(datum[field]) for datum in data]


def _tooltip(*fields: str) -> list[alt.Tooltip]:
    titles = {"interval": "95 % interval", "place": "buffers", "second": "runner-up"}
    return [alt.Tooltip(f"{field}:N", title=titles.get(field, field)) for field in fields]


_GREY = alt.Legend(symbolFillColor=axes.MUTED, symbolStrokeColor=axes.MUTED)

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
        "In the cell, how many times as long the runner-up takes; tie (pale): the 95 % intervals of the two touch; alone: no other series. "
        f"{BEST}",
        fastest,
    ),
)
"""Every chart of the report, in its order."""
