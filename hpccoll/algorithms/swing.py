"""Swing: recursive halving whose partners alternate sides, so that they are near each other on a ring or torus.

In step s rank r exchanges with rank r + rho(s) where r is even and r - rho(s) where r is odd,
modulo p, with rho(s) = (1 - (-2)^(s + 1))/3: 1, -1, 3, -5, 11, ... At p = 8, the units that a rank
still folds:

    rank         0         1         2         3         4         5         6         7
    start        01234567  01234567  01234567  01234567  01234567  01234567  01234567  01234567
    step 0       0347      1256      1256      0347      0347      1256      1256      0347      0 <-> 1, 2 <-> 3
    step 1       03        16        25        03        47        25        16        47        0 <-> 7, 1 <-> 2
    step 2       0         1         2         3         4         5         6         7         0 <-> 3, 1 <-> 6

A rank sends its partner the units of all ranks that the partner reaches, by itself or through
others, in the later steps; those of the ranks that it reaches itself it keeps. An all-reduce is
this reduce-scatter, and then the same backwards. Both need a power of two.

Cost: of reduce-scatter log2(p) alpha + (p - 1)/p S (beta + gamma), of all-reduce 2 log2(p) alpha +
2 (p - 1)/p S beta + (p - 1)/p S gamma: what recursive halving and Rabenseifner's algorithm cost. On
a ring of ranks the partner of step s is about 2/3 of 2^s links away, not 2^s.

D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: short-cutting rings for higher bandwidth
allreduce, NSDI (2024).
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Layout,
    Regularity,
    Schedule,
    all_reduce,
    power_of_two,
    reduce_scatter,
    reverse,
    then,
)
from hpccoll.schedule.step import Index, RecvReduce, Send, Step, dst, floor_log2


def partner_of(me: Index, step: int, p: int) -> Index:
    """Return with which rank ``me`` exchanges in ``step``."""
    rho = (1 - int((-2) ** (step + 1))) // 3
    sign = 1 - 2 * (me % 2)  # 1 for even ranks, -1 for odd ones
    return (me + rho * sign) % p


def reached(me: Index, step: int, p: int) -> list[Index]:
    """Return ``me`` and the ranks that it reaches in ``step`` and the steps after it."""
    if step == floor_log2(p):
        return [me]
    return reached(me, step + 1, p) + reached(partner_of(me, step, p), step + 1, p)


@reduce_scatter(
    "swing",
    needs=[power_of_two],
    cost=lambda p: Cost(steps=floor_log2(p), sent=(p - 1) / p, reduced=(p - 1) / p),
    regularity=Regularity(period=1),
)
def swing_reduce_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for step in range(floor_log2(p)):
        partner = partner_of(me, step, p)
        sent = reached(partner, step + 1, p)
        kept = reached(me, step + 1, p)
        yield Step(Send(partner, dst.units(sent)), RecvReduce(partner, dst.units(kept)))


@all_reduce(
    "swing",
    needs=[power_of_two],
    cost=lambda p: Cost(steps=2 * floor_log2(p), sent=2 * (p - 1) / p, reduced=(p - 1) / p),
)
def swing(layout: Layout) -> Schedule:
    scatter = swing_reduce_scatter.schedule(layout)
    return then(scatter, reverse(scatter))
