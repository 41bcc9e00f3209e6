"""Predicted training steps in words: tables by the number of GPUs, the communication wall, and what is assumed."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.common.text import Columns, join_words, table_lines, table_of
from hpccoll.common.units import format_bit_rate, format_count, format_decimal_bytes, format_interval, format_seconds
from hpccoll.model.communication_wall import WallPoint, bubble_share
from hpccoll.model.library_calls import NAMES
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.step_prediction import StepPrediction, StepPredictions, StepRequest
from hpccoll.model.step_scenarios import ScenarioPrediction
from hpccoll.render.prediction_report import (
    WIDTH,
    distances,
    latency_lines,
    left_out_lines,
    machine_lines,
    paragraph,
    published_sentences,
)
from hpccoll.training.compression import DENSE

BEST_CASE = (
    "a best case: gathers of parameters run beside computation and do not slow it down; published runs with sharded "
    "parameters hid less of them (results/golden/published_steps.md)"
)
"""What is said of steps whose parameters are gathered."""

BUBBLES = (4, 8, 16), (8, 32, 128)
"""The stages and the micro-batches of pipelines whose bubble is printed."""


def step_lines(predicted: StepPredictions) -> Iterator[str]:
    """Yield the predicted steps as text."""
    request, first = predicted.request, predicted.predictions[0]
    yield from machine_lines(predicted.machine, predicted.kinds)
    yield ""
    yield (
        f"{request.model.name}: {request.model.parameters:,} parameters, gradients "
        f"{format_decimal_bytes(first.gradient_bytes)} ({first.dtypes.gradient}); {request.compute.text}"
    )
    moved = dict.fromkeys(name for one in predicted.predictions for name in one.parallelism.moved)
    types = {name: getattr(first.dtypes, name) for name in moved if name != "gradient"}
    if {*types.values()} - {first.dtypes.gradient}:
        yield f"  {', '.join(f'{name}s move in {dtype}' for name, dtype in types.items())}"
    yield f"  {', '.join(_parallel_words(request, first))}"
    columns = _with_codecs(_STEP, predicted.predictions)
    yield from table_lines(*table_of(columns, predicted.predictions))
    yield from _meanings(columns)
    yield ""
    for compress, of_one in predicted.by_compression.items():
        yield from _wall_lines(of_one, f"{compress or DENSE}: " * (len(request.compressions) > 1))
    yield from _paying_lines((f"  {one.compress} on {one.layout.workers:,} GPUs", one) for one in predicted.predictions)
    used: dict[str, dict[str, None]] = {}
    for work, names in (each for one in predicted.predictions for each in one.algorithms.items()):
        used.setdefault(work, {}).update(dict.fromkeys(names.split(", ")))
    yield from (f"  {work}: {', '.join(names)}" for work, names in used.items())
    yield from _formula_lines([predicted.machine], predicted.predictions)
    yield from _unmodelled_lines(predicted.predictions)
    yield f"distance: {distances(predicted.predictions)}"
    if first.parallelism.by_block and first.parallelism.overlap:
        yield from textwrap.wrap(BEST_CASE, WIDTH)
    for assumed in dict.fromkeys(each for one in predicted.predictions for each in one.assumptions):
        yield from textwrap.wrap(f"assumed: {assumed}", WIDTH)
    yield from left_out_lines(predicted.left_out)


def _formula_lines(machines: Iterable[MachineFile], predictions: Iterable[StepPrediction]) -> Iterator[str]:
    """Yield which algorithms are modelled, and where NCCL is slower than that; nothing without formulas."""
    used = {name for one in predictions for names in one.algorithms.values() for name in names.split(", ")}
    if names := [name for name in NAMES.values() if name in used]:
        yield f"{', '.join(names)}: modelled by NCCL's own formulas, which have no interval"
        for machine in {each.name: each for each in machines}.values():
            yield from latency_lines(machine)


def _unmodelled_lines(predictions: Iterable[StepPrediction]) -> Iterator[str]:
    """Yield what NCCL may run and has no formula, with what runs instead, and what was published; once for all."""
    every = [each for one in predictions for each in one.unmodelled]
    works = dict.fromkeys((each.work, join_words(each.missing, "or"), each.stands_in) for each in every)
    for work, missing, stands_in in works:
        instead = "our schedule stands in" if stands_in else "ring and tree are modelled"
        yield from paragraph(f"{work}: NCCL may take {missing}, which is not modelled; {instead}")
    for sentence in published_sentences(near for each in every for near in each.published):
        yield from paragraph(sentence)


def _parallel_words(request: StepRequest, one: StepPrediction) -> Iterator[str]:
    parallelism, transformer = one.parallelism, request.model.transformer
    yield request.parallel or "all ranks data parallel"
    if parallelism.sharding != "none":
        yield parallelism.sharding
    yield f"buckets {parallelism.buckets.framework}"
    yield format_count(parallelism.micro_batches, "micro-batch")
    tokens = f" of {transformer.sequence:,} tokens" if transformer else ""
    yield f"{format_count(parallelism.samples, 'sample')}{tokens} each"
    if parallelism.sequence:
        yield "sequence parallel"
    if parallelism.recompute:
        yield "the forward pass is computed again"
    yield "overlapped" if parallelism.overlap else "gradients after the backward pass"


def _busbw(one: StepPrediction) -> str:
    return f"{one.busbw / 1e9:.3g}/{one.link * one.links / 1e9:.3g} GB/s" if one.busbw and one.link else "none"


_TIMES: Columns[StepPrediction] = (
    ("GPUs", lambda one: f"{one.layout.workers:,}"),
    ("compute", lambda one: format_seconds(one.step.compute_s)),
    ("bubble", lambda one: format_seconds(one.step.bubble_s)),
    ("communic.", lambda one: format_seconds(one.step.communication_s)),
    ("exposed", lambda one: format_seconds(one.step.exposed_s)),
    ("step", lambda one: format_seconds(one.step.step_s)),
    ("interval", lambda one: format_interval(one.interval) if one.interval else "none"),
    ("share", lambda one: f"{one.step.share:.1%}"),
)
_STEP: Columns[StepPrediction] = (
    ("nodes", lambda one: f"{one.nodes:,}"),
    *_TIMES,
    ("all", lambda one: f"{one.communication_share:.0%}"),
    ("busbw/links", _busbw),
)


def _with_codecs(columns: Columns[StepPrediction], predictions: Sequence[StepPrediction]) -> Columns[StepPrediction]:
    """Return the columns, after the first two with those of compressed gradients if there are any."""
    return (*columns[:2], *_CODECS, *columns[2:]) if any(one.compress for one in predictions) else columns


_CODECS: Columns[StepPrediction] = (
    ("compress", lambda one: one.compress or DENSE),
    ("codec", lambda one: format_seconds(one.step.codec_s)),
)


def _paying_lines(predictions: Iterable[tuple[str, StepPrediction]]) -> Iterator[str]:
    """Yield from which rate of the network downward each compression pays; predictions have the begin of a line."""
    for begin, one in predictions:
        if one.pays:
            yield f"{begin} {one.pays.text}"


_MEANINGS = {
    "codec": "time of all codecs of a GPU, which take turns with its collectives of gradients; exposed has what of it "
    "computation does not hide",
    "compute": "time that the busiest GPU computes in a step",
    "bubble": "time that it waits for other stages of the pipeline, without communication",
    "communic.": "time of all collectives of a GPU, hidden behind computation or not",
    "exposed": "time by which communication makes the step longer",
    "interval": "the step at the fast and slow ends of the machine's numbers; none with NCCL's formulas",
    "share": "exposed, in % of the step",
    "all": "communic., in % of the step",
    "busbw/links": "of the collectives of gradients: bus bandwidth, as nccl-tests has it, and the rate of their "
    "links of a node, one way",
}
"""What a column is, by its heading; others are plain."""


def _meanings(columns: Columns[StepPrediction]) -> Iterator[str]:
    """Yield a line for each column that is not plain."""
    for heading, _ in columns:
        if meaning := _MEANINGS.get(heading):
            yield from textwrap.wrap(f"{heading}: {meaning}", WIDTH, initial_indent="  ", subsequent_indent="    ")


def _wall_lines(predicted: StepPredictions, begin: str) -> Iterator[str]:
    wall, last = predicted.wall_nodes, predicted.predictions[-1]
    if wall:
        yield f"{begin}communication takes longer than computation from {format_count(wall, 'node')} on"
    else:
        yield f"{begin}communication takes less than computation on up to {format_count(last.nodes, 'node')}"
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
    yield from table_lines(*table_of(_WALL, points))
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


def _seconds4(seconds: float) -> str:
    """Return seconds with four digits, for steps of which most is communication."""
    return f"{seconds:.4g} s" if seconds >= 1 else f"{seconds * 1e3:.4g} ms"


_WALL: Columns[WallPoint] = (
    ("GPUs", lambda point: f"{point.gpus:,}"),
    ("compute", lambda point: format_seconds(point.wall.compute_s)),
    ("all-reduce", lambda point: format_seconds(point.communication_s)),
    ("step", lambda point: _seconds4(point.step_s)),
    ("share", lambda point: f"{point.communication_s / point.step_s:.1%}"),
    ("overlapped", lambda point: _seconds4(point.overlapped_s)),
    ("share", lambda point: f"{1 - point.wall.compute_s / point.overlapped_s:.1%}"),
    (
        "busbw, of the links",
        lambda point: f"{point.busbw / 1e9:.4g} GB/s, {8 * point.busbw / point.wall.link / point.wall.links:.0%}",
    ),
    ("rate that hides it", lambda point: format_bit_rate(point.hide_rate) if point.hide_rate else "no rate"),
)


def scenario_lines(predicted: Sequence[ScenarioPrediction]) -> Iterator[str]:
    """Yield the scenarios as a table."""
    steps = [each.prediction for each in predicted]
    columns = _with_codecs(_TIMES, steps)
    head, body = table_of(columns, steps)
    names = (each.name for each in predicted)
    rows = ((name, *cells) for name, cells in zip(names, body, strict=True))
    yield from table_lines(("scenario", *head), rows, indent="")
    yield from _meanings(columns)
    yield from scenario_titles(predicted)
    yield from _paying_lines((f"{each.name}: {each.prediction.compress}", each.prediction) for each in predicted)
    for each in predicted:
        works = "; ".join(f"{work}: {names}" for work, names in sorted(each.prediction.algorithms.items()))
        yield f"{each.name}: {works}"
    yield from _formula_lines((each.machine for each in predicted), steps)
    yield from _unmodelled_lines(steps)
    for assumed in dict.fromkeys(each for one in predicted for each in one.prediction.assumptions):
        yield f"assumed: {assumed}"


def scenario_titles(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    """Return what the steps are: one line if all have the same model and mesh."""
    alike = {(each.scenario.model, each.prediction.nodes, each.prediction.parallelism.mesh.text) for each in predicted}
    if len(alike) > 1:
        return [each.title for each in predicted]
    ((model, nodes, mesh),) = alike
    machines = ", ".join(dict.fromkeys(each.machine.name for each in predicted))
    return [f"{model} on {predicted[0].prediction.layout.workers:,} GPUs, {nodes} nodes of {machines}; {mesh}"]
