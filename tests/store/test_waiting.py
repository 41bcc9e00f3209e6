"""Waiting and transfer from the durations of ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hpccoll.common.errors import UnusableError
from hpccoll.store.waiting import NO_RANK, late_ranks, waiting_of

MATRICES = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.floats(0, 10)
)


@given(MATRICES)
def test_each_duration_is_its_waiting_and_the_transfer_and_some_rank_waits_for_none(durations):
    waiting = waiting_of(durations)
    assert np.allclose(waiting.waiting_s + waiting.transfer_s[:, None], durations)
    assert (waiting.waiting_s.min(axis=1) == 0).all()
    assert (waiting.transfer_s == durations.min(axis=1)).all()


@given(MATRICES)
def test_the_last_rank_waits_for_none_and_is_as_late_as_the_others_wait_in_the_median(durations):
    waiting = waiting_of(durations)
    for operation, last in enumerate(waiting.last):
        if last != NO_RANK:
            assert waiting.waiting_s[operation, last] == 0
            others = np.delete(waiting.waiting_s[operation], last)
            assert (others > 0).all()
            assert waiting.late_s[operation] == pytest.approx(np.median(others))


def test_a_rank_that_comes_five_milliseconds_late_is_named_with_them():
    network = np.array([0.002, 0.004, 0.001])
    durations = network[:, None] + [0.005, 0.0, 0.005, 0.005]
    waiting = waiting_of(durations)
    assert waiting.last.tolist() == [1, 1, 1]
    assert np.allclose(waiting.transfer_s, network)
    (late,) = late_ranks([(waiting, (10, 11, 12, 13))])
    assert (late.rank, late.share, late.operations) == (11, 1.0, 3)
    assert (late.median_s, late.total_s) == (pytest.approx(0.005), pytest.approx(0.015))


def test_a_slow_network_makes_the_transfer_longer_and_nobody_late():
    waiting = waiting_of(np.array([[0.004, 0.004, 0.004]]))
    assert waiting.transfer_s.tolist() == [0.004]
    assert waiting.last.tolist() == [NO_RANK]
    assert late_ranks([(waiting, (0, 1, 2))]) == []


def test_starts_on_one_clock_decide_the_order_if_they_are_given_and_none_below_their_uncertainty():
    durations, starts = (
        np.array([[3.0, 2.0, 4.0]] * 2),
        np.array([[0.0, 0.5, 0.9], [0.0, 0.88, 0.9]]),
    )
    waiting = waiting_of(durations, starts, resolution_s=0.1)
    assert waiting.last.tolist() == [2, NO_RANK]
    assert waiting.late_s[0] == pytest.approx(0.9 - 0.25)


def test_a_rank_without_a_record_is_neither_last_nor_waiting():
    waiting = waiting_of(np.array([[np.nan, 2.0, 5.0]]))
    assert waiting.transfer_s.tolist() == [2.0]
    assert waiting.last.tolist() == [1]
    assert np.isnan(waiting.waiting_s[0, 0])


@pytest.mark.parametrize("durations", [[[np.nan, np.nan]], [[1.0, -1.0]], [[1.0, np.inf]], [1.0]])
def test_operations_without_a_time_and_impossible_times_are_refused(durations):
    with pytest.raises(UnusableError):
        waiting_of(np.array(durations))


def test_ranks_are_counted_over_groups_with_other_members():
    first, second = (
        waiting_of(np.array([[1.0, 2.0], [2.0, 1.0]])),
        waiting_of(np.array([[1.0, 4.0]])),
    )
    late = late_ranks([(first, (0, 1)), (second, (1, 2))])
    assert [(each.rank, each.operations) for each in late] == [(1, 2), (0, 1)]
    assert late[0].share == pytest.approx(2 / 3)
    assert late[0].median_s == pytest.approx(2.0)
