"""Bine tree: a binomial tree of negabinary numbers, whose edges are a third shorter and go both ways round.

At p = 8, broadcast, which ranks have the message of the root; a binomial tree has the distances 4,
2 and 1:

    rank         0       1       2       3       4       5       6       7
    start        x       .       .       .       .       .       .       .
    distance 3   x       .       .       x       .       .       .       .       0 -> 3
    distance 1   x       .       .       x       x       .       .       x       0 -> 7, 3 -> 4
    distance 1   x       x       x       x       x       x       x       x       0 -> 1, 3 -> 2, 4 -> 5, 7 -> 6

In base -2 a rank has digits of weights 1, -2, 4, ... modulo p, with a 0 before the first. In step
k, which falls to 0, the ranks whose last k + 2 digits are alike have the message, and send it to
where the last k + 1 of them are flipped: (1 - (-2)^(k + 1))/3 ranks on if they were 0, as far back
if they were 1. Ranks that differ in their last k digits only are consecutive, modulo p: scatter
sends the blocks of such 2^k ranks. Reduce and gather are the two backwards.

Where all ranks exchange, even ones go on and odd ones back: the distances of Swing. All-reduce
exchanges whole vectors, far first, so that all ranks add up alike, or near first (``first``).
Reduce-scatter is Swing's, all-gather is that backwards; ``reduce_scatter_all_gather`` of the two is
the all-reduce of large vectors. On racks of 5, 16, 16, 16 and 11 ranks up to 40 % less crosses
between racks than in the best binomial order, on four full ones more (``hpccoll show --racks``).

Cost: that of the binomial tree, of recursive doubling and of recursive halving.

D. De Sensi, S. Pasqualoni, L. Piarulli, T. Bonato, S. Ba, M. Turisini, J. Domke, T. Hoefler: Bine
trees: enhancing collective operations by optimizing communication locality, SC (2025),
arXiv:2508.17311.
"""

from collections.abc import Iterator
from typing import Annotated

from hpccoll.algorithms.binomial import binomial_broadcast, binomial_reduce, binomial_scatter
from hpccoll.algorithms.recursive_doubling import recursive_doubling, recursive_doubling_all_gather
from hpccoll.algorithms.recursive_halving import FIRST, NEAR
from hpccoll.algorithms.swing import partner_of, swing_reduce_scatter
from hpccoll.schedule import Layout, Regularity, Schedule, on_power_of_two, power_of_two, reverse
from hpccoll.schedule.collective_table import (
    all_gather,
    all_reduce,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)
from hpccoll.schedule.core_workers import FAR, check_choice
from hpccoll.schedule.step import (
    Index,
    Recv,
    RecvReduce,
    Send,
    Step,
    Truth,
    dst,
    floor_log2,
    peer_if,
)

BACK = 0xAAAA_AAAA
"""The digits of base -2 whose weights are negative: flipped, they turn a rank into rank + BACK in base 2."""


def _has(me: Index, k: int, p: int) -> Truth:
    """Return whether a rank has the message in step k: whether its last k + 2 digits are alike."""
    digits = ((me + BACK) ^ BACK) % p
    return (digits ^ (digits >> 1)) % (2 << k) == 0


def _ends(me: Index, k: int, p: int) -> tuple[Index, Index]:
    """Return to whom a rank sends in step k, and from whom it receives."""
    partner = partner_of(me, k, p)
    return peer_if(_has(me, k, p), partner), peer_if(_has(partner, k, p), partner)


@broadcast("bine", needs=[power_of_two], cost=binomial_broadcast.cost)
def bine_broadcast(layout: Layout, me: Index) -> Iterator[Step]:
    for k in reversed(range(floor_log2(layout.workers))):
        child, parent = _ends(me, k, layout.workers)
        yield Step(Send(child, dst.all), Recv(parent, dst.all))


@reduce("bine", needs=[power_of_two], cost=binomial_reduce.cost)
def bine_reduce(layout: Layout) -> Schedule:
    return reverse(bine_broadcast.schedule(layout), RecvReduce)


@scatter("bine", needs=[power_of_two], cost=binomial_scatter.cost)
def bine_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in reversed(range(floor_log2(p))):
        child, parent = _ends(me, k, p)
        partner = partner_of(me, k, p)
        # the first of the 2^k ranks that differ in their last k digits
        theirs = partner - (partner + BACK) % (1 << k)
        mine = me - (me + BACK) % (1 << k)
        yield Step(
            Send(child, dst.around(theirs, 1 << k, p)), Recv(parent, dst.around(mine, 1 << k, p))
        )


@gather("bine", needs=[power_of_two], cost=binomial_scatter.cost)
def bine_gather(layout: Layout) -> Schedule:
    return reverse(bine_scatter.schedule(layout))


@all_reduce("bine", cost=recursive_doubling.cost)
def bine(layout: Layout, *, first: Annotated[str, FIRST] = FAR) -> Schedule:
    check_choice("first", first, FIRST)

    def exchanges(layout: Layout, me: Index) -> Iterator[Step]:
        steps = range(floor_log2(layout.workers))
        for step in steps if first == NEAR else reversed(steps):
            partner = partner_of(me, step, layout.workers)
            yield Step(Send(partner, dst.all), RecvReduce(partner, dst.all))

    return on_power_of_two(
        layout, lambda core: Schedule.of(core, exchanges, regularity=Regularity(period=1))
    )


@reduce_scatter("bine", needs=[power_of_two], cost=swing_reduce_scatter.cost)
def bine_reduce_scatter(layout: Layout) -> Schedule:
    return swing_reduce_scatter.schedule(layout)


@all_gather("bine", needs=[power_of_two], cost=recursive_doubling_all_gather.cost)
def bine_all_gather(layout: Layout) -> Schedule:
    return reverse(bine_reduce_scatter.schedule(layout))
