"""Double binary tree: two trees, each for half of the vector, in which no rank is an inner node twice.

At p = 8, the parent of each rank; ranks that have children are marked:

    rank         0       1*      2       3*      4       5*      6       7*
    tree 0       1       3       1       7       5       3       5       -         leaves are the even ranks
    rank         0*      1       2*      3       4*      5       6*      7
    tree 1       -       2       4       2       0       6       4       6         its mirror image

A tree is numbered in order, here from 1: rank + 1. A number that ends in k zero bits is k levels above the leaves; its
children are 2^(k - 1) to the left and to the right. A right child beyond p is replaced by the one half as far, and so
on, or missing. Sums go up to the root, the result comes down. Tree 1 is the mirror image (p - 1 - r plays the part of
rank r) where p is even, and tree 0 shifted by one rank where p is odd: who has children in one is a leaf of the other,
with bandwidth to spare there.

Cost: in c channels a segment is S/(2 c) in each tree. With d = floor(log2 p) the first one goes d levels up and d down,
at two children a level: 2 d alpha + 2 d S/c beta + d S/c gamma, and S/c beta less where p is a power of two, because
the root has one child. Each further one follows after what its busiest rank has to do for it as inner node of one tree
(two come and one leaves on the way up, one comes and two leave on the way down) and leaf of the other: 3 alpha +
2 S/c beta + S/c gamma, less with few ranks. Many channels so take about 2 S beta + S gamma whatever p is, as long as
the window holds those that fill the trees: of w, one follows no sooner than after a w-th of what the first one takes.

P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
Computing 35 (2009) 581-594. S. Jeaugey: Massively scale your deep learning training with NCCL 2.4, NVIDIA (2019).
"""

from collections.abc import Iterator
from dataclasses import astuple

from hpccoll.schedule import NONE, Cost, Index, Layout, Recv, RecvReduce, Schedule, Send, Step, all_reduce, dst, relabel


def _cost(p: int, channels: int = 1, window: int = 1 << 20) -> Cost:
    depth, even = p.bit_length() - 1, p.bit_count() == 1 < p
    first = Cost(rounds=2 * depth, sent=2 * depth - even, reduced=depth - even / 2)
    busiest = Cost(rounds=2 + (p > 3), sent=min(p / 2, 2), reduced=min((p - 1) / 2, 1)) if p > 1 else first
    each = Cost(*(max(busy, way / window) for busy, way in zip(astuple(busiest), astuple(first), strict=True)))
    more = channels - 1
    return Cost(
        rounds=first.rounds + more * each.rounds,
        sent=(first.sent + more * each.sent) / channels,
        reduced=(first.reduced + more * each.reduced) / channels,
    )


@all_reduce("double_binary_tree", cost=_cost, pipelined=True)
def double_binary_tree(layout: Layout) -> tuple[Schedule, ...]:
    p = layout.workers
    tree = Schedule.of(layout, _tree)  # each of the two is a slice: half of the vector
    twin = [p - 1 - me for me in range(p)] if p % 2 == 0 else [(me + 1) % p for me in range(p)]
    return tree, relabel(tree, twin)


def _tree(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    everything = dst[0:p]
    parent, left, right = parent_and_children(int(me) + 1, p)
    yield Step(RecvReduce(left, everything), RecvReduce(right, everything))
    yield Step(Send(parent, everything))
    yield Step(Recv(parent, everything))
    yield Step(Send(left, everything), Send(right, everything))


def parent_and_children(number: int, p: int) -> tuple[int, int, int]:
    """Return the parent and the children of the rank that is ``number``, counted from 1, NONE where there is none."""
    bit = number & -number  # the lowest one that is set: 1 for a leaf
    above = (number - bit) | 2 * bit
    parent = above if above <= p else number - bit  # at the right edge a tree of p lacks some of its inner nodes
    right = bit // 2
    while number + right > p:  # half as far, and 0 is nobody
        right //= 2
    return (
        parent - 1 if parent else NONE,
        number - bit // 2 - 1 if bit > 1 else NONE,
        number + right - 1 if right else NONE,
    )
