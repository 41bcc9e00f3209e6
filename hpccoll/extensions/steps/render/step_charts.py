"""Charts of training steps: the timeline of one step, shares of communication, and times against buckets.

The timeline has ranks against time, with computations, collectives, and when nothing is computed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import altair as alt
import numpy as np
from numpy.typing import NDArray

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.speedups import evenly_spaced
from hpccoll.common.units import format_rounded_size, format_seconds, format_size
from hpccoll.extensions.steps.analysis.step_comparison import (
    COMPRESSION,
    bucket_of,
    compare_steps,
    workload_namer,
)
from hpccoll.extensions.steps.render.step_answers import exposed_parts, exposed_words
from hpccoll.extensions.steps.results.step_times import CODEC, StepTimes, step_of
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord
from hpccoll.render.chart_layout import AXIS_ROOM, WIDTH, text_from
from hpccoll.render.chart_panels import chart_record, counts_of, group_curves
from hpccoll.render.colours import BLACK, PALETTE, PAPER, WHITE
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Interval, Row

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

COLOURS = {
    "shard": PALETTE[4],
    "forward": "#7fb2dc",
    "backward": PALETTE[0],
    "update": PALETTE[8],
    "collective": PALETTE[1],
    "codec": PALETTE[2],
    "exposed": PALETTE[6],
}
TEXT_COLOURS = {"forward": BLACK, "backward": WHITE, "shard": WHITE, "update": WHITE}
"""Colours of a text on a computation, with contrast to it."""


def share_against_ranks(group: ChartGroup) -> Chart | None:
    """Return the share of exposed and of all communication in the step; None for one number of ranks only."""
    name = workload_namer([point.row for point in group.drawn])
    workloads: dict[tuple[str, ...], list[SeriesPoint]] = {}
    for point in sorted(group.drawn, key=lambda point: (_is_late(point), bucket_of(point.row))):
        if not point.row.floor:
            workloads.setdefault(name(point.row), []).append(point)
    several = [points for points in workloads.values() if _has_several_counts(group, points)]
    data = []
    for points in several[:MAX_WORKLOADS]:
        for point in points:
            for part in (exposed_parts(points[0].row), ALL):
                share, ends = _share(point, part)
                if share is not None:
                    panel = ", ".join((part, *name(point.row)))
                    data.append(chart_record(group, point, share, ends) | {"panel": panel})
    if not data:
        return None
    titles = chart_base.distinct(data, "panel")
    return group_curves(
        group, data, counts_of(group), chart_base.share_axis("share of the step (%)"), titles, 2
    )


def _has_several_counts(group: ChartGroup, points: Iterable[SeriesPoint]) -> bool:
    return len({group.axis_value(point.row) for point in points}) > 1


def _share(point: SeriesPoint, part: str) -> tuple[float | None, Interval]:
    """Return the share of communication in the step, with its interval; None if it is unknown."""
    row, step = point.row, median_seconds(point)
    if part == ALL:
        share = None
        if row.communication_s is not None:
            share = row.communication_s / step
        return share, None
    if row.exposed_s is None:
        return None, None
    share = max(0.0, row.exposed_s) / step
    low = row.exposed_low_s
    high = row.exposed_high_s
    if low is None or high is None:
        return share, None
    return share, (max(0.0, low / step), min(1.0, high / step))


def time_against_bucket(group: ChartGroup) -> Chart | None:
    """Return the time of the step against the limit of buckets; None if no workload has several limits."""
    panels = _bucket_panels(group)
    limits = sorted({bucket_of(point.row) for points in panels.values() for point in points})
    data = []
    scales = set()
    for title, points in panels.items():
        for point in points:
            record = chart_record(group, point, median_seconds(point), point.row.interval)
            data.append(record | {"panel": title, "bucket": limits.index(bucket_of(point.row))})
            scales.add(int(call_arguments(point.row)["scale"]))
    if not data:
        return None
    divisors = ", ".join(str(scale) for scale in sorted(scales) if scale != 1)
    scaled = ""
    if divisors:
        scaled = f", of the full model: here divided by {divisors}"
    labels = json.dumps([format_size(limit) if limit else "default" for limit in limits])
    axis = alt.Axis(labelExpr=f"{labels}[datum.value]", labelAngle=0)
    x = alt.X("bucket:O", title=f"limit of a bucket{scaled}", axis=axis)
    return group_curves(group, data, x, chart_base.step_axis, list(panels), min(2, len(panels)))


def _bucket_panels(group: ChartGroup) -> dict[str, list[SeriesPoint]]:
    """Return the points of each panel by its title: a workload on some ranks that was measured with several limits."""
    points = sorted(
        group.usable, key=lambda p: (p.row.oversubscribed, _is_late(p), -p.row.nodes, -p.row.ranks)
    )
    rows = [point.row for point in points]
    name = workload_namer(rows, ("bucket",))
    name_without_compression = workload_namer(rows, ("bucket", *COMPRESSION))

    def title(point: SeriesPoint, words: Callable[[Row], tuple[str, ...]]) -> str:
        return ", ".join((group.shape_label(point.row), *words(point.row)))

    floors: dict[str, list[SeriesPoint]] = {}
    workloads: dict[str, list[SeriesPoint]] = {}
    for point in points:
        if point.row.floor:
            floors.setdefault(title(point, name_without_compression), []).append(point)
        else:
            workloads.setdefault(title(point, name), []).append(point)
    panels: dict[str, list[SeriesPoint]] = {}
    for panel, members in workloads.items():
        # the same for every compression
        floors_of_panel = floors.get(title(members[0], name_without_compression), [])
        drawn = members + floors_of_panel
        if len({bucket_of(point.row) for point in drawn}) > 1 and len(panels) < MAX_BUCKET_PANELS:
            panels[panel] = drawn
    return panels


def _is_late(point: SeriesPoint) -> bool:
    """Return whether gradients are exchanged after the backward pass."""
    return not call_arguments(point.row)["overlap"]


def step_timeline_chart(group: ChartGroup) -> Chart | None:
    """Return the steps of the foremost workload by up to three algorithms, which share the time axis."""
    points = _drawn_points(group)
    if not points:
        return None
    steps = list(filter(None, (step_of(point.timeline) for point in points)))
    ranks = _shown_ranks(steps)
    titles = [_title(group, point) for point in points]
    longest = max(float(np.nanmax(step.step_s)) for step in steps)
    data: list[ChartRecord] = []
    for point, title in zip(points, titles, strict=True):
        data += _records(point, title, ranks, longest)
    base = _timeline_base([points[0].rank_label(rank) for rank in ranks], longest)
    colour = _part_colour(data, has_pipeline=any(len(step.programs) > 1 for step in steps))
    fields = chart_base.tooltip(
        "rank", "what", "size", "collective", "ready", "from", "until", "takes"
    )
    edge = 0.15 if len(data) > MAX_MARKS // 4 else 0.8
    exposed = base.transform_filter("datum.part === 'exposed'").mark_rect(opacity=0.5)
    queued = base.transform_filter("datum.part === 'queued'").mark_rect(
        color=COLOURS["collective"], opacity=0.35
    )
    visible = base.transform_filter("datum.part !== 'exposed' && datum.part !== 'queued'")
    parts = visible.mark_rect(stroke=PAPER, strokeWidth=edge)
    chart = alt.layer(
        exposed.encode(color=colour, tooltip=fields),
        parts.encode(color=colour, tooltip=fields),
        queued,
        _part_labels(base),
    )
    height = ROW_HEIGHTS[len(ranks) > 4] * len(ranks)
    chart = chart.properties(width=WIDTH, height=height, usermeta=text_from(WIDTH - AXIS_ROOM))
    return chart_base.facet_chart(chart, data, titles, 1)


def _timeline_base(rank_labels: Sequence[str], longest: float) -> alt.Chart:
    """Return a chart with the axes of a timeline: time from 0 to ``longest`` seconds, and a row for each rank."""
    time_labels = alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL, tickCount=8)
    times = alt.Scale(domain=[0, longest], nice=False)
    x = alt.X("begin:Q", title="time since the start of the step", scale=times, axis=time_labels)
    labels = f"{json.dumps(rank_labels)}[floor(datum.value)]"
    middles = [number + 0.5 for number in range(len(rank_labels))]
    rank_axis = alt.Axis(labelExpr=labels, values=middles, grid=False, ticks=False, domain=False)
    rows = alt.Scale(domain=[len(rank_labels), 0], nice=False)
    y = alt.Y("top:Q", title="rank", scale=rows, axis=rank_axis)
    base: alt.Chart = alt.Chart().encode(x=x, x2=alt.X2("end:Q"), y=y, y2=alt.Y2("bottom:Q"))
    return base


def _part_colour(data: Sequence[ChartRecord], *, has_pipeline: bool) -> alt.Color:
    """Return the colours of the parts of a step; a stage of a pipeline also waits for others in its bubble."""
    label = "datum.label"
    if has_pipeline:
        label = "datum.label === 'exposed' ? 'exposed or bubble' : datum.label"
    scale = chart_base.scale_of(chart_base.present(COLOURS, data, "part"))
    return alt.Color("part:N", scale=scale, legend=alt.Legend(symbolType="square", labelExpr=label))


def _part_labels(base: alt.Chart) -> alt.Chart:
    """Return the texts in the middle of the parts that have room for them."""
    texts = base.transform_filter("datum.label !== ''").mark_text(fontSize=10)
    colour = alt.Color("text_colour:N", scale=None)
    x, y = alt.X("middle:Q"), alt.Y("centre:Q")
    labels: alt.Chart = texts.encode(
        x=x, x2=alt.X2Value(0), y=y, y2=alt.Y2Value(0), text=alt.Text("label:N"), color=colour
    )
    return labels


def _drawn_points(group: ChartGroup) -> list[SeriesPoint]:
    by_row = {id(point.row): point for point in group.usable if step_of(point.timeline)}
    compared = compare_steps((point.row for point in by_row.values()), group.machine_of_run)
    if not compared:
        return []
    fastest = compared[0].rows[:MAX_STEPS]
    native = next((row for row in compared[0].rows if row.algorithm == NATIVE), None)
    if native and native not in fastest:
        fastest = (*fastest[:-1], native)
    return [by_row[id(row)] for row in fastest]


def _shown_ranks(steps: Sequence[StepTimes]) -> list[int]:
    """Return the ranks that are drawn: all if they have room, else the first, the last, the slowest, and some more."""
    ranks = sorted(set.intersection(*(set(step.ranks.tolist()) for step in steps)))
    operations = 0
    for step in steps:
        operations += max(len(program.operations) for program in step.programs)
    room = max(2, min(MAX_RANKS, MAX_MARKS // max(1, operations)))
    if len(ranks) <= room:
        return ranks
    slowest = [int(step.ranks[step.step_s[0].argmax()]) for step in steps]
    foremost = dict.fromkeys([ranks[0], ranks[-1], *(rank for rank in slowest if rank in ranks)])
    shown = list(foremost)[:room]
    left = room - len(shown)
    if left > 1:
        hidden = [rank for rank in ranks if rank not in shown]
        shown += evenly_spaced(hidden, left)
    return sorted(shown)


def _title(group: ChartGroup, point: SeriesPoint) -> str:
    row = point.row
    name = workload_namer([member.row for member in group.usable])
    where = ", ".join((group.shape_label(row), *name(row)))
    return f"{point.series} on {where}: {format_seconds(row.median_s or 0.0)}{exposed_words(row)}"


def _records(
    point: SeriesPoint, panel: str, ranks: Sequence[int], longest: float
) -> Iterator[ChartRecord]:
    """Yield the rectangles of a step in a picture of ``longest`` seconds."""
    step = step_of(point.timeline)
    assert step  # noqa: S101 - see _drawn_points
    lanes = max(_lane_count(step, position) for position in range(len(step.ranks)))
    for row, rank in enumerate(ranks):
        position = int(np.flatnonzero(step.ranks == rank)[0])
        place: ChartRecord = {"panel": panel, "rank": point.rank_label(rank)}
        for record in _computed(step, position, row, longest):
            yield place | record
        for record in _communicated(step, position, row, lanes, longest):
            yield place | record


def _lane_count(step: StepTimes, position: int) -> int:
    lanes = _lanes(step.operations(position)[0])
    return len(set(lanes))


def _computed(step: StepTimes, position: int, row: int, longest: float) -> Iterator[ChartRecord]:
    """Yield the passes of a rank, and the pauses between them in which nothing is computed."""
    length = float(step.step_s[0, position])
    pause = LEAST_PAUSE * length
    computations = step.computations(position)[0]
    operations = step.operations(position)[0][:, ::2]
    begins, ends = np.concatenate([computations, operations]).T
    first = float(begins.min(initial=length))
    last = float(ends.max(initial=0.0))
    passes = [("shard", 0.0, first)] if step.learned else []
    for phase, (begin, end) in zip(
        step.program(position).phases, computations.tolist(), strict=True
    ):
        if passes and passes[-1][0] == phase and begin - passes[-1][2] < pause:
            passes[-1] = phase, passes[-1][1], end
        else:
            passes.append((phase, begin, end))
    passes.append(("update" if step.learned else "", last, length))
    top, bottom = (row + part for part in COMPUTE_LANE)
    # what precedes all computations and operations is not communication, nor is what follows them
    done = first
    for part, begin, end in passes:
        if begin - done > pause:
            yield _record("exposed", "nothing is computed", done, begin, row + 0.03, row + 0.97)
        if part:
            label = _label(part, begin, end, longest, TEXT_COLOURS[part])
            yield _record(part, part, begin, end, top, bottom) | label
        done = max(done, end)


def _communicated(
    step: StepTimes, position: int, row: int, lanes: int, longest: float
) -> Iterator[ChartRecord]:
    """Yield the collectives of a rank, and the codecs between them.

    A thin line leads from when one is ready to when it begins; the receipt of a message is such a
    line only.
    """
    pause = LEAST_PAUSE * float(step.step_s[0, position])
    times = step.operations(position)[0]
    operations = step.program(position).operations
    lanes_begin, lanes_end = COLLECTIVE_LANES
    height = (lanes_end - lanes_begin) / max(1, lanes)
    for operation, lane, (ready, begin, end) in zip(
        operations, _lanes(times), times.tolist(), strict=True
    ):
        top = row + lanes_begin + lane * height
        bottom = top + height * 0.94
        name = operation["label"]
        is_receipt = operation.get("receives")
        queued_until = end if is_receipt else begin
        if queued_until - ready > pause:
            yield _record("queued", name, ready, queued_until, bottom - height * 0.08, bottom)
        if is_receipt:
            continue
        collective = operation["collective"]
        size = format_rounded_size(operation["bytes"])
        part = "codec" if collective == CODEC else "collective"
        call: ChartRecord = {"size": size, "collective": collective, "ready": format_seconds(ready)}
        yield (
            _record(part, name, begin, end, top, bottom) | call | _label(size, begin, end, longest)
        )


def _record(
    part: str, label: str, begin: float, end: float, top: float, bottom: float
) -> ChartRecord:
    return {
        "part": part,
        "what": label,
        "begin": begin,
        "end": end,
        "top": top,
        "bottom": bottom,
        "label": "",
        "from": format_seconds(begin),
        "until": format_seconds(end),
        "takes": format_seconds(end - begin),
        "middle": (begin + end) / 2,
        "centre": (top + bottom) / 2,
    }


def _label(text: str, begin: float, end: float, longest: float, colour: str = WHITE) -> ChartRecord:
    """Return a text on a part of a step; empty if the part is too short for it."""
    has_room = (end - begin) / longest > LETTER_SHARE * len(text)
    return {"label": text if has_room else "", "text_colour": colour}


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
