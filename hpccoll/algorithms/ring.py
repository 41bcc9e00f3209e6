"""Ring: p units of the vector travel round the ring, summed on the first lap, shared on the second.

At p = 4, who has folded what (unit 3 of 0 to 3; unit u does the same, u + 1 ranks further on):

    rank         0       1       2       3
    start        a       b       c       d
    step 1       a       ab      c       d         reduce-scatter: 1 folds what 0 sends,
    step 2       a       ab      abc     d         2 folds what 1 sends,
    step 3       a       ab      abc     abcd      3 folds what 2 sends: it has all of the unit
    step 4       abcd    ab      abc     abcd      all-gather: 0 receives it from 3,
    step 5       abcd    abcd    abc     abcd      1 from 0,
    step 6       abcd    abcd    abcd    abcd      2 from 1

Cost: 2 (p - 1) alpha + 2 (p - 1)/p S beta + (p - 1)/p S gamma: no algorithm without help from the
network lets its busiest rank send less. Each half alone takes (p - 1) alpha + (p - 1)/p S beta;
only the reduce-scatter folds.

P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69
(2009) 117-124.
A. Gibiansky: Bringing HPC techniques to deep learning, Baidu Research (2017).
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Layout,
    Regularity,
    Schedule,
    all_gather,
    all_reduce,
    reduce_scatter,
    then,
)
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step


@reduce_scatter(
    "ring",
    cost=lambda p: Cost(steps=p - 1, sent=(p - 1) / p, reduced=(p - 1) / p),
    regularity=Regularity(period=1, shifts=1),
)
def ring_reduce_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    right, left = (me + 1) % p, (me - 1) % p
    for step in range(1, p):  # the unit that comes last, complete, is `me`
        yield Step(Send(right, (me - step) % p), RecvReduce(left, (me - step - 1) % p))


@all_gather(
    "ring",
    cost=lambda p: Cost(steps=p - 1, sent=(p - 1) / p, reduced=0),
    regularity=Regularity(period=1, shifts=1),
)
def ring_all_gather(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    right, left = (me + 1) % p, (me - 1) % p
    # the unit that leaves first is `me`, and then each that has just come
    for step in range(p - 1):
        yield Step(Send(right, (me - step) % p), Recv(left, (me - step - 1) % p))


@all_reduce(
    "ring", cost=lambda p: Cost(steps=2 * (p - 1), sent=2 * (p - 1) / p, reduced=(p - 1) / p)
)
def ring(layout: Layout) -> Schedule:
    return then(ring_reduce_scatter.schedule(layout), ring_all_gather.schedule(layout))
