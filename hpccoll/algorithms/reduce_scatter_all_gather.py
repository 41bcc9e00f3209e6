"""Reduce-scatter and all-gather: an all-reduce from any of the ones and any of the others.

At p = 4, with recursive halving and a ring, the units of the sum that a rank has:

    rank         0       1       2       3
    start        -       -       -       -
    scattered    0       1       2       3         reduce-scatter: unit r is complete at rank r
    gathered     0123    0123    0123    0123      all-gather

Cost: the sum of the two; a ring and a ring are the ring, halving and doubling are Rabenseifner's where p is a power of
two.

E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication, CCPE 19 (2007) 1749-1783, section 4.
"""

from hpccoll.schedule import Layout, Schedule, all_gather, all_reduce, reduce_scatter, then


@all_reduce("reduce_scatter_all_gather")
def reduce_scatter_all_gather(layout: Layout, *, scatter: str = "ring", gather: str = "bruck") -> Schedule:
    return then(reduce_scatter.part(scatter).schedule(layout), all_gather.part(gather).schedule(layout))
