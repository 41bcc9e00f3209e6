"""Bine tree: a binomial tree of negabinary numbers, whose edges are a third shorter and go both ways round.

At p = 8, broadcast, which ranks have the message of the root; a binomial tree has the distances 4, 2 and 1:

    rank         0       1       2       3       4       5       6       7
    start        x       .       .       .       .       .       .       .
    distance 3   x       .       .       x       .       .       .       .       0 -> 3
    distance 1   x       .       .       x       x       .       .       x       0 -> 7, 3 -> 4
    distance 1   x       x       x       x       x       x       x       x       0 -> 1, 3 -> 2, 4 -> 5, 7 -> 6

In base -2 a rank has digits of weights 1, -2, 4, ... modulo p. One that has the message flips its last k digits, k
falling by one in each round: it goes (1 - (-2)^k)/3 ranks on where its last digit is 0, as far back where it is 1. With
roles whose bits say where neighbouring digits differ, that is the binomial tree. Below a rank are consecutive ranks,
modulo p: scatter sends their blocks. Reduce and gather are the two backwards.

Where all ranks exchange, even ones go on and odd ones back: the distances of Swing. All-reduce exchanges whole vectors,
far first, so that all ranks add up alike. Reduce-scatter is Swing's, near first; all-gather is that backwards, and the
two, as ``reduce_scatter_all_gather``, are the all-reduce of large vectors, Swing again. Only all-reduce takes other
numbers of ranks than powers of two, as recursive doubling does. On racks of 5, 16, 16, 16 and 11 ranks up to 40 % less
crosses between racks than in the best binomial order, on four full ones more (``hpccoll show --racks``).

Cost: that of the binomial tree, of recursive doubling and of recursive halving.

D. De Sensi, S. Pasqualoni, L. Piarulli, T. Bonato, S. Ba, M. Turisini, J. Domke, T. Hoefler: Bine trees: enhancing
collective operations by optimizing communication locality, SC (2025), arXiv:2508.17311.
"""

from collections.abc import Iterator

from hpccoll.algorithms.binomial import binomial_broadcast, binomial_reduce, binomial_scatter
from hpccoll.algorithms.recursive_doubling import recursive_doubling, recursive_doubling_all_gather
from hpccoll.algorithms.swing import partner_of, swing_reduce_scatter
from hpccoll.schedule import Layout, Regularity, Schedule, on_power_of_two, power_of_two, relabel, reverse, tree
from hpccoll.schedule.collective_table import all_gather, all_reduce, broadcast, gather, reduce, reduce_scatter, scatter
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step, dst, floor_log2

BACK = 0xAAAA_AAAA
"""The digits of base -2 whose weights are negative: digits ^ BACK is rank + BACK, modulo p."""


def _rank(role: Index) -> Index:
    """Return the rank of a role, modulo p: a digit is the parity of the bits of the role from there on."""
    digits = role
    for shift in (1, 2, 4, 8, 16):
        digits = digits ^ digits >> shift
    return (digits ^ BACK) - BACK


def _played(roles: Schedule) -> Schedule:
    return relabel(roles, [int(_rank(role)) % roles.units for role in range(roles.units)])


@broadcast("bine", needs=[power_of_two], cost=binomial_broadcast.cost)
def bine_broadcast(layout: Layout) -> Schedule:
    return _played(binomial_broadcast.schedule(layout))


@reduce("bine", needs=[power_of_two], cost=binomial_reduce.cost)
def bine_reduce(layout: Layout) -> Schedule:
    return reverse(bine_broadcast.schedule(layout), RecvReduce)


@scatter("bine", needs=[power_of_two], cost=binomial_scatter.cost)
def bine_scatter(layout: Layout) -> Schedule:
    p = layout.workers

    def steps(_layout: Layout, role: Index) -> Iterator[Step]:
        for k in reversed(range(floor_log2(p))):
            distance = 1 << k
            child, parent = tree.binomial_child(role, distance, p), tree.binomial_parent(role, distance)
            below = [(_rank(one) + BACK & -distance) - BACK for one in (child, role)]  # the first rank of a subtree
            yield Step(Send(child, dst.around(below[0], distance, p)), Recv(parent, dst.around(below[1], distance, p)))

    return _played(Schedule.of(layout, steps, vectorised=True))


@gather("bine", needs=[power_of_two], cost=binomial_scatter.cost)
def bine_gather(layout: Layout) -> Schedule:
    return reverse(bine_scatter.schedule(layout))


@all_reduce("bine", cost=recursive_doubling.cost)
def bine(layout: Layout) -> Schedule:
    return on_power_of_two(layout, lambda core: Schedule.of(core, _exchanges, regularity=Regularity(period=1)))


def _exchanges(layout: Layout, me: Index) -> Iterator[Step]:
    for step in reversed(range(floor_log2(layout.workers))):
        partner = partner_of(me, step, layout.workers)
        yield Step(Send(partner, dst.all), RecvReduce(partner, dst.all))


@reduce_scatter("bine", needs=[power_of_two], cost=swing_reduce_scatter.cost)
def bine_reduce_scatter(layout: Layout) -> Schedule:
    return swing_reduce_scatter.schedule(layout)


@all_gather("bine", needs=[power_of_two], cost=recursive_doubling_all_gather.cost)
def bine_all_gather(layout: Layout) -> Schedule:
    return reverse(bine_reduce_scatter.schedule(layout))
