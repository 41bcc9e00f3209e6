"""Recursive doubling: in round k every rank exchanges all that it has with the rank at distance 2^k, and folds it.

At p = 4, who has folded what (the whole vector):

    rank         0       1       2       3
    start        a       b       c       d
    distance 1   ab      ab      cd      cd        0 <-> 1, 2 <-> 3
    distance 2   abcd    abcd    abcd    abcd      0 <-> 2, 1 <-> 3

Where p is no power of two, the ranks beyond the largest one below p hand their vectors in before and get the sum after.

Cost: log2(p) (alpha + S beta + S gamma), and, where p is no power of two, 2 alpha + 2 S beta + S gamma more with
floor(log2 p) rounds: the fewest rounds there are, for messages so small that their number is what counts.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, IJHPCA 19 (2005).
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Index, Layout, Receive, Reduce, Send, Step, all_reduce, dst, only


def _cost(p: int) -> Cost:
    doublings, extra = p.bit_length() - 1, p.bit_count() > 1
    return Cost(rounds=doublings + 2 * extra, sent=doublings + 2 * extra, reduced=doublings + extra)


@all_reduce("recursive_doubling", cost=_cost)
def recursive_doubling(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    everything = dst[0:p]
    core = 1 << (p.bit_length() - 1)  # the largest power of two up to p
    extra = p - core
    hands_in, takes_in = me >= core, me < extra
    if extra:
        yield Step(Send(only(hands_in, me - core), everything), Reduce(only(takes_in, me + core), everything))
    for k in range(core.bit_length() - 1):
        partner = only(me < core, me ^ (1 << k))
        yield Step(Send(partner, everything), Reduce(partner, everything))
    if extra:
        yield Step(Send(only(takes_in, me + core), everything), Receive(only(hands_in, me - core), everything))
