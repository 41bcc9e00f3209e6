"""Pairwise exchange: in every step each rank exchanges one block with one other, until it has met all others.

At p = 4, whom a rank meets:

    rank         0       1       2       3
    step 1       1       0       3       2         partner = rank xor step
    step 2       2       3       0       1
    step 3       3       2       1       0

Where p is not a power of two, partner = (step - rank) mod p, and each rank rests once. An exchange
works in place: the block that leaves makes room for the one that comes. Blocks may be unequal
(all-to-all-v), but then not in place.

Cost: (p - 1) alpha + (p - 1)/p S beta, the least bytes there are; where p is not a power of two p
alpha + S beta, for in every step some rank is busy.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005) 49-66.
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Index,
    Layout,
    Recv,
    Regularity,
    Schedule,
    Send,
    Step,
    all_to_all,
    all_to_all_v,
    is_power_of_two,
    peer_if,
)


def _cost(p: int) -> Cost:
    steps = p - 1 if is_power_of_two(p) else p
    return Cost(steps=steps, sent=steps / p, reduced=0)


@all_to_all("pairwise", cost=_cost)
def pairwise(layout: Layout) -> Schedule:
    regularity = Regularity(period=1) if is_power_of_two(layout.workers) else None
    return Schedule.of(layout, _exchanges, regularity=regularity)


def _exchanges(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for step in range(p):
        partner = me ^ step if is_power_of_two(p) else (step - me) % p
        partner = peer_if(partner != me, partner)
        yield Step(Send(partner, partner), Recv(partner, partner))


@all_to_all_v("pairwise")
def pairwise_of_unequal_blocks(layout: Layout) -> Schedule:
    return Schedule.of(layout, _exchanges)  # of no regularity: its messages differ
