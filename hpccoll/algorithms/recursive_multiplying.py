"""Recursive multiplying: recursive doubling with groups of k ranks, which all exchange what they have at once.

At p = 6 and radix k = 3, who has folded what (the whole vector), in groups of 3 and then of 2:

    rank         0       1       2       3       4       5
    start        a       b       c       d       e       f
    distance 1   abc     abc     abc     def     def     def     0 <-> 1, 0 <-> 2, 1 <-> 2; 3, 4, 5 likewise
    distance 3   abcdef  abcdef  abcdef  abcdef  abcdef  abcdef  0 <-> 3, 1 <-> 4, 2 <-> 5

The groups are as large as the factors of p: the largest divisor that is no more than the radix, and
again of what is left. Where a prime factor of p is more than the radix, let p' be the largest power
of the radix below p: first the ranks beyond p' send their vectors to rank r mod p', which folds
them; the ranks 0 to p' - 1 do the above; at the end they send the sum back. ``radix`` 2 is
recursive doubling. A rank folds the vectors of its group in the order of their ranks, its own among
them, so that all ranks get the same bits: what comes from ranks before it is folded in tmp, then
its own vector, then what comes from ranks after it.

Cost: a group of f takes alpha + (f - 1) S (beta + gamma); where p' is less than p, the first step
alpha + (ceil(p/p') - 1) S (beta + gamma) more, the last one as much without gamma. Fewer steps
than recursive doubling for more bytes.

M. Ruefenacht, M. Bull, S. Booth: Generalisation of recursive doubling for AllReduce: now with
simulation, Parallel Computing 69 (2017) 24-44: the groups. The rule for the ranks beyond p' is that
of MPICH's recursive multiplying.
"""

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Annotated

from hpccoll.schedule import Cost, Layout, Schedule, all_reduce, on_some_workers
from hpccoll.schedule.step import (
    Action,
    CopyReduce,
    Index,
    Recv,
    RecvReduce,
    Send,
    Step,
    dst,
    peer_if,
    tmp,
)


def _groups(p: int, radix: int) -> list[int]:
    """Return how many ranks exchange in each step: the factors of ``p``, or of the largest power of the radix."""
    groups = list[int]()
    while divisors := [f for f in range(2, radix + 1) if p // prod(groups) % f == 0]:
        groups.append(divisors[-1])
    if prod(groups) == p:
        return groups
    return [radix for k in range(1, p.bit_length()) if radix**k <= p]


def _cost(p: int, radix: int = 4) -> Cost:
    groups = _groups(p, radix)
    beyond = -(-p // prod(groups)) - 1  # the most vectors that a rank takes in
    exchanged = sum(groups) - len(groups)
    return Cost(len(groups) + 2 * (beyond > 0), exchanged + 2 * beyond, exchanged + beyond)


@all_reduce("recursive_multiplying", cost=_cost)
def recursive_multiplying(layout: Layout, *, radix: Annotated[int, range(2, 65)] = 4) -> Schedule:
    groups = _groups(layout.workers, radix)
    return on_some_workers(
        layout, prod(groups), lambda core: Schedule.of(core, partial(_exchanges, groups))
    )


def _exchanges(groups: list[int], layout: Layout, me: Index) -> Iterator[Step]:
    distance = 1
    for group in groups:
        mine = me // distance % group
        ranks = [me + (turn - mine) * distance for turn in range(group)]
        units = (me < layout.workers) * layout.workers  # ranks beyond p' have nothing to fold
        yield Step(*_sends(ranks, mine), *_folds(ranks, mine, units))
        distance *= group


def _sends(ranks: list[Index], mine: Index) -> Iterator[Send]:
    for turn, rank in enumerate(ranks):
        yield Send(peer_if(mine != turn, rank), dst.all)


def _folds(ranks: list[Index], mine: Index, units: Index) -> Iterator[Action]:
    """Yield the folds of one rank in the order of the ranks of its group."""
    # of the first two, the sum of both is the same in either order
    yield RecvReduce(peer_if(mine == 0, ranks[1]), dst.all)
    yield RecvReduce(peer_if(mine == 1, ranks[0]), dst.all)
    if len(ranks) == 2:
        return
    yield Recv(peer_if(mine > 1, ranks[0]), tmp.all)
    for turn, rank in enumerate(ranks[1:-1], 1):
        yield RecvReduce(peer_if(turn < mine, rank), tmp.all)
    own = (mine > 1) * units  # no units of the first two ranks
    yield CopyReduce(dst[0:own], dst[0:own], tmp[0:own])
    for turn, rank in enumerate(ranks[2:], 2):
        yield RecvReduce(peer_if(turn > mine, rank), dst.all)
