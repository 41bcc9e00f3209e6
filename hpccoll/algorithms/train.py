"""Train: several messages one after the other, and one reply, for the parameters of LogGP.

What rank 1 has of rank 0, and rank 0 of rank 1, with 4 messages:

    rank         0       1
    start        .       .
    message 1    .       a
    message 2    .       aa
    message 3    .       aaa
    message 4    .       aaaa
    reply        bbbb    aaaa

The root sends S in n ``messages`` of S/n bytes, each in a step of its own. Before each of them it
copies S ``copies`` times, as a delay: d = T(1, c) - T(1, 0), where T(n, c) is the time with n
messages and c copies. Then, if G is the time of a byte,

    the gap g between messages is   (T(n, 0) - T(1, 0)) / (n - 1): the bytes, and the reply, are the same;
    the overhead o of a send is     (T(n, c) - T(1, c)) / (n - 1) + (S/n) G - d, with c so large that d > g + (S/n) G:
                                    delays then hide the bytes of all messages but the last.

Cost: (n + 1) alpha + 2 S beta; with copies none is declared.

T. Hoefler, A. Lichei, W. Rehm: Low-overhead LogGP parameter assessment for modern interconnection
networks, IPDPS (2007): its PRTT(n, d, s), except that the reply has the bytes of all messages, and
a delay also precedes the first one.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from hpccoll.schedule import Cost, Layout, Schedule, at_least, send_recv
from hpccoll.schedule.step import Copy, Index, Recv, Send, Step, dst, peer_if, src, tmp

MESSAGES = 8


def _cost(_p: int, messages: int = MESSAGES, copies: int = 0) -> Cost | None:
    if copies:
        return None
    return Cost(steps=messages + 1, sent=2, reduced=0)


@send_recv("train", needs=[at_least(2)], cost=_cost)
def train(
    layout: Layout,
    *,
    messages: Annotated[int, range(1, 65)] = MESSAGES,
    copies: Annotated[int, range(257)] = 0,
) -> Schedule:
    return Schedule(layout, messages, partial(_steps, messages, copies), vectorised=True)


def _steps(messages: int, copies: int, me: Index) -> Iterator[Step]:
    root = peer_if(me == 1, 0)
    peer = peer_if(me == 0, 1)
    all_at_root = messages * (me == 0)
    for unit in range(messages):
        for _ in range(copies):
            yield Step(Copy(src[0:all_at_root], tmp[0:all_at_root]))
        yield Step(Send(peer, src[unit]), Recv(root, dst[unit]))
    yield Step(Send(root, src[0:messages]), Recv(peer, dst[0:messages]))
