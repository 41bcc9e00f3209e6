"""Double binary tree: two trees, each for half of the vector, in which no rank is an inner node twice.

At p = 8, the parent of each rank; ranks that have children are marked:

    rank         0       1*      2       3*      4       5*      6       7*
    tree 0       1       3       1       7       5       3       5       -         leaves are the even ranks
    rank         0*      1       2*      3       4*      5       6*      7
    tree 1       -       2       4       2       0       6       4       6         its mirror image

A tree is numbered in order: what is left of a rank in the picture has lower numbers. Counted from 1, a rank is as high
above the leaves as its number has zeros at the end; its children are half that power of two to either side. Sums go up
to the root, the result comes down. A leaf of one tree has time and bandwidth for its children in the other: where p is
odd, the second tree is the first one shifted by a rank.

Cost: about 2 log2(p) rounds. With c channels, segments that follow each other up and down both trees, a rank sends and
receives 2 S at most, whatever p is: 2 S beta and c + 2 log2(p) times alpha.

P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
Computing 35 (2009) 581-594. S. Jeaugey: Massively scale your deep learning training with NCCL 2.4, NVIDIA (2019).
"""

from collections.abc import Iterator

from hpccoll.schedule import NONE, Index, Layout, Receive, Reduce, Schedule, Send, Step, all_reduce, dst, relabel


@all_reduce("double_binary_tree", pipelined=True)
def double_binary_tree(layout: Layout) -> tuple[Schedule, ...]:
    p = layout.workers
    tree = Schedule.of(layout, _tree)
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
    height = number & -number  # 1 for a leaf
    above = (number - height) | 2 * height
    parent = above if above <= p else number - height  # at the right edge a tree of p lacks some of its inner nodes
    left, right, step = number - height // 2, number + height // 2, height // 2
    while right > p and step:
        step //= 2
        right = number + step
    return parent - 1, left - 1 if height > 1 else NONE, right - 1 if step else NONE
