"""The cases of a sweep: the product of the lists in its file, without meaningless combinations."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations, product
from math import prod

from hpccoll.cases.algorithm_registry import WORKLOADS, collective
from hpccoll.cases.case import Case, Parameter
from hpccoll.cases.catalogue import (
    GRAPH,
    algorithms_of,
    check_case,
    distinct_mappings,
    distinct_placements,
    distinct_transports,
    exact_parameters,
    measurable_names,
)
from hpccoll.cases.transport_table import transports_by_device
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Collective, unequal_blocks
from hpccoll.sweep.sweep_file import Sweep
from hpccoll.sweep.validators import ALL, expand_collectives
from hpccoll.sweep.workload_section import count_workloads, workloads
from hpccoll.training.model_file import models_from_json
from hpccoll.training.workload import TRAINING_STEP, Workload


def expand_cases(sweep: Sweep, p: int) -> Iterator[Case]:
    """Yield the cases on ``p`` ranks.

    Raises:
        BadInputError: if a name is unknown.
    """
    device_transports = transports_by_device(sweep.devices, sweep.transports)
    models = models_from_json(sweep.models)
    for name, algorithms in _algorithms_by_collective(sweep).items():
        family = collective(name)
        ops = sweep.ops if family.has_op else [None]
        limit = 1 if family.token else None  # a barrier has one size and no elements
        sizes: list[int] | list[None] = (
            [None] if name in WORKLOADS else sweep.sizes()[:limit]
        )  # workloads have their own
        for device, algorithm, dtype, op, size in product(sweep.devices, algorithms, sweep.dtypes[:limit], ops, sizes):
            variations = product(
                distinct_transports(name, algorithm, device_transports[device], device),
                distinct_placements(name, algorithm, sweep.in_place),
                _call_arguments(sweep, family, p), _parameter_sets(sweep, algorithm),
                distinct_mappings(name, algorithm, sweep.mapping or [None]), sweep.timing,
            )  # fmt: skip
            for transport, in_place, (root, arguments), params, mapping, timing in variations:
                if params.get(GRAPH) and transport != "nccl":
                    continue  # only NCCL plans are captured as CUDA graphs
                nbytes = Workload.of(arguments).gradient_bytes(dtype, models) if size is None else size
                case = Case(
                    collective=name, algorithm=algorithm, transport=transport, device=device, dtype=dtype, op=op,
                    bytes=nbytes, in_place=in_place, root=root, params={**arguments, **params}, mapping=mapping,
                    timing=timing,
                )  # fmt: skip
                check_case(case)
                yield case


def count_cases(sweep: Sweep, p: int) -> int:
    """Return an upper bound of the number of cases on ``p`` ranks, without constructing any.

    Raises:
        BadInputError: if a collective has none of the algorithms.
    """
    return sum(
        len(sweep.devices) * len(sweep.transports) * len(sweep.dtypes) * len(sweep.ops if family.has_op else [None])
        * len(_sizes(sweep, family)) * len(sweep.in_place) * len(sweep.mapping or [None])
        * len(sweep.timing)
        * _count_calls(sweep, family, p)
        * sum(prod(map(len, sweep.params.get(algorithm, {}).values())) for algorithm in algorithms)
        for name, algorithms in _algorithms_by_collective(sweep).items() for family in [collective(name)]
    )  # fmt: skip


def _sizes(sweep: Sweep, family: Collective) -> Sequence[int | None]:
    """Return the sizes of a collective; None stands for the size that a workload has."""
    return [None] if family.name in WORKLOADS else sweep.sizes()[: 1 if family.token else None]


def _count_calls(sweep: Sweep, family: Collective, p: int) -> int:
    if "peer" in family.arguments:
        return {"ends": 1, "all": p * (p - 1) // 2}[sweep.pairs] if isinstance(sweep.pairs, str) else len(sweep.pairs)
    if "concurrent" in family.arguments:
        return len(sweep.concurrent)
    if family.name in WORKLOADS:
        return count_workloads(sweep.workloads)
    return len(sweep.traffic if "traffic" in family.arguments else sweep.roots if family.rooted else [None])


def _algorithms_by_collective(sweep: Sweep) -> dict[str, list[str]]:
    """Return the algorithms of the sweep that each of its collectives has.

    Raises:
        BadInputError: if a collective has none of them.
    """
    names = [*expand_collectives(sweep.collectives), *([TRAINING_STEP] if sweep.workloads else [])]
    available = {name: measurable_names(name) for name in names}
    selected = {
        name: list(
            dict.fromkeys(chain.from_iterable(_matching_algorithms(name, word, known) for word in sweep.algorithms))
        )
        for name, known in available.items()
    }
    for name, algorithms in selected.items():
        if not algorithms:
            raise BadInputError("algorithms", sweep.algorithms, f"one of {name}: {', '.join(sorted(available[name]))}")
    return selected


def _matching_algorithms(name: str, word: str, available: Collection[str]) -> Sequence[str]:
    """Return the algorithms of a collective that an entry of ``algorithms`` selects from the ``available`` ones."""
    return algorithms_of(name) if word == ALL else [word] if word in available else []


def _call_arguments(sweep: Sweep, family: Collective, p: int) -> Iterator[tuple[int | None, dict[str, Parameter]]]:
    """Yield the root of each call of a collective, with the collective's other arguments."""
    if "peer" in family.arguments:
        pair_sets = {"ends": [(0, p - 1)], "all": combinations(range(p), 2)}
        for root, peer in pair_sets[sweep.pairs] if isinstance(sweep.pairs, str) else sweep.pairs:
            yield root, {"peer": peer}
    elif "concurrent" in family.arguments:
        for pairs in sweep.concurrent:
            yield None, {"concurrent": pairs}
    elif family.name in WORKLOADS:
        for workload in workloads(sweep.workloads):
            yield None, workload.params
    elif "traffic" in family.arguments:
        for pattern in sweep.traffic:
            yield None, {"traffic": unequal_blocks.named(pattern)}
    else:
        roots: list[int] | list[None] = sweep.roots if family.rooted else [None]
        yield from ((root, {}) for root in roots)


def _parameter_sets(sweep: Sweep, algorithm: str) -> Iterator[dict[str, Parameter]]:
    choices = sweep.params.get(algorithm, {})
    combined = (exact_parameters(dict(zip(choices, values, strict=True))) for values in product(*choices.values()))
    unique = {tuple(params.items()): params for params in combined}  # 64K and 65536 are the same value
    yield from unique.values()
