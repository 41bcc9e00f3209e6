"""Scatter and all-gather: a broadcast that cuts the message into p units, deals them out, and puts them together.

At p = 4, which units a rank has:

    rank         0       1       2       3
    start        0123    .       .       .
    scatter      0123    1       23      3         0 -> 2: units 2, 3; then 0 -> 1: unit 1 and 2 -> 3: unit 3
    all-gather   0123    0123    0123    0123      round the ring in three steps

Any all-gather will do; ``gather`` names it.

Cost: the sum of the two; with the ring, (ceil(log2 p) + p - 1) alpha + 2 (p - 1)/p S beta, where a
binomial tree sends all of S ceil(log2 p) times.

M. Barnett, L. Shuler, S. Gupta, D. G. Payne, R. van de Geijn, J. Watts: Building a high-performance
collective communication library, Supercomputing (1994).
"""

from typing import Annotated

from hpccoll.algorithms.binomial import binomial_scatter
from hpccoll.schedule import Cost, Layout, Schedule, all_gather, broadcast, then, total_cost


def _cost(p: int, gather: str = "ring") -> Cost | None:
    return total_cost(p, binomial_scatter, all_gather.component(gather))


@broadcast("scatter_all_gather", cost=_cost)
def scatter_all_gather(layout: Layout, *, gather: Annotated[str, all_gather] = "ring") -> Schedule:
    return then(binomial_scatter.schedule(layout), all_gather.component(gather).schedule(layout))
