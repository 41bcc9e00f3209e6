"""Predictions: the simulated times of algorithms by size and number of nodes, with intervals, and NCCL's own model."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, product
from typing import Annotated, Any, TypedDict

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import check_case, exact_parameters, parameters_by_algorithm
from hpccoll.cases.requested_schedule import DEFAULT_DTYPE
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.json_schema import described
from hpccoll.common.units import format_count, format_size
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound, PublishedSection
from hpccoll.model.nccl_candidates import NO_PARAMETERS, LibraryCalls, library_names, unmodelled
from hpccoll.model.published_rates import published_near
from hpccoll.model.simulation import BOUNDS, AlgorithmSimulation
from hpccoll.model.simulation_work import RemainingTime, ShowProgress
from hpccoll.schedule import Layout, Parameter, itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.schema import MODELLED, SIMULATED

USUAL = {"all_reduce": ("ring", "recursive_doubling", "rabenseifner", "hierarchical")}
"""The algorithms that are predicted by default, of collectives with too many algorithms to predict all of them."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to predict: every algorithm for every size on every number of nodes."""

    nodes: Sequence[int]  # the numbers of nodes
    sizes: Sequence[int]  # the sizes in bytes
    collective: str = "all_reduce"
    # the names of the algorithms [those of USUAL, or all; and those of aggregators, if there are
    # any]; NCCL's own are added as the last ones on a machine that has them, unless the names have
    # one of them: ours are compared with what a user has
    algorithms: Sequence[str] = ()
    # the ranks on each node [those of the machine file, or the most that were measured]
    ranks_per_node: int | None = None
    dtype: str = DEFAULT_DTYPE  # the type of the elements
    # the number of aggregators [none; if they are switches, as many as an algorithm needs]
    aggregators: int | None = None
    # the order of ranks, a word of MAPPINGS [consecutive ranks on each node]
    mapping: str | None = None
    # the most nodes of a rack [those of the machine file, or as measured, or all]
    nodes_per_rack: int | None = None
    # the nodes along each dimension of the torus [as measured, or as equal as possible]
    torus: str | None = None
    ports: int = 1  # the ports of each rank, which send their parts of the vector at once
    # parameters of algorithms and of the collective; each algorithm takes those that it has
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def choices(self, machine: MachineFile) -> list[tuple[str, dict[str, Parameter]]]:
        """Return the algorithms with their parameters.

        Raises:
            BadInputError: if the collective, an algorithm or the dtype does not exist, or a
                parameter is invalid.
        """
        family = collective(self.collective)
        library = dict.fromkeys(library_names(machine, family.name))
        names = self._names(machine)
        if library.keys().isdisjoint(names):
            names += library
        for name in names:
            if name not in family.components and name not in library:
                raise BadInputError("algorithm", name, sorted([*family.components, *library]))
        ours = [name for name in names if name not in library]
        if self.parameters and not ours:
            raise BadInputError(
                f"parameter of {', '.join(names)}", next(iter(self.parameters)), NO_PARAMETERS
            )
        values = exact_parameters({**family.arguments, **self.parameters})
        parameters_of = parameters_by_algorithm(family.name, ours, values)
        choices = [(name, parameters_of.get(name, {})) for name in names]
        for name, parameters in choices:
            check_case(
                Case(
                    collective=family.name,
                    algorithm=NATIVE if name in library else name,
                    params=parameters,
                    bytes=max(self.sizes),
                    dtype=self.dtype,
                    op="sum" if family.has_op else None,
                    in_place=family.in_place,
                    mapping=self.mapping,
                )
            )
        return choices

    def layout(self, machine: MachineFile, nodes: int, aggregators: int = 0) -> Layout:
        """Return the layout of a job on a number of nodes, with ``aggregators``: see ``MachineFile.layout``."""
        return machine.layout(
            nodes, self.ranks_per_node, aggregators, self.mapping, self.nodes_per_rack
        )

    def _names(self, machine: MachineFile) -> list[str]:
        """Return the requested algorithms, or else the usual ones with those of aggregators, if there are any."""
        if self.algorithms:
            return list(dict.fromkeys(self.algorithms))
        family = collective(self.collective)
        names = dict.fromkeys(USUAL.get(family.name) or family.components)
        if self.aggregators or machine.aggregators.kind == "switches":
            names |= dict.fromkeys(
                name for name, algorithm in family.components.items() if algorithm.aggregates
            )
        return list(names)


class PredictionJson(TypedDict):
    """A predicted time, as JSON has it, by the names of exported rows."""

    collective: str
    algorithm: str
    params: dict[str, Parameter]
    nodes: int
    ranks_per_node: int
    ranks: int
    racks: int
    aggregators: int
    mapping: str | None
    dtype: str
    bytes: int
    requested_bytes: int
    median_s: float
    ci_low_s: float | None
    ci_high_s: float | None
    algbw_Bps: float
    busbw_Bps: float | None
    kind: str
    exact: bool | None
    distance: str
    assumed: str | None
    unmodelled: list[str]
    published: Annotated[
        list[dict[str, Any]], described("what was published near it: a section of machine files")
    ]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of an algorithm for a size on a number of nodes."""

    collective: str
    algorithm: str  # the algorithm; for NCCL's own model ``nccl_ring`` or ``nccl_tree``
    params: Mapping[str, Parameter]  # all parameters with the values used
    nodes: int
    ranks_per_node: int  # the ranks on each node
    racks: int
    aggregators: int
    requested_bytes: int  # the requested size
    nbytes: int  # the size S that is moved
    dtype: str  # the type of the elements
    mapping: str | None  # the requested mapping
    seconds: Mapping[Bound, float]  # the time by bound; of a formula the likely one only
    low_s: float | None  # lower end of the interval; None for a formula
    high_s: float | None  # upper end of the interval
    exact: bool | None  # whether every message was an event of the simulation; None for a formula
    distance: str  # how far the prediction is from the nearest measurement, in words
    # the assumption behind the prediction, if it does not describe what a machine has
    assumed: str | None = None
    # NCCL's algorithms that NCCL may take here, and that are not predicted
    unmodelled: Sequence[str] = ()
    # what was published of NCCL near this case, on machines of this class
    published: Sequence[PublishedSection] = ()
    # the simulations of fewer ranks that the time follows from, in words
    stand_ins: str | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval; of a formula, the time twice."""
        return self.low_s or self.value_s, self.high_s or self.value_s

    @property
    def far(self) -> str:
        """How far the prediction is from measurements, and from simulations of all ranks, in words."""
        return self.distance if self.stand_ins is None else f"{self.distance}; {self.stand_ins}"

    @property
    def kind(self) -> str:
        return MODELLED if self.exact is None else SIMULATED

    @property
    def of_library(self) -> bool:
        """Whether it is NCCL's own algorithm, whose time is a formula."""
        return self.exact is None

    @property
    def eligible(self) -> bool:
        """Whether it can be the best: it is what a machine has, and no assumption."""
        return self.assumed is None

    @property
    def value_s(self) -> float:
        """The time at the likely values of the machine."""
        return self.seconds["value"]

    @property
    def algbw(self) -> float:
        """S over the time, in bytes a second."""
        return self.nbytes / self.value_s if self.value_s else 0.0

    @property
    def busbw(self) -> float | None:
        """The bus bandwidth in bytes a second, as nccl-tests prints it; None if the collective has none."""
        factor = collective(self.collective).busbw
        if not factor:
            return None
        ranks = self.nodes * self.ranks_per_node
        return self.algbw * factor(ranks)

    def at(self, bound: Bound) -> float:
        """Return the time at a bound; of a formula, which has no interval, the likely one."""
        return self.seconds.get(bound, self.value_s)

    def times_as_fast_as(self, reference: "Prediction") -> tuple[float, float, float]:
        """Return the time of another prediction over this one: at the likely values, the least and the most."""
        ratios = [reference.at(bound) / self.at(bound) for bound in BOUNDS]
        return ratios[0], min(ratios), max(ratios)

    def to_json(self) -> PredictionJson:
        """Return the prediction in SI units, by the names of exported rows; absent values are None."""
        return {
            "collective": self.collective,
            "algorithm": self.algorithm,
            "params": dict(self.params),
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "ranks": self.nodes * self.ranks_per_node,
            "racks": self.racks,
            "aggregators": self.aggregators,
            "mapping": self.mapping,
            "dtype": self.dtype,
            "bytes": self.nbytes,
            "requested_bytes": self.requested_bytes,
            "median_s": self.value_s,
            "ci_low_s": self.low_s,
            "ci_high_s": self.high_s,
            "algbw_Bps": self.algbw,
            "busbw_Bps": self.busbw,
            "kind": self.kind,
            "exact": self.exact,
            "distance": self.far,
            "assumed": self.assumed,
            "unmodelled": list(self.unmodelled),
            "published": [section.model_dump(by_alias=True) for section in self.published],
        }


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions of a request."""

    machine: MachineFile
    request: Request
    predictions: Sequence[Prediction]  # the predictions, by nodes, algorithms and sizes
    # the numbers of nodes without a prediction, by algorithm and reason
    left_out: Mapping[str, Sequence[int]]
    # whether some were left out because the user has interrupted the simulations
    interrupted: bool = False

    @property
    def kinds(self) -> list[str]:
        """The kinds of the predictions, in order."""
        return list(dict.fromkeys(prediction.kind for prediction in self.predictions))

    @property
    def has_all_of_library(self) -> bool:
        """Whether all of NCCL's algorithms of the collective are among them, so that the fastest is what NCCL takes."""
        names_of_library = set(library_names(self.machine, self.request.collective))
        predicted = {prediction.algorithm for prediction in self.predictions}
        return bool(names_of_library) and names_of_library <= predicted


@dataclass(frozen=True, slots=True)
class PlannedPrediction:
    """A prediction that is to be simulated."""

    simulation: AlgorithmSimulation
    nodes: int
    nbytes: int
    expected_s: float  # the expected seconds of its simulations

    @property
    def algorithm(self) -> str:
        return self.simulation.algorithm.name

    def text(self, share: float) -> str:
        """Return what it is, and the share of its simulations that is done."""
        ranks = format_count(f"{self.simulation.layout.workers:,}", "rank")
        done = f"{share:.0%}" if share else "reading steps"
        return f"{self.algorithm} on {ranks}, {format_size(self.nbytes)}: {done}"


@dataclass(frozen=True, slots=True)
class PredictionPlan:
    """What is to be simulated for a request, and how long it will take."""

    machine: MachineFile
    request: Request
    planned: Sequence[PlannedPrediction]  # the predictions, by nodes, algorithms and sizes
    formulas: Sequence[Prediction]  # those of NCCL's own algorithms, which need no simulation
    # the numbers of nodes without a prediction, by algorithm and reason
    left_out: Mapping[str, Sequence[int]]

    @classmethod
    def of(
        cls, machine: MachineFile, request: Request, progress: ShowProgress | None = None
    ) -> "PredictionPlan":
        """Return the plan of a request.

        Raises:
            BadInputError: if a value of the request is invalid, or nothing of it can be predicted.
        """
        choices = request.choices(machine)
        # what is wrong for one of them is said before the first estimate
        for nodes in request.nodes:
            request.layout(machine, nodes, request.aggregators or 0)
            machine.torus_of(nodes, request.torus)
        left_out: dict[str, list[int]] = defaultdict(list)
        library_algorithms = library_names(machine, request.collective)
        names_of_library = [name for name, _ in choices if name in library_algorithms]
        formulas = list(_by_formulas(machine, request, names_of_library, left_out))
        ours = []
        for name, parameters in choices:
            if name not in library_algorithms:
                ours.append((name, parameters))
        total = len(request.nodes) * len(ours) * len(request.sizes)
        planned: list[PlannedPrediction] = []
        for nodes in request.nodes:
            layout_of = lru_cache(2)(partial(request.layout, machine, nodes))
            for name, parameters in ours:
                if progress:
                    progress(
                        0, total, f"estimating the time of {name} on {format_count(nodes, 'node')}"
                    )
                simulation = AlgorithmSimulation(
                    machine,
                    request.collective,
                    name,
                    parameters,
                    layout_of,
                    dtype=request.dtype,
                    aggregators=request.aggregators,
                    ports=request.ports,
                    torus=machine.torus_of(nodes, request.torus),
                )
                planned += _planned(simulation, nodes, request.sizes, left_out)
        if not planned and not formulas:
            raise UnusableError("--algorithms", "; ".join(left_out))
        nodes_by_reason = {}
        for reason, nodes_left_out in left_out.items():
            nodes_by_reason[reason] = tuple(dict.fromkeys(nodes_left_out))
        return cls(machine, request, planned, formulas, nodes_by_reason)

    @property
    def order(self) -> list[PlannedPrediction]:
        """The predictions in the order of their simulation: what takes longest comes last, after all that it delays.

        All sizes of an algorithm on a number of nodes share its messages, and follow one another.
        """
        together: dict[int, list[PlannedPrediction]] = defaultdict(list)
        for planned in self.planned:
            together[id(planned.simulation)].append(planned)

        shortest_first = sorted(
            together.values(), key=lambda sizes: sum(planned.expected_s for planned in sizes)
        )
        return list(chain.from_iterable(shortest_first))

    def seconds_by_algorithm(self) -> dict[str, float]:
        """Return the expected seconds of each algorithm, the longest first."""
        seconds: dict[str, float] = defaultdict(float)
        for planned in self.planned:
            seconds[planned.algorithm] += planned.expected_s
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    def predict(self, progress: ShowProgress | None = None) -> Predictions:
        """Return the predictions. After an interrupt (SIGINT) these are those that were complete."""
        order = self.order
        complete: dict[int, Prediction] = {}
        left = RemainingTime([planned.expected_s for planned in order])
        interrupted = False
        try:
            for done, planned in enumerate(order):
                left.begin()

                def report(
                    share: float, done: int = done, planned: PlannedPrediction = planned
                ) -> None:
                    if progress:
                        progress(done, len(order), planned.text(share), left.seconds(share))

                report(0.0)
                complete[id(planned)] = _prediction(planned, self.request, report)
        except KeyboardInterrupt:
            interrupted = True
        simulated = [complete[id(planned)] for planned in self.planned if id(planned) in complete]
        missing = [planned for planned in order if id(planned) not in complete]
        names = [name for name, _ in self.request.choices(self.machine)]
        nodes = list(self.request.nodes)

        def place(prediction: Prediction) -> tuple[int, int]:
            return nodes.index(prediction.nodes), names.index(prediction.algorithm)

        predictions = sorted([*self.formulas, *simulated], key=place)
        left_out = {**self.left_out, **_not_reached(missing)}
        return Predictions(self.machine, self.request, predictions, left_out, interrupted)


def _planned(
    simulation: AlgorithmSimulation,
    nodes: int,
    sizes: Iterable[int],
    left_out: dict[str, list[int]],
) -> list[PlannedPrediction]:
    """Return the predictions of one simulation for all sizes, and add the number of nodes by the reason without one.

    The first size includes the time to pair messages.
    """
    planned: list[PlannedPrediction] = []
    for nbytes in sizes:
        reason = simulation.unpredicted_reason(nbytes)
        if reason:
            left_out[f"{simulation.algorithm.name}: {reason}"].append(nodes)
            continue
        work = simulation.work(nbytes)
        seconds = work.seconds if planned else work.seconds + work.pairing_s
        planned.append(PlannedPrediction(simulation, nodes, nbytes, seconds))
    return planned


def _not_reached(planned: Sequence[PlannedPrediction]) -> dict[str, Sequence[int]]:
    """Return the numbers of nodes without the predictions that an interrupt has prevented, by the reason."""
    if not planned:
        return {}
    names = ", ".join(dict.fromkeys(prediction.algorithm for prediction in planned))
    nodes = tuple(sorted({prediction.nodes for prediction in planned}))
    return {f"interrupted before {format_count(len(planned), 'prediction')} of {names}": nodes}


def predict(
    machine: MachineFile, request: Request, progress: ShowProgress | None = None
) -> Predictions:
    """Return the predictions of a request: see ``PredictionPlan``."""
    return PredictionPlan.of(machine, request, progress).predict(progress)


def _prediction(
    planned: PlannedPrediction, request: Request, progress: Callable[[float], None]
) -> Prediction:
    simulation = planned.simulation
    nodes = planned.nodes
    nbytes = planned.nbytes
    machine = simulation.machine
    layout = simulation.layout
    simulated = simulation.times(nbytes, progress)
    call, count = simulated.operation.cut.call, simulated.operation.cut.count
    moved = call.bytes(count, itemsize(request.dtype))
    per_node = layout.workers // nodes
    least, most = machine.held_out_ratios
    seconds = simulated.seconds
    low_s = min(seconds.values()) * least
    high_s = max(seconds.values()) * most
    words = [machine.distance(nodes, per_node, nbytes), *_assumptions(simulation, request)]
    prediction = Prediction(
        collective=simulation.family.name,
        algorithm=simulation.algorithm.name,
        params={
            **simulation.algorithm.parameters,
            **simulated.parameters,
            **_params_of_job(simulation),
        },
        nodes=nodes,
        ranks_per_node=per_node,
        racks=layout.racks,
        aggregators=layout.aggregators,
        requested_bytes=nbytes,
        nbytes=moved,
        dtype=request.dtype,
        mapping=request.mapping,
        seconds=seconds,
        low_s=low_s,
        high_s=high_s,
        exact=simulated.exact,
        distance="; ".join(words),
        assumed=simulation.assumed,
        stand_ins=simulated.stand_ins,
    )
    return _beside_library(machine, prediction)


def _params_of_job(simulation: AlgorithmSimulation) -> dict[str, Parameter]:
    """Return the ports and the torus of a job, by the names that measurements have for them."""
    params: dict[str, Parameter] = {}
    if simulation.ports > 1:
        params["ports"] = simulation.ports
    if simulation.torus:
        params["torus"] = simulation.torus.text
    return params


def _assumptions(simulation: AlgorithmSimulation, request: Request) -> Iterator[str]:
    """Yield what is assumed of nodes and of folds, where neither the request nor the machine file says it."""
    machine, torus = simulation.machine, simulation.torus
    measured = machine.measured
    if measured is None:
        return
    if torus and request.torus is None and torus.text not in measured.tori:
        yield f"assumed: a torus of {torus.text} nodes"
    are_said = machine.geometry or request.nodes_per_rack
    if measured.nodes_per_rack and simulation.layout.racks > 1 and not are_said:
        yield f"assumed: {measured.nodes_per_rack} nodes in a rack, as measured at most"
    same = simulation.machines["value"].folding(request.dtype)
    if simulation.family.reduces and same not in (None, request.dtype):
        yield f"assumed: reductions of {request.dtype} as fast as those of {same}"


def _by_formulas(
    machine: MachineFile, request: Request, names: Sequence[str], left_out: dict[str, list[int]]
) -> Iterator[Prediction]:
    """Yield the predictions of NCCL's own algorithms, and add the numbers of nodes without one by reason.

    The parameter of a prediction is the protocol that NCCL takes. NCCL orders ranks by itself.
    """
    if not names:
        return
    for nodes in request.nodes:
        layout = replace(request, mapping=None).layout(machine, nodes)
        per_node = layout.workers // nodes
        calls = LibraryCalls(machine, request.collective, layout, request.dtype)
        for name, nbytes in product(names, request.sizes):
            reason = calls.unpredicted_reason(nbytes)
            if reason:
                left_out[f"{name}: {reason}"].append(nodes)
                continue
            estimate = calls.estimate(nbytes, name)
            prediction = Prediction(
                collective=request.collective,
                algorithm=name,
                params={"protocol": estimate.protocol},
                nodes=nodes,
                ranks_per_node=per_node,
                racks=layout.racks,
                aggregators=0,
                requested_bytes=nbytes,
                nbytes=calls.moved(nbytes),
                dtype=request.dtype,
                mapping=None,
                seconds={"value": estimate.seconds},
                low_s=None,
                high_s=None,
                exact=None,
                distance=machine.distance(nodes, per_node, nbytes),
            )
            yield _beside_library(machine, prediction)


def _beside_library(machine: MachineFile, prediction: Prediction) -> Prediction:
    """Return a prediction with what there is to say of NCCL beside its formulas."""
    nodes, per_node = prediction.nodes, prediction.ranks_per_node
    missing = unmodelled(machine, prediction.collective, nodes, per_node)
    near = published_near(machine, prediction.collective, nodes, per_node, prediction.nbytes)
    return (
        replace(prediction, unmodelled=missing, published=near) if missing or near else prediction
    )
