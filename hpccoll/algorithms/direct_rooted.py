"""Direct, with a root: it exchanges messages with every other rank directly, all at once.

At p = 4, scatter, which block a rank has:

    rank         0       1       2       3
    start        0123    .       .       .
    step 1       0123    1       2       3         0 -> 1, 0 -> 2, 0 -> 3

Gather is the reverse. In a reduce every vector goes to the root, which folds them in the order of
the ranks; in a broadcast its vector goes to all of them.

Cost: of scatter and gather alpha + (p - 1)/p S beta; of reduce alpha + (p - 1) S (beta + gamma), of
broadcast alpha + (p - 1) S beta: all of it at the root, into whose port the others send at once
(incast).

E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective communication: theory, practice,
and experience, CCPE 19 (2007) 1749-1783.
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Layout, Schedule, broadcast, gather, reduce, reverse, scatter
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step, dst, peer_if


def _steps(p: int) -> int:
    return int(p > 1)


@scatter("direct", cost=lambda p: Cost(steps=_steps(p), sent=(p - 1) / p, reduced=0))
def direct_scatter(layout: Layout, me: Index) -> Iterator[Step]:
    sends = [Send(peer_if(me == 0, peer), peer) for peer in range(1, layout.workers)]
    yield Step(*sends, Recv(peer_if(me > 0, 0), me))


@gather("direct", cost=direct_scatter.cost)
def direct_gather(layout: Layout) -> Schedule:
    return reverse(direct_scatter.schedule(layout))


@broadcast("direct", cost=lambda p: Cost(steps=_steps(p), sent=p - 1, reduced=0))
def direct_broadcast(layout: Layout, me: Index) -> Iterator[Step]:
    sends = [Send(peer_if(me == 0, peer), dst.all) for peer in range(1, layout.workers)]
    yield Step(*sends, Recv(peer_if(me > 0, 0), dst.all))


@reduce("direct", cost=lambda p: Cost(steps=_steps(p), sent=p - 1, reduced=p - 1))
def direct_reduce(layout: Layout, me: Index) -> Iterator[Step]:
    arrivals = [RecvReduce(peer_if(me == 0, peer), dst.all) for peer in range(1, layout.workers)]
    yield Step(Send(peer_if(me > 0, 0), dst.all), *arrivals)
