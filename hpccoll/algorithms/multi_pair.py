"""Multi-pair: the first half of the ranks exchanges messages with the second half, all pairs at once.

What a rank has of its partner, at p = 6:

    rank         0       1       2       3       4       5
    start        .       .       .       .       .       .
    exchange     d       e       f       a       b       c

Ping-pong: those of the first half send, and then receive. Exchange: both at once. Of an odd number
of ranks the last one is idle; so are the pairs after the first ``concurrent`` ones. In block order
on two nodes all pairs share the ports of the nodes, on two racks the uplinks: with more pairs at
once, the time shows the rate of a process, and of a port.

Cost: of ping-pong 2 (alpha + S beta), of exchange alpha + S beta, if the pairs do not share a port.

W. Gropp, L. N. Olson, P. Samfass: Modeling MPI communication performance on SMP nodes: is it time
to retire the ping pong test, EuroMPI (2016) 41-50; the pairs are those of osu_mbw_mr (OSU
Micro-Benchmarks).
"""

from collections.abc import Iterator

from hpccoll.algorithms.point_to_point import exchange, ping_pong
from hpccoll.schedule import (
    Index,
    Layout,
    Recv,
    Send,
    Step,
    at_least,
    dst,
    multi_pair,
    peer_if,
    src,
)


@multi_pair("ping_pong", needs=[at_least(2)], cost=ping_pong.cost)
def ping_pong_of_pairs(layout: Layout, me: Index) -> Iterator[Step]:
    half = layout.workers // 2
    second = peer_if(me < half, me + half)
    first = peer_if((half <= me) & (me < 2 * half), me - half)
    yield Step(Send(second, src.all), Recv(first, dst.all))
    yield Step(Send(first, src.all), Recv(second, dst.all))


@multi_pair("exchange", needs=[at_least(2)], cost=exchange.cost)
def exchange_of_pairs(layout: Layout, me: Index) -> Iterator[Step]:
    half = layout.workers // 2
    partner = peer_if(me < 2 * half, (me + half) % (2 * half))
    yield Step(Send(partner, src.all), Recv(partner, dst.all))
