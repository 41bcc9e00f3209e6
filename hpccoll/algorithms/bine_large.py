"""Bine for large vectors: a Bine tree deals out the units, and all ranks, or the root alone, collect them.

At p = 8, broadcast, which units a rank has; ranks exchange with the partners of Swing:

    rank         0         1         2         3         4         5         6         7
    start        01234567  .         .         .         .         .         .         .
    step 0       01234567  1256      .         .         .         .         .         .         0 -> 1
    step 1       01234567  1256      25        .         .         .         .         47        0 -> 7, 1 -> 2
    step 2       01234567  1256      25        3         4         5         6         47        0 -> 3, 1 -> 6 ...
    step 2       01234567  1256      25        03        47        25        16        47        0 -> 3, 1 -> 6 ...
    step 1       01234567  1256      1256      0347      0347      1256      1256      0347      0 -> 7, 3 <-> 4 ...
    step 0       01234567  01234567  01234567  01234567  01234567  01234567  01234567  01234567  0 -> 1, 2 <-> 3 ...

The first half is a scatter, near first: a rank sends the units of all that its partner reaches in
the later steps. The second half is an all-gather, the same steps backwards, except that a rank
receives nothing that it has. Reduce is Swing's reduce-scatter, and then that scatter backwards.

Cost: 2 log2(p) alpha + 2 (p - 1)/p S beta, of reduce (p - 1)/p S gamma more: the largest messages
stay near, and no vector is sent log2(p) times.

D. De Sensi, S. Pasqualoni, L. Piarulli, T. Bonato, S. Ba, M. Turisini, J. Domke, T. Hoefler: Bine
trees: enhancing collective operations by optimizing communication locality, SC (2025),
arXiv:2508.17311.
"""

from collections.abc import Iterator
from dataclasses import replace

from hpccoll.algorithms.swing import partner_of, reached, swing_reduce_scatter
from hpccoll.schedule import (
    Cost,
    Layout,
    Schedule,
    broadcast,
    power_of_two,
    reduce,
    reverse,
    then,
)
from hpccoll.schedule.step import Index, Recv, Send, Step, Truth, dst, floor_log2, peer_if


class _Tree:
    """The tree of root 0 whose edges are those of Swing, near first."""

    def __init__(self, p: int) -> None:
        self.p = p
        self.steps = range(floor_log2(p))
        ranks: list[Index] = [0]
        self.holders = []  # the ranks that the tree has reached before each step
        for step in self.steps:
            self.holders.append(list(ranks))
            ranks += [partner_of(rank, step, p) for rank in ranks]

    def has(self, me: Index, step: int) -> Truth:
        """Return whether the tree reaches a rank before a step."""
        is_holder: Truth = me < 0
        for rank in self.holders[step]:
            is_holder = is_holder | (me == rank)
        return is_holder

    def is_out_of_reach(self, me: Index, step: int) -> Truth:
        """Return whether the tree does not reach a rank before a step."""
        is_missed: Truth = me >= 0
        for rank in self.holders[step]:
            is_missed = is_missed & (me != rank)
        return is_missed

    def scatter(self, _layout: Layout, me: Index) -> Iterator[Step]:
        for step in self.steps:
            partner = partner_of(me, step, self.p)
            is_parent = self.has(me, step)
            is_child = self.has(partner, step)
            yield Step(
                Send(peer_if(is_parent, partner), dst.units(reached(partner, step + 1, self.p))),
                Recv(peer_if(is_child, partner), dst.units(reached(me, step + 1, self.p))),
            )

    def all_gather(self, _layout: Layout, me: Index) -> Iterator[Step]:
        for step in reversed(self.steps):
            partner = partner_of(me, step, self.p)
            mine = dst.units(reached(me, step + 1, self.p))
            theirs = dst.units(reached(partner, step + 1, self.p))
            # who was reached before this step has the units of both
            yield Step(
                Send(peer_if(self.is_out_of_reach(partner, step), partner), mine),
                Recv(peer_if(self.is_out_of_reach(me, step), partner), theirs),
            )


def _cost(p: int) -> Cost:
    return Cost(steps=2 * floor_log2(p), sent=2 * (p - 1) / p, reduced=0)


def _reduce_cost(p: int) -> Cost:
    return replace(_cost(p), reduced=(p - 1) / p)


@broadcast("bine_large", needs=[power_of_two], cost=_cost)
def bine_large_broadcast(layout: Layout) -> Schedule:
    tree = _Tree(layout.workers)
    return then(Schedule.of(layout, tree.scatter), Schedule.of(layout, tree.all_gather))


@reduce("bine_large", needs=[power_of_two], cost=_reduce_cost)
def bine_large_reduce(layout: Layout) -> Schedule:
    tree = _Tree(layout.workers)
    return then(swing_reduce_scatter.schedule(layout), reverse(Schedule.of(layout, tree.scatter)))
