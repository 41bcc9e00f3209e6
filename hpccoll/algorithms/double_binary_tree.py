"""Double binary tree: two trees, each for half of the vector, in which no rank is an inner node twice.

At p = 8, the parent of each rank; ranks that have children are marked:

    rank         0       1*      2       3*      4       5*      6       7*
    tree 0       1       3       1       7       5       3       5       -         leaves are the even ranks
    rank         0*      1       2*      3       4*      5       6*      7
    tree 1       -       2       4       2       0       6       4       6         its mirror image

A tree is numbered in order, here from 1: rank + 1. A number that ends in k zero bits is k levels
above the leaves; its children are 2^(k - 1) to the left and to the right. A right child beyond p is
replaced by the one half as far, and so on, or missing. Sums go up to the root, the result comes
down. Tree 1 is the mirror image (p - 1 - r plays the part of rank r) where p is even, and tree 0
shifted by one rank where p is odd: who has children in one is a leaf of the other, with bandwidth
to spare there.

Cost: in c channels a segment is S/(2 c) in each tree. With d = floor(log2 p) the first one goes d
levels up and d down, at two children a level: 2 d alpha + 2 d S/c beta + d S/c gamma, and S/c beta
less where p is a power of two, because the root has one child. Each further one follows after what
its busiest rank has to do for it as inner node of one tree (two come and one leaves on the way up,
one comes and two leave on the way down) and leaf of the other: 3 alpha + 2 S/c beta + S/c gamma,
less with few ranks. Many channels so take about 2 S beta + S gamma whatever p is, as long as the
window holds those that fill the trees: of w, one follows no sooner than after a w-th of what the
first one takes.

P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and
scan, Parallel Computing 35 (2009) 581-594. S. Jeaugey: Massively scale your deep learning training
with NCCL 2.4, NVIDIA (2019).
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Layout, Schedule, all_reduce, relabel, tree
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


def _cost(p: int, channels: int = 1, window: int = 1 << 20) -> Cost:
    depth = floor_log2(p)
    has_one_child = is_power_of_two(p) and p > 1  # the root
    first = Cost(steps=2 * depth, sent=2 * depth - has_one_child, reduced=depth - has_one_child / 2)
    busiest = first
    if p > 1:
        busiest = Cost(steps=2 + (p > 3), sent=min(p / 2, 2), reduced=min((p - 1) / 2, 1))
    # A further segment waits for the busiest rank, and for its turn in the window.
    steps = max(busiest.steps, first.steps / window)
    sent = max(busiest.sent, first.sent / window)
    reduced = max(busiest.reduced, first.reduced / window)
    further = channels - 1
    return Cost(
        steps=first.steps + further * steps,
        sent=(first.sent + further * sent) / channels,
        reduced=(first.reduced + further * reduced) / channels,
    )


@all_reduce("double_binary_tree", cost=_cost, pipelined=True)
def double_binary_tree(layout: Layout) -> tuple[Schedule, ...]:
    p = layout.workers
    # each of the two is a slice: half of the vector
    first = Schedule.of(layout, _up_and_down, vectorised=False)
    mirrored = [p - 1 - me for me in range(p)]
    shifted = [(me + 1) % p for me in range(p)]
    twin = mirrored if p % 2 == 0 else shifted
    return first, relabel(first, twin)


def _up_and_down(layout: Layout, me: Index) -> Iterator[Step]:
    parent = tree.in_order_parent(int(me), layout.workers)
    left, right = tree.in_order_children(int(me), layout.workers)
    yield Step(RecvReduce(left, dst.all), RecvReduce(right, dst.all))
    yield Step(Send(parent, dst.all))
    yield Step(Recv(parent, dst.all))
    yield Step(Send(left, dst.all), Send(right, dst.all))
