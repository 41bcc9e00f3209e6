"""Rabenseifner: reduce-scatter by recursive halving, then all-gather by recursive doubling, or a gather.

At p = 4, the units that a rank still folds (+: partial sums), and then those of the sum that it
has:

    rank         0       1       2       3
    start        0123+   0123+   0123+   0123+
    distance 2   01+     01+     23+     23+       0 <-> 2, 1 <-> 3 exchange halves of the vector and fold
    distance 1   0       1       2       3         0 <-> 1, 2 <-> 3 exchange quarters: a unit is complete
    distance 1   01      01      23      23        0 <-> 1, 2 <-> 3, a quarter that replaces
    distance 2   0123    0123    0123    0123      0 <-> 2, 1 <-> 3, half

In a reduce, only the messages on the way to the root go back:

    distance 1   01      1       23      3         1 -> 0, 3 -> 2
    distance 2   0123    1       23      3         2 -> 0

With ``first`` near, distance 1 comes first in the reduce-scatter and last on the way back. Where p
is not a power of two, let p' be the largest one below it. In an all-reduce, first rank p' + i sends
its vector to rank i, which folds it; the ranks 0 to p' - 1 do the above with p' units; at the end
rank i sends the sum back. With ``pairing`` adjacent, rank 2 i + 1 sends its vector to rank 2 i.
MPICH and Open MPI do both, and the sums of floats have the same bits: also those of recursive
doubling.

Cost: where p is a power of two, 2 log2(p) alpha + 2 (p - 1)/p S beta + (p - 1)/p S gamma: the bytes
of a ring, or twice those of a vector, in few messages. Else that of p', and 2 alpha + 2 S beta + S
gamma more: up to twice the bytes of a ring.

R. Rabenseifner: Optimization of collective reduction operations, ICCS (2004), LNCS 3036, 1-9.
"""

from collections.abc import Iterator
from typing import Annotated

from hpccoll.algorithms.recursive_halving import FIRST, halve, halvings
from hpccoll.schedule import (
    PAIRINGS,
    Cost,
    Index,
    Layout,
    Recv,
    Regularity,
    Schedule,
    Send,
    Step,
    all_reduce,
    floor_log2,
    is_power_of_two,
    on_power_of_two,
    peer_if,
    power_of_two,
    reduce,
    reverse,
    then,
)
from hpccoll.schedule.core_workers import FAR, check_choice


def _cost(p: int) -> Cost:
    core = 1 << floor_log2(p)  # p'
    extra = not is_power_of_two(p)  # ranks are left over, which send and receive a whole vector
    fraction = (core - 1) / core
    return Cost(
        steps=2 * floor_log2(p) + 2 * extra,
        sent=2 * fraction + 2 * extra,
        reduced=fraction + extra,
    )


def _halving(layout: Layout, first: str) -> Schedule:
    check_choice("first", first, FIRST)
    return Schedule.of(
        layout, lambda layout, me: halve(layout.workers, me, first), regularity=Regularity(period=1)
    )


@all_reduce("rabenseifner", cost=_cost)
def rabenseifner(
    layout: Layout,
    *,
    first: Annotated[str, FIRST] = FAR,
    pairing: Annotated[str, PAIRINGS] = FAR,
) -> Schedule:
    def halve_and_double(core: Layout) -> Schedule:
        halving = _halving(core, first)
        return then(halving, reverse(halving))

    return on_power_of_two(layout, halve_and_double, pairing)


@reduce("rabenseifner", needs=[power_of_two], cost=_cost)
def rabenseifner_reduce(layout: Layout, *, first: Annotated[str, FIRST] = FAR) -> Schedule:
    def to_root(layout: Layout, me: Index) -> Iterator[Step]:
        sent_before = 0  # the bits of the ranks that have sent all that they had
        for half in reversed(list(halvings(layout.workers, me, first))):
            has_some = me & sent_before == 0
            sends = has_some & (me & half.distance != 0)
            receives = has_some & (me & half.distance == 0)
            yield Step(
                Send(peer_if(sends, half.partner), half.kept),
                Recv(peer_if(receives, half.partner), half.sent),
            )
            sent_before |= half.distance

    return then(_halving(layout, first), Schedule.of(layout, to_root))
