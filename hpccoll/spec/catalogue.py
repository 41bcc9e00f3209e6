"""The catalogue: what can be asked for, by name. It starts no MPI, so that a login node can plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import hpccoll.algorithms  # noqa: F401  fills the registry
from hpccoll.errors import BadInputError, format_choices
from hpccoll.limits import CHANNELS, MAX_BYTES, IntegerRange
from hpccoll.schedule import (
    BFLOAT16,
    COLLECTIVES,
    DTYPES,
    MAPPINGS,
    REDUCTIONS,
    Collective,
    CollectiveCall,
    Layout,
    collective,
    itemsize,
    numbering,
    traffic,
)
from hpccoll.schedule.collective import AUTO, NATIVE, check_parameters
from hpccoll.spec.case import Case, Parameter
from hpccoll.spec.transport_table import DEVICES, transports_by_device, transports_of_native, unmet_by_transport
from hpccoll.units import format_size, parse_size

PLAN_PARAMETERS = {"channels": CHANNELS, "window": CHANNELS, "segment": IntegerRange(1, MAX_BYTES)}
"""Parameters of every scheduled case: the pieces that advance independently, how many of them at once, and, instead of
how many pieces, how large one is at most: of a unit, or, in a pipeline, of all that it moves."""

GRAPH = "graph"
"""A parameter of what goes over NCCL, schedules and its own calls: 1 has them replayed as a CUDA graph."""

FIRST_MAPPING = next(iter(MAPPINGS))
"""The mapping that is measured where others give the same."""


def check_case(case: Case) -> None:
    """See that every word of ``case`` is known.

    Raises:
        BadInputError: names the word, and the ones that would do.
    """
    family = collective(case.collective)
    check_algorithm(case.algorithm, [case.collective])
    words: dict[str, tuple[object, tuple[object, ...]]] = {
        "device": (case.device, DEVICES),
        "dtype": (case.dtype, (*DTYPES, BFLOAT16)),
        "op": (case.op, tuple(REDUCTIONS) if family.has_op else (None,)),
    }
    for key, (word, valid) in words.items():
        if word not in valid:
            raise BadInputError(key, word, valid)
    move = distinct_transports(case.collective, case.algorithm, (case.transport,), case.device)
    if case.transport not in move:
        raise BadInputError(f"transport of {case.algorithm}", case.transport, move)
    _check_call(case)
    _check_parameters(case)


def _check_call(case: Case) -> None:
    family = collective(case.collective)
    if case.root is not None and not family.rooted:
        raise BadInputError("root", case.root, f"none: {case.collective} has no root")
    if not isinstance(case.root, int | None):
        raise BadInputError("root", case.root, "a whole number")
    if case.mapping not in (None, *MAPPINGS):
        raise BadInputError("mapping", case.mapping, MAPPINGS)
    if case.mapping not in distinct_mappings(case.collective, case.algorithm, (case.mapping,)):
        raise BadInputError("mapping", case.mapping, f"none: the ranks of {case.collective} are named one by one")
    if case.in_place not in distinct_placements(case.collective, case.algorithm, (case.in_place,)):
        what = f"{case.collective} of {case.algorithm}"
        raise BadInputError("in_place", case.in_place, f"{not case.in_place}: {what} has no other placement")
    if not isinstance(case.bytes, int):
        raise BadInputError("bytes", case.bytes, "a whole number")
    if family.elements(case.bytes, itemsize(case.dtype), 1) < 1:
        raise BadInputError("bytes", case.bytes, f"at least one {case.dtype}, {itemsize(case.dtype)} bytes")


def _check_parameters(case: Case) -> None:
    if "segment" in case.params and "channels" in case.params:
        raise BadInputError(
            "parameter segment", case.params["segment"], "one of the two: channels follow from the segment"
        )
    for name, value in case.params.items():
        known = known_parameters(case.collective, case.algorithm)
        if name not in known:
            raise BadInputError(f"parameter of {case.algorithm}", name, known or "none: it has no parameters")
        if name == GRAPH and (value not in (0, 1) or (value and case.transport != "nccl")):
            raise BadInputError("parameter graph", value, "0, or over nccl 1: replayed as a CUDA graph")
        if name in PLAN_PARAMETERS:
            PLAN_PARAMETERS[name].check(f"parameter {name}", value)
    if case.algorithm in collective(case.collective).algorithms:
        check_parameters(collective(case.collective).algorithm(case.algorithm), own_parameters(case))


def algorithms_of(name: str) -> tuple[str, ...]:
    """Return all that a collective can be measured with: its algorithms, and the library's own."""
    return (*(a.name for a in collective(name).algorithms.values() if not a.floor), NATIVE)


def measurable_names(name: str) -> tuple[str, ...]:
    """Return all words by which a collective can be measured: floors and ``auto`` among them."""
    return (*collective(name).algorithms, NATIVE, AUTO)


def check_algorithm(algorithm: str, names: Sequence[str]) -> None:
    """See that one of the collectives ``names`` can be measured with ``algorithm``.

    Raises:
        BadInputError: where none can, with what they can be, and the collectives that have it.
    """
    known = dict.fromkeys(chain.from_iterable(measurable_names(name) for name in names))
    if algorithm not in known:
        elsewhere = [name for name in COLLECTIVES if algorithm in measurable_names(name)]
        hint = f" (it is an algorithm of {', '.join(elsewhere)})" if elsewhere else ""
        raise BadInputError("algorithm", algorithm, format_choices(algorithm, known, hint))


def known_parameters(name: str, algorithm: str) -> tuple[str, ...]:
    """Return what a case may say beside its coordinates: arguments of the collective, parameters of the algorithm.

    Raises:
        BadInputError: for an algorithm that the collective has not.
    """
    family = collective(name)
    if algorithm in (NATIVE, AUTO):
        return (*family.arguments, *([GRAPH] if algorithm == NATIVE else []))
    check_algorithm(algorithm, [name])
    plan = () if family.whole else PLAN_PARAMETERS
    return (*family.arguments, *plan, GRAPH, *family.algorithms[algorithm].parameters)


def parameters_by_algorithm(
    name: str, algorithms: Iterable[str], parameters: Mapping[str, Parameter]
) -> Iterator[tuple[str, dict[str, Parameter]]]:
    """Yield every algorithm with those of the parameters that it knows, and the arguments of the collective.

    Raises:
        BadInputError: for a parameter that none of them knows, or traffic that there is not.
    """
    known = {algorithm: known_parameters(name, algorithm) for algorithm in algorithms}
    for parameter in parameters:
        if not any(parameter in names for names in known.values()):
            every = sorted({own for names in known.values() for own in names})
            raise BadInputError("parameter", parameter, every or f"left out: {name} has none")
    values = {**collective(name).arguments, **parameters}
    if "traffic" in values:
        values["traffic"] = traffic.named(str(values["traffic"]))
    values = exact_parameters(values)
    for algorithm, names in known.items():
        yield algorithm, {own: value for own, value in values.items() if own in names}


def exact_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return parameters as cases have them: a size such as 128K is its bytes.

    Raises:
        BadInputError: for a segment that is no size.
    """
    if "segment" not in parameters:
        return dict(parameters)
    return {**parameters, "segment": parse_size(parameters["segment"], "parameter segment")}


def distinct_placements(name: str, algorithm: str, asked: Sequence[bool]) -> Sequence[bool]:
    """Return which of the values ``asked`` of in_place make a difference: where there is one placement, it is that."""
    family = collective(name)
    if not (family.in_place and family.out_of_place):
        return (family.in_place,)
    if algorithm == NATIVE:
        return (True,) if family.one_buffer else asked
    return asked[:1] if _floor(family, algorithm) else asked


def distinct_mappings(name: str, algorithm: str, asked: Sequence[str | None]) -> Sequence[str | None]:
    """Return which of the mappings ``asked`` make a difference: to two ranks that are named none does."""
    family = collective(name)
    if "peer" in family.arguments:
        return (None,)
    return asked[:1] if _floor(family, algorithm) else asked


def _floor(family: Collective, algorithm: str) -> bool:
    return algorithm in family.algorithms and family.algorithms[algorithm].floor


def distinct_transports(name: str, algorithm: str, asked: Sequence[str], device: str = "cpu") -> Sequence[str]:
    """Return which of the transports ``asked`` make a difference: to a choice and who moves nothing none.

    A library's own collectives go over messages on the host, and over each of the transports on a GPU.

    Raises:
        BadInputError: for one that the device has not, also where it would make no difference.
    """
    there = transports_by_device((device,), asked)[device]
    native = algorithm == NATIVE
    return transports_of_native(native, device, there) if native or _floats(name, algorithm) else there


def _floats(name: str, algorithm: str) -> bool:
    return algorithm == AUTO or _floor(collective(name), algorithm)


def own_parameters(case: Case) -> dict[str, Parameter]:
    """Return the parameters that are the algorithm's own."""
    others = {*PLAN_PARAMETERS, GRAPH, *collective(case.collective).arguments}
    return {name: value for name, value in case.params.items() if name not in others}


def call_of(case: Case, p: int) -> CollectiveCall:
    """Return what ``case`` promises on ``p`` workers.

    Raises:
        BadInputError: where its root or another argument does not fit p.
    """
    family = collective(case.collective)
    arguments = {name: value for name, value in case.params.items() if name in family.arguments}
    return family.call(p, case.root, **arguments)


def unmet_needs(case: Case, layout: Layout) -> str | None:
    """Return why ``case`` cannot run on ``layout``, or None where it can.

    Raises:
        BadInputError: for a parameter whose value makes no sense anywhere.
    """
    family = collective(case.collective)
    if not isinstance(case.bytes, int):
        raise BadInputError("bytes", case.bytes, "a whole number")
    if family.elements(case.bytes, itemsize(case.dtype), layout.workers) < 1:
        few = f"{format_size(case.bytes)} is less than one {case.dtype} for each of {layout.workers} ranks"
        return f"{few} of {case.collective}"
    try:
        call_of(case, layout.workers)
    except BadInputError as error:
        return str(error)
    if case.algorithm == AUTO:
        return None  # the table says what it is, and that may have needs
    if case.algorithm == NATIVE:
        return unmet_by_transport(case.transport, case.dtype, layout, {})
    algorithm, own = family.algorithm(case.algorithm), own_parameters(case)
    check_parameters(algorithm, own)
    return unmet_by_transport(case.transport, case.dtype, layout, own) or algorithm.unmet(layout, **own)


def redundant_mapping(case: Case, layout: Layout) -> str | None:
    """Return why the mapping of ``case`` gives what another one does, which is measured instead, or None.

    Args:
        case: to be measured.
        layout: of the ranks as the launcher numbered them, racks among them.
    """
    if case.mapping in (None, FIRST_MAPPING) or numbering(layout, case.mapping) != numbering(layout, FIRST_MAPPING):
        return None
    racks = len(layout.groups("rack"))
    words = {layout.workers: "one on each node", 1: "all on one node"}
    where = words.get(layout.nodes, f"{layout.workers} on {layout.nodes} nodes")
    beside = f" in {racks} racks" if racks > 1 else ""
    return f"mapping {case.mapping} numbers these ranks as {FIRST_MAPPING} does: {where}{beside}"
