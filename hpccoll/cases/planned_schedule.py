"""The schedule of a case as a transport lowers it, known from the case and the layout, before there are ranks."""

from functools import lru_cache
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import call_of, own_parameters
from hpccoll.cases.channel_defaults import plan_channels
from hpccoll.schedule import (
    Algorithm,
    CollectiveCall,
    Cut,
    Layout,
    Parameter,
    Schedule,
    itemsize,
    numbering,
    smallest_message_units,
)


@lru_cache
def cached_slices(
    call: CollectiveCall, algorithm: Algorithm, layout: Layout, parameters: tuple[tuple[str, Parameter], ...]
) -> tuple[Schedule, ...]:
    """Return the slices of an algorithm, shared by all sizes of a job, and with them the results cached for them."""
    return call.slices(algorithm, layout, **dict(parameters))


@lru_cache(8)
def mapped_layout(layout: Layout, mapping: str | None) -> Layout:
    """Return ``layout``, of the ranks as the launcher numbers them, with the ranks as ``mapping`` numbers them."""
    return layout if mapping is None else layout.subset(numbering(layout, mapping))


class PlannedSchedule(NamedTuple):
    """All that a transport lowers to a plan, next to the call, its size and its buffers."""

    algorithm: Algorithm
    slices: tuple[Schedule, ...]
    channels: int
    window: int


def planned_schedule(case: Case, layout: Layout) -> PlannedSchedule | None:
    """Return the schedule of a case that can run on ``layout``; None if it has none: the library's own, and steps.

    The layout has the ranks as the mapping of the case numbers them.
    """
    algorithm = COLLECTIVES[case.collective].algorithms.get(case.algorithm) if case.collective in COLLECTIVES else None
    if algorithm is None:
        return None
    call = call_of(case, layout.workers)
    slices = cached_slices(call, algorithm, layout, tuple(own_parameters(case).items()))
    channels, window = (int(case.params.get(name, 1)) for name in ("channels", "window"))
    if not (call.collective.uncut or algorithm.floor):
        size = itemsize(case.dtype)
        nbytes = call.bytes(call.collective.elements(case.bytes, size, layout.workers), size)
        channels, window = plan_channels(
            case.params, nbytes, layout, slices, pipelined=algorithm.pipelined, queued=case.transport == "nccl"
        )
    return PlannedSchedule(algorithm, slices, channels, window)


def smallest_message(case: Case, layout: Layout) -> int | None:
    """Return the bytes of the smallest message of a case; None if its blocks are unequal, and for workloads.

    For the library's own calls this is the block of a rank, which is a message if they send blocks. Units that are
    smaller than others by rounding are not considered.
    """
    call, size = call_of(case, layout.workers), itemsize(case.dtype)
    if call.traffic is not None or case.collective in WORKLOADS:
        return None
    count = call.collective.elements(case.bytes, size, layout.workers)
    planned = planned_schedule(case, layout)
    if planned is None or planned.algorithm.floor:
        return count * size
    lanes = len(planned.slices) * planned.channels
    return min(
        int(Cut(call, count, one.units, lanes, size).edges(0)[1]) * _smallest_message_units(one) * size
        for one in planned.slices
    )


@lru_cache
def _smallest_message_units(schedule: Schedule) -> int:
    return smallest_message_units(schedule)
