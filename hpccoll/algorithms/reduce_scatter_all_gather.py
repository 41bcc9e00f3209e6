"""Reduce-scatter, then all-gather: an all-reduce made of any two, which ``scatter`` and ``gather`` name.

At p = 4, the units of the sum that a rank has:

    rank         0       1       2       3
    start        -       -       -       -
    scattered    0       1       2       3         reduce-scatter: unit r is complete at rank r
    gathered     0123    0123    0123    0123      all-gather

Cost: the sum of the two. With two rings it is the ring; with recursive halving and doubling it is
Rabenseifner's.

E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory, practice,
and experience, CCPE 19 (2007) 1749-1783.
"""

from typing import Annotated

from hpccoll.schedule import (
    Cost,
    Layout,
    Schedule,
    all_gather,
    all_reduce,
    reduce_scatter,
    then,
    total_cost,
)


def _cost(p: int, scatter: str = "ring", gather: str = "bruck") -> Cost | None:
    return total_cost(p, reduce_scatter.component(scatter), all_gather.component(gather))


@all_reduce("reduce_scatter_all_gather", cost=_cost)
def reduce_scatter_all_gather(
    layout: Layout,
    *,
    scatter: Annotated[str, reduce_scatter] = "ring",
    gather: Annotated[str, all_gather] = "bruck",
) -> Schedule:
    return then(
        reduce_scatter.component(scatter).schedule(layout),
        all_gather.component(gather).schedule(layout),
    )
