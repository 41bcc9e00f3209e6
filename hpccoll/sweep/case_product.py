"""The cases of a sweep: every combination of what its file names, as far as it makes sense."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, combinations, product
from math import prod

from hpccoll.errors import BadInputError
from hpccoll.schedule import Collective, collective, traffic
from hpccoll.spec.case import Case, Parameter
from hpccoll.spec.catalogue import (
    GRAPH,
    algorithms_of,
    check_case,
    distinct_mappings,
    distinct_placements,
    distinct_transports,
    exact_parameters,
    measurable_names,
)
from hpccoll.spec.transport_table import transports_by_device
from hpccoll.sweep.sweep_file import Sweep
from hpccoll.sweep.validators import ALL, collectives_of


def cases(sweep: Sweep, p: int) -> Iterator[Case]:
    """Yield the cases on ``p`` ranks.

    Raises:
        BadInputError: for a word that is not known.
    """
    carriers = transports_by_device(sweep.devices, sweep.transports)
    for name, algorithms in _asked(sweep).items():
        family = collective(name)
        ops = sweep.ops if family.has_op else [None]
        one = 1 if family.token else None  # a barrier has a size of its own, of whatever
        calls = product(sweep.devices, algorithms, sweep.dtypes[:one], ops, sweep.sizes()[:one])
        for device, algorithm, dtype, op, size in calls:
            ways = product(
                distinct_transports(name, algorithm, carriers[device], device),
                distinct_placements(name, algorithm, sweep.in_place),
                _calls(sweep, family, p), _params(sweep, algorithm),
                distinct_mappings(name, algorithm, sweep.mapping or [None]),
            )  # fmt: skip
            for transport, in_place, (root, arguments), params, mapping in ways:
                if params.get(GRAPH) and transport != "nccl":
                    continue  # NCCL's alone, in a sweep over others too
                case = Case(
                    collective=name, algorithm=algorithm, transport=transport, device=device, dtype=dtype, op=op,
                    bytes=size, in_place=in_place, root=root, params={**arguments, **params}, mapping=mapping,
                )  # fmt: skip
                check_case(case)
                yield case


def count(sweep: Sweep, p: int) -> int:
    """Return how many cases there are on ``p`` ranks at most, without making any.

    Raises:
        BadInputError: where ``cases`` does, for a word of the lists.
    """
    return sum(
        len(sweep.devices) * len(sweep.transports) * len(sweep.dtypes) * len(sweep.ops if family.has_op else [None])
        * len(sweep.sizes()[: 1 if family.token else None]) * len(sweep.in_place) * len(sweep.mapping or [None])
        * _count_calls(sweep, family, p)
        * sum(prod(map(len, sweep.params.get(algorithm, {}).values())) for algorithm in algorithms)
        for name, algorithms in _asked(sweep).items() for family in [collective(name)]
    )  # fmt: skip


def _count_calls(sweep: Sweep, family: Collective, p: int) -> int:
    if "peer" in family.arguments:
        return {"ends": 1, "all": p * (p - 1) // 2}[sweep.pairs] if isinstance(sweep.pairs, str) else len(sweep.pairs)
    return len(sweep.traffic if "traffic" in family.arguments else sweep.roots if family.rooted else [None])


def _asked(sweep: Sweep) -> dict[str, list[str]]:
    """Return the collectives, and for each those of the algorithms that it has.

    Raises:
        BadInputError: for a collective that has none of them.
    """
    there = {name: measurable_names(name) for name in collectives_of(sweep.collectives)}
    asked = {
        name: list(dict.fromkeys(chain.from_iterable(_meant(name, word, there[name]) for word in sweep.algorithms)))
        for name in there
    }
    for name, algorithms in asked.items():
        if not algorithms:
            raise BadInputError("algorithms", sweep.algorithms, f"one of {name}: {', '.join(sorted(there[name]))}")
    return asked


def _meant(name: str, word: str, there: Collection[str]) -> Sequence[str]:
    """Return the algorithms of a collective that a word of the sweep file means; ``there`` are those that it has."""
    return algorithms_of(name) if word == ALL else [word] if word in there else []


def _calls(sweep: Sweep, family: Collective, p: int) -> Iterator[tuple[int | None, dict[str, Parameter]]]:
    """Yield the roots of a collective's calls, each with the collective's other arguments."""
    if "peer" in family.arguments:
        ways = {"ends": [(0, p - 1)], "all": combinations(range(p), 2)}
        for root, peer in ways[sweep.pairs] if isinstance(sweep.pairs, str) else sweep.pairs:
            yield root, {"peer": peer}
    elif "traffic" in family.arguments:
        for pattern in sweep.traffic:
            yield None, {"traffic": traffic.named(pattern)}
    else:
        roots: list[int] | list[None] = sweep.roots if family.rooted else [None]
        yield from ((root, {}) for root in roots)


def _params(sweep: Sweep, algorithm: str) -> Iterator[dict[str, Parameter]]:
    choices = sweep.params.get(algorithm, {})
    asked = (exact_parameters(dict(zip(choices, values, strict=True))) for values in product(*choices.values()))
    once = {tuple(params.items()): params for params in asked}  # 64K and 65536 are one segment
    yield from once.values()
