"""Predicted training steps in words: tables by the number of GPUs, the communication wall, and what is assumed."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from hpccoll.common.units import format_bit_rate, format_count, format_decimal_bytes, format_seconds
from hpccoll.model.communication_wall import WallPoint, bubble_share
from hpccoll.model.prediction_report import WIDTH, machine_lines
from hpccoll.model.step_prediction import StepPrediction, StepPredictions

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
    yield from wall_lines(predicted)
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
    yield format_count(parallelism.micro_batches, "micro-batch").replace("batchs", "batches")
    yield f"{format_count(parallelism.samples, 'sample')} each"
    if parallelism.sequence:
        yield "sequence parallel"
    if parallelism.recompute:
        yield "the forward pass is computed again"
    yield "overlapped" if parallelism.overlap else "gradients after the backward pass"


def _table(predictions: Sequence[StepPrediction]) -> Iterator[str]:
    """Yield a line for each number of GPUs."""
    names = (
        "GPUs",
        "nodes",
        "compute",
        "bubble",
        "communic.",
        "exposed",
        "step",
        "interval",
        "share",
        "all",
        "busbw/links",
    )
    widths = (8, 7, 10, 10, 10, 10, 10, 21, 9, 6, 17)
    yield "  " + "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    for one in predictions:
        step, (low, high) = one.step, one.interval
        cells = (
            f"{one.layout.workers:,}", f"{one.nodes:,}", format_seconds(step.compute_s), format_seconds(step.bubble_s),
            format_seconds(step.communication_s), format_seconds(step.exposed_s), format_seconds(step.step_s),
            f"{format_seconds(low)} to {format_seconds(high)}", f"{step.share:.1%}", f"{one.communication_share:.0%}",
            _busbw(one.busbw, one.link and one.link * one.links),
        )  # fmt: skip
        yield "  " + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _busbw(busbw: float | None, link: float | None) -> str:
    return f"{busbw / 1e9:.3g}/{link / 1e9:.3g} GB/s" if busbw and link else "none"


def wall_lines(predicted: StepPredictions) -> Iterator[str]:
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


def left_out_lines(left_out: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield a line for each reason for which numbers of nodes were left out."""
    for reason, nodes in left_out.items():
        yield f"left out on {', '.join(map(str, nodes))} nodes: {reason}"


def closed_form_lines(points: Sequence[WallPoint]) -> Iterator[str]:
    """Yield the communication wall as text."""
    wall = points[0].wall
    yield (
        f"{wall.parameters:,.0f} parameters, {format_count(wall.bytes_per_element, 'byte')} each: gradients "
        f"{format_decimal_bytes(wall.gradient_bytes)}; all-reduce by {wall.algorithm}, links of "
        f"{format_bit_rate(wall.link)}"
    )
    names = (
        "GPUs", "compute", "all-reduce", "step", "share", "overlapped", "share", "busbw, of the links",
        "rate that hides it",
    )  # fmt: skip
    widths = (8, 10, 12, 10, 9, 12, 9, 20, 20)
    yield "  " + "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    for point in points:
        row = point.row()
        hide = format_bit_rate(point.hide_rate) if point.hide_rate else "no rate"
        cells = (
            f"{point.gpus:,}", format_seconds(wall.compute_s), format_seconds(point.communication_s),
            seconds4(point.step_s), f"{row['share']:.1%}", seconds4(point.overlapped_s),
            f"{row['overlapped_share']:.1%}",
            f"{point.busbw / 1e9:.4g} GB/s, {8 * point.busbw / wall.link / wall.links:.0%}", hide,
        )  # fmt: skip
        yield "  " + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
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


def seconds4(seconds: float) -> str:
    """Return seconds with four digits, for steps of which most is communication."""
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"
