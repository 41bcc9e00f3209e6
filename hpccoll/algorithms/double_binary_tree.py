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

Cost: 2 floor(log2 p) rounds. A rank sends and receives 2 S at most and folds S at most, whatever p is. With c channels,
segments of S/(2 c) that follow each other up and down both trees, about 2 S beta + S gamma in up to 4 c messages a
rank, and 2 floor(log2 p) (alpha + S/c beta) until the trees are full.

P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
Computing 35 (2009) 581-594. S. Jeaugey: Massively scale your deep learning training with NCCL 2.4, NVIDIA (2019).
"""

from collections.abc import Iterator

from hpccoll.schedule import NONE, Index, Layout, Receive, Reduce, Schedule, Send, Step, all_reduce, dst, relabel


@all_reduce("double_binary_tree", pipelined=True)
def double_binary_tree(layout: Layout) -> tuple[Schedule, ...]:
    p = layout.workers
    tree = Schedule.of(layout, _tree)  # each of the two is a slice: half of the vector
    twin = [p - 1 - me for me in range(p)] if p % 2 == 0 else [(me + 1) % p for me in range(p)]
    return tree, relabel(tree, twin)


def _tree(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    everything = dst[0:p]
    parent, left, right = _kin(int(me) + 1, p)
    yield Step(Reduce(left, everything), Reduce(right, everything))
    yield Step(Send(parent, everything))
    yield Step(Receive(parent, everything))
    yield Step(Send(left, everything), Send(right, everything))


def _kin(number: int, p: int) -> tuple[int, int, int]:
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
