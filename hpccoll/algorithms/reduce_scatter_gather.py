"""Reduce-scatter, then gather: a reduce that folds each unit of the vector at one rank, and collects the units.

At p = 4, root 0, which units of the sum a rank has:

    rank         0       1       2       3
    start        -       -       -       -
    scattered    0       1       2       3         reduce-scatter: unit r is complete at rank r
    gathered     0123    1       23      3         gather: 1 -> 0 and 3 -> 2, then 2 -> 0

``scatter`` and ``gather`` name the two.

Cost: the sum of the two; with recursive halving and a binomial tree 2 log2(p) alpha + 2 (p - 1)/p S
beta, where a binomial tree sends all of S ceil(log2 p) times.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from typing import Annotated

from hpccoll.schedule import Cost, Layout, Schedule, reduce, reduce_scatter, then, total_cost
from hpccoll.schedule import gather as gathers


def _cost(p: int, scatter: str = "ring", gather: str = "binomial") -> Cost | None:
    return total_cost(p, reduce_scatter.component(scatter), gathers.component(gather))


@reduce("reduce_scatter_gather", cost=_cost)
def reduce_scatter_gather(
    layout: Layout,
    *,
    scatter: Annotated[str, reduce_scatter] = "ring",
    gather: Annotated[str, gathers] = "binomial",
) -> Schedule:
    return then(
        reduce_scatter.component(scatter).schedule(layout),
        gathers.component(gather).schedule(layout),
    )
