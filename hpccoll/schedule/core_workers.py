"""All-reduces of any number of workers, made of one of some of them: the others send their vectors first."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.compose import relabel
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import (
    Index,
    Recv,
    RecvReduce,
    Send,
    Step,
    dst,
    floor_log2,
    peer_if,
    rewrite,
)

FAR, ADJACENT = "far", "adjacent"
PAIRINGS = FAR, ADJACENT
"""Which ranks send their vectors to others first, if there are more than a power of two: see ``on_power_of_two``."""


def check_choice(parameter: str, value: str, choices: Sequence[str]) -> None:
    """Check that the value of a parameter is one of its words.

    Raises:
        BadInputError: if it is not.
    """
    if value not in choices:
        raise BadInputError(parameter, value, choices)


def on_power_of_two(
    layout: Layout, inner: Callable[[Layout], Schedule], pairing: str = FAR
) -> Schedule:
    """Return an all-reduce for any number of workers, made of one for powers of two: see ``on_some_workers``.

    Args:
        layout: the layout of all ranks.
        inner: returns the all-reduce of the largest power of two, p', of workers.
        pairing: ``far``: rank p' + i sends its vector to rank i. ``adjacent``: rank 2 i + 1 sends
            it to rank 2 i, as in MPICH and Open MPI, whose sums then have the same bits.

    Raises:
        BadInputError: if ``pairing`` is neither.
    """
    check_choice("pairing", pairing, PAIRINGS)
    p = layout.workers
    core = 1 << floor_log2(p)
    schedule = on_some_workers(layout, core, inner)
    beyond = p - core
    if pairing == FAR or not beyond:
        return schedule
    takers = [2 * i for i in range(beyond)]
    senders = [2 * i + 1 for i in range(beyond)]
    alone = range(2 * beyond, p)
    return relabel(schedule, [*takers, *alone, *senders, *range(p, layout.ranks)])


def on_some_workers(layout: Layout, core: int, inner: Callable[[Layout], Schedule]) -> Schedule:
    """Return an all-reduce of all workers, made of one of the first ``core`` of them.

    The ranks beyond them send their vectors to others first, rank r to r modulo ``core``, and
    receive the sum at the end.

    ``inner`` returns the all-reduce of ``core`` workers, which only sends, receives and reduces.
    """
    p = layout.workers
    schedule = inner(layout.subset(range(core)))
    all_units = dst[0 : schedule.units]

    def steps(me: Index) -> Iterator[Step]:
        taker = peer_if((me >= core) & (me < p), me % core)
        beyond = [
            peer_if((me < core) & (me + away < p), me + away) for away in range(core, p, core)
        ]
        if core < p:
            yield Step(Send(taker, all_units), *(RecvReduce(peer, all_units) for peer in beyond))
        if isinstance(me, np.ndarray) or me < core:
            for step in schedule.steps(me):
                yield rewrite(step, lambda peer: peer_if(me < core, peer), lambda part: part)
        if core < p:
            yield Step(*(Send(peer, all_units) for peer in beyond), Recv(taker, all_units))

    regularity = schedule.regularity if core == p else None
    return Schedule(layout, schedule.units, steps, schedule.vectorised, regularity)
