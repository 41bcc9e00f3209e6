"""The layout of all charts of four reports, wide and narrow: no texts overlap, and axes end at what is shown."""

import json

import pytest
from chart_outline import layers, values
from row_examples import make_row
from step_examples import steps
from svg_texts import dashed_points, log_axes, overlaps, text_boxes

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.row_labels import has_size
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.extensions.steps.render.step_page import STEP_FIGURES
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import HEIGHT, chart_engine
from hpccoll.render.chart_layout import fitted
from hpccoll.render.charts import FIGURES, OVERVIEW_FIGURES, overview_group
from hpccoll.render.report_writer import _group_charts
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.schema import COPY_RATES

WIDE, NARROW = 1120, 388
"""Pixels of a chart in windows of 1300 and 420 pixels."""

MOST = 1.5
"""The most by which an axis may reach beyond what it shows, as a factor."""


@pytest.fixture(scope="module")
def thirteen(of_rows):
    """Results of all collectives on two ranks."""
    times = {"native": 2e-6, "ring": 1.5e-6, "direct": 1.4e-6}
    return of_rows(
        *(
            make_row(
                algorithm, 2, nbytes, seconds=seconds + nbytes * 1e-10, collective=name, op=None
            )
            for name in COLLECTIVES
            for algorithm, seconds in times.items()
            for nbytes in ((8, 1024, 64 << 10, 4 << 20) if has_size(name) else (8,))
        )
    )


@pytest.fixture(scope="module")
def training():
    """Results of training steps on 2 and 4 nodes, with two limits of buckets, overlapped and not."""
    takes = {"ring": 60, "hierarchical": 45, "native": 50, "null": 0}
    workloads = [
        {"overlap": overlap, "bucket": bucket}
        for overlap in (0, 1)
        for bucket in (1 << 20, 25 << 20)
    ]
    raw = [
        steps(takes, workloads, ranks=n, rounds=3, path=f"{n}.h5", run_id=str(n)) for n in (2, 4)
    ]
    return to_results(ResultFiles(raw_results=raw))


def drawings(results):
    """Return the specifications of all charts of a report, by name."""
    recommendations = recommend(results)
    groups = chart_groups(results, recommendations)
    charts = [
        chart
        for group in groups
        for chart in _group_charts(group, STEP_FIGURES if group.of_steps else FIGURES)
    ]
    if len(groups) > 1:
        charts += _group_charts(overview_group(groups, Answers(recommendations)), OVERVIEW_FIGURES)
    return {drawing.name: drawing.specification for chart in charts for drawing in chart.drawings}


@pytest.fixture(scope="module")
def in_memory(of_rows, make_run):
    """Results on two ranks of a node, with the rates of copies from caches and from memory."""
    sizes = [
        {"bytes": 4**power << 10, "Bps": rate}
        for power, rate in ((3, 40e9), (5, 160e9), (6, 30e9), (8, 30e9))
    ]
    run = make_run(provenance={COPY_RATES: {"ranks": 2, "sizes": sizes}})
    return of_rows(
        *(
            make_row(name, 2, nbytes, seconds=seconds + nbytes * 1e-9, in_place=in_place)
            for name, seconds in {"native": 2e-6, "ring": 1.5e-6}.items()
            for nbytes in (8, 1024, 64 << 10, 512 << 10, 4 << 20, 64 << 20)
            for in_place in (False, True)
        ),
        runs=(run,),
    )


EXPECTED = {
    "results": ("all_reduce-time", "all_reduce-time-oversubscribed"), "testbed_results": ("all_reduce-wire",),
    "in_memory": ("all_reduce-time", "all_reduce-busbw"),
    "thirteen": ("overview-speedup", *(f"{name}-time" for name in COLLECTIVES if has_size(name))),
    "training": tuple(f"training_step-{name}" for name in ("timeline", "share", "bucket")),
}  # fmt: skip
"""Some of the charts that a report has."""


def shown_values(specification, title):
    """Return the values that an axis of a title has to show."""
    data = values(specification)
    for layer in layers(specification):
        for channel in "xy":
            axis = layer["encoding"].get(channel, {})
            if axis.get("title") == title:
                fields = [axis["field"], *(("limit", "expected") if channel == "y" else ())]
                numbers = [
                    d[field]
                    for d in data
                    for field in fields
                    if d.get(field) and d.get("line") != "floor"
                ]
                return [*numbers, *([1.0] if title == "speed-up over native" else [])]
    raise AssertionError(title)


@pytest.mark.parametrize("room", [WIDE, NARROW])
@pytest.mark.parametrize(
    "report", ["results", "testbed_results", "thirteen", "training", "in_memory"]
)
def test_no_texts_overlap_and_axes_end_at_what_is_shown(request, report, room):
    specifications = drawings(request.getfixturevalue(report))
    assert {
        name: specifications.keys() for name in EXPECTED[report] if name not in specifications
    } == {}
    touching, wide = {}, {}
    for name, specification in specifications.items():
        svg = chart_engine().vegalite_to_svg(json.dumps(fitted(specification, room)))
        if found := overlaps(svg):
            touching[name] = found
        for title, low, high in log_axes(svg):
            shown = shown_values(specification, title)
            if low < min(shown) / MOST or high > max(shown) * MOST:
                wide[name, title] = low, min(shown), max(shown), high
    assert (touching, wide) == ({}, {})


@pytest.mark.parametrize("room", [WIDE, NARROW])
@pytest.mark.parametrize("chart", ["all_reduce-time", "all_reduce-busbw"])
def test_the_name_of_a_limit_is_beside_its_line_and_inside_its_panel(in_memory, chart, room):
    specification = fitted(drawings(in_memory)[chart], room)
    svg = chart_engine().vegalite_to_svg(json.dumps(specification))
    names = [box for box in text_boxes(svg) if box.text == "memory"]
    line = dashed_points(svg, "5,3")
    assert len(names) == 2  # panels
    assert line
    assert [(name, point) for name in names for point in line if name.contains(point)] == []
    headings = [box.bottom for box in text_boxes(svg) if box.text.startswith("2 ranks")]
    assert all(any(0 < name.top - bottom < HEIGHT for bottom in headings) for name in names)
