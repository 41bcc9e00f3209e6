"""Binomial tree: ranks that have the message send it on over distances that halve, so that their number doubles.

At p = 6, broadcast, which ranks have the message of the root:

    rank         0       1       2       3       4       5
    start        x       .       .       .       .       .
    distance 4   x       .       .       .       x       .         0 -> 4
    distance 2   x       .       x       .       x       .         0 -> 2; 6 would be beyond 4, and is not there
    distance 1   x       x       x       x       x       x         0 -> 1, 2 -> 3, 4 -> 5

Scatter goes down the same tree with the blocks of a whole subtree; reduce and gather are the two
backwards; an all-reduce is a reduce, then a broadcast.

Cost: of broadcast ceil(log2 p) (alpha + S beta), of reduce ceil(log2 p) (alpha + S beta + S gamma),
of all-reduce the sum of the two; of scatter and gather ceil(log2 p) alpha + (p - 1)/p S beta.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Layout,
    Schedule,
    all_reduce,
    broadcast,
    gather,
    reduce,
    reverse,
    scatter,
    then,
    tree,
)
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step, ceil_log2, dst, minimum


@broadcast("binomial", cost=lambda p: Cost(steps=ceil_log2(p), sent=ceil_log2(p), reduced=0))
def binomial_broadcast(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in reversed(range(ceil_log2(p))):
        distance = 1 << k
        child = tree.binomial_child(me, distance, p)
        parent = tree.binomial_parent(me, distance)
        yield Step(Send(child, dst.all), Recv(parent, dst.all))


@reduce(
    "binomial", cost=lambda p: Cost(steps=ceil_log2(p), sent=ceil_log2(p), reduced=ceil_log2(p))
)
def binomial_reduce(layout: Layout) -> Schedule:
    return reverse(binomial_broadcast.schedule(layout), RecvReduce)


@scatter("binomial", cost=lambda p: Cost(steps=ceil_log2(p), sent=(p - 1) / p, reduced=0))
def binomial_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in reversed(range(ceil_log2(p))):
        distance = 1 << k
        child = tree.binomial_child(me, distance, p)
        parent = tree.binomial_parent(me, distance)
        subtree_of_child = dst[me + distance : minimum(me + 2 * distance, p)]
        own_subtree = dst[me : minimum(me + distance, p)]
        yield Step(Send(child, subtree_of_child), Recv(parent, own_subtree))


@gather("binomial", cost=binomial_scatter.cost)
def binomial_gather(layout: Layout) -> Schedule:
    return reverse(binomial_scatter.schedule(layout))


@all_reduce(
    "binomial_tree",
    cost=lambda p: Cost(steps=2 * ceil_log2(p), sent=2 * ceil_log2(p), reduced=ceil_log2(p)),
)
def binomial_tree(layout: Layout) -> Schedule:
    return then(binomial_reduce.schedule(layout), binomial_broadcast.schedule(layout))
