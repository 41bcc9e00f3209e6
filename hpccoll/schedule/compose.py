"""Composition: functions that make schedules of schedules."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hpccoll.schedule.regularity import of_relabelled, of_sequence
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import (
    NONE,
    Action,
    Copy,
    CopyReduce,
    Index,
    Part,
    Range,
    Recv,
    RecvReduce,
    Send,
    Step,
    Truth,
    maximum,
    minimum,
    peer_if,
    rewrite,
)


def then(first: Schedule, *following: Schedule) -> Schedule:
    """Return one schedule after the other, over the same units."""
    schedules = (first, *following)
    if len({(s.layout, s.units) for s in schedules}) > 1:
        raise ValueError(
            "schedules that follow one another have one layout and one number of units"
        )

    def steps(me: Index) -> Iterator[Step]:
        for schedule in schedules:
            yield from schedule.steps(me)

    vectorised = all(schedule.vectorised for schedule in schedules)
    regularity = of_sequence(schedule.regularity for schedule in schedules)
    return Schedule(first.layout, first.units, steps, vectorised, regularity)


def reverse(schedule: Schedule, arrival: type[Recv | RecvReduce] = Recv) -> Schedule:
    """Return ``schedule`` reversed: senders receive, and receivers send what they had received.

    A broadcast reversed with ``arrival=RecvReduce`` is a reduction to its root.

    Raises:
        ValueError: if the schedule folds two parts into a third.
    """

    def reversed_action(action: Action) -> Action:
        if isinstance(action, CopyReduce):
            raise ValueError(f"a fold of {action.operand} on one rank cannot be reversed")  # noqa: TRY004 - a value
        if isinstance(action, RecvReduce) and action.operand != action.part:
            raise ValueError(f"a fold of {action.operand} into {action.part} cannot be reversed")
        if isinstance(action, Copy):
            return Copy(action.target, action.source)
        if isinstance(action, Send):
            return arrival(action.peer, action.part)
        return Send(action.peer, action.part)

    def steps(me: Index) -> Iterator[Step]:
        for step in reversed(list(schedule.steps(me))):
            yield Step(*map(reversed_action, step.actions))

    return replace(schedule, steps=steps)


def relabel(
    schedule: Schedule, actual: Sequence[int], units: Sequence[int] | None = None
) -> Schedule:
    """Return ``schedule`` with role r played by rank ``actual[r]``, and unit u called ``units[u]`` where given.

    This implements roots: algorithms are written for root 0, and ``actual[0]`` is the root.
    """
    rank = np.asarray(actual)
    role = np.argsort(rank)
    runs = _runs(units or ())

    def peer(role_of_peer: Index) -> Index:
        return peer_if(role_of_peer != NONE, rank[role_of_peer])

    def part(old: Part) -> Part:
        if units is None:
            return old
        pieces = []
        for units_of_role in old.ranges:
            for run in runs:
                piece = _renamed(run, units_of_role)
                if np.any(piece.first < piece.last):
                    pieces.append(piece)
        return Part(old.buffer, tuple(pieces))

    def steps(me: Index) -> Iterator[Step]:
        own_role = role[me] if isinstance(me, np.ndarray) else int(role[me])
        for step in schedule.steps(own_role):
            yield rewrite(step, peer, part)

    regularity = None if units else of_relabelled(schedule.regularity, actual)
    return replace(schedule, steps=steps, regularity=regularity)


def only_active(schedule: Schedule, active: Callable[[Index], Truth]) -> Schedule:
    """Return ``schedule`` with the messages of ``active`` ranks alone, which they exchange with one another."""

    def steps(me: Index) -> Iterator[Step]:
        takes_part = active(me)
        for step in schedule.steps(me):
            yield rewrite(step, lambda peer: peer_if(takes_part, peer), lambda part: part)

    return replace(schedule, steps=steps, regularity=None)


def _runs(units: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the ranges [first, last) of units whose names are consecutive, and the distance to their names."""
    starts = [unit for unit in range(len(units)) if unit == 0 or units[unit] != units[unit - 1] + 1]
    return [(first, last, units[first] - first) for first, last in pairwise([*starts, len(units)])]


def _renamed(run: tuple[int, int, int], old: Range) -> Range:
    """Return the names of those units of a range that are in a run."""
    first, last, away = run
    begin = minimum(maximum(old.first, first), last)
    end = maximum(minimum(old.last, last), begin)
    return Range(begin + away, end + away)
