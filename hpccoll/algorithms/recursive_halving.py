"""Recursive halving: a reduce-scatter in which what a rank folds halves in every step.

At p = 4, the units that a rank still folds; its partial sums are of 1, 2, and at last all 4 ranks:

    rank         0       1       2       3
    start        0123    0123    0123    0123
    distance 2   01      01      23      23        0 <-> 2, 1 <-> 3: each sends the half that the other keeps
    distance 1   0       1       2       3         0 <-> 1, 2 <-> 3

With ``first`` near, distance 1 comes first, so that the largest messages stay near. A rank is left
with the unit of its bits in reverse, and a further exchange puts the units in order:

    distance 1   01      23      01      23        0 <-> 1, 2 <-> 3
    distance 2   0       2       1       3         0 <-> 2, 1 <-> 3
    exchange     0       1       2       3         1 <-> 2

Cost: log2(p) alpha + (p - 1)/p S (beta + gamma), for powers of two; beyond p = 2, near first alpha
+ S/p beta more.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

from hpccoll.schedule import (
    Cost,
    Index,
    Layout,
    Recv,
    RecvReduce,
    Regularity,
    Schedule,
    Send,
    Step,
    dst,
    floor_log2,
    peer_if,
    power_of_two,
    reduce_scatter,
    then,
)
from hpccoll.schedule.core_workers import FAR, check_choice
from hpccoll.schedule.step import Part

NEAR = "near"
FIRST = FAR, NEAR
"""Which distance comes first: p/2 or 1."""


class Halving(NamedTuple):
    """A step: with whom a rank exchanges halves of what it still folds."""

    distance: int
    partner: Index
    kept: Part
    sent: Part


def halvings(p: int, me: Index, first: str) -> Iterator[Halving]:
    """Yield the steps of rank ``me``, which may be an array."""
    distances = [1 << k for k in range(floor_log2(p))]
    if first == FAR:
        distances.reverse()
    begin = me * 0  # where what I still fold begins
    units = p
    for distance in distances:
        units //= 2
        is_upper = (me & distance) // distance
        kept = begin + is_upper * units
        sent = begin + (1 - is_upper) * units
        yield Halving(distance, me ^ distance, dst[kept : kept + units], dst[sent : sent + units])
        begin = kept


def halve(p: int, me: Index, first: str) -> Iterator[Step]:
    """Yield the steps, after which each rank has folded one unit."""
    for half in halvings(p, me, first):
        yield Step(Send(half.partner, half.sent), RecvReduce(half.partner, half.kept))


def _cost(p: int, first: str = FAR) -> Cost:
    is_exchanged = first == NEAR and p > 2
    return Cost(
        steps=floor_log2(p) + is_exchanged,
        sent=(p - 1 + is_exchanged) / p,
        reduced=(p - 1) / p,
    )


@reduce_scatter("recursive_halving", needs=[power_of_two], cost=_cost)
def recursive_halving(layout: Layout, *, first: Annotated[str, FIRST] = FAR) -> Schedule:
    check_choice("first", first, FIRST)
    halving = Schedule.of(
        layout, lambda layout, me: halve(layout.workers, me, first), regularity=Regularity(period=1)
    )
    if first == FAR:
        return halving
    return then(halving, Schedule.of(layout, _put_in_order))


def _put_in_order(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    reverse_of_me = me * 0
    for k in range(floor_log2(p)):
        reverse_of_me = 2 * reverse_of_me + ((me >> k) & 1)
    partner = peer_if(reverse_of_me != me, reverse_of_me)
    yield Step(Send(partner, reverse_of_me), Recv(partner, me))
