"""The predicted time of a training step, by the number of nodes: its programs, with predicted collectives.

All ranks compute at a stated rate; the collectives of the programs take what ``group_costs`` says,
simulated or by NCCL's own formulas; the timeline of all stages says what is exposed. Computation
and communication do not slow each other down, which GPUs do whose collectives take some of their
multiprocessors; codecs of GPUs take turns with both.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, TypedDict

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.catalogue import known_parameters
from hpccoll.common.errors import BadInputError
from hpccoll.common.json_schema import described
from hpccoll.common.units import format_count, format_seconds
from hpccoll.extensions.steps.analysis.paying_rate import PayingRate
from hpccoll.extensions.steps.model.codec_costs import CodecCosts
from hpccoll.extensions.steps.model.compression_pays import BoundCost, Timeline, paying_rate
from hpccoll.extensions.steps.model.group_costs import GroupCosts, UnmodelledWork
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.parallelism import (
    Mesh,
    Parallelism,
    StepDtypes,
    StepDtypesJson,
)
from hpccoll.extensions.steps.training.step_program import Compute, StepProgram
from hpccoll.extensions.steps.training.step_program_builder import step_programs
from hpccoll.extensions.steps.training.step_timeline import Cost, StepTimeline, step_timeline
from hpccoll.model.machine import Machine
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound
from hpccoll.model.nccl_candidates import NO_PARAMETERS, library_names
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.simulation_work import ShowProgress
from hpccoll.schedule import Layout, Parameter, itemsize
from hpccoll.store.schema import MODELLED, SIMULATED

MOST_NETWORKS = 3
"""The most networks that are tried for the rate that hides communication."""

HIDDEN = 0.02
"""The relative difference up to which communication takes as long as computation."""

GRADIENT_AXES = "dp", "shard", "replica", "expert_replica"
"""The axes of the mesh over which gradients are synchronised."""

CODECS_RUN_BESIDE = "codecs run beside computations, and do not slow them down"
CODECS_RUN_ON_GPUS = "codecs run on the GPU that computes: the backward pass takes longer by them"
"""What is assumed of codecs where they do not run on the device that computes, and where they do."""


@dataclass(frozen=True, slots=True)
class ComputeRate:
    """How fast a rank computes: exactly one of the first three."""

    flops_per_s: float | None = None  # FLOPs a second
    # the seconds that the busiest rank computes in a step, whatever its FLOPs
    step_s: float | None = None
    # the seconds of the step, with communication, from which the rate follows
    whole_s: float | None = None
    source: str = ""  # where the rate comes from, in words

    @property
    def text(self) -> str:
        """The rate in words."""
        if self.step_s is not None:
            return f"each rank computes for {self.step_s:g} s in a step"
        source = f" ({self.source})" if self.source else ""
        return f"each rank computes {(self.flops_per_s or 0.0) / 1e12:.4g} TFLOP/s{source}"

    def rate(self, programs: Sequence[StepProgram]) -> float:
        """Return the FLOPs a second with which ranks run the programs of all stages."""
        return self.flops_per_s or _busiest_flops(programs) / (self.step_s or 1.0)

    def seconds(self, programs: Sequence[StepProgram]) -> Callable[[Compute], float]:
        """Return the duration of a computation of the programs of all stages."""
        rate = self.rate(programs)
        return lambda compute: compute.flops / rate if compute.flops else 0.0

    def solved(self, programs: Sequence[StepProgram], cost: Cost, nodes: int) -> "ComputeRate":
        """Return the rate; of a whole step that with which the programs take as long on a number of nodes.

        Raises:
            BadInputError: if communication alone takes longer.
        """
        if self.whole_s is None:
            return self
        rate = rate_of_step(programs, cost, self.whole_s)
        computed = format_seconds(_busiest_flops(programs) / rate)
        about = f"a step of {format_seconds(self.whole_s)} on {format_count(nodes, 'node')}: {computed} of computation"
        return ComputeRate(rate, source=about)


def rate_of_step(programs: Sequence[StepProgram], cost: Cost, whole_s: float) -> float:
    """Return the FLOPs a second of each rank with which the programs of all stages take ``whole_s`` seconds.

    Raises:
        BadInputError: if communication alone takes longer.
    """
    from scipy.optimize import brentq  # its import takes 0.2 s

    part_of_step = ComputeRate(step_s=1.0).seconds(programs)

    def too_long_s(compute_s: float) -> float:
        return (
            step_timeline(programs, lambda compute: compute_s * part_of_step(compute), cost).step_s
            - whole_s
        )

    beyond = too_long_s(0.0)
    if beyond >= 0:
        least = f"more than the {format_seconds(whole_s + beyond)} that communication alone takes"
        raise BadInputError("--step", format_seconds(whole_s), least)
    most_s = 2 * whole_s  # of computation alone, which takes too long whatever is rounded
    return _busiest_flops(programs) / float(brentq(too_long_s, 0.0, most_s, xtol=whole_s * 1e-9))


def _busiest_flops(programs: Sequence[StepProgram]) -> float:
    """Return the FLOPs of a step of a rank of the stage that computes most."""
    return max(program.flops("forward") + program.flops("backward") for program in programs)


@dataclass(frozen=True, slots=True)
class StepRequest:
    """Which training step to predict."""

    model: ModelShape
    nodes: Sequence[int]  # the numbers of nodes
    compute: ComputeRate  # how fast ranks compute
    parallel: str = ""  # the mesh as text; data-parallel ranks are as many as are left
    # everything else about the parallelism; its mesh does not matter
    parallelism: Parallelism = field(default_factory=Parallelism)
    # the samples of a step on all ranks together, which sets the micro-batches [as many as
    # ``parallelism`` says on every data-parallel rank]
    batch: int | None = None
    ranks_per_node: int | None = None  # the ranks on each node [those of the machine]
    # the algorithm of the collectives that have it [NCCL's own, or of each the fastest of the usual
    # ones]
    algorithm: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    # the aggregators of algorithms that have some [none; if they are switches, as many as needed]
    aggregators: int | None = None
    # how gradients are compressed, a prediction for each; None: not at all
    compressions: Sequence[Compression | None] = (None,)
    # the bytes of float32 that codecs go through in a second [see ``codec_costs``]
    codec_rate: float | None = None

    def on(self, ranks: int) -> Parallelism:
        """Return the parallelism of a number of ranks; BadInputError if they cannot be divided so."""
        mesh = Mesh.parse(self.parallel, ranks)
        if self.batch is None:
            return replace(self.parallelism, mesh=mesh)
        micro_batch = mesh.dp * self.parallelism.samples
        if self.batch < 1 or self.batch % micro_batch:
            raise BadInputError(
                "--batch",
                self.batch,
                f"a multiple of {micro_batch}: dp={mesh.dp} times the samples",
            )
        return replace(self.parallelism, mesh=mesh, micro_batches=self.batch // micro_batch)


class UnmodelledWorkJson(TypedDict):
    """A collective for which NCCL may take algorithms that have no formula here, as JSON has it."""

    work: str
    missing: list[str]
    stands_in: bool
    published: Annotated[
        list[dict[str, Any]], described("what was published near it: a section of machine files")
    ]
    over_published_low: Annotated[
        float | None, described("its time over that at published bus bandwidth, at least")
    ]
    over_published_high: Annotated[
        float | None, described("its time over that at published bus bandwidth, at most")
    ]


class StepPredictionJson(StepDtypesJson):
    """The predicted step on a number of nodes, as JSON has it."""

    gpus: int
    nodes: int
    ranks_per_node: int
    parallel: str
    sharding: str
    micro_batches: int
    compress: str | None
    codec_s: float
    samples: int
    gradient_bytes: int
    rank_gradient_bytes: int
    communication_s: float
    exposed_s: float
    exposed_at_best: Annotated[
        bool,
        described("whether exposed_s and share are a best case: computation hides at no price"),
    ]
    compute_s: float
    flops_per_s: float
    bubble_s: float
    step_s: float
    ci_low_s: float | None
    ci_high_s: float | None
    share: float
    communication_share: float
    hide_rate_bps: float | None
    pays_below_bps: float | None
    pays_below_low_bps: float | None
    pays_below_high_bps: float | None
    busbw_Bps: float | None
    link_Bps: float | None
    links: int
    algorithms: dict[str, str]
    kind: str
    kinds: list[str]
    distance: str
    assumptions: list[str]
    unmodelled: list[UnmodelledWorkJson]


@dataclass(frozen=True, slots=True)
class StepPrediction:
    """The predicted step on a number of nodes."""

    nodes: int
    layout: Layout  # the layout of the ranks
    parallelism: Parallelism  # how the model is trained
    compute: ComputeRate  # how fast ranks compute
    flops_per_s: float  # the FLOPs a second of a rank while it computes
    dtypes: StepDtypes  # the types of what moves
    gradient_bytes: int  # the bytes of all gradients of the model
    # the bytes of the gradients of a rank of the stage with the most of them
    rank_gradient_bytes: int
    timelines: Mapping[Bound, StepTimeline]  # the timeline by bound
    samples: int  # the samples of a step on all ranks together
    # bus bandwidth of the collectives of gradients, in bytes a second; None without any
    busbw: float | None
    # the rate of a link that these collectives cross, in bytes a second; None without any
    link: float | None
    links: int  # the links of a node that such a collective uses at once
    # the rate of a link, in bits a second, at which all communication takes as long as the
    # computation
    hide_rate: float | None
    # the rates of a link below which compression pays; None without it, or without any link
    pays: PayingRate | None
    algorithms: Mapping[str, str]  # the algorithms of each collective and axis
    # measured over predicted time of held-out measurements of the machine, 5th and 95th percentile
    ratios: tuple[float, float]
    distance: str  # how far the prediction is from the nearest measurement, in words
    assumptions: Sequence[str]  # the assumptions behind the prediction
    unmodelled: Sequence[UnmodelledWork]  # what NCCL may run and has no formula here
    # the kinds of the times of its collectives: simulated, or modelled by NCCL's formulas
    kinds: frozenset[str]

    @property
    def step(self) -> StepTimeline:
        """The timeline at the likely values of the machine."""
        return self.timelines["value"]

    @property
    def compress(self) -> str | None:
        """How gradients are compressed, as text; None: not at all."""
        if not self.parallelism.compression:
            return None
        return self.parallelism.compression.text

    @property
    def communication_share(self) -> float:
        """The seconds of all collectives over those of the step."""
        if not self.step.step_s:
            return 0.0
        return self.step.communication_s / self.step.step_s

    @property
    def exposed_at_best(self) -> bool:
        """Whether the exposed time is a best case, because it rests on what computation hides at no price."""
        step = self.step
        if not self.parallelism.overlap or not step.communication_s:
            return False
        gathers = self.parallelism.shards_parameters and self.parallelism.mesh.dp > 1
        return gathers or step.exposed_s < step.communication_s / 2

    @property
    def has_idle_stages(self) -> bool:
        """Whether a pipeline has fewer micro-batches than stages, as no job that people run."""
        return self.parallelism.micro_batches < self.parallelism.mesh.pp

    @property
    def bubble_share(self) -> float:
        """The seconds of the bubble of the pipeline over those of the step."""
        if not self.step.step_s:
            return 0.0
        return self.step.bubble_s / self.step.step_s

    @property
    def kind(self) -> str:
        """Modelled as soon as a collective is."""
        if MODELLED in self.kinds:
            return MODELLED
        return SIMULATED

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the time of the step: held-out errors of the machine widen what is exposed.

        None as soon as a collective has the time of a formula, which has none.
        """
        if MODELLED in self.kinds:
            return None
        least, most = self.ratios
        steps = self.timelines.values()
        low_s = min(step.bare_s + step.exposed_s * least for step in steps)
        high_s = max(step.bare_s + step.exposed_s * most for step in steps)
        return min(self.step.step_s, low_s), max(self.step.step_s, high_s)

    def to_json(self) -> StepPredictionJson:
        """Return the prediction in SI units; absent values are None."""
        step = self.step
        low, high = self.interval or (None, None)
        return {
            "gpus": self.layout.workers,
            "nodes": self.nodes,
            "ranks_per_node": self.layout.workers // self.nodes,
            "parallel": self.parallelism.mesh.text,
            "sharding": self.parallelism.sharding,
            "micro_batches": self.parallelism.micro_batches,
            "compress": self.compress,
            "codec_s": step.codec_s,
            "samples": self.samples,
            **self.dtypes.keys,
            "gradient_bytes": self.gradient_bytes,
            "rank_gradient_bytes": self.rank_gradient_bytes,
            "communication_s": step.communication_s,
            "exposed_s": step.exposed_s,
            "exposed_at_best": self.exposed_at_best,
            "compute_s": step.compute_s,
            "flops_per_s": self.flops_per_s,
            "bubble_s": step.bubble_s,
            "step_s": step.step_s,
            "ci_low_s": low,
            "ci_high_s": high,
            "share": step.share,
            "communication_share": self.communication_share,
            "hide_rate_bps": self.hide_rate,
            "pays_below_bps": self.pays and self.pays.likely,
            "pays_below_low_bps": self.pays and self.pays.low,
            "pays_below_high_bps": self.pays and self.pays.high,
            "busbw_Bps": self.busbw,
            "link_Bps": self.link,
            "links": self.links,
            "algorithms": dict(self.algorithms),
            "kind": self.kind,
            "kinds": sorted(self.kinds),
            "distance": self.distance,
            "assumptions": list(self.assumptions),
            "unmodelled": [_unmodelled_row(work) for work in self.unmodelled],
        }


def _unmodelled_row(work: UnmodelledWork) -> UnmodelledWorkJson:
    published = [section.model_dump(by_alias=True) for section in work.published]
    low, high = work.over_published or (None, None)
    return {
        "work": work.work,
        "missing": list(work.missing),
        "stands_in": work.stands_in,
        "published": published,
        "over_published_low": low,
        "over_published_high": high,
    }


@dataclass(frozen=True, slots=True)
class StepPredictions:
    """The predictions of a request."""

    machine: MachineFile
    request: StepRequest
    predictions: Sequence[StepPrediction]  # the predictions, by nodes
    left_out: Mapping[str, Sequence[int]]  # the numbers of nodes without a prediction, by reason
    # whether some were left out because the user has interrupted the simulations
    interrupted: bool = False

    @property
    def kinds(self) -> list[str]:
        """The kinds of the times of all collectives."""
        kinds: set[str] = set()
        for prediction in self.predictions:
            kinds |= prediction.kinds
        return sorted(kinds)

    @property
    def wall(self) -> tuple[int | None, int | None]:
        """The numbers of nodes around the wall, from which on communication takes longer than computation.

        They are the last predicted one before it, and the first one beyond; None without any. They
        say something of predictions of the same compression only.
        """
        before = None
        for prediction in self.predictions:
            if prediction.step.communication_s > prediction.step.compute_s:
                return before, prediction.nodes
            before = prediction.nodes
        return before, None

    @property
    def by_compression(self) -> dict[str | None, "StepPredictions"]:
        """The predictions of each compression."""
        groups: dict[str | None, list[StepPrediction]] = defaultdict(list)
        for prediction in self.predictions:
            groups[prediction.compress].append(prediction)
        return {compress: replace(self, predictions=group) for compress, group in groups.items()}


def predict_steps(
    machine: MachineFile, request: StepRequest, progress: ShowProgress | None = None
) -> StepPredictions:
    """Return the predictions of a request. After an interrupt (SIGINT) these are those that were complete, if any.

    Raises:
        BadInputError: if a value of the request is invalid, or nothing of it can be predicted.
    """
    _check_algorithm(machine, request)
    predictions: list[StepPrediction] = []
    left_out: dict[str, list[int]] = defaultdict(list)
    refused: BadInputError | None = None
    interrupted = False
    wanted = [
        (nodes, compression) for nodes in request.nodes for compression in request.compressions
    ]
    simulated: defaultdict[int, dict[tuple[object, ...], Any]] = defaultdict(dict)
    for done, (nodes, compression) in enumerate(wanted):
        try:
            if progress:
                progress(done, len(wanted), format_count(f"{nodes:,}", "node"))
            predictions.append(_predict(machine, request, nodes, compression, simulated[nodes]))
            request = replace(request, compute=predictions[-1].compute)
        except BadInputError as error:
            # the computation follows from the first number of nodes
            if request.compute.whole_s is not None:
                raise
            left_out[str(error)].append(nodes)
            refused = refused or error
        except KeyboardInterrupt:
            if not predictions:
                raise
            left_out["interrupted"] = list(dict.fromkeys(nodes for nodes, _ in wanted[done:]))
            interrupted = True
            break
    if refused and not predictions:
        raise refused
    return StepPredictions(machine, request, predictions, left_out, interrupted)


def _check_algorithm(machine: MachineFile, request: StepRequest) -> None:
    if request.algorithm is None:
        return
    library_algorithms = library_names(machine, "all_reduce")
    algorithms = sorted([*collective("all_reduce").components, *library_algorithms])
    if request.algorithm not in algorithms:
        raise BadInputError("--algorithm", request.algorithm, algorithms)
    if not request.algorithm:
        return
    valid = (
        ()
        if request.algorithm in library_algorithms
        else known_parameters("all_reduce", request.algorithm)
    )
    for name in request.parameters:
        if name not in valid:
            raise BadInputError(f"parameter of {request.algorithm}", name, valid or NO_PARAMETERS)


def _predict(
    machine: MachineFile,
    request: StepRequest,
    nodes: int,
    compression: Compression | None,
    simulated: dict[tuple[object, ...], Any],
) -> StepPrediction:
    """Return a prediction; ``simulated`` is what was simulated for others on as many nodes."""
    layout = machine.layout(nodes, request.ranks_per_node)
    model = request.model
    parallelism = request.on(layout.workers)
    mesh = parallelism.mesh
    dense = programs = step_programs(model, parallelism)
    codecs = None
    if compression:
        parallelism = replace(parallelism, compression=compression)
        programs = step_programs(model, parallelism)
        codecs = CodecCosts.of(machine, compression, layout, request.codec_rate)
    costs_on = partial(_prepared_costs, request, layout, mesh, codecs, simulated)
    costs = costs_on(machine, programs)
    costs_today = costs
    if request.compute.whole_s is not None and (machine.unscaled is not machine or compression):
        # today's step has no compression and the network of the file
        costs_today = costs_on(machine.unscaled, dense)
    compute = request.compute.solved(dense, costs_today.cost, nodes)
    timeline = partial(_timeline, compute.seconds(programs), machine.nccl is not None)
    timelines = {bound: timeline(programs, partial(costs.cost, bound=bound)) for bound in BOUNDS}
    step = timelines["value"]
    busbw = _gradient_busbw(mesh, step)
    link, links = _gradient_link(machine, layout, mesh) if busbw else (None, 0)
    hide_rate, pays = _break_even(machine, costs_on, timeline, step, programs, dense, link)
    dtypes = parallelism.dtypes_of(model)
    gradient_size = itemsize(dtypes.gradient)
    return StepPrediction(
        nodes=nodes,
        layout=layout,
        parallelism=parallelism,
        compute=compute,
        flops_per_s=compute.rate(programs),
        dtypes=dtypes,
        gradient_bytes=model.parameters * gradient_size,
        rank_gradient_bytes=max(program.model.parameters for program in programs) * gradient_size,
        timelines=timelines,
        samples=mesh.dp * parallelism.samples * parallelism.micro_batches,
        busbw=busbw,
        link=link,
        links=links,
        hide_rate=hide_rate,
        pays=pays,
        algorithms=costs.algorithms(),
        ratios=machine.held_out_ratios,
        distance=machine.distance(nodes, layout.workers // nodes, _largest_message(programs)),
        assumptions=list(_assumptions(machine, costs, codecs, pays)),
        unmodelled=costs.unmodelled,
        kinds=frozenset(costs.kinds or {SIMULATED}),
    )


def _largest_message(programs: Sequence[StepProgram]) -> int:
    """Return the bytes of the largest collective or message of programs; 0 without any."""
    largest = 0
    for program in programs:
        for operation in program.operations:
            if not operation.is_codec:
                largest = max(largest, operation.nbytes)
    return largest


def _prepared_costs(
    request: StepRequest,
    layout: Layout,
    mesh: Mesh,
    codecs: CodecCosts | None,
    simulated: dict[tuple[object, ...], Any],
    machine: MachineFile,
    programs: Sequence[StepProgram],
) -> GroupCosts:
    """Return the costs of all operations of programs on a machine."""
    costs = GroupCosts(
        machine,
        layout,
        mesh,
        request.algorithm,
        request.parameters,
        request.aggregators,
        codecs,
        simulated,
    )
    costs.prepare(programs)
    return costs


def _timeline(
    seconds: Callable[[Compute], float],
    codecs_compute: bool,
    programs: Sequence[StepProgram],
    cost: Cost,
) -> StepTimeline:
    return step_timeline(programs, seconds, cost, codecs_compute=codecs_compute)


def _break_even(
    machine: MachineFile,
    costs_on: Callable[[MachineFile, Sequence[StepProgram]], GroupCosts],
    timeline: Timeline,
    step: StepTimeline,
    programs: Sequence[StepProgram],
    dense: Sequence[StepProgram],
    link: float | None,
) -> tuple[float | None, PayingRate | None]:
    """Return the rate of a link, in bits a second, that hides communication, and those below which compression pays."""
    if link is None:
        return None, None

    def communication_s(factor: float) -> float:
        return timeline(
            programs, costs_on(machine.with_network(factor), programs).cost
        ).communication_s

    def cost_of_both(factor: float) -> BoundCost:
        return costs_on(machine.with_network(factor), [*programs, *dense]).cost

    hiding = hiding_factor(step, communication_s)
    hide_rate = 8 * link * hiding if hiding else None
    if dense is programs:  # nothing is compressed
        return hide_rate, None
    return hide_rate, paying_rate(
        cost_of_both, programs, dense, timeline, link, machine.held_out_ratios
    )


def _assumptions(
    machine: MachineFile, costs: GroupCosts, codecs: CodecCosts | None, pays: PayingRate | None
) -> Iterator[str]:
    yield from costs.assumed
    if codecs:
        yield codecs.source
        yield CODECS_RUN_ON_GPUS if machine.nccl else CODECS_RUN_BESIDE
    if pays and MODELLED in costs.kinds:
        yield "the interval of the rate below which compression pays is that of codecs: formulas have none"


def hiding_factor(step: StepTimeline, communication_s: Callable[[float], float]) -> float | None:
    """Return how many times as fast a network would have to be for communication to take as long as computation.

    Communication takes a + b/x seconds on a network x times as fast: a is what latencies take, and
    what stays inside nodes. Both follow from two networks, at first from that which there is and
    one as fast as is enough if a is 0.

    Args:
        step: the step on the network as it is.
        communication_s: returns the seconds of communication on a network as many times as fast.

    Returns:
        None if no network is enough, and if none takes part.
    """
    if not step.compute_s or not step.communication_s:
        return None
    before = 1.0
    seconds_before = step.communication_s
    x = step.communication_s / step.compute_s
    for _ in range(MOST_NETWORKS):
        seconds = communication_s(x)
        if math.isclose(seconds, step.compute_s, rel_tol=HIDDEN) or math.isclose(x, before):
            break
        per_inverse_rate = (seconds - seconds_before) / (1 / x - 1 / before)
        left = step.compute_s - (seconds - per_inverse_rate / x)
        if left <= 0 or per_inverse_rate <= 0:
            return None
        before, seconds_before = x, seconds
        x = per_inverse_rate / left
    return x


def _gradient_busbw(mesh: Mesh, timeline: StepTimeline) -> float | None:
    """Return the bus bandwidth of the collectives of gradients of a stage; None without any."""
    moved = taken = 0.0
    for span in max(timeline.spans, key=len):
        operation = span.operation
        if operation is None or operation.is_codec or operation.axis not in GRADIENT_AXES:
            continue
        factor = collective(operation.collective).busbw
        if factor:
            moved += operation.nbytes * factor(mesh.size(operation.axis))
        taken += span.end_s - span.begin_s
    if not taken:
        return None
    return moved / taken


def _gradient_link(machine: MachineFile, layout: Layout, mesh: Mesh) -> tuple[float | None, int]:
    """Return the rate of a link that data-parallel ranks cross, and how many of them a group uses on a node."""
    group = mesh.groups("dp")[0]
    costs = machine.machine()
    nodes = {layout.node[me] for me in group}
    racks = {layout.rack[me] for me in group}
    if len(nodes) == 1:
        return 1 / _byte_s_of_large(costs, "node"), 1
    byte_s = _byte_s_of_large(costs, "fabric" if len(racks) > 1 else "rack")
    rails = {layout.rail[me] for me in group if layout.node[me] == layout.node[group[0]]}
    return 1 / max(byte_s, costs.port_byte_s), len(rails)


def _byte_s_of_large(costs: Machine, tier: str) -> float:
    """Return the seconds of a byte of the largest messages of a tier."""
    return costs.tiers[tier].costs[-1].byte_s
