"""Rabenseifner: reduce-scatter by recursive halving, then all-gather by recursive doubling.

At p = 4, the units of the sum that a rank has:

    rank         0       1       2       3
    start        -       -       -       -
    halved 2     -       -       -       -         0 <-> 2, 1 <-> 3, half of the vector
    halved 1     0       1       2       3         0 <-> 1, 2 <-> 3, a quarter: a unit is complete
    doubled 1    01      01      23      23        0 <-> 1, 2 <-> 3, a quarter
    doubled 2    0123    0123    0123    0123      0 <-> 2, 1 <-> 3, half

Where p is no power of two, the ranks beyond the largest one below p, called p' here, hand their vectors in before and
get the sum after: 2 alpha + 2 S beta + S gamma.

Cost: 2 log2(p') alpha + 2 (p' - 1)/p' S beta + (p' - 1)/p' S gamma: the bytes of a ring in far fewer messages.

R. Rabenseifner: Optimization of collective reduction operations, ICCS (2004), LNCS 3036, 1-9.
"""

from hpccoll.algorithms.recursive_doubling import recursive_doubling_all_gather
from hpccoll.algorithms.recursive_halving import recursive_halving
from hpccoll.schedule import Cost, Layout, Schedule, all_reduce, on_power_of_two, then


def _cost(p: int) -> Cost:
    core, extra = 1 << (p.bit_length() - 1), p.bit_count() > 1
    once = (core - 1) / core
    return Cost(rounds=2 * (core.bit_length() - 1) + 2 * extra, sent=2 * once + 2 * extra, reduced=once + extra)


@all_reduce("rabenseifner", cost=_cost)
def rabenseifner(layout: Layout) -> Schedule:
    def halve_and_double(core: Layout) -> Schedule:
        return then(recursive_halving.schedule(core), recursive_doubling_all_gather.schedule(core))

    return on_power_of_two(layout, halve_and_double)
