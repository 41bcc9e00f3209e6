"""Equal steps are left out only where times grow as they would."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpccoll.model.leap_over_equal_steps import advance

REPEATS = 3000


def after(start, ranks, cycle, *, linear=True, skipping=True):
    """Return the times after all cycles, and how many cycles were simulated."""
    times, simulated = np.array(start, float), 0

    def counted():
        nonlocal simulated
        simulated += 1
        cycle(times)

    if skipping:
        assert sum(advance(times, ranks, counted, REPEATS, linear=linear)) == REPEATS
    else:
        for _ in range(REPEATS):
            counted()
    return times, simulated


def both(start, ranks, cycle, **options):
    """Return how many cycles were simulated, after comparing the times with those of all cycles."""
    found, simulated = after(start, ranks, cycle, **options)
    assert found == pytest.approx(after(start, ranks, cycle, skipping=False)[0], rel=1e-11)
    return simulated


def ring(works, times):
    """Advance a ring of ranks, each of which works, then waits for the one before it."""
    worked = times + works
    times[:] = np.maximum(worked, np.roll(worked, 1))


@given(
    works=st.integers(1, 12).flatmap(lambda p: arrays(float, p, elements=st.floats(1e-6, 1e-3))),
    late=st.floats(0, 1e-2),
)
def test_a_ring_with_any_works_takes_what_all_cycles_take(works, late):
    start = np.zeros(len(works))
    start[0] = late
    both(start, len(works), partial(ring, works))


def test_times_that_grow_from_the_first_cycle_are_left_out_and_those_that_go_round_too():
    assert both([0.0, 0.0], 2, partial(ring, np.array([1e-3, 1e-3]))) < 30
    p = 20
    late = np.where(np.arange(p) == 3, 0.5, 0.0)  # a delay that goes round the ring

    def pass_on(times):
        times[:] = np.roll(times, 1) + 1e-3

    assert both(late, p, pass_on) < 300


def test_a_change_far_ahead_is_found():
    """Rank 1 is slower, but begins so late that rank 0 waits for it only after many cycles."""

    def overtaken(times):
        times += [3e-3, 2e-3]
        times[1] = max(times)

    assert both([0.0, 1.0], 2, overtaken) < REPEATS / 2
    assert both([0.0, 2.9], 2, overtaken) < REPEATS / 2


def test_times_that_share_something_are_left_out_only_if_all_grow_alike():
    apart = both([0.0, 0.0], 2, lambda times: times.__iadd__([1e-3, 2e-3]), linear=False)
    unused = both([0.0, 0.0, 5.0], 2, lambda times: times.__iadd__([1e-3, 1e-3, 0]), linear=False)
    assert apart == REPEATS
    assert unused < 30


def test_every_cycle_is_reported_so_that_no_part_of_a_simulation_is_silent():
    p, simulated = 20, 0
    times = np.where(np.arange(p) == 3, 0.5, 0.0)

    def pass_on():
        nonlocal simulated
        simulated += 1
        times[:] = np.roll(times, 1) + 1e-3

    before = most = 0
    for _ in advance(times, p, pass_on, REPEATS, linear=True):
        most, before = max(most, simulated - before), simulated
    assert most == 1
