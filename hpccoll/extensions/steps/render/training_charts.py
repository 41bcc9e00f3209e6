"""Charts of a training: its loss and its accuracy over its steps, a line for each workload, such as a compression."""

from collections.abc import Iterator

import altair as alt
import numpy as np

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.extensions.steps.analysis.step_findings import trained_points
from hpccoll.extensions.steps.results.step_times import StepTimes, step_of
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart, ChartRecord, ValueAxis
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import numbered_colours

MAX_POINTS = 45
"""The points of a line: a loss is the mean over the steps since the point before it."""


def loss_against_steps(group: ChartGroup) -> Chart | None:
    """Return the loss over the steps; None without a training."""
    return _curves(
        group,
        0,
        lambda values: chart_base.log_values("loss", "format(datum.value, '.3~r')", values),
    )


def accuracy_against_steps(group: ChartGroup) -> Chart | None:
    """Return the accuracy on what is held out over the steps; None without a training."""
    return _curves(group, 1, chart_base.share_axis("held-out accuracy (%)"))


def _curves(group: ChartGroup, which: int, y: ValueAxis) -> Chart | None:
    data: list[ChartRecord] = []
    for name, point in trained_points(group).items():
        about: ChartRecord = {
            "series": name,
            "at": group.shape_label(point.row),
            "ran": point.series,
            "repeat": 0,
        }
        data += [about | record for record in _records(step_of(point.timeline), which)]
    if not data:
        return None
    x = alt.X("step:Q", title="step", axis=alt.Axis(format=",d"))
    colours = numbered_colours(chart_base.distinct(data, "series"))
    fields = "series", "at", "ran", "step", "value"
    return chart_base.curves(
        data, x, y, colours, fields, width=WIDTH, symbol="stroke", mark_size=14
    )


def _records(step: StepTimes | None, which: int) -> Iterator[ChartRecord]:
    """Yield the points of a line: values that are not finite are left out."""
    if step is None or step.learned is None:
        return
    values = step.learned[which]
    every = -(-len(values) // MAX_POINTS)
    for end in range(every, len(values) + 1, every):
        if which == 0:
            value = float(np.mean(values[end - every : end]))
        else:
            value = float(values[end - 1])
        if np.isfinite(value) and value > 0:
            yield {"step": end, "value": value}
