"""Rabenseifner: reduce-scatter by recursive halving, then all-gather by recursive doubling.

At p = 4, the units that a rank still folds (+: partial sums), and then those of the sum that it
has:

    rank         0       1       2       3
    start        0123+   0123+   0123+   0123+
    distance 2   01+     01+     23+     23+       0 <-> 2, 1 <-> 3 exchange halves of the vector and fold
    distance 1   0       1       2       3         0 <-> 1, 2 <-> 3 exchange quarters: a unit is complete
    distance 1   01      01      23      23        0 <-> 1, 2 <-> 3, a quarter that replaces
    distance 2   0123    0123    0123    0123      0 <-> 2, 1 <-> 3, half

Where p is not a power of two, let p' be the largest one below it. First rank p' + i sends its
vector to rank i, which folds it; the ranks 0 to p' - 1 do the above with p' units; at the end rank
i sends the sum back. With ``first`` near, distance 1 comes first in the reduce-scatter and last in
the all-gather; with ``pairing`` adjacent, rank 2 i + 1 sends its vector to rank 2 i. MPICH and Open
MPI do both, and the sums of floats have the same bits: also those of recursive doubling.

Cost: where p is a power of two, 2 log2(p) alpha + 2 (p - 1)/p S beta + (p - 1)/p S gamma: the bytes
of a ring in far fewer messages. Else that of p', and 2 alpha + 2 S beta + S gamma more: up to twice
the bytes of a ring.

R. Rabenseifner: Optimization of collective reduction operations, ICCS (2004), LNCS 3036, 1-9.
"""

from collections.abc import Iterator
from typing import Annotated

from hpccoll.algorithms.recursive_doubling import recursive_doubling_all_gather
from hpccoll.algorithms.recursive_halving import recursive_halving
from hpccoll.schedule import (
    PAIRINGS,
    Cost,
    Index,
    Layout,
    RecvReduce,
    Regularity,
    Schedule,
    Send,
    Step,
    all_reduce,
    dst,
    floor_log2,
    is_power_of_two,
    on_power_of_two,
    reverse,
    then,
)
from hpccoll.schedule.core_workers import FAR, check_choice


def _cost(p: int) -> Cost:
    core = 1 << floor_log2(p)  # p'
    extra = not is_power_of_two(p)  # ranks are left over, which send and receive a whole vector
    fraction = (core - 1) / core
    return Cost(
        rounds=2 * floor_log2(p) + 2 * extra,
        sent=2 * fraction + 2 * extra,
        reduced=fraction + extra,
    )


FIRST = "far", "near"
"""Which distance comes first in the reduce-scatter: p'/2 or 1."""


@all_reduce("rabenseifner", cost=_cost)
def rabenseifner(
    layout: Layout,
    *,
    first: Annotated[str, FIRST] = "far",
    pairing: Annotated[str, PAIRINGS] = FAR,
) -> Schedule:
    check_choice("first", first, FIRST)

    def halve_and_double(core: Layout) -> Schedule:
        if first == "near":
            halving = Schedule.of(core, _near_halving, regularity=Regularity(period=1))
            return then(halving, reverse(halving))
        return then(recursive_halving.schedule(core), recursive_doubling_all_gather.schedule(core))

    return on_power_of_two(layout, halve_and_double, pairing)


def _near_halving(layout: Layout, me: Index) -> Iterator[Step]:
    """Yield a reduce-scatter in which distances double: a rank ends with the unit of its bits in reverse."""
    p = layout.workers
    begin = me * 0  # where what I still fold begins
    for k in range(floor_log2(p)):
        half = p >> (k + 1)
        upper = (me >> k) & 1
        mine = begin + upper * half
        theirs = begin + (1 - upper) * half
        partner = me ^ (1 << k)
        yield Step(
            Send(partner, dst[theirs : theirs + half]),
            RecvReduce(partner, dst[mine : mine + half]),
        )
        begin = mine
