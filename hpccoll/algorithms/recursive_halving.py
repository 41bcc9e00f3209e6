"""Recursive halving: a reduce-scatter in which what a rank folds halves in every round.

At p = 4, the units that a rank still folds; its partial sums are of 1, 2, and at last all 4 ranks:

    rank         0       1       2       3
    start        0123    0123    0123    0123
    distance 2   01      01      23      23        0 <-> 2, 1 <-> 3: each sends the half that the other keeps
    distance 1   0       1       2       3         0 <-> 1, 2 <-> 3

Cost: log2(p) alpha + (p - 1)/p S (beta + gamma), for powers of two.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Index,
    Layout,
    RecvReduce,
    Regularity,
    Send,
    Step,
    dst,
    floor_log2,
    power_of_two,
    reduce_scatter,
)


@reduce_scatter(
    "recursive_halving",
    needs=[power_of_two],
    cost=lambda p: Cost(rounds=floor_log2(p), sent=(p - 1) / p, reduced=(p - 1) / p),
    regularity=Regularity(period=1),
)
def recursive_halving(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in reversed(range(floor_log2(p))):
        distance = 1 << k
        mine = me & -distance  # the half that I keep begins here
        theirs = mine ^ distance
        partner = me ^ distance
        yield Step(
            Send(partner, dst[theirs : theirs + distance]),
            RecvReduce(partner, dst[mine : mine + distance]),
        )
