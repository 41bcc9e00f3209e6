"""Star: all ranks send the whole vector to a master, which folds and sends the sum back. The baseline to beat.

At p = 4, who has folded what (the whole vector):

    rank         0       1       2       3
    start        a       b       c       d
    step 1       abcd    b       c       d         1 -> 0, 2 -> 0, 3 -> 0
    step 2       abcd    abcd    abcd    abcd      0 -> 1, 0 -> 2, 0 -> 3

Cost: 2 alpha + 2 (p - 1) S beta + (p - 1) S gamma: two steps, and all of the bytes through the
port of one rank.

A parameter server of one server: M. Li et al., Scaling distributed machine learning with the
parameter server, OSDI (2014).
"""

from hpccoll.algorithms.direct_rooted import direct_reduce
from hpccoll.schedule import Cost, Layout, Schedule, all_reduce, reverse, then


@all_reduce("star", cost=lambda p: Cost(steps=2 * (p > 1), sent=2 * (p - 1), reduced=p - 1))
def star(layout: Layout) -> Schedule:
    to_the_master = direct_reduce.schedule(layout)
    return then(to_the_master, reverse(to_the_master))
