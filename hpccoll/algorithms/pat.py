"""Parallel aggregated trees (PAT): each block goes down a binomial tree of its own, and trees share messages.

All-gather at p = 8, of block 0, which reaches rank d from rank d without its lowest set bit; block
b does the same, b ranks further on. A message has the blocks of up to ``aggregation`` trees, here
of 2:

    rank         0    1    2    3    4    5    6    7
    start        x    .    .    .    .    .    .    .
    distance 4   x    .    .    .    x    .    .    .     far first, while a rank has one block to send
    distance 2   x    .    x    .    x    .    x    .     0 -> 2 and 4 -> 6: a rank sends its own block and another
    distance 1   x    .    x    x    x    .    x    x     2 -> 3 and 6 -> 7
    distance 1   x    x    x    x    x    x    x    x     0 -> 1 and 4 -> 5

With A blocks a message, P the smallest power of two that is not below p: the far distances, P/2 to
P/A, take log2(A) steps of 1, 2, ... A/2 blocks. Then the trees among the P/A ranks between go side
by side, a step for each edge, a subtree at a time, so that few blocks wait on their way.
``aggregation`` 0 is the most, P/2, and 1 is as many steps as a ring has. Other numbers are rounded
down to a power of two. Reduce-scatter is the same backwards, with partial sums.

Cost: of all-gather (log2(A) + min(P/A, p) - 1) alpha + (p - 1)/p S beta; of reduce-scatter (p -
1)/p S gamma more. With the most blocks that is Bruck's, but the half of the blocks that the last
step carries goes to the next rank, not half way round.

S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale,
arXiv:2506.20252 (2025). In NCCL from 2.23 on, with one rank a node.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from hpccoll.schedule import Cost, Layout, Regularity, Schedule, all_gather, reduce_scatter, reverse
from hpccoll.schedule.step import Index, Recv, RecvReduce, Send, Step, ceil_log2, dst, floor_log2


def _split(p: int, aggregation: int) -> tuple[int, int]:
    """Return A and P/A."""
    power = 1 << ceil_log2(p)
    most = max(1, power // 2)
    blocks = 1 << floor_log2(min(aggregation or most, most))
    return blocks, power // blocks


def _cost(p: int, aggregation: int = 0) -> Cost:
    blocks, between = _split(p, aggregation)
    steps = floor_log2(blocks) + min(between, p) - 1
    return Cost(steps, sent=(p - 1) / p, reduced=0)


def _steps(p: int, blocks: int, between: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the distance of each step, and how far from their ranks the blocks are that arrive."""
    for k in range(1, floor_log2(blocks) + 1):
        distance = blocks * between >> k
        yield distance, range(distance, p, 2 * distance)
    for first, distance in _edges(0, between):
        yield distance, range(first + distance, p, between)


def _edges(first: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield the edges (from, length) of the binomial tree of ``ranks`` from ``first`` on, a subtree at a time."""
    if half := ranks // 2:
        yield first, half
        yield from _edges(first + half, half)
        yield from _edges(first, half)


@all_gather("pat", cost=_cost, regularity=Regularity(period=1, shifts=1))
def pat_all_gather(
    layout: Layout, me: Index, *, aggregation: Annotated[int, range(1 << 16)] = 0
) -> Iterator[Step]:
    p = layout.workers
    for distance, away in _steps(p, *_split(p, aggregation)):
        if away:
            target = (me + distance) % p
            source = (me - distance) % p
            sent = dst.units((target - i) % p for i in away)
            arriving = dst.units((me - i) % p for i in away)
            yield Step(Send(target, sent), Recv(source, arriving))


@reduce_scatter("pat", cost=lambda p, aggregation=0: _cost(p, aggregation).folding())
def pat_reduce_scatter(
    layout: Layout, *, aggregation: Annotated[int, range(1 << 16)] = 0
) -> Schedule:
    return reverse(pat_all_gather.schedule(layout, aggregation=aggregation), RecvReduce)
