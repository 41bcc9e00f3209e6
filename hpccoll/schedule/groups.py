"""Composition over groups: schedules of all ranks made of schedules of some of them, vectorised if possible."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import index

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.layout import Layout
from hpccoll.schedule.schedule import NotVectorisedError, Schedule
from hpccoll.schedule.step import (
    NONE,
    Index,
    Recv,
    RecvReduce,
    Send,
    Step,
    dst,
    floor_log2,
    peer_if,
    rewrite,
    rewrite_ends,
)


def with_idle_aggregators(layout: Layout, schedule: Schedule) -> Schedule:
    """Return ``schedule``, of the workers of ``layout`` alone, on all of its ranks: aggregators are idle."""

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            yield from schedule.steps(me) if me < layout.workers else ()
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

    It is vectorised if every rank is in a group, ``inner`` is vectorised, and the steps of all groups are alike.

    Args:
        layout: the layout of all ranks; a rank in no group is idle.
        units: the number of units of the whole.
        groups: disjoint groups of ranks, workers before aggregators; the i-th of a group has the role i in ``inner``.
        inner: returns the schedule of a group, given its layout.
        share: whether the groups work on disjoint equal shares of the units, in their order; else each works on all.
            Either way a unit of ``inner`` stands for consecutive units of the whole.
    """
    home = {me: (number, role) for number, group in enumerate(groups) for role, me in enumerate(group)}
    ranks = [np.array(group) for group in groups]
    schedules = [inner(layout.subset(group)) for group in groups]
    width = units // len(groups) if share else units

    def in_group(number: int, role: Index) -> Iterator[Step]:
        def peer(role_of_peer: Index) -> Index:
            return peer_if(role_of_peer != NONE, ranks[number][role_of_peer])

        first = number * width if share else 0
        part = rewrite_ends(lambda unit: first + unit * width // schedules[number].units)
        for step in schedules[number].steps(role):
            yield rewrite(step, peer, part)

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            yield from in_group(*home[int(me)]) if me in home else ()
            return
        at = np.argsort(me)
        positions = [at[group] for group in ranks]
        programs = (in_group(number, np.arange(len(group))) for number, group in enumerate(ranks))
        for each in zip_longest(*programs, fillvalue=Step()):
            yield _side_by_side(each, positions, len(me))

    vectorised = len(home) == layout.ranks and all(schedule.vectorised for schedule in schedules)
    return Schedule(layout, units, steps, vectorised)


def _side_by_side(steps: Sequence[Step], positions: Sequence[NDArray[np.intp]], ranks: int) -> Step:
    """Return the step of all ranks in which the ranks at ``positions[i]`` do ``steps[i]``; other entries are zero.

    Raises:
        NotVectorisedError: if the steps differ in more than peers and units, so that one step cannot describe all.
    """
    forms, indices = zip(*map(_form, steps), strict=True)
    if any(form != forms[0] for form in forms):
        raise NotVectorisedError("the steps of the groups are not alike")

    def joined(of_groups: tuple[Index, ...]) -> Index:
        column = np.zeros(ranks, np.int64)
        for at, of_group in zip(positions, of_groups, strict=True):
            column[at] = of_group
        return column

    everywhere = [joined(column) for column in zip(*indices, strict=True)]
    return rewrite(forms[0], lambda at: everywhere[index(at)], rewrite_ends(lambda at: everywhere[index(at)]))


def _form(step: Step) -> tuple[Step, list[Index]]:
    """Return ``step`` with every peer and end of a range replaced by its index in a list, and that list."""
    indices: list[Index] = []

    def collect(old: Index) -> int:
        indices.append(old)
        return len(indices) - 1

    return rewrite(step, collect, rewrite_ends(collect)), indices


def on_power_of_two(layout: Layout, inner: Callable[[Layout], Schedule]) -> Schedule:
    """Return an all-reduce for any number of workers, made of one for powers of two.

    The ranks beyond the largest power of two send their vectors to others first, and receive the sum at the end.

    Args:
        layout: of all ranks.
        inner: returns the all-reduce of a power of two of them, which only sends, receives and reduces.
    """
    p = layout.workers
    core = 1 << floor_log2(p)
    schedule = inner(layout.subset(range(core)))
    all_units = dst[0 : schedule.units]

    def steps(me: Index) -> Iterator[Step]:
        hands_in, takes_in = (me >= core) & (me < p), me < p - core
        if core < p:
            yield Step(
                Send(peer_if(hands_in, me - core), all_units), RecvReduce(peer_if(takes_in, me + core), all_units)
            )
        if isinstance(me, np.ndarray) or me < core:
            for step in schedule.steps(me):
                yield rewrite(step, lambda peer: peer_if(me < core, peer), lambda part: part)
        if core < p:
            yield Step(Send(peer_if(takes_in, me + core), all_units), Recv(peer_if(hands_in, me - core), all_units))

    return Schedule(layout, schedule.units, steps, schedule.vectorised)
