"""Composition over groups: schedules of all ranks made of schedules of some of them, vectorised if possible."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import index
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.layout import Layout
from hpccoll.schedule.regularity import of_groups
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import (
    NONE,
    Index,
    Step,
    peer_if,
    rewrite,
    rewrite_ends,
)

MAX_REMEMBERED = 4
"""The most arrays of peers whose ranks are remembered while steps are generated."""


def with_idle_aggregators(layout: Layout, schedule: Schedule) -> Schedule:
    """Return ``schedule``, of the workers of ``layout`` alone, on all of its ranks: aggregators are idle."""

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            if me < layout.workers:
                yield from schedule.steps(me)
            return
        works = me < layout.workers
        for step in schedule.steps(me[works]):
            everywhere = _side_by_side([step], [np.flatnonzero(works)], len(me))
            yield rewrite(everywhere, lambda peer: peer_if(works, peer), lambda part: part)

    return Schedule(layout, schedule.units, steps, schedule.vectorised)


def in_groups(
    layout: Layout,
    units: int,
    groups: Sequence[Sequence[int]],
    inner: Callable[[Layout], Schedule],
    *,
    share: bool = False,
) -> Schedule:
    """Return a schedule in which every group of ranks runs ``inner`` by itself, all groups at once.

    It is vectorised if every rank is in a group, ``inner`` is vectorised, and the steps of all
    groups are alike. Groups whose ranks lie alike share one schedule, so that 131,072 nodes take no
    longer than one.

    Args:
        layout: the layout of all ranks; a rank in no group is idle.
        units: the number of units of the whole.
        groups: disjoint groups of ranks, workers before aggregators; the i-th of a group has the
            role i in ``inner``.
        inner: returns the schedule of a group, given its layout; nodes and racks are numbered from
            0 in each.
        share: whether the groups work on disjoint equal shares of the units, in their order; else
            each works on all. Either way a unit of ``inner`` stands for consecutive units of the
            whole.
    """
    kinds: dict[Layout, list[int]] = {}
    for number, group in enumerate(groups):
        kinds.setdefault(layout.subset(group).renumbered(), []).append(number)
    schedules = [inner(kind) for kind in kinds]
    # of shape [group, role]
    members = [np.array([groups[number] for number in numbers]) for numbers in kinds.values()]
    number_of = [np.array(numbers) for numbers in kinds.values()]
    kind_of, row_of, role_of = _places(members, layout.ranks)
    width = units // len(groups) if share else units

    def in_group(kind: int, row: Index, role: Index) -> Iterator[Step]:
        peer = _remembered(lambda role: peer_if(role != NONE, members[kind][row, role]))
        first = number_of[kind][row] * width if share else 0
        part = rewrite_ends(_scaled(first, width, schedules[kind].units))
        for step in schedules[kind].steps(role):
            yield rewrite(step, peer, part)

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            if role_of[me] >= 0:
                yield from in_group(int(kind_of[me]), int(row_of[me]), int(role_of[me]))
            return
        positions = [np.flatnonzero(kind_of[me] == kind) for kind in range(len(schedules))]
        programs = [
            in_group(kind, row_of[me[at]], role_of[me[at]]) for kind, at in enumerate(positions)
        ]
        if len(programs) == 1:
            yield from programs[0]
            return
        for steps_of_kinds in zip_longest(*programs, fillvalue=Step()):
            yield _side_by_side(steps_of_kinds, positions, len(me))

    vectorised = bool((role_of >= 0).all()) and all(schedule.vectorised for schedule in schedules)
    regularity = None
    if vectorised and len(kinds) == 1 and width % schedules[0].units == 0:
        regularity = of_groups(members[0], schedules[0].regularity)
    return Schedule(layout, units, steps, vectorised, regularity)


class _Places(NamedTuple):
    """Where each rank is among the groups, -1 for a rank in no group."""

    kind: NDArray[np.int64]  # the kind of its group
    row: NDArray[np.int64]  # its group among those of the kind
    role: NDArray[np.int64]  # its role in the group


def _places(members: Sequence[NDArray[np.int64]], ranks: int) -> _Places:
    """Return the places of all ranks; ``members`` are the ranks of each kind of groups, [group, role]."""
    places = _Places(np.full(ranks, -1), np.full(ranks, -1), np.full(ranks, -1))
    for kind, groups in enumerate(members):
        places.kind[groups] = kind
        places.row[groups] = np.arange(len(groups))[:, np.newaxis]
        places.role[groups] = np.arange(groups.shape[1])
    return places


def _scaled(first: Index, width: int, units: int) -> Callable[[Index], Index]:
    """Return the function of a unit of ``units`` that returns where it begins in ``width`` ones from ``first`` on."""
    whole, rest = divmod(width, units)
    if rest:
        return lambda unit: first + unit * width // units
    return lambda unit: first + unit * whole  # whole numbers divide more slowly than they multiply


def _remembered(function: Callable[[Index], Index]) -> Callable[[Index], Index]:
    """Return the function with its last results: a ring names the same peers in every step, as the same arrays."""
    results: dict[int, tuple[Index, Index]] = {}

    def remembered(index: Index) -> Index:
        if id(index) not in results:
            if len(results) == MAX_REMEMBERED:
                results.clear()
            # with the argument, so that no other one has its id
            results[id(index)] = index, function(index)
        return results[id(index)][1]

    return remembered


def _side_by_side(steps: Sequence[Step], positions: Sequence[NDArray[np.intp]], ranks: int) -> Step:
    """Return the step of all ranks in which the ranks at ``positions[i]`` do ``steps[i]``; other entries are zero.

    Raises:
        NotVectorisedError: if the steps differ in more than peers and units, so that one step
            cannot describe all.
    """
    forms, indices = zip(*map(form_of, steps), strict=True)
    if any(form != forms[0] for form in forms):
        raise NotVectorisedError("the steps of the groups are not alike")

    def joined(values_of_groups: tuple[Index, ...]) -> Index:
        column = np.zeros(ranks, np.int64)
        for at, values in zip(positions, values_of_groups, strict=True):
            column[at] = values
        return column

    everywhere = [joined(column) for column in zip(*indices, strict=True)]

    def look_up(number: Index) -> Index:
        return everywhere[index(number)]

    return rewrite(forms[0], look_up, rewrite_ends(look_up))


def form_of(step: Step) -> tuple[Step, list[Index]]:
    """Return ``step`` with every peer and end of a range replaced by its index in a list, and that list."""
    indices: list[Index] = []

    def collect(old: Index) -> int:
        indices.append(old)
        return len(indices) - 1

    return rewrite(step, collect, rewrite_ends(collect)), indices
