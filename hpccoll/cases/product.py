"""The product of cases: every combination of the lists of a request, without meaningless combinations.

Command lines and sweep files fill a request, and only this module makes cases of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
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
    dtype, size, params, call = (values[axis] for axis in ("dtype", "size", "params", "call"))
    load = {LOAD: values[LOAD]} if values[LOAD] != IDLE else {}
    if call.dtype is not None:  # a training step
        dtype, size = call.dtype, Workload.of(call.arguments).gradient_bytes(call.dtype, models)
    if params.get(GRAPH) and values["transport"] != "nccl" and "nccl" in request.transports:
        return None  # only NCCL plans are captured as CUDA graphs
    return Case(
        collective=family.name, algorithm=algorithm, device=device, dtype=dtype,
        bytes=size, root=call.root, params={**call.arguments, **params, **load},
        **{axis: values[axis] for axis in ("transport", "op", "in_place", "mapping", "timing")},
    )  # fmt: skip


def _blocks(
    request: CaseRequest, p: int, models: Mapping[str, ModelShape]
) -> Iterator[tuple[Collective, str, str, dict[str, _Axis]]]:
    """Yield the axes of each collective, device and algorithm; the cases are the product of their values."""
    transports = transports_by_device(request.devices, request.transports)
    for name, algorithms in _algorithms_by_collective(request).items():
        family = collective(name)
        limit = 1 if family.token else None  # a barrier has one size and no elements
        for device, algorithm in product(request.devices, algorithms):
            yield (
                family,
                device,
                algorithm,
                {
                    "dtype": _listed([None] if name in WORKLOADS else request.dtypes[:limit]),
                    "op": _listed(request.ops if family.has_op else [None]),
                    "size": _listed([None] if name in WORKLOADS else request.sizes[:limit]),
                    "transport": _listed(distinct_transports(name, algorithm, transports[device], device)),
                    "in_place": _listed(distinct_placements(name, algorithm, request.in_place)),
                    "call": _calls(request, family, algorithm, p, models),
                    "params": _parameters(distinct_parameters(name, algorithm, request.params.get(algorithm, {}))),
                    "mapping": _listed(distinct_mappings(name, algorithm, request.mappings)),
                    "timing": _listed(request.timings),
                    LOAD: _listed([IDLE] if name in WORKLOADS else request.loads),
                },
            )


def _listed(values: Sequence[Any]) -> _Axis:
    return _Axis(len(values), values)


def expand_collectives(entries: Sequence[str]) -> list[str]:
    """Return the collectives that entries of a request select, each once."""
    return list(dict.fromkeys(chain.from_iterable(COLLECTIVES if entry == ALL else [entry] for entry in entries)))


def _algorithms_by_collective(request: CaseRequest) -> dict[str, list[str]]:
    names = [*expand_collectives(request.collectives), *([TRAINING_STEP] if request.workloads else [])]
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
    known = measurable_names(name)
    selected = (algorithms_of(name) if entry == ALL else [entry] if entry in known else [] for entry in entries)
    return list(dict.fromkeys(chain.from_iterable(selected)))


def _calls(
    request: CaseRequest, family: Collective, algorithm: str, p: int, models: Mapping[str, ModelShape]
) -> _Axis:  # fmt: skip
    """Return the calls of a collective."""
    if family.name in WORKLOADS:
        counts = [prod(map(len, lists.values())) for lists in request.workloads]
        return _Axis(sum(counts) * len(request.dtypes), _calls_of_steps(request, algorithm, models))
    if "peer" in family.arguments:
        named = {"ends": _Axis(1, [(0, p - 1)]), "all": _Axis(comb(p, 2), combinations(range(p), 2))}
        length, pairs = named[request.pairs] if isinstance(request.pairs, str) else _listed(request.pairs)
        return _Axis(length, (_Call(root, {"peer": peer}) for root, peer in pairs))
    if "concurrent" in family.arguments:
        return _listed([_Call(None, {"concurrent": pairs}) for pairs in request.concurrent])
    if "traffic" in family.arguments:
        return _listed([_Call(None, {"traffic": unequal_blocks.named(str(each))}) for each in request.traffic])
    return _listed([_Call(root, {}) for root in (request.roots if family.rooted else [None])])


def _calls_of_steps(request: CaseRequest, algorithm: str, models: Mapping[str, ModelShape]) -> Iterator[_Call]:
    for dtype, workload in distinct_steps(algorithm, workloads(request, models)):
        yield _Call(None, workload.params, dtype)


def workloads(request: CaseRequest, models: Mapping[str, ModelShape]) -> list[tuple[str, Workload]]:
    """Return the training steps of a request, each once, with the types of their gradients.

    ``models`` are the user's own by name, as ``models_from_json`` makes them of the request.
    """
    combined = (dict(zip(lists, values, strict=True)) for lists in request.workloads
                for values in product(*lists.values()))  # fmt: skip
    steps = [*map(Workload.of, combined)]
    return list(dict.fromkeys(step.canonical(dtype, models) for dtype in request.dtypes for step in steps))


def _parameters(lists: Mapping[str, Sequence[Parameter]]) -> _Axis:
    return _Axis(prod(map(len, lists.values())), _distinct_parameters(lists))


def _distinct_parameters(lists: Mapping[str, Sequence[Parameter]]) -> Iterator[dict[str, Parameter]]:
    """Yield every combination of values once: 64K and 65536 are the same value."""
    combined = (exact_parameters(dict(zip(lists, values, strict=True))) for values in product(*lists.values()))
    yield from {tuple(params.items()): params for params in combined}.values()
