"""Composition: functions that make schedules of schedules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index

import numpy as np

from hpccoll.schedule.collectives import Collective
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.registry import Schedule
from hpccoll.schedule.words import NONE, Action, Copy, Index, Part, Range, Receive, Reduce, Send, Step, live, only


def _rewrite(step: Step, peer: Callable[[Index], Index], part: Callable[[Part], Part]) -> Step:
    """Return ``step`` with every peer and every part replaced."""

    def rewrite(action: Action) -> Action:
        if isinstance(action, Copy):
            return Copy(part(action.source), part(action.target))
        if isinstance(action, Reduce):
            return Reduce(peer(action.peer), part(action.part), part(action.own))
        return type(action)(peer(action.peer), part(action.part))

    return Step(*map(rewrite, step.actions))


def then(first: Schedule, *others: Schedule) -> Schedule:
    """Return one schedule after the other, over the same units."""
    schedules = (first, *others)
    if len({(s.layout, s.units) for s in schedules}) > 1:
        raise ValueError("schedules that follow one another have one layout and one number of units")

    def steps(me: Index) -> Iterator[Step]:
        for schedule in schedules:
            yield from schedule.steps(me)

    return Schedule(first.layout, first.units, steps)


def reverse(schedule: Schedule, arrival: type[Receive | Reduce] = Receive) -> Schedule:
    """Return ``schedule`` backwards: who sent receives, and who received sends what it had received.

    A broadcast backwards, with ``arrival=Reduce``, is a reduction to its root. A fold of two parts into a third has no
    backwards, and raises ValueError.
    """

    def back(action: Action) -> Action:
        if isinstance(action, Reduce) and action.own != action.part:
            raise ValueError(f"a fold of {action.own} into {action.part} cannot be reversed")
        if isinstance(action, Copy):
            return Copy(action.target, action.source)
        return arrival(action.peer, action.part) if isinstance(action, Send) else Send(action.peer, action.part)

    def steps(me: Index) -> Iterator[Step]:
        for step in reversed(list(schedule.steps(me))):
            yield Step(*map(back, step.actions))

    return Schedule(schedule.layout, schedule.units, steps)


def relabel(schedule: Schedule, actual: Sequence[int], units: Sequence[int] | None = None) -> Schedule:
    """Return ``schedule`` with role r played by rank ``actual[r]``, and unit u called ``units[u]`` where given.

    Roots are handled so: with ``actual[0]`` the root, an algorithm only knows root 0.
    """
    rank = np.asarray(actual)
    role = np.argsort(rank)

    def peer(role_of_peer: Index) -> Index:
        return only(role_of_peer != NONE, rank[role_of_peer])

    def part(old: Part) -> Part:
        if units is None:
            return old
        named = [units[unit] for r in old.ranges for unit in range(index(r.first), index(r.last))]
        return Part(old.buffer, tuple(Range(unit, unit + 1) for unit in named))

    def steps(me: Index) -> Iterator[Step]:
        for step in schedule.steps(role[me] if isinstance(me, np.ndarray) else int(role[me])):
            yield _rewrite(step, peer, part)

    return Schedule(schedule.layout, schedule.units, steps)


def within(
    layout: Layout,
    units: int,
    groups: Sequence[Sequence[int]],
    inner: Callable[[Layout], Schedule],
    place: Callable[[int, int], Index] = lambda _group, unit: unit,
) -> Schedule:
    """Return a schedule in which every group of ranks runs ``inner`` by itself, all groups at once.

    Args:
        layout: of all ranks; a rank in no group does nothing.
        units: of the whole.
        groups: disjoint groups of ranks, workers before aggregators; the i-th of a group has the role i in ``inner``.
        inner: makes the schedule of a group from its own layout.
        place: where unit ``unit`` of the schedule of group ``group`` begins among the units of the whole, so that
            unit u of the group is the range from place(group, u) to place(group, u + 1).
    """
    home = {me: (number, role) for number, group in enumerate(groups) for role, me in enumerate(group)}

    def sublayout(group: Sequence[int]) -> Layout:
        node, rack, rail = (tuple(places[me] for me in group) for places in (layout.node, layout.rack, layout.rail))
        return Layout(node, rack, rail, aggregators=sum(me >= layout.workers for me in group))

    schedules = [inner(sublayout(group)) for group in groups]

    def steps(me: Index) -> Iterator[Step]:
        if me not in home:
            return
        number, role = home[int(me)]

        def peer(role_of_peer: Index) -> Index:
            return NONE if role_of_peer == NONE else groups[number][index(role_of_peer)]

        def part(old: Part) -> Part:
            ends = ((place(number, index(r.first)), place(number, index(r.last))) for r in old.ranges)
            return Part(old.buffer, tuple(Range(*end) for end in ends))

        for step in schedules[number].steps(role):
            yield _rewrite(step, peer, part)

    return Schedule(layout, units, steps)


def out_of_place(collective: Collective, schedule: Schedule) -> Schedule:
    """Return ``schedule``, written in place, for a dst that begins undefined.

    A unit is read in src until it is written, so that no time goes into copies, but for units that the schedule never
    writes, which are copied at the end. A part with both written and unwritten units lies in two buffers: it is
    completed by a copy before the step.
    """

    def steps(me: Index) -> Iterator[Step]:
        rank = index(me)
        held = collective.holds("src", rank, schedule.units) if rank < schedule.layout.workers else ()
        only_in_src = set(held)
        for step in map(live, schedule.steps(rank)):
            while True:
                redirected, split = _read_from_src(step, only_in_src)
                if not split:
                    break
                yield Step(Copy(_part("src", split), _part("dst", split)))
                only_in_src -= split
            yield redirected
            for action in step.actions:
                only_in_src -= _units_landed(action)
        if only_in_src:
            yield Step(Copy(_part("src", only_in_src), _part("dst", only_in_src)))

    return Schedule(schedule.layout, schedule.units, steps)


def _part(buffer: str, units: Iterable[int]) -> Part:
    return Part(buffer, tuple(Range(unit, unit + 1) for unit in sorted(units)))


def _units(part: Part) -> set[int]:
    return {unit for r in part.ranges for unit in range(index(r.first), index(r.last))}


def _units_landed(action: Action) -> set[int]:
    """Return the units of dst that ``action`` writes."""
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
        return part.within("src")

    def redirect(action: Action) -> Action:
        if isinstance(action, Send):
            return Send(action.peer, read(action.part, only_in_src))
        if isinstance(action, Copy):
            redirected: Action = Copy(read(action.source, only_in_src), action.target)
        elif isinstance(action, Reduce):
            redirected = Reduce(action.peer, action.part, read(action.own, now))
        else:
            redirected = action
        now.difference_update(_units_landed(action))
        return redirected

    return Step(*map(redirect, step.actions)), split
