"""Charts of training steps: the share of communication against nodes, and the time of a step against buckets."""

import json

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.series_points import SeriesPoint, median_seconds
from hpccoll.analysis.step_comparison import bucket_of, workload_namer
from hpccoll.common.units import format_size
from hpccoll.render.chart_base import Chart, ChartRecord, share_axis, step_axis
from hpccoll.render.chart_panels import chart_record, counts_of, group_curves
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Interval, Row

EXPOSED, ALL = "exposed communication", "all communication"

MAX_WORKLOADS = 3
"""Workloads whose shares are drawn below each other."""

MAX_BUCKET_PANELS = 6


def share_against_ranks(group: ChartGroup) -> Chart | None:
    """Return the share of exposed and of all communication in the step; None for one number of ranks only."""
    name = workload_namer([point.row for point in group.drawn])
    points = [point for point in group.drawn if not point.row.floor]
    counts: dict[tuple[str, ...], set[int]] = {}
    for point in sorted(points, key=lambda point: (_is_late(point), bucket_of(point.row))):
        counts.setdefault(name(point.row), set()).add(group.axis_value(point.row))
    workloads = [words for words, of_words in counts.items() if len(of_words) > 1][:MAX_WORKLOADS]
    data: list[ChartRecord] = []
    panels = {(words, part): ", ".join((part, *words)) for words in workloads for part in (EXPOSED, ALL)}
    for point in points:
        for part in (EXPOSED, ALL):
            share, ends = _share(point.row, part)
            if share is not None and (title := panels.get((name(point.row), part))):
                data.append(chart_record(group, point, share, ends) | {"panel": title})
    titles = [title for title in panels.values() if any(d["panel"] == title for d in data)]
    if not data:
        return None
    return group_curves(group, data, counts_of(group), share_axis("share of the step (%)"), titles, 2)


def _share(row: Row, part: str) -> tuple[float | None, Interval]:
    if not row.median_s:
        return None, None
    if part == ALL:
        return (None if row.communication_s is None else row.communication_s / row.median_s), None
    low, high = row.exposed_low_s, row.exposed_high_s
    ends = None if low is None or high is None else (max(0.0, low / row.median_s), min(1.0, high / row.median_s))
    return (None if row.exposed_s is None else max(0.0, row.exposed_s) / row.median_s), ends


def time_against_bucket(group: ChartGroup) -> Chart | None:
    """Return the time of the step against the limit of buckets; None if no workload has several limits."""
    points = list(group.usable)
    name = workload_namer([point.row for point in points], without=("bucket",))
    panels: dict[str, list[SeriesPoint]] = {}
    for point in sorted(points, key=lambda p: (p.row.oversubscribed, _is_late(p), -p.row.nodes, -p.row.ranks)):
        panels.setdefault(", ".join((group.shape_label(point.row), *name(point.row))), []).append(point)
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
    return group_curves(group, data, x, step_axis, titles, min(2, len(titles)))


def _is_late(point: SeriesPoint) -> bool:
    """Return whether gradients are exchanged after the backward pass."""
    return not call_arguments(point.row)["overlap"]
