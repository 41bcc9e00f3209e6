"""K-nomial tree: like a binomial tree, but a rank that has the message sends it to k - 1 others at once.

At p = 9 and radix k = 3, broadcast, which ranks have the message of the root:

    rank         0    1    2    3    4    5    6    7    8
    start        x    .    .    .    .    .    .    .    .
    distance 3   x    .    .    x    .    .    x    .    .     0 -> 3, 0 -> 6
    distance 1   x    x    x    x    x    x    x    x    x     0 -> 1, 0 -> 2; 3 -> 4, 3 -> 5; 6 -> 7, 6 -> 8

Reduce is the same backwards: a rank folds what its k - 1 children send. ``radix`` is k: 2 is the
binomial tree.

Cost: with L = ceil(log_k p) steps and m = ceil(p / k^(L - 1)) - 1 children of the root in the
first of them, L alpha + ((L - 1) (k - 1) + m) S beta; of reduce as much S gamma more. Fewer steps
for more bytes through the port of the root: a gain for messages so small that those which leave
together cost little more than one.

M. Wilkins, H. Wang, P. Liu, B. Pham, Y. Guo, R. Thakur, P. Dinda, N. Hardavellas: Generalized
collective algorithms for the exascale era, CLUSTER (2023).
"""

from collections.abc import Iterator
from typing import Annotated

from hpccoll.schedule import Cost, Layout, Schedule, broadcast, reduce, reverse
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step, dst, peer_if


def _distances(p: int, radix: int) -> list[int]:
    """Return the powers of the radix below ``p``, the largest first."""
    return [radix**k for k in reversed(range(p.bit_length())) if radix**k < p]


def _cost(p: int, radix: int = 4) -> Cost:
    distances = _distances(p, radix)
    sent = sum(min(radix, -(-p // distance)) - 1 for distance in distances)
    return Cost(steps=len(distances), sent=sent, reduced=0)


@broadcast("knomial", cost=_cost)
def knomial_broadcast(
    layout: Layout, me: Index, *, radix: Annotated[int, range(2, 65)] = 4
) -> Iterator[Step]:
    p = layout.workers
    for distance in _distances(p, radix):
        away = me % (radix * distance)  # from the first rank of my group: it has the message
        sends = (
            Send(peer_if((away == 0) & (me + i * distance < p), me + i * distance), dst.all)
            for i in range(1, radix)
        )
        yield Step(*sends, Recv(peer_if((away > 0) & (away % distance == 0), me - away), dst.all))


@reduce("knomial", cost=lambda p, radix=4: _cost(p, radix).folding())
def knomial_reduce(layout: Layout, *, radix: Annotated[int, range(2, 65)] = 4) -> Schedule:
    return reverse(knomial_broadcast.schedule(layout, radix=radix), RecvReduce)
