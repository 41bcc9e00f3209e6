"""Trees: the parent and the children of a rank, NONE where it has none.

A binomial tree is made of edges whose lengths are powers of two: rank r has a parent at the
distance of its lowest set bit, and children at all smaller powers of two. A tree in order numbers
its nodes from left to right, as a sorted binary tree does: in numbers from 1 (rank + 1), one that
ends in k zero bits is k levels above the leaves, and its children are 2^(k - 1) to its left and
right. A right child beyond p is replaced by the one half as far away, and so on.
"""

from hpccoll.schedule.step import NONE, Index, peer_if


def binomial_parent(me: Index, distance: int) -> Index:
    """Return the parent of ``me`` in a binomial tree of root 0, if it is at ``distance``."""
    return peer_if(me % (2 * distance) == distance, me - distance)


def binomial_child(me: Index, distance: int, p: int) -> Index:
    """Return the child of ``me`` at ``distance`` in a binomial tree of ``p`` ranks and root 0."""
    child = me + distance
    has_child = (me % (2 * distance) == 0) & (child < p)
    return peer_if(has_child, child)


def in_order_parent(me: int, p: int) -> int:
    """Return the parent of ``me`` in a tree of ``p`` ranks in order."""
    number = me + 1
    bit = number & -number  # the lowest one that is set: 1 for a leaf
    above = (number - bit) | 2 * bit
    # at the right edge some inner nodes are beyond p
    parent = above if above <= p else number - bit
    return parent - 1 if parent else NONE


def in_order_children(me: int, p: int) -> tuple[int, int]:
    """Return the left and the right child of ``me`` in a tree of ``p`` ranks in order."""
    half = ((me + 1) & -(me + 1)) // 2  # half of the lowest bit that is set: 0 for a leaf
    left = me - half if half else NONE
    away = half
    while me + 1 + away > p:  # half as far away; at distance 0 there is no child
        away //= 2
    right = me + away if away else NONE
    return left, right
