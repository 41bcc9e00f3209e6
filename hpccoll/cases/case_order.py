"""The order in which a case of ours adds: its schedule's trees, at the elements where its channels put them."""

from functools import lru_cache

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import call_of
from hpccoll.cases.planned_schedule import planned_schedule
from hpccoll.schedule import Cut, Layout, Schedule, Send, itemsize
from hpccoll.schedule.collective import CollectiveCall
from hpccoll.schedule.order import BufferOrder, ScheduleOrder, has_order, order_of
from hpccoll.schedule.step import drop_null_peers

cached_order = lru_cache(16)(order_of)
"""Computes the trees of a schedule once for all sizes and types."""


@lru_cache(1024)
def _order_without_trees(call: CollectiveCall, schedule: Schedule) -> ScheduleOrder:
    """Return the digests alone, which are kept for many schedules: the trees of 1,024 ranks take 20 MiB."""
    return order_of(call, schedule).without_trees()


def case_order(
    case: Case, layout: Layout, *, with_trees: bool = False, most_messages: int | None = None
) -> BufferOrder | None:
    """Return the order of a case; None if the bits have none, or another program chooses it.

    Args:
        case: the case; BadInputError of what it raises if it cannot run on the layout.
        layout: the ranks as the mapping of the case numbers them.
        with_trees: whether the result must know the trees, and not their digests only.
        most_messages: the messages of a schedule beyond which the order is None [any].
    """
    if case.op is None or not has_order(case.op, case.dtype):
        return None
    planned = planned_schedule(case, layout)
    if planned is None or planned.algorithm.floor:
        return None
    call = call_of(case, layout.workers)
    if not call.collective.has_op:
        return None
    size = itemsize(case.dtype)
    count = call.collective.elements(case.bytes, size, layout.workers)
    cut = Cut(call, count, planned.slices[0].units, planned.lanes, size)
    compute = _order_without_trees
    if with_trees:
        compute = cached_order
    orders = []
    for schedule in planned.slices:
        if most_messages is not None and _message_count(schedule) > most_messages:
            return None
        orders.append(compute(call, schedule))
    return BufferOrder(tuple(orders), cut)


@lru_cache(1024)
def _message_count(schedule: Schedule) -> int:
    """Return about how many messages a schedule has: as many as if all ranks sent what rank 1 sends."""
    sends = 0
    for step in map(drop_null_peers, schedule.steps(min(1, schedule.layout.ranks - 1))):
        sends += sum(isinstance(action, Send) for action in step.actions)
    return sends * schedule.layout.ranks
