"""Predicted training steps in words: tables by the number of GPUs, the communication wall, and what is assumed."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from hpccoll.common.text import Columns, join_words, table_lines, table_of
from hpccoll.common.units import (
    format_bit_rate,
    format_count,
    format_decimal_bytes,
    format_interval,
    format_seconds,
)
from hpccoll.extensions.steps.model.communication_wall import WallPoint, bubble_share
from hpccoll.extensions.steps.model.group_costs import UnmodelledWork
from hpccoll.extensions.steps.model.step_prediction import (
    StepPrediction,
    StepPredictions,
    StepRequest,
)
from hpccoll.extensions.steps.model.step_scenarios import ScenarioPrediction
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.extensions.steps.training.step_keys import option
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

BEST_CASE = "the exposed share is a best case: hidden communication does not slow computation down"
"""What is said of steps whose computation hides communication."""

PUBLISHED_ZERO3 = (
    "Published steps with sharded parameters hid less: ZeRO-3 on 768 and 1,536 GPUs took 1.6 and 3.3 times as long as "
    "predicted (results/golden/published_steps.md)"
)
"""What is said besides of steps whose parameters are gathered: the golden page has these errors."""

BATCHES_A_STAGE = 8
"""The micro-batches for each stage of a pipeline that a step with fewer micro-batches than stages is advised."""

CLOSE = 0.05
"""The relative difference up to which a time is about right."""

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
    yield f"  {step_words(request, first)}"
    columns = _with_codecs(_STEP, predictions)
    yield from table_lines(*table_of(columns, predictions))
    for sentence in idle_stages_sentences((request, step) for step in predictions):
        yield from paragraph(f"! {sentence}")
    yield from _meanings(columns)
    yield ""
    for compress, compressed in predicted.by_compression.items():
        begin = ""
        if len(request.compressions) > 1:
            begin = f"{compress or DENSE}: "
        yield from _answer_lines(compressed, begin)
    yield from _paying_lines(
        (f"  {step.compress} on {step.layout.workers:,} GPUs", step) for step in predictions
    )
    for work, names in _names_by_work(predictions).items():
        yield f"  {work}: {', '.join(names)}"
    yield from _formula_lines([predicted.machine], predictions)
    yield from _unmodelled_lines(predictions)
    yield f"distance: {distance_range(prediction.distance for prediction in predictions)}"
    for sentence in best_case_sentences(predictions):
        yield from textwrap.wrap(sentence, WIDTH)
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


def idle_stages_sentences(
    requested: Iterable[tuple[StepRequest, StepPrediction]], *, in_file: bool = False
) -> list[str]:
    """Return what the bubble is of pipelines with fewer micro-batches than stages, and the remedy; none without any.

    A sentence is that of the largest bubble of as many stages and micro-batches; ``in_file`` says
    that the step is one of a file of scenarios.
    """
    largest: dict[tuple[int, int], tuple[StepRequest, StepPrediction]] = {}
    for request, step in requested:
        if not step.has_idle_stages:
            continue
        shape = step.parallelism.mesh.pp, step.parallelism.micro_batches
        if shape not in largest or step.bubble_share > largest[shape][1].bubble_share:
            largest[shape] = request, step
    sentences = []
    for (stages, batches), (request, step) in largest.items():
        several = BATCHES_A_STAGE * stages
        key, value = "micro_batches", several
        if request.batch is not None:  # which decides on the micro-batches
            key, value = "batch", several * step.parallelism.mesh.dp * step.parallelism.samples
        remedy = f"{key}: {value}" if in_file else f"{option(key)} {value}"
        left = f"{bubble_share(stages, several):.0%}"
        sentences.append(
            f"bubble: up to {step.bubble_share:.0%} of the step, because {format_count(batches, 'micro-batch')} cannot "
            f"keep {stages} pipeline stages busy; do: {remedy}, with which a stage is idle for {left} of the "
            "time without communication"
        )
    return sentences


def best_case_sentences(predictions: Iterable[StepPrediction]) -> list[str]:
    """Return that the exposed share is a best case, and how far published steps were from it; none if it is not."""
    is_best_case = gathers_parameters = False
    for step in predictions:
        if step.exposed_at_best:
            is_best_case = True
            gathers_parameters |= step.parallelism.shards_parameters
    if gathers_parameters:
        return [f"{BEST_CASE}. {PUBLISHED_ZERO3}"]
    return [BEST_CASE] if is_best_case else []


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
    predictions = list(predictions)
    unmodelled: list[UnmodelledWork] = []
    for step in predictions:
        unmodelled += step.unmodelled
    names = _names_by_work(predictions)
    for call in _of_all_steps(unmodelled):
        yield from paragraph(unmodelled_sentence(call, ", ".join(names[call.work])))
    for sentence in published_sentences(near for call in unmodelled for near in call.published):
        yield from paragraph(sentence)


def _of_all_steps(unmodelled: Iterable[UnmodelledWork]) -> Iterable[UnmodelledWork]:
    """Return what is not modelled, once for all steps, with the ends of all times over published ones."""
    by_kind: dict[tuple[str, str, bool], UnmodelledWork] = {}
    for call in unmodelled:
        kind = call.work, join_words(call.missing, "or"), call.stands_in
        merged = by_kind.setdefault(kind, call)
        if call.over_published is None:
            continue
        ends = [*call.over_published, *(merged.over_published or ())]
        by_kind[kind] = merged._replace(over_published=(min(ends), max(ends)))
    return by_kind.values()


def unmodelled_sentence(call: UnmodelledWork, names: str) -> str:
    """Return what NCCL may run, what runs instead, and whether that makes the communication longer or shorter."""
    instead, takes = "ring and tree are modelled", "they take"
    if call.stands_in:
        instead, takes = f"our schedule stands in ({names})", "it takes"
    missing = join_words(call.missing, "or")
    begin = f"{call.work}: NCCL may take {missing}, which is not modelled; {instead}"
    if call.over_published is None:
        return (
            f"{begin}; nothing is published near its sizes: its time may be too long or too short"
        )
    low, high = call.over_published
    if low > 1 + CLOSE:
        meaning = "communication and its shares are too high"
    elif high < 1 - CLOSE:
        meaning = "communication and its shares are too low"
    elif low >= 1 - CLOSE and high <= 1 + CLOSE:
        meaning = "communication and its shares are about right"
    else:
        meaning = "communication and its shares may be too low or too high"
    times = _range(f"{low:.2f}", f"{high:.2f}")
    return f"{begin}; {takes} {times} times as long as NCCL at its published busbw: {meaning}"


def step_words(request: StepRequest, step: StepPrediction) -> str:
    """Return how the model is trained on any number of ranks, in words."""
    words = [request.parallel or "all ranks data parallel"]
    if step.parallelism.sharding != "none":
        words.append(step.parallelism.sharding)
    return ", ".join([*words, *_parallel_words(request, step)])


def _parallel_words(request: StepRequest, step: StepPrediction) -> Iterator[str]:
    """Yield how the model is trained, beside the mesh and the sharding."""
    parallelism = step.parallelism
    transformer = request.model.transformer
    if not parallelism.by_block:
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


def _bubble(step: StepPrediction) -> str:
    """Return the time of the bubble with its share of the step, marked if few micro-batches are the reason."""
    seconds = format_seconds(step.step.bubble_s)
    if not step.step.bubble_s:
        return seconds
    mark = "!" if step.has_idle_stages else ""
    return f"{seconds} ({step.bubble_share:.0%}{mark})"


def _busbw(step: StepPrediction) -> str:
    """Return the bus bandwidth, and the links with the rate of one: ``249 of 8 x 48.5 GB/s``."""
    if not step.busbw or not step.link:
        return "none"
    return f"{step.busbw / 1e9:.3g} of {step.links} x {step.link / 1e9:.3g} GB/s"


_TIMES: Columns[StepPrediction] = (
    ("GPUs", lambda predicted: f"{predicted.layout.workers:,}"),
    ("compute", lambda predicted: format_seconds(predicted.step.compute_s)),
    ("bubble", _bubble),
    ("communic.", lambda predicted: format_seconds(predicted.step.communication_s)),
    ("exposed", lambda predicted: format_seconds(predicted.step.exposed_s)),
    ("step", lambda predicted: format_seconds(predicted.step.step_s)),
    (
        "interval",
        lambda predicted: format_interval(predicted.interval) if predicted.interval else "none",
    ),
    ("share", lambda predicted: f"{predicted.step.share:.1%}"),
    ("all", lambda predicted: f"{predicted.communication_share:.0%}"),
)
_STEP: Columns[StepPrediction] = (
    ("nodes", lambda predicted: f"{predicted.nodes:,}"),
    *_TIMES,
    ("busbw of links", _busbw),
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
    "bubble": "time that it waits for other stages of the pipeline, without communication, and in % of the step",
    "communic.": "time of all collectives of a GPU, hidden behind computation or not",
    "exposed": "time by which communication makes the step longer",
    "interval": "the step at the fast and slow ends of the machine's numbers; none with NCCL's formulas",
    "share": "exposed, in % of the step",
    "all": "communic., in % of the step",
    "busbw of links": "of the collectives of gradients: bus bandwidth, as nccl-tests has it; the links of a node that "
    "a collective uses, and the rate of each, one way",
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


def _answer_lines(predicted: StepPredictions, begin: str) -> Iterator[str]:
    """Yield which share answers the question, and where the wall is; then which links would move it."""
    last = predicted.predictions[-1]
    sentence = f"{begin}{_share_words(predicted.predictions)}; {_wall_words(predicted)}"
    yield from textwrap.wrap(f"answer: {sentence}", WIDTH, subsequent_indent="  ")
    links = _links_sentence(last)
    if links:
        yield from paragraph(links)


def _share_words(steps: Sequence[StepPrediction]) -> str:
    """Return the shares of communication, and which of them to quote."""
    first, last = steps[0], steps[-1]
    gpus = _range(f"{first.layout.workers:,}", f"{last.layout.workers:,}")
    where = f"on {gpus} GPUs"
    if not any(step.step.communication_s for step in steps):
        return f"no communication {where}"
    everything = _range(f"{first.communication_share:.0%}", f"{last.communication_share:.0%}")
    exposed = _range(f"{first.step.share:.1%}", f"{last.step.share:.1%}")
    if any(step.exposed_at_best for step in steps):
        return (
            f"quote {everything} as the share of all communication {where} (all), and {exposed} as the best case of "
            "what lengthens the step (share)"
        )
    waiting = ""
    if any(step.step.exposed_s > step.step.communication_s for step in steps):
        waiting = ", less because stages also wait for messages that are late"
    return (
        f"quote {exposed} as the share of the communication that lengthens the step {where} (share); all "
        f"communication, hidden or not, is {everything} (all){waiting}"
    )


def _range(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _wall_words(predicted: StepPredictions) -> str:
    """Return where the wall is among the predicted numbers of nodes."""
    before, beyond = predicted.wall
    if beyond is None:
        last = predicted.predictions[-1]
        nodes = format_count(f"{last.nodes:,}", "node")
        return f"no wall up to {nodes}: communication takes less time than computation"
    if before is None:
        where = f"at {format_count(f'{beyond:,}', 'node')} or fewer"
    else:
        where = f"between {before:,} and {beyond:,} nodes"
    wall = f"the wall, beyond which communication takes longer than computation, is {where}"
    if any(step.has_idle_stages for step in predicted.predictions):
        return f"{wall} with so few micro-batches"
    return wall


def _links_sentence(step: StepPrediction) -> str:
    """Return the rate of links with which communication takes as long as computation; empty without any link."""
    if not step.link:
        return ""
    where = f"on {step.layout.workers:,} GPUs"
    link = f"each has {_rate_of_link(8 * step.link)}"
    if step.links > 1:
        link += f", and a collective uses {step.links} of a node"
    if step.hide_rate:
        rate = _rate_of_link(step.hide_rate)
        return (
            f"{where} communication would take as long as computation with links of {rate}; {link}"
        )
    if step.step.communication_s > step.step.compute_s:
        return (
            f"{where} faster links alone do not make communication as short as computation; {link}"
        )
    return ""


def _rate_of_link(bits_per_s: float) -> str:
    """Return the rate of one link as networks are sold, and as bus bandwidth counts: ``388 Gbit/s (48.5 GB/s)``."""
    return f"{format_bit_rate(bits_per_s)} ({bits_per_s / 8e9:.3g} GB/s)"


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
    rows = [(scenario.label, *cells) for scenario, cells in zip(predicted, body, strict=True)]
    yield from table_lines(("scenario", *head), rows, indent="")
    for sentence in _idle_stages_of_scenarios(predicted):
        yield from paragraph(f"! {sentence}")
    yield from _meanings(columns)
    yield ""
    for scenario in predicted:
        yield from textwrap.wrap(_scenario_answer(scenario), WIDTH, subsequent_indent="  ")
    for sentence in [*best_case_sentences(steps), *_samples_sentences(steps)]:
        yield from textwrap.wrap(sentence, WIDTH)
    yield ""
    for title in scenario_titles(predicted):
        yield from textwrap.wrap(title, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
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
    yield f"distance: {distance_range(step.distance for step in steps)}"
    for assumption in dict.fromkeys(
        assumption for step in steps for assumption in step.assumptions
    ):
        yield from textwrap.wrap(f"assumed: {assumption}", WIDTH)


def scenario_titles(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    """Return what the steps are, a line for each, then what all have; one line if all are of one kind."""
    first = predicted[0]
    words = [list(_parallel_words(scenario.request, scenario.prediction)) for scenario in predicted]
    common = [word for word in words[0] if all(word in own_words for own_words in words)]
    shapes = {_shape(scenario) for scenario in predicted}
    if len(shapes) == 1 and all(len(own) == len(common) for own in words):
        machines = ", ".join(dict.fromkeys(scenario.machine.name for scenario in predicted))
        model, nodes, mesh = _shape(first)
        gpus = f"{first.prediction.layout.workers:,} GPUs"
        return [f"{model} on {gpus}, {nodes} nodes of {machines}; {', '.join([mesh, *common])}"]
    titles = []
    for scenario, words_of_scenario in zip(predicted, words, strict=True):
        model, nodes, mesh = _shape(scenario)
        where = f"{model} on {format_count(nodes, 'node')} of {scenario.machine.name}"
        own = [word for word in words_of_scenario if word not in common]
        titles.append(f"{scenario.label}: {', '.join([where, mesh, *own])}")
    if common and len(predicted) > 1:
        titles.append(f"in all scenarios: {', '.join(common)}")
    return titles


def _shape(scenario: ScenarioPrediction) -> tuple[str, int, str]:
    """Return the model, the nodes, and the mesh with the sharding."""
    parallelism = scenario.prediction.parallelism
    mesh = parallelism.mesh.text
    if parallelism.sharding != "none":
        mesh += f", {parallelism.sharding}"
    return scenario.scenario.model, scenario.prediction.nodes, mesh


def scenario_notes(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    """Return what a picture of scenarios has to say beside them: a best case, idle stages, other numbers of samples."""
    steps = [scenario.prediction for scenario in predicted]
    notes = _idle_stages_of_scenarios(predicted)
    notes += best_case_sentences(steps)
    notes += _samples_sentences(steps)
    return notes


def _idle_stages_of_scenarios(predicted: Sequence[ScenarioPrediction]) -> list[str]:
    requested = []
    for scenario in predicted:
        requested.append((scenario.request, scenario.prediction))
    return idle_stages_sentences(requested, in_file=True)


def _scenario_answer(scenario: ScenarioPrediction) -> str:
    """Return which share of a scenario to quote, and on which side of the wall it is."""
    step = scenario.prediction
    side = "less"
    if step.step.communication_s > step.step.compute_s:
        side = "more"
    wall = f"communication takes {side} time than computation"
    return f"{scenario.label}: {_share_words([step])}; {wall}"


def _samples_sentences(steps: Sequence[StepPrediction]) -> list[str]:
    """Return that steps train different numbers of samples, so that their times are not those of the same work."""
    samples = sorted({step.samples for step in steps})
    if len(samples) < 2:
        return []
    trained = f"a step trains {samples[0]:,} to {samples[-1]:,} samples"
    return [f"compare shares, not times: {trained}; do: the same batch in all scenarios"]
