"""Groups: schedules of all ranks made of those of some of them, told of all ranks at once where that can be."""

from collections.abc import Callable, Iterator, Sequence
from operator import index

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.compose import by_ends, reverse, rewritten, then
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import NONE, Index, Recv, RecvReduce, Send, Step, dst, peer_if


def with_idle_aggregators(layout: Layout, schedule: Schedule) -> Schedule:
    """Return ``schedule``, of the workers of ``layout`` alone, on all of its ranks: the others have nothing to do."""

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            yield from schedule.steps(me) if me < layout.workers else ()
            return
        works = me < layout.workers
        for step in schedule.steps(me[works]):
            everywhere = _side_by_side([step], [np.flatnonzero(works)], len(me))
            yield rewritten(everywhere, lambda peer: peer_if(works, peer), lambda part: part)

    return Schedule(layout, schedule.units, steps)


def in_groups(
    layout: Layout,
    units: int,
    groups: Sequence[Sequence[int]],
    inner: Callable[[Layout], Schedule],
    place: Callable[[int, Index], Index] = lambda _group, unit: unit,
) -> Schedule:
    """Return a schedule in which every group of ranks runs ``inner`` by itself, all groups at once.

    It tells all ranks at once where every one of them is in a group, and the steps of all groups are alike.

    Args:
        layout: of all ranks; a rank in no group does nothing.
        units: of the whole.
        groups: disjoint groups of ranks, workers before aggregators; the i-th of a group has the role i in ``inner``.
        inner: makes the schedule of a group from its own layout.
        place: where unit ``unit`` of the schedule of group ``group`` begins among the units of the whole, so that
            unit u of the group is the range from place(group, u) to place(group, u + 1).
    """
    home = {me: (number, role) for number, group in enumerate(groups) for role, me in enumerate(group)}
    ranks = [np.array(group) for group in groups]
    schedules = [inner(layout.subset(group)) for group in groups]

    def in_group(number: int, role: Index) -> Iterator[Step]:
        def peer(role_of_peer: Index) -> Index:
            return peer_if(role_of_peer != NONE, ranks[number][role_of_peer])

        part = by_ends(lambda unit: place(number, unit))
        for step in schedules[number].steps(role):
            yield rewritten(step, peer, part)

    def steps(me: Index) -> Iterator[Step]:
        if not isinstance(me, np.ndarray):
            yield from in_group(*home[int(me)]) if me in home else ()
            return
        if len(home) < layout.ranks or not np.array_equal(np.sort(me), np.arange(layout.ranks)):
            raise ValueError("a rank in no group has no step where others have one: it is told by itself")
        at = np.argsort(me)
        places = [at[group] for group in ranks]
        programs = (in_group(number, np.arange(len(group))) for number, group in enumerate(ranks))
        for each in zip(*programs, strict=True):
            yield _side_by_side(each, places, len(me))

    return Schedule(layout, units, steps)


def _side_by_side(steps: Sequence[Step], places: Sequence[NDArray[np.intp]], ranks: int) -> Step:
    """Return the step of all ranks of which ``steps[i]`` is what the ranks at ``places[i]`` do; of others it has zeros.

    Raises:
        ValueError: where the steps differ in more than peers and units, so that no one step says it all.
    """
    forms, indices = zip(*map(_form, steps), strict=True)
    if any(form != forms[0] for form in forms):
        raise ValueError("groups whose steps are not alike are told one by one")

    def joined(of_groups: tuple[Index, ...]) -> Index:
        whole = np.zeros(ranks, np.int64)
        for at, found in zip(places, of_groups, strict=True):
            whole[at] = found
        return whole

    everywhere = [joined(column) for column in zip(*indices, strict=True)]
    return rewritten(forms[0], lambda at: everywhere[index(at)], by_ends(lambda at: everywhere[index(at)]))


def _form(step: Step) -> tuple[Step, list[Index]]:
    """Return ``step`` with every peer and end of a range replaced by its place in a list, and that list."""
    found: list[Index] = []

    def noted(old: Index) -> int:
        found.append(old)
        return len(found) - 1

    return rewritten(step, noted, by_ends(noted)), found


def two_level_all_reduce(
    layout: Layout,
    groups: Sequence[Sequence[int]],
    scatter: Callable[[Layout], Schedule],
    across: Callable[[Layout], tuple[Schedule, ...]],
) -> tuple[Schedule, ...]:
    """Return an all-reduce in two levels: inside groups of m ranks, and among the i-th ranks of all groups.

    Args:
        layout: of all ranks.
        groups: of one size.
        scatter: makes the reduce-scatter of a group, after which its i-th rank has piece i of m; backwards it is the
            all-gather at the end.
        across: makes the all-reduce of the i-th ranks, which share piece i; the result has as many slices.
    """
    peers = [list(ranks) for ranks in zip(*groups, strict=True)]

    def one(number: int, each: int) -> Schedule:
        """Return slice ``number``, in which a piece has ``each`` units."""
        units = each * len(peers)

        def pieces(_group: int, piece: Index) -> Index:
            return piece * each

        def within_piece(piece: int, unit: Index) -> Index:
            return piece * each + unit

        inside = in_groups(layout, units, groups, scatter, pieces)
        between = in_groups(layout, units, peers, lambda ranks: across(ranks)[number], within_piece)
        return then(inside, between, reverse(inside))

    return tuple(one(number, made.units) for number, made in enumerate(across(layout.subset(peers[0]))))


def on_power_of_two(layout: Layout, inner: Callable[[Layout], Schedule]) -> Schedule:
    """Return an all-reduce for any number of workers from one for the powers of two.

    The ranks beyond the largest power of two hand their vectors in before, and are given the sum after.

    Args:
        layout: of all ranks.
        inner: makes the all-reduce of a power of two of them, which only sends, receives and reduces.
    """
    p = layout.workers
    core = 1 << (p.bit_length() - 1)
    schedule = inner(layout.subset(range(core)))
    everything = dst[0 : schedule.units]

    def steps(me: Index) -> Iterator[Step]:
        hands_in, takes_in = (me >= core) & (me < p), me < p - core
        if core < p:
            yield Step(
                Send(peer_if(hands_in, me - core), everything), RecvReduce(peer_if(takes_in, me + core), everything)
            )
        if isinstance(me, np.ndarray) or me < core:
            for step in schedule.steps(me):
                yield rewritten(step, lambda peer: peer_if(me < core, peer), lambda part: part)
        if core < p:
            yield Step(Send(peer_if(takes_in, me + core), everything), Recv(peer_if(hands_in, me - core), everything))

    return Schedule(layout, schedule.units, steps)
