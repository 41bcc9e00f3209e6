"""The schedule that a command without a case requests: ``show``, ``predict``."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, collective
from hpccoll.cases.catalogue import RUN_PARAMETERS
from hpccoll.cases.planned_schedule import WINDOW
from hpccoll.common.errors import BadInputError, to_one_line
from hpccoll.schedule import (
    MAPPINGS,
    Algorithm,
    Collective,
    CollectiveCall,
    Cut,
    Layout,
    Parameter,
    Schedule,
    itemsize,
    numbering,
    out_of_place,
)
from hpccoll.schedule.collective import NATIVE

DEFAULT_DTYPE = "float32"
"""The dtype of the elements, which is also the default of ``hpccoll run``."""


class RequestedSchedule(NamedTuple):
    """An algorithm of a collective on a layout: its in-place schedules, one for each slice of the buffer."""

    call: CollectiveCall
    algorithm: Algorithm
    slices: tuple[Schedule, ...]


def requested_schedule(
    algorithm: str,
    collective_name: str | None,
    layout: Layout,
    *,
    root: int | None = None,
    parameters: Mapping[str, Parameter],
) -> RequestedSchedule:
    """Return the schedule of an algorithm of a collective [the first that has it], with the call's own parameters.

    Raises:
        BadInputError: if an argument is invalid, or the algorithm cannot run on the layout.
    """
    if collective_name and algorithm != NATIVE:
        family = collective(collective_name)
    else:
        family = _first_with(algorithm)
    registered = family.algorithm(algorithm)
    arguments: dict[str, Parameter] = {}
    own: dict[str, Parameter] = {}
    for name, value in parameters.items():
        if name in family.arguments:
            arguments[name] = value
        else:
            own[name] = value
    call = family.call(layout.workers, root, **arguments)
    return RequestedSchedule(call, registered, call.slices(registered, layout, **own))


class RequestedOperation(NamedTuple):
    """A schedule for messages of a size."""

    # the schedules of the slices, out of place if the collective has no in-place form
    schedules: tuple[Schedule, ...]
    cut: Cut  # the positions of the units
    window: int  # the number of channels in flight
    words: str  # the schedule in words, one line


def requested_operation(
    algorithm: str,
    collective_name: str | None,
    layout: Layout,
    nbytes: int,
    *,
    root: int | None = None,
    dtype: str = DEFAULT_DTYPE,
    parameters: Mapping[str, Parameter],
) -> RequestedOperation:
    """Return the schedule of ``requested_schedule`` for messages of S bytes, with ``channels`` [1] and ``window``.

    Raises:
        BadInputError: if an argument is invalid, or the algorithm cannot run on the layout.
    """
    own = {name: value for name, value in parameters.items() if name not in ("channels", "window")}
    call, _, slices = requested_schedule(
        algorithm, collective_name, layout, root=root, parameters=own
    )
    family = call.collective
    size = itemsize(dtype)
    for name in [name for name in parameters if name not in own]:
        if family.uncut:
            expected = f"left out: {family.name} is never cut into channels"
            raise BadInputError(f"parameter of {algorithm}", name, expected)
        RUN_PARAMETERS[name].check(f"parameter {name}", parameters[name])
    if family.elements(nbytes, size, 1) < 1:
        raise BadInputError("--bytes", nbytes, f"at least one {dtype}, {size} bytes")
    channels = int(parameters.get("channels", 1))
    window = int(parameters.get("window", min(channels, WINDOW)))
    count = family.elements(nbytes, size, layout.workers)
    words = [f"{family.name} by {algorithm}", f"{layout.workers} workers"]
    for name, value in {**parameters, "channels": channels, "window": window}.items():
        words.append(f"{name}={value}")
    schedules = slices
    if not family.in_place:
        schedules = tuple(_out_of_place(call, schedule) for schedule in slices)
    cut = Cut(call, count, slices[0].units, len(slices) * channels, size)
    return RequestedOperation(schedules, cut, window, to_one_line(", ".join(words)))


@lru_cache(maxsize=32)
def _out_of_place(call: CollectiveCall, schedule: Schedule) -> Schedule:
    """Return one schedule for all sizes, so that what is made of it is made once."""
    return out_of_place(call, schedule)


def _first_with(algorithm: str) -> Collective:
    names: set[str] = set()
    for family in COLLECTIVES.values():
        if algorithm in family.algorithms:
            return family
        names.update(family.algorithms)
    valid = sorted(names)
    if algorithm == NATIVE:
        expected = f"it is the library's own and has no schedule; choose from {', '.join(valid)}"
        raise BadInputError("algorithm", algorithm, expected)
    raise BadInputError("algorithm", algorithm, valid)


def requested_layout(
    workers: int,
    ranks_per_node: int | None,
    racks: str,
    aggregators: int,
    max_workers: int,
    mapping: str = "block",
) -> Layout:
    """Return a layout with as many workers on each node but the last, nodes in blocks of racks, and aggregators.

    Args:
        workers: the number of workers.
        ranks_per_node: the workers on each node [all; one, if there are several racks].
        racks: the number of racks, or the number of workers in each: ``6,16,10``.
        aggregators: the number of aggregators, each on its own node.
        max_workers: the largest valid number.
        mapping: the order in which ranks are numbered, a word of MAPPINGS.

    Raises:
        BadInputError: if a number is out of range, there are more racks than nodes, or a node is in
            two racks.
    """
    sizes = [int(size) for size in racks.split(",") if size.isdecimal() and len(size) < 10]
    if (
        len(sizes) != racks.count(",") + 1
        or 0 in sizes
        or (len(sizes) > 1 and sum(sizes) != workers)
    ):
        expected = f"a number of racks, or the workers in each, {workers} together: 6,16,10"
        raise BadInputError("--racks", racks, expected)
    count = len(sizes)
    if count == 1:
        count = sizes[0]
    per_node = ranks_per_node
    if per_node is None:
        per_node = workers if count == 1 else 1
    for key, number, least in (
        ("--workers", workers, 1),
        ("--ranks-per-node", per_node, 1),
        ("--aggregators", aggregators, 0),
    ):
        if not least <= number <= max_workers:
            raise BadInputError(key, number, f"a number from {least} to {max_workers}")
    if mapping not in MAPPINGS:
        raise BadInputError("--mapping", mapping, MAPPINGS)
    flat = Layout.of(workers, per_node)
    nodes = flat.nodes  # which it counts
    if count > nodes:
        raise BadInputError("--racks", racks, f"at most the number of nodes, which is {nodes}")
    if len(sizes) > 1:
        rack = tuple(number for number, size in enumerate(sizes) for _ in range(size))
    else:
        rack = tuple(node * count // nodes for node in flat.node)
    if len(set(zip(flat.node, rack, strict=True))) > nodes:
        raise BadInputError("--racks", racks, f"racks of whole nodes of {per_node} workers")
    placed = Layout(flat.node, rack).with_aggregators(aggregators)
    return placed.subset(numbering(placed, mapping))
