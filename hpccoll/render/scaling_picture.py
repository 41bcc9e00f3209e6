"""A picture for a slide: how a collective scales at one size, in one panel."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup, chart_groups
from hpccoll.analysis.recommendations import Recommendation
from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.series_points import SeriesPoint, busbw_interval, median_seconds
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.render import chart_base, chart_panels
from hpccoll.render.answer_charts import MOST_ABOVE_CURVES, answered_group, busbw_chart
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import Chart, write_picture
from hpccoll.render.chart_layout import AXIS_ROOM, WIDTH, fitted
from hpccoll.render.figure import Figure
from hpccoll.store.rows import Results

EFFICIENCY = "Per cent: of busbw on the fewest {unit}."
INTERVALS = "Areas: 95 % intervals."

USUAL = "mapping block", "single timing", "rule max"
"""The parts of a setting that a picture leaves out, because hpccoll measures so by default."""

HEIGHT = 300
"""The pixels of the panel: a slide is higher than a chart among others on a page."""


@dataclass(frozen=True, slots=True)
class ScalingPicture:
    """A picture of one collective."""

    paths: tuple[Path, ...]
    note: str  # what it does not show, and where ranks shared cores; empty if nothing


def write_scaling_pictures(
    results: Results, recommendations: Sequence[Recommendation], directory: Path, size: int
) -> list[ScalingPicture]:
    """Write a picture of each collective that was measured at a size on several numbers of nodes or ranks.

    Raises:
        BadInputError: if no collective was, naming the sizes that have one, or what was measured.
        OSError: if a file cannot be written.
    """
    answers = Answers(recommendations)
    groups = tuple(map(_with_imports, chart_groups(results, recommendations)))
    pictures = []
    valid: set[int] = set()
    for collective in dict.fromkeys(group.collective for group in groups):
        fitting = _group_of_collective(groups, answers, collective)
        whole = fitting.whole or fitting
        valid |= _sizes_of_curves(whole)
        for group in (fitting, whole):
            if size in _sizes_of_curves(group):
                pictures.append(_write(group, size, directory))
                break
    if pictures:
        return pictures
    if valid:
        sizes = join_words(map(format_size, sorted(valid)), "or")
        raise BadInputError("--size", format_size(size), sizes)
    raise UnusableError("--size", _why_nothing_scales(groups))


def _with_imports(group: ChartGroup) -> ChartGroup:
    """Return a group with the results of other programs as its points if nothing else was measured.

    Launches on hosts in common are of one machine, so that a curve joins them.
    """
    if group.points:
        return group
    points = [
        replace(point, machine=point.machine_name or point.machine) for point in group.imports
    ]
    return replace(group, points=tuple(points), imports=())


def _why_nothing_scales(groups: Sequence[ChartGroup]) -> str:
    """Return which numbers of nodes or ranks were measured if no picture has several, and what is needed."""
    counts_of_unit: dict[str, set[int]] = defaultdict(set)
    for group in groups:
        for point in group.usable:
            counts_of_unit[group.unit].add(group.axis_value(point.row))
    if not counts_of_unit:
        return "nothing was measured or imported that a picture can show"
    if any(len(counts) > 1 for counts in counts_of_unit.values()):
        return "no collective was measured at one size on several numbers of nodes or ranks"
    places: list[str] = []
    for unit, counts in counts_of_unit.items():
        places += [format_count(count, unit.removesuffix("s")) for count in counts]
    needed = "a picture of how a collective scales needs several numbers of nodes or ranks"
    return f"only {join_words(places)} were measured, and {needed}"


def _group_of_collective(
    groups: Sequence[ChartGroup], answers: Answers, collective: str
) -> ChartGroup:
    """Return the group of the answers of a collective, or without answers its first one: its part with own cores."""
    answered = answered_group(groups, answers, collective)
    if answered:
        return answered
    return next(group for group in groups if group.collective == collective).fitting


def _sizes_of_curves(group: ChartGroup) -> set[int]:
    """Return the sizes that were measured on several numbers of nodes or ranks."""
    if group.pairs:
        return set()
    counts = _counts_by_size(group)
    sizes = set()
    for size, at in counts.items():
        if len(at) > 1:
            sizes.add(size)
    return sizes


def _counts_by_size(group: ChartGroup) -> dict[int, set[int]]:
    """Return the numbers of nodes or ranks of each size: those with a bus bandwidth, if the collective has one."""
    has_busbw = any(point.row.busbw_Bps for point in group.usable)
    counts: dict[int, set[int]] = defaultdict(set)
    for point in group.best_placements:
        if point.row.busbw_Bps or not has_busbw:
            counts[point.row.requested_bytes].add(group.axis_value(point.row))
    return counts


def _write(group: ChartGroup, size: int, directory: Path) -> ScalingPicture:
    has_busbw = any(point.row.busbw_Bps for point in group.usable)
    quantity, draw, legend = _WITH_TIME
    if has_busbw:
        quantity, draw, legend = _WITH_BUSBW
    where = ""
    stem = f"{group.collective}-scaling"
    if group.has_size:
        where = f" at {format_size(size)}"
        stem += f"-{format_size(size).replace(' ', '')}"
    heading = f"{quantity} against {group.unit}{where}"
    figure = Figure("scaling", heading, partial(draw, size=size), caption="")
    drawn = _drawn_part(group, size, has_busbw=has_busbw)
    specification = figure.specification(drawn) or {}
    missing = _missing(group, size, has_busbw=has_busbw)
    intervals = _intervals_note(drawn, has_busbw=has_busbw)
    sentences = filter(None, [intervals, legend.format(unit=group.unit), missing])
    explanation = " ".join(sentences)
    title = specification["title"]
    if isinstance(title, dict):
        title["subtitle"] = [*title["subtitle"], *chart_base.wrapped(explanation)]
    specification["height"] = HEIGHT
    paths = directory / f"{stem}.png", directory / f"{stem}.svg"
    directory.mkdir(parents=True, exist_ok=True)
    write_picture(fitted(specification, WIDTH + AXIS_ROOM), *paths)
    notes = []
    if group.oversubscribed_counts:  # the lines of the heading have them already
        notes.append(f"More ranks than cores: {_counted(group, group.oversubscribed_counts)}.")
    notes += filter(None, [missing, _without_size(group, size)])
    return ScalingPicture(paths, " ".join(notes))


def _drawn_part(group: ChartGroup, size: int, *, has_busbw: bool) -> ChartGroup:
    """Return the part of a group that is drawn: the axis has no other numbers of nodes or ranks."""

    def at_size(points: Iterable[SeriesPoint]) -> tuple[SeriesPoint, ...]:
        return tuple(
            point
            for point in points
            if point.row.requested_bytes == size and (point.row.busbw_Bps or not has_busbw)
        )

    part = replace(
        group,
        points=at_size(group.points),
        predictions=at_size(group.predictions),
        imports=(),
        whole=group.whole or group,
    )
    return replace(part, setting=_setting(part))


def _setting(group: ChartGroup) -> str:
    """Return what a picture says of the setting of a group: where its buffers are, and what is not usual."""
    words = [word for word in group.setting.split(", ") if word not in USUAL]
    if group.unit == "nodes":  # its axis names the ranks of a node
        words = [word for word in words if not word.endswith(" per node")]
    return ", ".join(filter(None, [*words, _placement(group)]))


def _placement(group: ChartGroup) -> str:
    """Return the placement of what is drawn, and whether the other one was slower; empty without placements."""
    measured = {placement_label(point.row) for point in group.usable if point.row.ranked} - {""}
    drawn = {placement_label(point.row) for point in group.best_placements} - {""}
    if len(drawn) > 1:
        return "in place or out of place, whichever is faster"
    slower = measured - drawn
    return "".join(drawn) + "".join(f" ({placement} is slower)" for placement in slower)


def _intervals_note(group: ChartGroup, *, has_busbw: bool) -> str:
    """Return what the areas of a picture are, and that they are cut; empty without any."""
    points = [point for point in (*group.best_placements, *group.predictions) if point.row.interval]
    if not points:
        return ""
    if not has_busbw:
        return INTERVALS
    highest = max(point.row.busbw_Bps or 0.0 for point in points)
    ends = [interval[1] for interval in map(busbw_interval, points) if interval]
    if max(ends, default=0.0) > MOST_ABOVE_CURVES * highest:
        return f"{INTERVALS.removesuffix('.')}, cut at the top."
    return INTERVALS


def _time_chart(group: ChartGroup, size: int) -> Chart:
    data = []
    ends: list[float] = []
    for point in group.best_placements:
        if point.row.requested_bytes == size:
            seconds = median_seconds(point)
            data.append(chart_panels.chart_record(group, point, seconds, point.row.interval))
            ends += point.row.interval or ()
    return chart_panels.group_curves(
        group,
        data,
        chart_panels.counts_of(group),
        partial(_time_axis, ends),
        titles=(),
        columns=1,
    )


def _time_axis(ends: Sequence[float], values: Iterable[float]) -> alt.Y:
    """Return the axis of times that has intervals whole."""
    return chart_base.time_axis([*values, *ends])


_WITH_TIME = "time", _time_chart, ""
_WITH_BUSBW = "bus bandwidth", busbw_chart, EFFICIENCY
"""What is drawn of collectives without bus bandwidth and of those with it, how, and what the picture says of it."""


def _missing(group: ChartGroup, size: int, *, has_busbw: bool) -> str:
    """Return on which numbers of nodes or ranks the size was measured and is not drawn, and why."""
    drawn = _counts_by_size(group)[size]
    at_size = _measured_at(group, size)
    sentences = []
    if has_busbw and at_size - drawn:
        counts = _counted(group, at_size - drawn)
        sentences.append(f"Not drawn: {counts} (no busbw).")
    crowded = _measured_at(group.whole or group, size) - _measured_at(group)
    if crowded:
        sentences.append(f"Not drawn: {_counted(group, crowded)}, with more ranks than cores.")
    return " ".join(sentences)


def _without_size(group: ChartGroup, size: int) -> str:
    """Return on which numbers of nodes or ranks other sizes were measured only."""
    without_size = _measured_at(group) - _measured_at(group, size)
    if not without_size:
        return ""
    return f"Not measured at {format_size(size)}: {_counted(group, without_size)}."


def _measured_at(group: ChartGroup, size: int | None = None) -> set[int]:
    """Return the numbers of nodes or ranks with a result at a size, or at any."""
    counts = set()
    for point in group.usable:
        if not point.row.floor and size in (None, point.row.requested_bytes):
            counts.add(group.axis_value(point.row))
    return counts


def _counted(group: ChartGroup, counts: Iterable[int]) -> str:
    """Return numbers of nodes or ranks in words: ``1 and 2 nodes``."""
    *first, last = sorted(counts)
    return join_words([*first, format_count(last, group.unit.removesuffix("s"))])
