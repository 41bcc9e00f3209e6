"""The schedule of a case as a transport lowers it, known from the case and the layout, before there are ranks."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS, collective
from hpccoll.cases.case import Case, Shape
from hpccoll.cases.catalogue import GRAPH, call_of, own_parameters
from hpccoll.cases.channel_defaults import plan_channels
from hpccoll.schedule import (
    Algorithm,
    CollectiveCall,
    Cut,
    Layout,
    Parameter,
    Schedule,
    have_same_steps,
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


def mapped_layout(layout: Layout, mapping: str | None) -> Layout:
    """Return ``layout``, of the ranks as the launcher numbers them, with the ranks as ``mapping`` numbers them."""
    return layout if mapping is None else layout.subset(numbering(layout, mapping))


class PlannedSchedule(NamedTuple):
    """All that a transport lowers to a plan, next to the call, its size and its buffers.

    Args:
        slices: the schedule of each slice of the buffer.
        channels: the number of channels.
        window: the number of channels in flight.
    """

    slices: tuple[Schedule, ...]
    channels: int
    window: int


def planned_schedule(case: Case, layout: Layout) -> PlannedSchedule | None:
    """Return the schedule of a case that can run on ``layout``; None if it has none: the library's own, floors, steps.

    Args:
        case: the case.
        layout: the layout of the ranks as its mapping numbers them.
    """
    algorithm = COLLECTIVES[case.collective].algorithms.get(case.algorithm) if case.collective in COLLECTIVES else None
    if algorithm is None or algorithm.floor:
        return None
    call = call_of(case, layout.workers)
    slices = cached_slices(call, algorithm, layout, tuple(own_parameters(case).items()))
    channels = window = 1
    if not call.collective.uncut:
        size = itemsize(case.dtype)
        nbytes = call.bytes(call.collective.elements(case.bytes, size, layout.workers), size)
        channels, window = plan_channels(
            case.params, nbytes, layout, slices, pipelined=algorithm.pipelined, queued=case.transport == "nccl"
        )
    return PlannedSchedule(slices, channels, window)


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
    if planned is None:
        return count * size
    lanes = len(planned.slices) * planned.channels
    return min(
        int(Cut(call, count, one.units, lanes, size).edges(0)[1]) * _smallest_message_units(one) * size
        for one in planned.slices
    )


class MeasuredPlans:
    """The plans of the cases of one launch over NCCL that are measured: of equal plans, the first.

    Over other transports, equal plans are measured under each name: on two ranks, most algorithms of a textbook
    coincide, and whoever compares them there sees the noise between runs of one plan. Over NCCL, a case costs GPU time,
    and its variants multiply the cases.

    Args:
        layout: the layout of the ranks as the launcher numbers them.
        shape: the shape of the launch, for people.
    """

    def __init__(self, layout: Layout, shape: Shape) -> None:
        self._layout, self._shape = layout, shape
        self._measured: dict[object, list[tuple[str, tuple[Schedule, ...]]]] = {}

    def reason_to_skip(self, case: Case) -> str | None:
        """Return the reason if ``case`` has the plan of an earlier one; else remember it as measured and return None.

        Args:
            case: a case of the launch that can run and is not skipped for another reason, in the order of the job.
        """
        if case.transport != "nccl":
            return None
        planned = planned_schedule(case, mapped_layout(self._layout, case.mapping))
        if planned is None:
            return None
        same = (*collective(case.collective).arguments, GRAPH)
        same_but_plan = replace(case, algorithm="", params={}).id, *(case.params.get(name) or 0 for name in same)
        lanes = len(planned.slices), planned.channels, min(planned.window, planned.channels)
        earlier = self._measured.setdefault((*same_but_plan, *lanes), [])
        for name, slices in earlier:
            if all(map(_have_same_steps, slices, planned.slices)):
                return f"the same plan as {name} on {self._shape}: {name} is measured"
        parameters = [f"{name}={value}" for name, value in sorted(case.params.items()) if name not in same]
        name = " ".join([case.algorithm, *parameters])
        earlier.append((name, planned.slices))
        return None


@lru_cache
def _smallest_message_units(schedule: Schedule) -> int:
    return smallest_message_units(schedule)


@lru_cache(4096)
def _have_same_steps(one: Schedule, other: Schedule) -> bool:
    return have_same_steps(one, other)
