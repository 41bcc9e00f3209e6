"""Out of place: a schedule that was written in place, for contributions that lie in src."""

from collections.abc import Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING

from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Action, Copy, Index, Part, Range, RecvReduce, Send, Step, drop_null_peers

if TYPE_CHECKING:
    from hpccoll.schedule.collective import CollectiveCall


def out_of_place(call: "CollectiveCall", schedule: Schedule) -> Schedule:
    """Return ``schedule``, written in place, for a dst that starts undefined.

    A unit is read in src until it is written, so that no time goes into copies, but for units of the result that the
    schedule never writes, which are copied at the end. A part with both written and unwritten units lies in two
    buffers: it is completed by a copy before the step.
    """

    def steps(me: Index) -> Iterator[Step]:
        rank = index(me)
        only_in_src = set(call.source(rank, schedule.units))
        for step in map(drop_null_peers, schedule.steps(rank)):
            while True:
                redirected, split = _read_from_src(step, only_in_src)
                if not split:
                    break
                yield Step(Copy(_part("src", split), _part("dst", split)))
                only_in_src -= split
            yield redirected
            for action in step.actions:
                only_in_src -= _units_landed(action)
        if left := only_in_src.intersection(call.target(rank, schedule.units)):
            yield Step(Copy(_part("src", left), _part("dst", left)))

    return Schedule(schedule.layout, schedule.units, steps, vectorised=False)


def _part(buffer: str, units: Iterable[int]) -> Part:
    return Part(buffer, tuple(Range(unit, unit + 1) for unit in sorted(units)))


def _units(part: Part) -> set[int]:
    return {unit for r in part.ranges for unit in range(index(r.first), index(r.last))}


def _units_landed(action: Action) -> set[int]:
    if isinstance(action, Send):
        return set()
    part = action.target if isinstance(action, Copy) else action.part
    return _units(part) if part.buffer == "dst" else set()


def _read_from_src(step: Step, only_in_src: set[int]) -> tuple[Step, set[int]]:
    """Return ``step`` reading src where dst is not written yet, and the units that keep a part from lying in either.

    Sends and copies read what was there before the step; a fold reads what the arrivals before it have left.
    """
    split: set[int] = set()
    now = set(only_in_src)

    def read(part: Part, unwritten: set[int]) -> Part:
        units = _units(part)
        if part.buffer != "dst" or units.isdisjoint(unwritten):
            return part
        if not units <= unwritten:
            split.update(units & unwritten & only_in_src)
        return part.in_buffer("src")

    def redirect(action: Action) -> Action:
        if isinstance(action, Send):
            return Send(action.peer, read(action.part, only_in_src))
        if isinstance(action, Copy):
            redirected: Action = Copy(read(action.source, only_in_src), action.target)
        elif isinstance(action, RecvReduce):
            redirected = RecvReduce(action.peer, action.part, read(action.operand, now))
        else:
            redirected = action
        now.difference_update(_units_landed(action))
        return redirected

    return Step(*map(redirect, step.actions)), split
