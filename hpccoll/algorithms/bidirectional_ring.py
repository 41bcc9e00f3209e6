"""Bidirectional ring: half of the vector goes round the ring one way, half the other way.

At p = 4, to whom each rank sends:

    rank         0       1       2       3
    slice 0      1       2       3       0         the ring
    slice 1      3       0       1       2         the same, where (p - r) mod p plays the part of rank r

Cost: that of a ring, 2 (p - 1) alpha + 2 (p - 1)/p S beta + (p - 1)/p S gamma, where a rank sends
one message at a time; half of the beta where a rank has a link of its own to each neighbour.

E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory, practice,
and experience, CCPE 19 (2007) 1749-1783.
"""

from hpccoll.algorithms.ring import ring
from hpccoll.schedule import Layout, Schedule, all_reduce, relabel


@all_reduce("bidirectional_ring", cost=ring.cost)
def bidirectional_ring(layout: Layout) -> tuple[Schedule, ...]:
    p = layout.workers
    one_way = ring.schedule(layout)
    return one_way, relabel(one_way, [-me % p for me in range(p)])
