"""Dissemination: in step k every rank notifies the rank 2^k further on, for itself and those it was notified of.

At p = 5, the ranks that have notified a rank, by themselves or through others:

    rank         0       1       2       3       4
    start        0       1       2       3       4
    distance 1   40      01      12      23      34
    distance 2   2340    3401    4012    0123    1234
    distance 4   all     all     all     all     all       some twice, which does not matter

Cost: ceil(log2 p) alpha; a message has one element.

D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization, IJPP 17 (1988) 1-17.
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
    barrier,
    ceil_log2,
    dst,
)


@barrier(
    "dissemination",
    cost=lambda p: Cost(steps=ceil_log2(p), sent=ceil_log2(p), reduced=ceil_log2(p)),
    regularity=Regularity(period=1, shifts=0),
)
def dissemination(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in range(ceil_log2(p)):
        distance = 1 << k
        yield Step(Send((me + distance) % p, dst.all), RecvReduce((me - distance) % p, dst.all))
