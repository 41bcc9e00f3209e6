"""Predictions: the simulated times of algorithms by size and number of nodes, with intervals, and NCCL's own model."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import check_case, exact_parameters, parameters_by_algorithm
from hpccoll.cases.requested_schedule import DEFAULT_DTYPE
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.model.library_calls import LibraryCalls, library_names, unmodelled
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound, PublishedSection
from hpccoll.model.published_rates import published_near
from hpccoll.model.simulation import BOUNDS, AlgorithmSimulation
from hpccoll.schedule import Parameter, itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.schema import MODELLED, SIMULATED

USUAL = {"all_reduce": ("ring", "recursive_doubling", "rabenseifner", "hierarchical")}
"""The algorithms that are predicted without a choice, of collectives with so many that all of them take long."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to predict: every algorithm for every size on every number of nodes."""

    nodes: Sequence[int]  # the numbers of nodes
    sizes: Sequence[int]  # the sizes in bytes
    collective: str = "all_reduce"
    # the names of the algorithms [those of USUAL, or all; and those of aggregators, if there are any]; NCCL's own are
    # added on a machine that has them, unless the names have one of them: ours are compared with what a user has
    algorithms: Sequence[str] = ()
    # the ranks on each node [those of the machine file, or the most that were measured]
    ranks_per_node: int | None = None
    dtype: str = DEFAULT_DTYPE  # the type of the elements
    # the number of aggregators [none; if they are switches, as many as an algorithm needs]
    aggregators: int | None = None
    mapping: str | None = None  # the order of ranks, a word of MAPPINGS [consecutive ranks on each node]
    # parameters of algorithms and of the collective; each algorithm takes those that it has
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def choices(self, machine: MachineFile) -> list[tuple[str, dict[str, Parameter]]]:
        """Return the algorithms with their parameters.

        Raises:
            BadInputError: if there is no such collective, algorithm or dtype, or a parameter is invalid.
        """
        family = collective(self.collective)
        names = dict.fromkeys(self.algorithms or USUAL.get(family.name) or family.components)
        if not self.algorithms and (self.aggregators or machine.aggregators.kind == "switches"):
            names |= dict.fromkeys(name for name, each in family.components.items() if each.aggregates)
        library = dict.fromkeys(library_names(machine, family.name))
        if library.keys().isdisjoint(names):
            names = library | names
        for name in names:
            if name not in family.components and name not in library:
                raise BadInputError("algorithm", name, sorted([*family.components, *library]))
        values = exact_parameters({**family.arguments, **self.parameters})
        ours = parameters_by_algorithm(family.name, (name for name in names if name not in library), values)
        choices = [(name, ours.get(name, {})) for name in names]
        for name, parameters in choices:
            check_case(
                Case(
                    collective=family.name, algorithm=NATIVE if name in library else name, params=parameters,
                    bytes=max(self.sizes), dtype=self.dtype, op="sum" if family.has_op else None,
                    in_place=family.in_place, mapping=self.mapping,
                )
            )  # fmt: skip
        return choices


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
    assumed: str | None = None  # the assumption behind the prediction, if it does not describe what a machine has
    unmodelled: Sequence[str] = ()  # NCCL's algorithms that NCCL may take here, and that are not predicted
    published: Sequence[PublishedSection] = ()  # what was published of NCCL near this case, on machines of this class

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval; of a formula, the time twice."""
        return self.low_s or self.value_s, self.high_s or self.value_s

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
        return self.algbw * factor(self.nodes * self.ranks_per_node) if factor else None

    def at(self, bound: Bound) -> float:
        """Return the time at a bound; of a formula, which has no interval, the likely one."""
        return self.seconds.get(bound, self.value_s)

    def times_as_fast_as(self, other: "Prediction") -> tuple[float, float, float]:
        """Return the time of another prediction over this one: at the likely values, the least and the most."""
        ratios = [other.at(bound) / self.at(bound) for bound in BOUNDS]
        return ratios[0], min(ratios), max(ratios)

    def to_json(self) -> dict[str, Any]:
        """Return the prediction in SI units, by the names of exported rows; absent values are None."""
        return {
            "collective": self.collective, "algorithm": self.algorithm, "params": dict(self.params),
            "nodes": self.nodes, "ranks_per_node": self.ranks_per_node,
            "ranks": self.nodes * self.ranks_per_node, "racks": self.racks, "aggregators": self.aggregators,
            "mapping": self.mapping, "dtype": self.dtype, "bytes": self.nbytes,
            "requested_bytes": self.requested_bytes, "median_s": self.value_s, "ci_low_s": self.low_s,
            "ci_high_s": self.high_s, "algbw_Bps": self.algbw, "busbw_Bps": self.busbw, "kind": self.kind,
            "exact": self.exact, "distance": self.distance, "assumed": self.assumed,
            "unmodelled": list(self.unmodelled),
            "published": [each.model_dump(by_alias=True) for each in self.published],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Predictions:
    """The predictions of a request."""

    machine: MachineFile
    request: Request
    predictions: Sequence[Prediction]  # the predictions, by nodes, algorithms and sizes
    left_out: Mapping[str, Sequence[int]]  # the numbers of nodes without a prediction, by algorithm and reason


def predict(machine: MachineFile, request: Request, progress: Callable[[int, int], None] | None = None) -> Predictions:
    """Return the predictions of a request; ``progress`` gets the number of those done, and of all.

    Raises:
        BadInputError: if a value of the request is invalid, or nothing of it can be predicted.
    """
    choices = request.choices(machine)
    for nodes in request.nodes:  # what is wrong for one of them is said before the first simulation
        machine.layout(nodes, request.ranks_per_node, request.aggregators or 0, request.mapping)
    total, done = len(request.nodes) * len(choices) * len(request.sizes), 0
    predictions: list[Prediction] = []
    left_out: dict[str, list[int]] = defaultdict(list)

    def report(_messages: int = 0) -> None:
        if progress:
            progress(done, total)

    library = library_names(machine, request.collective)
    for nodes in request.nodes:
        for name, parameters in choices:
            own = (_library if name in library else _simulation)(machine, request, nodes, name, parameters)
            for nbytes in request.sizes:
                if reason := own.unpredicted_reason(nbytes):
                    left_out[f"{name}: {reason}"].append(nodes)
                else:
                    predictions.append(_beside_library(machine, own.prediction(nbytes, report)))
                done += 1
                report()
    if not predictions:
        raise UnusableError("--algorithms", "; ".join(left_out))
    counts = {key: tuple(dict.fromkeys(nodes)) for key, nodes in left_out.items()}
    return Predictions(machine, request, predictions, counts)


def _beside_library(machine: MachineFile, one: Prediction) -> Prediction:
    """Return a prediction with what there is to say of NCCL beside its formulas."""
    missing = unmodelled(machine, one.collective, one.nodes)
    near = published_near(machine, one.collective, one.nodes, one.ranks_per_node, one.nbytes)
    return replace(one, unmodelled=missing, published=near) if missing or near else one


class _Candidate(NamedTuple):
    """An algorithm on a number of nodes."""

    unpredicted_reason: Callable[[int], str | None]  # why a size has no prediction; None if it has one
    prediction: Callable[[int, Callable[[int], None]], Prediction]  # the prediction of a size; reports its progress


def _simulation(
    machine: MachineFile, request: Request, nodes: int, name: str, parameters: Mapping[str, Parameter]
) -> _Candidate:
    simulation = AlgorithmSimulation(
        machine, request.collective, name, parameters,
        partial(machine.layout, nodes, request.ranks_per_node, mapping=request.mapping),
        dtype=request.dtype, aggregators=request.aggregators,
    )  # fmt: skip
    layout, (least, most) = simulation.layout, machine.held_out_ratios
    per_node = layout.workers // nodes

    def predicted(nbytes: int, progress: Callable[[int], None]) -> Prediction:
        operation, used, seconds, exact = simulation.times(nbytes, progress)
        moved = operation.cut.call.bytes(operation.cut.count, itemsize(request.dtype))
        return Prediction(
            request.collective, name, {**simulation.algorithm.parameters, **used}, nodes, per_node, layout.racks,
            layout.aggregators, nbytes, moved, request.dtype, request.mapping, seconds,
            min(seconds.values()) * least, max(seconds.values()) * most, exact,
            machine.distance(nodes, per_node, nbytes), simulation.assumed,
        )  # fmt: skip

    return _Candidate(simulation.unpredicted_reason, predicted)


def _library(
    machine: MachineFile, request: Request, nodes: int, name: str, _parameters: Mapping[str, Parameter]
) -> _Candidate:
    """Return one of NCCL's own algorithms, with the protocol that it takes; NCCL orders ranks by itself."""
    layout = machine.layout(nodes, request.ranks_per_node)
    calls, per_node = LibraryCalls(machine, request.collective, layout, request.dtype), layout.workers // nodes

    def predicted(nbytes: int, _progress: Callable[[int], None]) -> Prediction:
        found = calls.estimate(nbytes, name)
        return Prediction(
            request.collective, name, {"protocol": found.protocol}, nodes, per_node, layout.racks, 0, nbytes,
            calls.moved(nbytes), request.dtype, None, {"value": found.seconds}, None, None, None,
            machine.distance(nodes, per_node, nbytes),
        )  # fmt: skip

    return _Candidate(calls.unpredicted_reason, predicted)
