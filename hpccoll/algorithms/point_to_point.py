"""Point to point: two ranks and a message each, one after the other (ping-pong) or both at once.

What rank 0 and rank 1 have of the other:

    rank         0       1                      0       1
    start        .       .          start       .       .
    ping         .       a          both        b       a
    pong         b       a

For another pair, the root of the case plays rank 0, and its peer rank 1. All others rest.

Cost: of ping-pong 2 (alpha + S beta): its time is of the round trip, not half of it; of both at
once alpha + S beta.

R. W. Hockney: The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing
20 (1994) 389-398, which measures alpha and beta in this way.
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Layout, at_least, bidirectional, send_recv
from hpccoll.schedule.step import Index, Recv, Send, Step, dst, peer_if, src


@send_recv("ping_pong", needs=[at_least(2)], cost=lambda _p: Cost(steps=2, sent=2, reduced=0))
def ping_pong(_layout: Layout, me: Index) -> Iterator[Step]:
    second = peer_if(me == 0, 1)
    first = peer_if(me == 1, 0)
    yield Step(Send(second, src.all), Recv(first, dst.all))
    yield Step(Send(first, src.all), Recv(second, dst.all))


@bidirectional("exchange", needs=[at_least(2)], cost=lambda _p: Cost(steps=1, sent=1, reduced=0))
def exchange(_layout: Layout, me: Index) -> Iterator[Step]:
    partner = peer_if(me < 2, 1 - me)
    yield Step(Send(partner, src.all), Recv(partner, dst.all))
