"""Ring all-reduce: p units of the vector travel round the ring, summed on the first lap, shared on the second.

At p = 4, who has folded what (unit 0 of four; the others do the same, each a rank further on):

    rank         0       1       2       3
    start        a       b       c       d
    step 1       a       ab      c       d         reduce-scatter: 0 sends to 1,
    step 2       a       ab      abc     d         1 sends to 2,
    step 3       a       ab      abc     abcd      2 sends to 3: rank 3 has it all
    step 4       abcd    ab      abc     abcd      all-gather: 3 sends to 0,
    step 5       abcd    abcd    abc     abcd      0 sends to 1,
    step 6       abcd    abcd    abcd    abcd      1 sends to 2

Cost: 2 (p - 1) alpha + 2 (p - 1)/p S beta + (p - 1)/p S gamma: no algorithm without help from the network sends less.

P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69 (2009) 117-124.
A. Gibiansky: Bringing HPC techniques to deep learning, Baidu Research (2017).
"""

from collections.abc import Iterator

from hpccoll.schedule import Cost, Index, Layout, Receive, Reduce, Send, Step, all_reduce


@all_reduce("ring", cost=lambda p: Cost(rounds=2 * (p - 1), sent=2 * (p - 1) / p, reduced=(p - 1) / p))
def ring(layout: Layout, me: Index) -> Iterator[Step]:
    p = layout.workers
    right, left = (me + 1) % p, (me - 1) % p
    for step in range(1, p):  # reduce-scatter: unit `me` ends here
        yield Step(Send(right, (me - step) % p), Reduce(left, (me - step - 1) % p))
    for step in range(p - 1):  # all-gather
        yield Step(Send(right, (me - step) % p), Receive(left, (me - step - 1) % p))
