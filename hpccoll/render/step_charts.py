"""Charts of training steps: the timeline of one step, shares of communication, and times against buckets.

The timeline has ranks against time, with computations, collectives, and when nothing is computed.
"""

import json
from collections.abc import Callable, Iterator, Sequence

import altair as alt
import numpy as np
from numpy.typing import NDArray

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.series_comparisons import evenly_spaced
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.step_comparison import COMPRESSION, bucket_of, compare_steps, workload_namer
from hpccoll.common.units import format_rounded_size, format_seconds, format_size
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord
from hpccoll.render.chart_layout import AXIS_ROOM, WIDTH, text_from
from hpccoll.render.chart_panels import chart_record, counts_of, group_curves
from hpccoll.render.colours import BLACK, PALETTE, PAPER, WHITE
from hpccoll.render.step_answers import exposed_parts, exposed_words
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Interval, Row
from hpccoll.store.step_times import CODEC, StepTimes

ALL = "all communication"

MAX_WORKLOADS = 3
"""Workloads whose shares are drawn below each other."""

MAX_BUCKET_PANELS = 6

MAX_STEPS = 3
"""Algorithms whose steps are drawn above each other."""

MAX_RANKS = 8
"""Ranks of a step that are drawn: the first, the last, the slowest ones, and some between them."""

MAX_MARKS = 2400
"""Collectives that are drawn; with more of them there are fewer ranks."""

ROW_HEIGHTS = 46, 38
"""Pixels of a rank if there are a few ranks, and more of them."""

LETTER_SHARE = 0.0105
"""The width of a letter of a label, as a share of the width of the picture."""

LEAST_PAUSE = 0.002
"""Pauses between computations that are marked, as a share of the step."""

COMPUTE_LANE, COLLECTIVE_LANES = (0.06, 0.37), (0.42, 0.94)
"""From where to where in its row the computations and the collectives of a rank are."""

COLOURS = {"shard": PALETTE[4], "forward": "#7fb2dc", "backward": PALETTE[0], "update": PALETTE[8],
           "collective": PALETTE[1], "codec": PALETTE[2], "exposed": PALETTE[6]}  # fmt: skip
TEXT_COLOURS = {"forward": BLACK, "backward": WHITE, "shard": WHITE, "update": WHITE}
"""Colours of a text on a computation, with contrast to it."""


def share_against_ranks(group: ChartGroup) -> Chart | None:
    """Return the share of exposed and of all communication in the step; None for one number of ranks only."""
    name = workload_namer([point.row for point in group.drawn])
    workloads: dict[tuple[str, ...], list[SeriesPoint]] = {}
    for point in sorted(group.drawn, key=lambda point: (_is_late(point), bucket_of(point.row))):
        if not point.row.floor:
            workloads.setdefault(name(point.row), []).append(point)
    several = [each for each in workloads.values() if len({group.axis_value(point.row) for point in each}) > 1]
    data = [
        chart_record(group, point, share, ends) | {"panel": ", ".join((part, *name(point.row)))}
        for points in several[:MAX_WORKLOADS]
        for point in points
        for part in (exposed_parts(points[0].row), ALL)
        for share, ends in [_share(point, part)]
        if share is not None
    ]
    if not data:
        return None
    titles = chart_base.distinct(data, "panel")
    return group_curves(group, data, counts_of(group), chart_base.share_axis("share of the step (%)"), titles, 2)


def _share(point: SeriesPoint, part: str) -> tuple[float | None, Interval]:
    row, step = point.row, median_seconds(point)
    if part == ALL:
        return (None if row.communication_s is None else row.communication_s / step), None
    low, high = row.exposed_low_s, row.exposed_high_s
    ends = None if low is None or high is None else (max(0.0, low / step), min(1.0, high / step))
    return (None if row.exposed_s is None else max(0.0, row.exposed_s) / step), ends


def time_against_bucket(group: ChartGroup) -> Chart | None:
    """Return the time of the step against the limit of buckets; None if no workload has several limits."""
    points = sorted(group.usable, key=lambda p: (p.row.oversubscribed, _is_late(p), -p.row.nodes, -p.row.ranks))
    name, bare = (workload_namer([point.row for point in points], ("bucket", *keys)) for keys in ((), COMPRESSION))
    panels: dict[str, list[SeriesPoint]] = {}

    def panel(point: SeriesPoint, words: Callable[[Row], tuple[str, ...]]) -> str:
        return ", ".join((group.shape_label(point.row), *words(point.row)))

    for point in points:
        if not point.row.floor:
            panels.setdefault(panel(point, name), []).append(point)
    for members in panels.values():  # null is the same for every compression
        members += [p for p in points if p.row.floor and panel(p, bare) == panel(members[0], bare)]
    several = [title for title, members in panels.items() if len({bucket_of(p.row) for p in members}) > 1]
    titles = several[:MAX_BUCKET_PANELS]
    limits = sorted({bucket_of(point.row) for title in titles for point in panels[title]})
    data = [
        chart_record(group, point, median_seconds(point), point.row.interval)
        | {"panel": title, "bucket": limits.index(bucket_of(point.row))}
        for title in titles
        for point in panels[title]
    ]
    if not data:
        return None
    scales = sorted({int(call_arguments(point.row)["scale"]) for title in titles for point in panels[title]} - {1})
    scaled = f", of the full model: here divided by {', '.join(map(str, scales))}" if scales else ""
    labels = f"{json.dumps([format_size(limit) if limit else 'default' for limit in limits])}[datum.value]"
    x = alt.X("bucket:O", title=f"limit of a bucket{scaled}", axis=alt.Axis(labelExpr=labels, labelAngle=0))
    return group_curves(group, data, x, chart_base.step_axis, titles, min(2, len(titles)))


def _is_late(point: SeriesPoint) -> bool:
    """Return whether gradients are exchanged after the backward pass."""
    return not call_arguments(point.row)["overlap"]


def step_timeline_chart(group: ChartGroup) -> Chart | None:
    """Return the steps of the foremost workload by up to three algorithms, which share the time axis."""
    points = _drawn_points(group)
    if not points:
        return None
    steps = [point.step for point in points if point.step]
    ranks = _shown_ranks(steps)
    titles = [_title(group, point) for point in points]
    longest = max(float(np.nanmax(step.step_s)) for step in steps)
    data = [d for point, title in zip(points, titles, strict=True) for d in _records(point, title, ranks, longest)]
    named = f"{json.dumps([points[0].rank_label(rank) for rank in ranks])}[floor(datum.value)]"
    rows = alt.Axis(labelExpr=named, values=[i + 0.5 for i in range(len(ranks))], grid=False, ticks=False, domain=False)
    base = alt.Chart().encode(
        x=alt.X("begin:Q", title="time since the start of the step", scale=alt.Scale(domain=[0, longest], nice=False),
                axis=alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL, tickCount=8)),
        x2=alt.X2("end:Q"),
        y=alt.Y("top:Q", title="rank", scale=alt.Scale(domain=[len(ranks), 0], nice=False), axis=rows),
        y2=alt.Y2("bottom:Q"),
    )  # fmt: skip
    pipeline = any(len(step.programs) > 1 for step in steps)
    legend = "datum.label === 'exposed' ? 'exposed or bubble' : datum.label" if pipeline else "datum.label"
    scale = chart_base.scale_of(chart_base.present(COLOURS, data, "part"))
    colour = alt.Color("part:N", scale=scale, legend=alt.Legend(symbolType="square", labelExpr=legend))
    shown = chart_base.tooltip("rank", "what", "size", "collective", "ready", "from", "until", "takes")
    crowded = len(data) > MAX_MARKS // 4
    marked = base.transform_filter("datum.part === 'exposed'").mark_rect(opacity=0.5)
    queued = base.transform_filter("datum.part === 'queued'").mark_rect(color=COLOURS["collective"], opacity=0.35)
    parts = base.transform_filter("datum.part !== 'exposed' && datum.part !== 'queued'").mark_rect(
        stroke=PAPER, strokeWidth=0.15 if crowded else 0.8
    )
    labels = base.transform_filter("datum.label !== ''").mark_text(fontSize=10)
    text = labels.encode(
        x=alt.X("middle:Q"), x2=alt.X2Value(0), y=alt.Y("centre:Q"), y2=alt.Y2Value(0), text=alt.Text("label:N"),
        color=alt.Color("text_colour:N", scale=None),
    )  # fmt: skip
    seen = (each.encode(color=colour, tooltip=shown) for each in (marked, parts))
    chart = alt.layer(*seen, queued, text).properties(
        width=WIDTH,
        height=ROW_HEIGHTS[len(ranks) > 4] * len(ranks),
        usermeta=text_from(WIDTH - AXIS_ROOM),
    )
    return chart_base.facet_chart(chart, data, titles, 1)


def _drawn_points(group: ChartGroup) -> list[SeriesPoint]:
    by_row = {id(point.row): point for point in group.usable if point.step}
    compared = compare_steps((point.row for point in by_row.values()), group.machine_of_run)
    if not compared:
        return []
    fastest = compared[0].rows[:MAX_STEPS]
    native = next((row for row in compared[0].rows if row.algorithm == NATIVE), None)
    if native and native not in fastest:
        fastest = (*fastest[:-1], native)
    return [by_row[id(row)] for row in fastest]


def _shown_ranks(steps: Sequence[StepTimes]) -> list[int]:
    ranks = sorted(set.intersection(*(set(step.ranks.tolist()) for step in steps)))
    operations = sum(max(len(program.operations) for program in step.programs) for step in steps)
    room = max(2, min(MAX_RANKS, MAX_MARKS // max(1, operations)))
    if len(ranks) <= room:
        return ranks
    slowest = [int(step.ranks[step.step_s[0].argmax()]) for step in steps]
    named = list(dict.fromkeys([ranks[0], ranks[-1], *(rank for rank in slowest if rank in ranks)]))[:room]
    others = [rank for rank in ranks if rank not in named]
    return sorted([*named, *(evenly_spaced(others, room - len(named)) if room - len(named) > 1 else [])])


def _title(group: ChartGroup, point: SeriesPoint) -> str:
    row = point.row
    workload = workload_namer([other.row for other in group.usable])(row)
    where = f"{point.series} on {', '.join((group.shape_label(row), *workload))}"
    return f"{where}: {format_seconds(row.median_s or 0.0)}{exposed_words(row)}"


def _records(point: SeriesPoint, panel: str, ranks: Sequence[int], longest: float) -> Iterator[ChartRecord]:
    """Yield the rectangles of a step in a picture of ``longest`` seconds."""
    step = point.step
    assert step  # noqa: S101 - see _drawn_points
    lanes = max(len(set(_lanes(step.operations(position)[0]))) for position in range(len(step.ranks)))
    for row, rank in enumerate(ranks):
        position = int(np.flatnonzero(step.ranks == rank)[0])
        about = {"panel": panel, "rank": point.rank_label(rank)}
        yield from (about | d for d in _computed(step, position, row, longest))
        yield from (about | d for d in _communicated(step, position, row, lanes, longest))


def _computed(step: StepTimes, position: int, row: int, longest: float) -> Iterator[ChartRecord]:
    length, pause = float(step.step_s[0, position]), LEAST_PAUSE * float(step.step_s[0, position])
    computations = step.computations(position)[0]
    begins, ends = np.concatenate([computations, step.operations(position)[0][:, ::2]]).T
    first, last = float(begins.min(initial=length)), float(ends.max(initial=0.0))
    passes = [("shard", 0.0, first)] if step.learned else []
    for phase, (begin, end) in zip(step.program(position).phases, computations.tolist(), strict=True):
        if passes and passes[-1][0] == phase and begin - passes[-1][2] < pause:
            passes[-1] = phase, passes[-1][1], end
        else:
            passes.append((phase, begin, end))
    top, bottom = (row + part for part in COMPUTE_LANE)
    done = first  # what precedes all computations and operations is no communication, nor is what follows them
    for part, begin, end in [*passes, ("update" if step.learned else "", last, length)]:
        if begin - done > pause:
            yield _record("exposed", "nothing is computed", done, begin, row + 0.03, row + 0.97)
        if part:
            yield _record(part, part, begin, end, top, bottom) | _label(part, begin, end, longest, TEXT_COLOURS[part])
        done = max(done, end)


def _communicated(step: StepTimes, position: int, row: int, lanes: int, longest: float) -> Iterator[ChartRecord]:
    """Yield the collectives of a rank, and the codecs between them.

    A thin line leads from when one is ready to when it begins; the receipt of a message is such a line only.
    """
    length = float(step.step_s[0, position])
    operations = step.operations(position)[0]
    first, last = COLLECTIVE_LANES
    height = (last - first) / max(1, lanes)
    about = step.program(position).operations
    for each, lane, (ready, begin, end) in zip(about, _lanes(operations), operations.tolist(), strict=True):
        top = row + first + lane * height
        bottom, size = top + height * 0.94, format_rounded_size(each["bytes"])
        queued_until = end if each.get("receives") else begin
        if queued_until - ready > LEAST_PAUSE * length:
            yield _record("queued", each["label"], ready, queued_until, bottom - height * 0.08, bottom)
        if not each.get("receives"):
            more: ChartRecord = {"size": size, "collective": each["collective"], "ready": format_seconds(ready)}
            part = "codec" if each["collective"] == CODEC else "collective"
            yield _record(part, each["label"], begin, end, top, bottom) | more | _label(size, begin, end, longest)


def _record(part: str, what: str, begin: float, end: float, top: float, bottom: float) -> ChartRecord:
    return {
        "part": part, "what": what, "begin": begin, "end": end, "top": top, "bottom": bottom, "label": "",
        "from": format_seconds(begin), "until": format_seconds(end), "takes": format_seconds(end - begin),
        "middle": (begin + end) / 2, "centre": (top + bottom) / 2,
    }  # fmt: skip


def _label(text: str, begin: float, end: float, longest: float, colour: str = WHITE) -> ChartRecord:
    return {"label": text if (end - begin) / longest > LETTER_SHARE * len(text) else "", "text_colour": colour}


def _lanes(operations: NDArray[np.float64]) -> list[int]:
    """Return a lane for each operation, so that none of a lane run at the same time."""
    free: list[float] = []
    lanes = [0] * len(operations)
    for number in np.argsort(operations[:, 1], kind="stable").tolist():
        _, begin, end = operations[number]
        lane = next((i for i, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        lanes[number] = lane
    return lanes
