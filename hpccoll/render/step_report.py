"""Predicted training steps in words: tables by the number of GPUs, the communication wall, and what is assumed."""

import textwrap
from collections.abc import Iterator, Sequence

from hpccoll.common.text import table_lines
from hpccoll.common.units import format_bit_rate, format_count, format_decimal_bytes, format_interval, format_seconds
from hpccoll.model.communication_wall import WallPoint, bubble_share
from hpccoll.model.step_prediction import StepPrediction, StepPredictions
from hpccoll.model.step_scenarios import ScenarioPrediction
from hpccoll.render.prediction_report import WIDTH, left_out_lines, machine_lines

BUBBLES = (4, 8, 16), (8, 32, 128)
"""The stages and the micro-batches of pipelines whose bubble is printed."""


def step_lines(predicted: StepPredictions) -> Iterator[str]:
    """Yield the predicted steps as text."""
    request, first = predicted.request, predicted.predictions[0]
    parallelism = first.parallelism
    yield from machine_lines(predicted.machine)
    yield ""
    yield (
        f"{request.model.name}: {request.model.parameters:,} parameters, gradients "
        f"{format_decimal_bytes(first.gradient_bytes)} ({parallelism.gradient_dtype or request.model.dtype}); "
        f"{request.compute.text}"
    )
    yield f"  {', '.join(_parallel_words(request.parallel, first))}"
    yield from _table(predicted.predictions)
    yield ""
    yield from _wall_lines(predicted)
    used: dict[str, dict[str, None]] = {}
    for work, names in (each for one in predicted.predictions for each in one.algorithms.items()):
        used.setdefault(work, {}).update(dict.fromkeys(names.split(", ")))
    yield from (f"  {work}: {', '.join(names)}" for work, names in used.items())
    distances = dict.fromkeys(one.distance for one in predicted.predictions)
    yield f"distance: {', to '.join(dict.fromkeys((next(iter(distances)), next(reversed(distances)))))}"
    for assumed in dict.fromkeys(each for one in predicted.predictions for each in one.assumptions):
        yield from textwrap.wrap(f"assumed: {assumed}", WIDTH)
    yield from left_out_lines(predicted.left_out)


def _parallel_words(parallel: str, one: StepPrediction) -> Iterator[str]:
    parallelism = one.parallelism
    yield parallel or "all ranks data parallel"
    if parallelism.sharding != "none":
        yield parallelism.sharding
    yield f"buckets {parallelism.buckets.framework}"
    yield format_count(parallelism.micro_batches, "micro-batch")
    yield f"{format_count(parallelism.samples, 'sample')} each"
    if parallelism.sequence:
        yield "sequence parallel"
    if parallelism.recompute:
        yield "the forward pass is computed again"
    yield "overlapped" if parallelism.overlap else "gradients after the backward pass"


def _table(predictions: Sequence[StepPrediction]) -> Iterator[str]:
    """Yield a line for each number of GPUs."""
    head = (
        "GPUs", "nodes", "compute", "bubble", "communic.", "exposed", "step", "interval", "share", "all",
        "busbw/links",
    )  # fmt: skip
    rows = (
        (
            f"{one.layout.workers:,}", f"{one.nodes:,}", *_times(one), format_interval(one.interval),
            f"{one.step.share:.1%}", f"{one.communication_share:.0%}", _busbw(one),
        ) for one in predictions
    )  # fmt: skip
    yield from table_lines(head, rows)


def _times(one: StepPrediction) -> list[str]:
    step = one.step
    times = step.compute_s, step.bubble_s, step.communication_s, step.exposed_s, step.step_s
    return [format_seconds(seconds) for seconds in times]


def _busbw(one: StepPrediction) -> str:
    return f"{one.busbw / 1e9:.3g}/{one.link * one.links / 1e9:.3g} GB/s" if one.busbw and one.link else "none"


def _wall_lines(predicted: StepPredictions) -> Iterator[str]:
    """Yield on how many nodes communication passes computation, and what would hide it."""
    wall, last = predicted.wall_nodes, predicted.predictions[-1]
    if wall:
        yield f"communication takes longer than computation from {format_count(wall, 'node')} on"
    else:
        yield f"communication takes less than computation on up to {format_count(last.nodes, 'node')}"
    if last.hide_rate and last.link:
        yield (
            f"  on {last.layout.workers:,} GPUs links of {format_bit_rate(last.hide_rate)} would make both equal; "
            f"a link has {format_bit_rate(8 * last.link)}" + (f", a node has {last.links}" if last.links > 1 else "")
        )


def closed_form_lines(points: Sequence[WallPoint]) -> Iterator[str]:
    """Yield the communication wall as text."""
    wall = points[0].wall
    yield (
        f"{wall.parameters:,.0f} parameters, {format_count(wall.bytes_per_element, 'byte')} each: gradients "
        f"{format_decimal_bytes(wall.gradient_bytes)}; all-reduce by {wall.algorithm}, links of "
        f"{format_bit_rate(wall.link)}"
    )
    head = (
        "GPUs", "compute", "all-reduce", "step", "share", "overlapped", "share", "busbw, of the links",
        "rate that hides it",
    )  # fmt: skip
    yield from table_lines(head, map(_wall_row, points))
    last = points[-1]
    yield "overlapped: at best; the rate that hides it makes the all-reduce as long as the computation"
    yield (
        f"with the batch of {points[0].gpus:,} GPUs, {last.gpus:,} are {last.fixed_batch_speedup:.3g} times as fast as "
        f"one, and no number of GPUs {last.work_s / last.communication_s:.3g} times (Amdahl's law)"
    )
    yield "bubble of a pipeline, (p - 1)/(m + p - 1): " + "; ".join(
        f"{stages} stages "
        + ", ".join(f"{bubble_share(stages, m):.0%}" for m in BUBBLES[1])
        for stages in BUBBLES[0]
    ) + f" with {', '.join(map(str, BUBBLES[1]))} micro-batches"  # fmt: skip


def _wall_row(point: WallPoint) -> tuple[str, ...]:
    wall, row = point.wall, point.to_json()
    return (
        f"{point.gpus:,}", format_seconds(wall.compute_s), format_seconds(point.communication_s),
        _seconds4(point.step_s), f"{row['share']:.1%}", _seconds4(point.overlapped_s),
        f"{row['overlapped_share']:.1%}",
        f"{point.busbw / 1e9:.4g} GB/s, {8 * point.busbw / wall.link / wall.links:.0%}",
        format_bit_rate(point.hide_rate) if point.hide_rate else "no rate",
    )  # fmt: skip


def _seconds4(seconds: float) -> str:
    """Return seconds with four digits, for steps of which most is communication."""
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"


def scenario_lines(predicted: Sequence[ScenarioPrediction]) -> Iterator[str]:
    """Yield the scenarios as a table."""
    head = "scenario", "GPUs", "compute", "bubble", "communic.", "exposed", "step", "exposed", "interval"
    rows = (
        (
            each.scenario.name, f"{one.layout.workers:,}", *_times(one), f"{one.step.share:.1%}",
            format_interval(one.interval),
        ) for each in predicted for one in [each.prediction]
    )  # fmt: skip
    yield from table_lines(head, rows, indent="")
    yield from scenario_titles(predicted)
    for each in predicted:
        works = "; ".join(f"{work}: {names}" for work, names in sorted(each.prediction.algorithms.items()))
        yield f"{each.scenario.name}: {works}"
    for assumed in dict.fromkeys(each for one in predicted for each in one.prediction.assumptions):
        yield f"assumed: {assumed}"


def scenario_titles(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    """Return what the steps are: one line if all have the same model and mesh."""
    alike = {(each.scenario.model, each.prediction.nodes, each.prediction.parallelism.mesh.text) for each in predicted}
    if len(alike) > 1:
        return [each.title for each in predicted]
    ((model, nodes, mesh),) = alike
    machines = ", ".join(dict.fromkeys(each.machine for each in predicted))
    return [f"{model} on {predicted[0].prediction.layout.workers:,} GPUs, {nodes} nodes of {machines}; {mesh}"]
