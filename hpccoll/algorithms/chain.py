"""Chain: the root sends the message to the next rank, which sends it to the next, in segments that follow one another.

At p = 4 with three channels, which of the segments a rank has:

    rank         0       1       2       3
    start        012     .       .       .
    step 1       012     0       .       .
    step 2       012     01      0       .         segment 1 leaves 0 while segment 0 leaves 1
    step 3       012     012     01      0
    step 4       012     012     012     01
    step 5       012     012     012     012

Cost: (p - 1) (alpha + S beta) in one piece; in c segments (c + p - 2) (alpha + S/c beta), which for
many segments is S beta whatever p is.

J. Watts, R. van de Geijn: A pipelined broadcast for multidimensional meshes, Parallel Processing
Letters 5 (1995) 281-292.
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Index, Layout, Recv, Send, Step, broadcast, dst, peer_if


def _cost(p: int, channels: int = 1) -> Cost:
    steps = channels + p - 2 if p > 1 else 0
    return Cost(steps=steps, sent=steps / channels, reduced=0)


@broadcast("chain", cost=_cost, pipelined=True)
def chain(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    yield Step(Recv(peer_if(me > 0, me - 1), dst.all))
    yield Step(Send(peer_if(me < p - 1, me + 1), dst.all))
