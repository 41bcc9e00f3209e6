"""Recursive doubling: in step k every rank exchanges all that it has with the rank at distance 2^k.

At p = 4, all-reduce, who has folded what (the whole vector):

    rank         0       1       2       3
    start        a       b       c       d
    distance 1   ab      ab      cd      cd        0 <-> 1, 2 <-> 3
    distance 2   abcd    abcd    abcd    abcd      0 <-> 2, 1 <-> 3

All-gather is the same with blocks put side by side instead of folded, so that a message doubles in
every step; it needs a power of two here. In all-reduce, where p is not one, let p' be the largest
one below it: first rank p' + i sends its vector to rank i, which folds it; the ranks 0 to p' - 1 do
the above; at the end rank i sends the sum back. With ``pairing`` adjacent it is rank 2 i + 1 that
sends to rank 2 i first, and all even ranks below 2 (p - p') with those beyond do the above: MPICH
and Open MPI pair ranks like that, and the sums of floats have the same bits.

Cost: of all-reduce log2(p) (alpha + S beta + S gamma), the fewest steps there are, for messages so
small that their number is what counts; where p is not a power of two, that of p', and 2 alpha + 2 S
beta + S gamma more. Of all-gather log2(p) alpha + (p - 1)/p S beta.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from collections.abc import Iterator
from typing import Annotated

from hpccoll.schedule import (
    PAIRINGS,
    Cost,
    Layout,
    Regularity,
    Schedule,
    all_gather,
    all_reduce,
    on_power_of_two,
    power_of_two,
)
from hpccoll.schedule.core_workers import FAR
from hpccoll.schedule.step import (
    Index,
    Recv,
    RecvReduce,
    Send,
    Step,
    dst,
    floor_log2,
    is_power_of_two,
)


def _cost(p: int) -> Cost:
    steps = floor_log2(p)
    extra = not is_power_of_two(p)  # ranks are left over
    return Cost(steps=steps + 2 * extra, sent=steps + 2 * extra, reduced=steps + extra)


@all_reduce("recursive_doubling", cost=_cost)
def recursive_doubling(layout: Layout, *, pairing: Annotated[str, PAIRINGS] = FAR) -> Schedule:
    def doubling(core: Layout) -> Schedule:
        return Schedule.of(core, _doubling, regularity=Regularity(period=1))

    return on_power_of_two(layout, doubling, pairing)


def _doubling(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in range(floor_log2(p)):
        partner = me ^ (1 << k)
        yield Step(Send(partner, dst.all), RecvReduce(partner, dst.all))


@all_gather(
    "recursive_doubling",
    needs=[power_of_two],
    cost=lambda p: Cost(steps=floor_log2(p), sent=(p - 1) / p, reduced=0),
    regularity=Regularity(period=1),
)
def recursive_doubling_all_gather(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in range(floor_log2(p)):
        distance = 1 << k
        # I have the blocks of the aligned group of `distance` ranks that I am in
        mine = me & -distance
        theirs = mine ^ distance
        partner = me ^ distance
        yield Step(
            Send(partner, dst[mine : mine + distance]),
            Recv(partner, dst[theirs : theirs + distance]),
        )
