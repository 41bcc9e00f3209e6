"""Bruck: messages that grow, or that carry blocks of other ranks, so that ceil(log2 p) steps suffice for any p.

All-gather at p = 5, which blocks a rank has:

    rank         0       1       2       3       4
    start        0       1       2       3       4
    distance 1   01      12      23      34      40        each receives from the rank 1 further on,
    distance 2   0123    1234    2340    3401    4012      2 further on,
    distance 4   01234   12340   23401   34012   40123     4 further on, the one block that is missing

All-to-all at p = 4: block j of a rank is for the rank j further on, and waits in place j of tmp. In
step k all blocks whose j has bit k set move 2^k ranks on in one message; arrivals take their
places. At the end place j holds the block from the rank j before, and a copy sorts them:

    for j =      0       1       2       3
    bit 0        stays   +1      stays   +1        ranks further on
    bit 1        stays   stays   +2      +2

Cost: of all-gather ceil(log2 p) alpha + (p - 1)/p S beta; of all-to-all ceil(log2 p) alpha + about
log2(p)/2 S beta: few messages, and every block is sent as many times as its j has bits set, with
two copies of S on the rank itself.

J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all
communications in multiport message-passing systems, IEEE TPDS 8 (1997) 1143-1156.
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Layout, Regularity, all_gather, all_to_all
from hpccoll.schedule.step import Copy, Index, Recv, Send, Step, ceil_log2, dst, tmp


@all_gather(
    "bruck",
    cost=lambda p: Cost(steps=ceil_log2(p), sent=(p - 1) / p, reduced=0),
    regularity=Regularity(period=1, shifts=1),
)
def bruck_all_gather(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for k in range(ceil_log2(p)):
        distance = 1 << k
        n = min(distance, p - distance)
        sent = dst.around(me, n, p)
        arrived = dst.around(me + distance, n, p)
        yield Step(Send((me - distance) % p, sent), Recv((me + distance) % p, arrived))


def _all_to_all_cost(p: int) -> Cost:
    moves = sum(j.bit_count() for j in range(p))
    return Cost(steps=ceil_log2(p), sent=moves / p, reduced=0)


@all_to_all("bruck", cost=_all_to_all_cost, regularity=Regularity(period=1, shifts=0))
def bruck_all_to_all(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    yield Step(Copy(dst[me:p] + dst[0:me], tmp.all))
    for k in range(ceil_log2(p)):
        distance = 1 << k
        moving = tmp.units(j for j in range(p) if j & distance)
        yield Step(Send((me + distance) % p, moving), Recv((me - distance) % p, moving))
    arrived = tmp.units((me - origin) % p for origin in range(p))
    yield Step(Copy(arrived, dst.all))
