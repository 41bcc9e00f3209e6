"""The algorithms of ours that sum as a black box does: trees of schedules, held against revealed ones."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.case import Case, Parameter
from hpccoll.cases.case_order import case_order
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Algorithm, Layout
from hpccoll.schedule.collective import NATIVE, word_parameters

Digests = Mapping[int, str | None]
"""The digests of the orders of all elements by size in bytes; None where an order cannot be told."""


def same_bits_as(case: Case, digests: Digests, layout: Layout) -> tuple[str, ...]:
    """Return the algorithms of ours whose sums have the same bits as a black box at all sizes.

    A name is followed by the parameters that are not the default: ``rabenseifner first=near``. Those
    that make no difference are left out.

    Args:
        case: a call of the black box.
        digests: of its orders.
        layout: of its ranks.
    """
    names = []
    algorithms = COLLECTIVES[case.collective].algorithms
    for name in sorted(algorithms):
        alike: list[dict[str, Parameter]] = []
        for params in _settings(algorithms[name]):
            own = replace(case, algorithm=name, params=params)
            is_listed = any(listed.items() <= params.items() for listed in alike)
            if not is_listed and sums_alike(own, digests, layout):
                alike.append(params)
        for params in alike:
            names.append(_label(name, params))
    return tuple(names)


def _label(name: str, params: Mapping[str, Parameter]) -> str:
    words = [name]
    for key, value in params.items():
        words.append(f"{key}={value}")
    return " ".join(words)


def is_as_scheduled(case: Case, digests: Digests, layout: Layout) -> bool | None:
    """Return whether an algorithm of ours sums as its schedule says; None for a library's own."""
    if case.algorithm == NATIVE:
        return None
    return sums_alike(case, digests, layout)


def sums_alike(case: Case, digests: Digests, layout: Layout) -> bool:
    """Return whether a case of ours has these orders at all sizes, and the same one on all ranks."""
    for nbytes, digest in digests.items():
        if digest != _digest(replace(case, bytes=nbytes, in_place=False), layout):
            return False
    return None not in digests.values()


def _digest(case: Case, layout: Layout) -> str | None:
    """Return the digest of the order of a case; None if it does not run, or ranks differ."""
    try:
        if unmet_needs(case, layout):
            return None
        order = case_order(case, layout)
    except BadInputError:
        return None
    if order is None or not order.ranks_agree:
        return None
    return order.elements.digest


def _settings(algorithm: Algorithm) -> list[dict[str, Parameter]]:
    """Return the parameters of each choice of words, without those of default value; the fewest first."""
    words = word_parameters(algorithm)
    settings = []
    for values in product(*words.values()):
        named = zip(words, values, strict=True)
        setting: dict[str, Parameter] = {
            name: value for name, value in named if value != algorithm.parameters[name]
        }
        settings.append(setting)
    return sorted(settings, key=len)
