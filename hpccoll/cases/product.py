"""The product of cases: every combination of the lists of a request, without meaningless combinations.

Command lines and sweep files fill a request, and only this module makes cases of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import comb, prod
from typing import Any, NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS, collective
from hpccoll.cases.case import IDLE, LOAD, SINGLE, Case, Parameter
from hpccoll.cases.catalogue import (
    GRAPH,
    algorithms_of,
    check_algorithm,
    checked_cases,
    distinct_mappings,
    distinct_parameters,
    distinct_placements,
    distinct_steps,
    distinct_transports,
    exact_parameters,
    measurable_names,
)
from hpccoll.cases.keys import ALL
from hpccoll.cases.transport_table import transports_by_device
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Collective, unequal_blocks
from hpccoll.training import TRAINING_STEP
from hpccoll.training.model_file import models_from_json
from hpccoll.training.model_shape import ModelShape
from hpccoll.training.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """Lists whose combinations are cases; no list has an entry twice. ``keys.SWEEP`` explains them.

    Each collective has those of the algorithms that exist for it, and each device those of the transports that move its
    buffers. A barrier has the first of the sizes, in bytes; a training step has its own.
    """

    collectives: Sequence[str] = ()
    # training steps: lists of values by the keys of ``training.workload.WORKLOAD``; models by name
    workloads: Sequence[Mapping[str, Sequence[Parameter]]] = ()
    models: Mapping[str, Any] = field(default_factory=dict)  # the user's own models of training steps, as JSON by name
    algorithms: Sequence[str]
    devices: Sequence[str] = ("cpu",)
    transports: Sequence[str] = ("mpi",)
    dtypes: Sequence[str] = ("float32",)
    ops: Sequence[str] = ("sum",)
    sizes: Sequence[int] = ()
    in_place: Sequence[bool] = (False, True)
    mappings: Sequence[str | None] = (None,)
    timings: Sequence[str] = (SINGLE,)
    loads: Sequence[str] = (IDLE,)
    roots: Sequence[int] = (0,)
    pairs: str | Sequence[tuple[int, int]] = "ends"
    concurrent: Sequence[Parameter] = (0,)
    traffic: Sequence[Parameter] = ("zipf",)
    params: Mapping[str, Mapping[str, Sequence[Parameter]]] = field(default_factory=dict)


class _Call(NamedTuple):
    """The root of a call of a collective, its other arguments, and of a training step the type of gradients."""

    root: int | None
    arguments: Mapping[str, Parameter]
    dtype: str | None = None


class _Axis(NamedTuple):
    """The values of one property of cases, which are counted without being made."""

    length: int
    values: Iterable[Any]


def expand_cases(request: CaseRequest, p: int) -> Iterator[Case]:
    """Yield the cases on ``p`` ranks.

    Raises:
        BadInputError: if a name is unknown, a collective has none of the algorithms, or a case is invalid.
    """
    yield from checked_cases(_unchecked_cases(request, p))


def _unchecked_cases(request: CaseRequest, p: int) -> Iterator[Case]:
    models = models_from_json(request.models)
    for family, device, algorithm, axes in _blocks(request, p, models):
        for values in product(*(axis.values for axis in axes.values())):
            case = _case(request, family, device, algorithm, dict(zip(axes, values, strict=True)), models)
            if case:
                yield case


def count_cases(request: CaseRequest, p: int) -> int:
    """Return an upper bound of the number of cases on ``p`` ranks, without making any.

    Raises:
        BadInputError: if a name is unknown, or a collective has none of the algorithms.
    """
    return sum(prod(axis.length for axis in axes.values()) for *_, axes in _blocks(request, p, {}))


def _case(
    request: CaseRequest, family: Collective, device: str, algorithm: str, values: Mapping[str, Any],
    models: Mapping[str, ModelShape],
) -> Case | None:  # fmt: skip
    call: _Call = values["call"]
    parameters: Mapping[str, Parameter] = values["params"]
    if parameters.get(GRAPH) and values["transport"] != "nccl" and "nccl" in request.transports:
        return None  # only NCCL plans are captured as CUDA graphs
    dtype = values["dtype"]
    size = values["size"]
    if call.dtype is not None:  # a training step
        dtype = call.dtype
        size = Workload.of(call.arguments).gradient_bytes(call.dtype, models)
    load = {LOAD: values[LOAD]} if values[LOAD] != IDLE else {}
    return Case(
        collective=family.name,
        algorithm=algorithm,
        transport=values["transport"],
        device=device,
        dtype=dtype,
        op=values["op"],
        bytes=size,
        in_place=values["in_place"],
        root=call.root,
        params={**call.arguments, **parameters, **load},
        mapping=values["mapping"],
        timing=values["timing"],
    )


def _blocks(
    request: CaseRequest, p: int, models: Mapping[str, ModelShape]
) -> Iterator[tuple[Collective, str, str, dict[str, _Axis]]]:
    """Yield the axes of each collective, device and algorithm; the cases are the product of their values."""
    transports = transports_by_device(request.devices, request.transports)
    for name, algorithms in _algorithms_by_collective(request).items():
        family = collective(name)
        dtypes: Sequence[str | None] = request.dtypes
        sizes: Sequence[int | None] = request.sizes
        loads = request.loads
        if family.token:  # a barrier has one size and no elements
            dtypes = dtypes[:1]
            sizes = sizes[:1]
        if name in WORKLOADS:  # the types and sizes of its gradients follow from its call
            dtypes = [None]
            sizes = [None]
            loads = [IDLE]
        ops = request.ops if family.has_op else [None]
        for device, algorithm in product(request.devices, algorithms):
            parameters = distinct_parameters(name, algorithm, request.params.get(algorithm, {}))
            axes = {
                "dtype": _listed(dtypes),
                "op": _listed(ops),
                "size": _listed(sizes),
                "transport": _listed(distinct_transports(name, algorithm, transports[device], device)),
                "in_place": _listed(distinct_placements(name, algorithm, request.in_place)),
                "call": _calls(request, family, algorithm, p, models),
                "params": _parameters(parameters),
                "mapping": _listed(distinct_mappings(name, algorithm, request.mappings)),
                "timing": _listed(request.timings),
                LOAD: _listed(loads),
            }
            yield family, device, algorithm, axes


def _listed(values: Sequence[Any]) -> _Axis:
    return _Axis(len(values), values)


def expand_collectives(entries: Sequence[str]) -> list[str]:
    """Return the collectives that entries of a request select, each once."""
    selected: dict[str, None] = {}
    for entry in entries:
        selected |= dict.fromkeys(COLLECTIVES if entry == ALL else [entry])
    return list(selected)


def _algorithms_by_collective(request: CaseRequest) -> dict[str, list[str]]:
    names = expand_collectives(request.collectives)
    if request.workloads:
        names.append(TRAINING_STEP)
    check_algorithms(request.algorithms, names)
    selected = {name: select_algorithms(name, request.algorithms) for name in names}
    for name, algorithms in selected.items():
        if not algorithms:
            available = ", ".join(sorted(measurable_names(name)))
            raise BadInputError("algorithms", request.algorithms, f"one of {name}: {available}")
    return selected


def check_algorithms(entries: Sequence[str], names: Sequence[str]) -> None:
    """Check that at least one of the collectives ``names`` has each of the algorithms that entries select.

    Raises:
        BadInputError: names the first one that none has.
    """
    for entry in entries:
        if entry != ALL:
            check_algorithm(entry, names)


def select_algorithms(name: str, entries: Sequence[str]) -> list[str]:
    """Return the algorithms of a collective that entries of a request select, each once; others have the rest."""
    valid_names = measurable_names(name)
    selected: dict[str, None] = {}
    for entry in entries:
        if entry == ALL:
            selected |= dict.fromkeys(algorithms_of(name))
        elif entry in valid_names:
            selected[entry] = None
    return list(selected)


def _calls(
    request: CaseRequest, family: Collective, algorithm: str, p: int, models: Mapping[str, ModelShape]
) -> _Axis:  # fmt: skip
    """Return the calls of a collective."""
    if family.name in WORKLOADS:
        counts = [prod(map(len, lists.values())) for lists in request.workloads]
        return _Axis(sum(counts) * len(request.dtypes), _calls_of_steps(request, algorithm, models))
    if "peer" in family.arguments:
        pairs = _pairs(request, p)
        return _Axis(pairs.length, (_Call(root, {"peer": peer}) for root, peer in pairs.values))
    if "concurrent" in family.arguments:
        return _listed([_Call(None, {"concurrent": pairs}) for pairs in request.concurrent])
    if "traffic" in family.arguments:
        patterns = [unequal_blocks.named(str(pattern)) for pattern in request.traffic]
        return _listed([_Call(None, {"traffic": pattern}) for pattern in patterns])
    roots = request.roots if family.rooted else [None]
    return _listed([_Call(root, {}) for root in roots])


def _pairs(request: CaseRequest, p: int) -> _Axis:
    """Return the pairs of ranks that a request names, of ``p`` ranks."""
    match request.pairs:
        case "ends":
            return _listed([(0, p - 1)])
        case "all":
            return _Axis(comb(p, 2), combinations(range(p), 2))
        case pairs:
            return _listed(pairs)


def _calls_of_steps(request: CaseRequest, algorithm: str, models: Mapping[str, ModelShape]) -> Iterator[_Call]:
    for dtype, workload in distinct_steps(algorithm, workloads(request, models)):
        yield _Call(None, workload.params, dtype)


def workloads(request: CaseRequest, models: Mapping[str, ModelShape]) -> list[tuple[str, Workload]]:
    """Return the training steps of a request, each once, with the types of their gradients.

    ``models`` are the user's own by name, as ``models_from_json`` makes them of the request.
    """
    steps = []
    for lists in request.workloads:
        for values in product(*lists.values()):
            options = dict(zip(lists, values, strict=True))
            steps.append(Workload.of(options))
    distinct: dict[tuple[str, Workload], None] = {}
    for dtype in request.dtypes:
        distinct |= dict.fromkeys(step.canonical(dtype, models) for step in steps)
    return list(distinct)


def _parameters(lists: Mapping[str, Sequence[Parameter]]) -> _Axis:
    combinations_of_values = prod(len(values) for values in lists.values())
    return _Axis(combinations_of_values, _distinct_parameters(lists))


def _distinct_parameters(lists: Mapping[str, Sequence[Parameter]]) -> Iterator[dict[str, Parameter]]:
    """Yield every combination of values once: 64K and 65536 are the same value."""
    distinct: dict[tuple[tuple[str, Parameter], ...], dict[str, Parameter]] = {}
    for values in product(*lists.values()):
        parameters = exact_parameters(dict(zip(lists, values, strict=True)))
        distinct[tuple(parameters.items())] = parameters
    yield from distinct.values()
