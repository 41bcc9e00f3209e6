"""Changes between sizes of a ladder are bisected, each to the exact size."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hpccoll.order.size_ranges import MOST_CHANGES, probe_sizes, ranges_of, size_ladder


def probed_ranges(order, ladder, step):
    """Return the ranges of a black box, and the sizes in the order in which they were probed."""
    procedure = probe_sizes(ladder, step)
    orders = {}
    probed = [next(procedure)]
    while True:
        orders[probed[-1]] = order(probed[-1])
        try:
            probed.append(procedure.send(orders[probed[-1]]))
        except StopIteration:
            return ranges_of(orders), probed


@given(st.lists(st.integers(1, 1 << 12), max_size=12), st.sampled_from([1, 4, 32]))
def test_changes_are_found_exactly_and_no_size_is_probed_twice(changes, step):
    ends = sorted({change * step for change in changes})

    def order(size):
        return sum(end <= size for end in ends) % 3

    ladder = size_ladder(step, (1 << 12) * step, step)
    ranges, probed = probed_ranges(order, ladder, step)
    assert len(probed) == len(set(probed))
    assert set(ladder) <= set(probed)
    assert [size for found in ranges for size in found.sizes] == sorted(probed)
    assert all(order(size) == found.order for found in ranges for size in found.sizes)
    for before, after in pairwise(ranges):
        assert after.first - before.last == step


def test_an_order_that_changes_all_the_time_does_not_cost_all_sizes():
    ranges, probed = probed_ranges(lambda size: size, [1, 1 << 20], 1)
    assert len(probed) < MOST_CHANGES * 21
    assert len(ranges) == len(probed)


def test_the_ladder_has_every_power_of_two_and_three_times_it():
    assert size_ladder(4, 50, 4) == [4, 8, 12, 16, 24, 32, 48]
    assert size_ladder(10, 100, 12) == [12, 24, 48, 60, 96]
    assert size_ladder(5, 5, 1) == [5]
