"""Direct: in one step every rank exchanges messages with every other rank directly.

At p = 4, reduce-scatter, who has folded what of each unit (.: not used any more, *: abcd):

    rank         0       1       2       3
    start        aaaa    bbbb    cccc    dddd
    step 1       *...    .*..    ..*.    ...*      each sends every rank its unit, and folds into its own

All-gather is the reverse, and an all-reduce is both in turn: two steps for any p. In shared memory,
where a send lets the other rank read, a rank thus folds its unit directly from the vectors of the
others.

Cost: of reduce-scatter alpha + (p - 1)/p S (beta + gamma), of all-gather and all-to-all alpha + (p
- 1)/p S beta. No algorithm takes fewer steps or bytes; but p - 1 messages leave a port at once,
and p - 1 arrive (incast).

E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory, practice,
and experience, CCPE 19 (2007) 1749-1783. In shared memory: S. Jain, R. Kaleem, M. G. Balmana, A.
Langer, D. Durnov, A. Sannikov, M.
Garzaran: Framework for scalable intra-node collective operations using shared memory, SC (2018).
"""

from collections.abc import Iterator

from hpccoll.schedule import (
    Cost,
    Layout,
    Schedule,
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
    then,
)
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step


def _others(layout: Layout, me: Index) -> list[Index]:
    """Return the other ranks, the next one first, so that not all begin with the same."""
    p = layout.workers
    return [(me + distance) % p for distance in range(1, p)]


@reduce_scatter(
    "direct", cost=lambda p: Cost(steps=int(p > 1), sent=(p - 1) / p, reduced=(p - 1) / p)
)
def direct_reduce_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    peers = _others(layout, me)
    yield Step(*(Send(peer, peer) for peer in peers), *(RecvReduce(peer, me) for peer in peers))


@all_gather("direct", cost=lambda p: Cost(steps=int(p > 1), sent=(p - 1) / p, reduced=0))
def direct_all_gather(layout: Layout, me: Index) -> Iterator[Step]:
    peers = _others(layout, me)
    yield Step(*(Send(peer, me) for peer in peers), *(Recv(peer, peer) for peer in peers))


@all_reduce(
    "direct", cost=lambda p: Cost(steps=2 * (p > 1), sent=2 * (p - 1) / p, reduced=(p - 1) / p)
)
def direct(layout: Layout) -> Schedule:
    return then(direct_reduce_scatter.schedule(layout), direct_all_gather.schedule(layout))


@all_to_all("direct", cost=direct_all_gather.cost)
def direct_all_to_all(layout: Layout, me: Index) -> Iterator[Step]:
    peers = _others(layout, me)
    yield Step(*(Send(peer, peer) for peer in peers), *(Recv(peer, peer) for peer in peers))
