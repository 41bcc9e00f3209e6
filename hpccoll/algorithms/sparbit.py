"""Sparbit: an all-gather whose distances fall, so that most bytes go to near ranks, and no block moves at the end.

At p = 5, which blocks a rank has:

    rank         0       1       2       3       4
    start        0       1       2       3       4
    distance 4   01      12      23      34      40        each receives from the rank 4 before its own block,
    distance 2   013     124     230     341     402       2 before its own block,
    distance 1   01234   12340   23401   34012   40123     1 before the two blocks that are missing

Before the step of distance d a rank has every 2d-th of the blocks before its own, ceil(p / 2d) of
them; afterwards every d-th. Each block is a message, which lies at its place in the result. A step
of many blocks is cut into steps of TOGETHER messages.

Cost: to 64 ranks ceil(log2 p) alpha + (p - 1)/p S beta, that of Bruck's, whose largest messages go
farthest; beyond, a further alpha for each TOGETHER blocks of a step.

W. Loch, G. Koslovski: Sparbit: a new logarithmic-cost and data locality-aware MPI Allgather
algorithm, SBAC-PAD (2021).
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Layout, all_gather
from hpccoll.schedule.step import Index, Recv, Send, Step, ceil_log2

TOGETHER = 32
"""The messages of a step: tags tell as many apart between two ranks."""


def _steps(p: int) -> Iterator[tuple[int, int]]:
    """Yield the distance of each step, and the number of blocks that a rank sends in it."""
    for k in reversed(range(ceil_log2(p))):
        distance = 1 << k
        yield distance, -(-p // distance) - -(-p // (2 * distance))


def _cost(p: int) -> Cost:
    steps = sum(-(-count // TOGETHER) for _, count in _steps(p))
    return Cost(steps=steps, sent=(p - 1) / p, reduced=0)


@all_gather("sparbit", cost=_cost)
def sparbit(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    for distance, count in _steps(p):
        after, before = (me + distance) % p, (me - distance) % p
        for first in range(0, count, TOGETHER):
            numbers = range(first, min(first + TOGETHER, count))
            # which blocks of a rank, counted back from its own
            blocks = [2 * distance * number for number in numbers]
            sends = [Send(after, (me - block) % p) for block in blocks]
            receives = [Recv(before, (before - block) % p) for block in blocks]
            yield Step(*sends, *receives)
