"""The product of cases: every combination of the lists of a request, without meaningless combinations.

Command lines and sweep files fill a request, and only this module makes cases of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import comb, prod
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from hpccoll.cases.algorithm_registry import COLLECTIVES, collective, is_workload
from hpccoll.cases.case import IDLE, LOAD, SINGLE, Case, Parameter
from hpccoll.cases.catalogue import (
    GRAPH,
    PROTOCOL,
    algorithms_of,
    check_algorithm,
    checked_cases,
    distinct_mappings,
    distinct_parameters,
    distinct_placements,
    distinct_transports,
    exact_parameters,
    is_measurable,
    measurable_names,
)
from hpccoll.cases.keys import ALL
from hpccoll.cases.transport_table import TRANSPORTS, transports_by_device
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Collective, unequal_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """Lists whose combinations are cases; no list has an entry twice. ``keys.SWEEP`` explains them.

    Each collective has those of the algorithms that exist for it, and each device those of the
    transports that move its buffers. A barrier has the first of the sizes, in bytes; a workload has
    its own.
    """

    collectives: Sequence[str] = ()
    # by the name of a workload, such as a training step, its requests: lists of values by its keys
    workloads: Mapping[str, Sequence[Mapping[str, Sequence[Parameter]]]] = field(
        default_factory=dict
    )
    # the files of the user that they name, as JSON by name
    models: Mapping[str, Any] = field(default_factory=dict)
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

    @property
    def named_beside_all(self) -> tuple[str, ...] | UnsetType:
        """The algorithms that are named beside ``all``; UNSET without ``all``."""
        if ALL not in self.algorithms:
            return UNSET
        return tuple(name for name in self.algorithms if name != ALL)


class _Call(NamedTuple):
    """The root of a call of a collective, its other arguments, and of a workload the type and the size."""

    root: int | None
    arguments: Mapping[str, Parameter]
    dtype: str | None = None
    bytes: int | None = None


class _Axis(NamedTuple):
    """The values of one property of cases, which are counted without being made."""

    length: int
    values: Iterable[Any]


def expand_cases(request: CaseRequest, p: int) -> Iterator[Case]:
    """Yield the cases on ``p`` ranks.

    Raises:
        BadInputError: if a name is unknown, a collective has none of the algorithms, or a case is
            invalid.
    """
    yield from checked_cases(_unchecked_cases(request, p))


def _unchecked_cases(request: CaseRequest, p: int) -> Iterator[Case]:
    for family, device, algorithm, axes in _blocks(request, p):
        for values in product(*(axis.values for axis in axes.values())):
            case = _case(request, family, device, algorithm, dict(zip(axes, values, strict=True)))
            if case:
                yield case


def count_cases(request: CaseRequest, p: int) -> int:
    """Return an upper bound of the number of cases on ``p`` ranks, without making any.

    Raises:
        BadInputError: if a name is unknown, or a collective has none of the algorithms.
    """
    return sum(prod(axis.length for axis in axes.values()) for *_, axes in _blocks(request, p))


def _case(
    request: CaseRequest, family: Collective, device: str, algorithm: str, values: Mapping[str, Any]
) -> Case | None:
    call: _Call = values["call"]
    parameters: Mapping[str, Parameter] = values["params"]
    any_graphs = any(TRANSPORTS[transport].graphs for transport in request.transports)
    if parameters.get(GRAPH) and any_graphs and not TRANSPORTS[values["transport"]].graphs:
        return None  # other cases of the request can be captured as CUDA graphs
    any_protocols = any(TRANSPORTS[transport].protocols for transport in request.transports)
    if PROTOCOL in parameters and any_protocols and not TRANSPORTS[values["transport"]].protocols:
        if parameters[PROTOCOL] != request.params[algorithm][PROTOCOL][0]:
            return None  # the case without a protocol is made with the first one
        parameters = _without_protocol(parameters)
    dtype = call.dtype or values["dtype"]
    nbytes = call.bytes
    if nbytes is None:
        nbytes = values["size"]
    params = {**call.arguments, **parameters}
    if values[LOAD] != IDLE:
        params[LOAD] = values[LOAD]
    return Case(
        collective=family.name,
        algorithm=algorithm,
        transport=values["transport"],
        device=device,
        dtype=dtype,
        op=values["op"],
        bytes=nbytes,
        in_place=values["in_place"],
        root=call.root,
        params=params,
        mapping=values["mapping"],
        timing=values["timing"],
    )


def _without_protocol(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    return {name: value for name, value in parameters.items() if name != PROTOCOL}


def _blocks(
    request: CaseRequest, p: int
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
        if is_workload(name):  # its type and its size follow from its call
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
                "transport": _listed(
                    distinct_transports(name, algorithm, transports[device], device)
                ),
                "in_place": _listed(distinct_placements(name, algorithm, request.in_place)),
                "call": _calls(request, family, algorithm, p),
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
        if entry == ALL:
            selected |= dict.fromkeys(COLLECTIVES)
        else:
            selected[entry] = None
    return list(selected)


def _algorithms_by_collective(request: CaseRequest) -> dict[str, list[str]]:
    names = [*expand_collectives(request.collectives), *request.workloads]
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
    selected: dict[str, None] = {}
    for entry in entries:
        if entry == ALL:
            selected |= dict.fromkeys(algorithms_of(name))
        elif is_measurable(entry, name):
            selected[entry] = None
    return list(selected)


def _calls(request: CaseRequest, family: Collective, algorithm: str, p: int) -> _Axis:
    """Return the calls of a collective."""
    if is_workload(family.name):
        counts = [prod(map(len, lists.values())) for lists in request.workloads[family.name]]
        return _Axis(
            sum(counts) * len(request.dtypes), _calls_of_workload(request, family.name, algorithm)
        )
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


def _calls_of_workload(request: CaseRequest, name: str, algorithm: str) -> Iterator[_Call]:
    calls = workload(name).calls(request.workloads[name], request.dtypes, algorithm, request.models)
    for params, dtype, nbytes in calls:
        yield _Call(None, params, dtype, nbytes)


def _parameters(lists: Mapping[str, Sequence[Parameter]]) -> _Axis:
    combinations_of_values = prod(len(values) for values in lists.values())
    return _Axis(combinations_of_values, _distinct_parameters(lists))


def _distinct_parameters(
    lists: Mapping[str, Sequence[Parameter]],
) -> Iterator[dict[str, Parameter]]:
    """Yield every combination of values once: 64K and 65536 are the same value."""
    distinct: dict[tuple[tuple[str, Parameter], ...], dict[str, Parameter]] = {}
    for values in product(*lists.values()):
        parameters = exact_parameters(dict(zip(lists, values, strict=True)))
        distinct[tuple(parameters.items())] = parameters
    yield from distinct.values()
