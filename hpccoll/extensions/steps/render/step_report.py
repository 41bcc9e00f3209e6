"""Predicted training steps in words: tables by the number of GPUs, the communication wall, and what is assumed."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.common.text import Columns, join_words, table_lines, table_of
from hpccoll.common.units import (
    format_bit_rate,
    format_count,
    format_decimal_bytes,
    format_interval,
    format_per_cent,
    format_seconds,
)
from hpccoll.extensions.steps.model.communication_wall import WallPoint, bubble_share
from hpccoll.extensions.steps.model.step_prediction import (
    StepPrediction,
    StepPredictions,
    StepRequest,
)
from hpccoll.extensions.steps.model.step_scenarios import ScenarioPrediction
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.nccl_candidates import NAMES
from hpccoll.render.prediction_report import (
    WIDTH,
    distance_range,
    latency_lines,
    left_out_lines,
    machine_lines,
    paragraph,
    published_sentences,
)

BEST_CASE = (
    "a best case: gathers of parameters run beside computation and do not slow it down; published runs with sharded "
    "parameters hid less of them (results/golden/published_steps.md)"
)
"""What is said of steps whose parameters are gathered."""

BUBBLES = (4, 8, 16), (8, 32, 128)
"""The stages and the micro-batches of pipelines whose bubble is printed."""


def step_lines(predicted: StepPredictions) -> Iterator[str]:
    """Yield the predicted steps as text."""
    request = predicted.request
    predictions = predicted.predictions
    first = predictions[0]
    yield from machine_lines(predicted.machine, predicted.kinds)
    yield ""
    yield from _model_lines(request, predictions)
    yield f"  {', '.join(_parallel_words(request, first))}"
    columns = _with_codecs(_STEP, predictions)
    yield from table_lines(*table_of(columns, predictions))
    yield from _meanings(columns)
    yield ""
    for compress, compressed in predicted.by_compression.items():
        begin = ""
        if len(request.compressions) > 1:
            begin = f"{compress or DENSE}: "
        yield from _wall_lines(compressed, begin)
    yield from _paying_lines(
        (f"  {step.compress} on {step.layout.workers:,} GPUs", step) for step in predictions
    )
    for work, names in _names_by_work(predictions).items():
        yield f"  {work}: {', '.join(names)}"
    yield from _formula_lines([predicted.machine], predictions)
    yield from _unmodelled_lines(predictions)
    yield from _idle_stages_lines(first)
    yield f"distance: {distance_range(prediction.distance for prediction in predictions)}"
    if first.parallelism.by_block and first.parallelism.overlap:
        yield from textwrap.wrap(BEST_CASE, WIDTH)
    for assumption in dict.fromkeys(
        assumption for step in predictions for assumption in step.assumptions
    ):
        yield from textwrap.wrap(f"assumed: {assumption}", WIDTH)
    yield from left_out_lines(predicted.left_out)


def _model_lines(request: StepRequest, predictions: Sequence[StepPrediction]) -> Iterator[str]:
    """Yield the model with its gradients and the compute rate, and the types of what moves if they differ."""
    first = predictions[0]
    model = f"{request.model.name}: {request.model.parameters:,} parameters"
    gradients = f"gradients {format_decimal_bytes(first.gradient_bytes)} ({first.dtypes.gradient})"
    yield f"{model}, {gradients}; {request.compute.text}"
    moved = dict.fromkeys(name for step in predictions for name in step.parallelism.moved)
    types = {name: getattr(first.dtypes, name) for name in moved if name != "gradient"}
    if set(types.values()) - {first.dtypes.gradient}:
        yield f"  {', '.join(f'{name}s move in {dtype}' for name, dtype in types.items())}"


def _idle_stages_lines(step: StepPrediction) -> Iterator[str]:
    """Yield that a pipeline has fewer micro-batches than stages, as no job that people run; else nothing."""
    stages = step.parallelism.mesh.pp
    batches = step.parallelism.micro_batches
    if batches < stages:
        count = format_count(batches, "micro-batch")
        waiting = format_per_cent(bubble_share(stages, batches))
        yield from textwrap.wrap(
            f"note: {count} for {stages} pipeline stages: a stage waits for {waiting} of the time. Jobs have "
            "several micro-batches for each stage; --batch N, the samples of a step on all ranks, makes them.",
            WIDTH,
        )


def _names_by_work(predictions: Iterable[StepPrediction]) -> dict[str, dict[str, None]]:
    """Return the algorithms of all steps by what they are for."""
    by_work: dict[str, dict[str, None]] = {}
    for step in predictions:
        for work, names in step.algorithms.items():
            by_work.setdefault(work, {}).update(dict.fromkeys(names.split(", ")))
    return by_work


def _formula_lines(
    machines: Iterable[MachineFile], predictions: Iterable[StepPrediction]
) -> Iterator[str]:
    """Yield which algorithms are modelled, and where NCCL is slower than that; nothing without formulas."""
    used = set[str]()
    for names in _names_by_work(predictions).values():
        used.update(names)
    modelled = [name for name in NAMES.values() if name in used]
    if modelled:
        yield f"{', '.join(modelled)}: modelled by NCCL's own formulas, which have no interval"
        by_name = {machine.name: machine for machine in machines}
        for machine in by_name.values():
            yield from latency_lines(machine)


def _unmodelled_lines(predictions: Iterable[StepPrediction]) -> Iterator[str]:
    """Yield what NCCL may run and has no formula, with what runs instead, and what was published; once for all."""
    unmodelled = [call for step in predictions for call in step.unmodelled]
    sentences: dict[str, None] = {}
    for call in unmodelled:
        instead = "ring and tree are modelled"
        if call.stands_in:
            instead = "our schedule stands in"
        missing = join_words(call.missing, "or")
        sentences[f"{call.work}: NCCL may take {missing}, which is not modelled; {instead}"] = None
    for sentence in sentences:
        yield from paragraph(sentence)
    for sentence in published_sentences(near for call in unmodelled for near in call.published):
        yield from paragraph(sentence)


def _parallel_words(request: StepRequest, step: StepPrediction) -> Iterator[str]:
    parallelism = step.parallelism
    transformer = request.model.transformer
    yield request.parallel or "all ranks data parallel"
    if parallelism.sharding != "none":
        yield parallelism.sharding
    yield f"buckets {parallelism.buckets.framework}"
    yield format_count(parallelism.micro_batches, "micro-batch")
    tokens = ""
    if transformer:
        tokens = f" of {transformer.sequence:,} tokens"
    yield f"{format_count(parallelism.samples, 'sample')}{tokens} each"
    if parallelism.sequence:
        yield "sequence parallel"
    if parallelism.recompute:
        yield "the forward pass is computed again"
    yield "overlapped" if parallelism.overlap else "gradients after the backward pass"


def _busbw(step: StepPrediction) -> str:
    if not step.busbw or not step.link:
        return "none"
    links_rate = step.link * step.links
    return f"{step.busbw / 1e9:.3g}/{links_rate / 1e9:.3g} GB/s"


_TIMES: Columns[StepPrediction] = (
    ("GPUs", lambda predicted: f"{predicted.layout.workers:,}"),
    ("compute", lambda predicted: format_seconds(predicted.step.compute_s)),
    ("bubble", lambda predicted: format_seconds(predicted.step.bubble_s)),
    ("communic.", lambda predicted: format_seconds(predicted.step.communication_s)),
    ("exposed", lambda predicted: format_seconds(predicted.step.exposed_s)),
    ("step", lambda predicted: format_seconds(predicted.step.step_s)),
    (
        "interval",
        lambda predicted: format_interval(predicted.interval) if predicted.interval else "none",
    ),
    ("share", lambda predicted: f"{predicted.step.share:.1%}"),
)
_STEP: Columns[StepPrediction] = (
    ("nodes", lambda predicted: f"{predicted.nodes:,}"),
    *_TIMES,
    ("all", lambda predicted: f"{predicted.communication_share:.0%}"),
    ("busbw/links", _busbw),
)


def _with_codecs(
    columns: Columns[StepPrediction], predictions: Sequence[StepPrediction]
) -> Columns[StepPrediction]:
    """Return the columns, after the first two with those of compressed gradients if there are any."""
    if not any(step.compress for step in predictions):
        return columns
    return (*columns[:2], *_CODECS, *columns[2:])


_CODECS: Columns[StepPrediction] = (
    ("compress", lambda predicted: predicted.compress or DENSE),
    ("codec", lambda predicted: format_seconds(predicted.step.codec_s)),
)


def _paying_lines(predictions: Iterable[tuple[str, StepPrediction]]) -> Iterator[str]:
    """Yield from which rate of the network downward each compression pays; predictions have the begin of a line."""
    for begin, step in predictions:
        if step.pays:
            yield f"{begin} {step.pays.text}"


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
        meaning = _MEANINGS.get(heading)
        if meaning:
            yield from textwrap.wrap(
                f"{heading}: {meaning}", WIDTH, initial_indent="  ", subsequent_indent="    "
            )


def _wall_lines(predicted: StepPredictions, begin: str) -> Iterator[str]:
    wall = predicted.wall_nodes
    last = predicted.predictions[-1]
    if wall:
        yield f"{begin}communication takes longer than computation from {format_count(wall, 'node')} on"
    else:
        yield f"{begin}communication takes less than computation on up to {format_count(last.nodes, 'node')}"
    if last.hide_rate and last.link:
        equal = f"links of {format_bit_rate(last.hide_rate)} would make both equal"
        links = f"a link has {format_bit_rate(8 * last.link)}"
        if last.links > 1:
            links += f", a node has {last.links}"
        yield f"  on {last.layout.workers:,} GPUs {equal}; {links}"


def closed_form_lines(points: Sequence[WallPoint]) -> Iterator[str]:
    """Yield the communication wall as text."""
    first, last = points[0], points[-1]
    wall = first.wall
    gradients = f"gradients {format_decimal_bytes(wall.gradient_bytes)}"
    yield (
        f"{wall.parameters:,.0f} parameters, {format_count(wall.bytes_per_element, 'byte')} each: {gradients}; "
        f"all-reduce by {wall.algorithm}, links of {format_bit_rate(wall.link)}"
    )
    yield from table_lines(*table_of(_WALL, points))
    yield "overlapped: at best; the rate that hides it makes the all-reduce as long as the computation"
    limit = last.work_s / last.communication_s
    yield (
        f"with the batch of {first.gpus:,} GPUs, {last.gpus:,} are {last.fixed_batch_speedup:.3g} times as fast as "
        f"one, and no number of GPUs {limit:.3g} times (Amdahl's law)"
    )
    yield _bubble_line()


def _bubble_line() -> str:
    """Return the shares of the bubbles of pipelines, by stages and micro-batches."""
    stages, micro_batches = BUBBLES
    shares = []
    for count in stages:
        batch_shares = ", ".join(f"{bubble_share(count, batches):.0%}" for batches in micro_batches)
        shares.append(f"{count} stages {batch_shares}")
    with_batches = f"with {', '.join(map(str, micro_batches))} micro-batches"
    return f"bubble of a pipeline, (p - 1)/(m + p - 1): {'; '.join(shares)} {with_batches}"


def _seconds4(seconds: float) -> str:
    """Return seconds with four digits, for steps that are mostly communication."""
    if seconds >= 1:
        return f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms"


def _busbw_of_links(point: WallPoint) -> str:
    """Return the bus bandwidth, and its share of the rate of a node's links."""
    share = 8 * point.busbw / point.wall.link / point.wall.links
    return f"{point.busbw / 1e9:.4g} GB/s, {share:.0%}"


_WALL: Columns[WallPoint] = (
    ("GPUs", lambda point: f"{point.gpus:,}"),
    ("compute", lambda point: format_seconds(point.wall.compute_s)),
    ("all-reduce", lambda point: format_seconds(point.communication_s)),
    ("step", lambda point: _seconds4(point.step_s)),
    ("share", lambda point: f"{point.communication_s / point.step_s:.1%}"),
    ("overlapped", lambda point: _seconds4(point.overlapped_s)),
    ("share", lambda point: f"{1 - point.wall.compute_s / point.overlapped_s:.1%}"),
    ("busbw, of the links", _busbw_of_links),
    (
        "rate that hides it",
        lambda point: format_bit_rate(point.hide_rate) if point.hide_rate else "no rate",
    ),
)


def scenario_lines(predicted: Sequence[ScenarioPrediction]) -> Iterator[str]:
    """Yield the scenarios as a table."""
    steps = [scenario.prediction for scenario in predicted]
    columns = _with_codecs(_TIMES, steps)
    head, body = table_of(columns, steps)
    rows = [(scenario.name, *cells) for scenario, cells in zip(predicted, body, strict=True)]
    yield from table_lines(("scenario", *head), rows, indent="")
    yield from _meanings(columns)
    yield from scenario_titles(predicted)
    for scenario in predicted:
        begin = f"{scenario.name}: {scenario.prediction.compress}"
        yield from _paying_lines([(begin, scenario.prediction)])
    for scenario in predicted:
        works = "; ".join(
            f"{work}: {names}" for work, names in sorted(scenario.prediction.algorithms.items())
        )
        yield f"{scenario.name}: {works}"
    yield from _formula_lines((scenario.machine for scenario in predicted), steps)
    yield from _unmodelled_lines(steps)
    for assumption in dict.fromkeys(
        assumption for step in steps for assumption in step.assumptions
    ):
        yield f"assumed: {assumption}"


def scenario_titles(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    """Return what the steps are: one line if all have the same model and mesh."""
    first = predicted[0]
    if any(_model_and_mesh(scenario) != _model_and_mesh(first) for scenario in predicted):
        return [scenario.title for scenario in predicted]
    model, nodes, mesh = _model_and_mesh(first)
    machines = ", ".join(dict.fromkeys(scenario.machine.name for scenario in predicted))
    return [
        f"{model} on {first.prediction.layout.workers:,} GPUs, {nodes} nodes of {machines}; {mesh}"
    ]


def _model_and_mesh(scenario: ScenarioPrediction) -> tuple[object, int, str]:
    prediction = scenario.prediction
    return scenario.scenario.model, prediction.nodes, prediction.parallelism.mesh.text
