"""Whether a wrong result, or plans that do not match, come from a schedule that is not proven."""

import shlex
from functools import lru_cache

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import call_of, own_parameters
from hpccoll.cases.planned_schedule import planned_schedule
from hpccoll.schedule import CollectiveCall, Layout, Schedule, ScheduleError, out_of_place

MAX_PROVEN_RANKS = 64
"""The most ranks for which a schedule is proven during a run: their proof takes less than a second."""


def unproven_text(case: Case, layout: Layout) -> str | None:
    """Return why the schedule of a case is wrong, and the command that shows it.

    None if the schedule is proven, if the library's own algorithm or a training step runs, and for
    many ranks.
    """
    if layout.ranks > MAX_PROVEN_RANKS:
        return None
    planned = planned_schedule(case, layout)
    if planned is None or planned.algorithm.floor:
        return None
    call = call_of(case, layout.workers)
    # a collective without an in-place form is proven out of place, as it runs
    fault = _fault(call, planned.slices, in_place=call.collective.in_place)
    if fault is None:
        return None
    return f"not proven: {fault}; do: {_show_command(case, layout)}"


@lru_cache
def _fault(call: CollectiveCall, slices: tuple[Schedule, ...], *, in_place: bool) -> str | None:
    """Return the fault of a schedule, if any; all sizes of a case share it."""
    from hpccoll.schedule.prove import prove  # a run with right results never needs it

    placed = slices if in_place else tuple(out_of_place(call, schedule) for schedule in slices)
    try:
        prove(call, placed, in_place=in_place)
    except ScheduleError as error:
        return str(error)
    return None


def _show_command(case: Case, layout: Layout) -> str:
    """Return the command that shows the schedule of a case."""
    words = ["hpccoll", "show", case.algorithm, "-c", case.collective, "-p", str(layout.workers)]
    if layout.nodes > 1 and layout.ranks_per_node:
        words += ["--ranks-per-node", str(layout.ranks_per_node)]
    if layout.aggregators:
        words += ["--aggregators", str(layout.aggregators)]
    if case.root:
        words += ["--root", str(case.root)]
    for name, value in own_parameters(case).items():
        words += ["--param", f"{name}={value}"]
    return shlex.join(words)
