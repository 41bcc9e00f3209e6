"""The lag that a rank brings along to the next operation is counted once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.traces.carried_lags import carried_parts, fresh_lags, places_of

STEP_S = 1e-3


def fresh_lag(lag_s: np.ndarray, places: np.ndarray) -> float:
    """Return the fresh lag of the last rank in all operations."""
    return float(fresh_lags(lag_s, carried_parts(lag_s, places))[:, -1].sum())


def lags(
    chance: np.random.Generator, steps: int, operations: int, *, is_carried: bool
) -> np.ndarray:
    """Return the lags of three ranks, of which the last one needs 1 ms more before each operation of each step."""
    new_s = 1e-4 * chance.standard_normal((steps, operations, 3))
    new_s[..., -1] += STEP_S
    seen_s = np.cumsum(new_s, axis=1) if is_carried else new_s
    return seen_s.reshape(-1, 3)


@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(12, 30),
    operations=st.integers(2, 8),
    is_carried=st.booleans(),
)
def test_a_lag_counts_once_whether_all_wait_after_each_operation_or_after_a_step(
    seed, steps, operations, is_carried
):
    lag_s = lags(np.random.default_rng(seed), steps, operations, is_carried=is_carried)
    places = np.arange(len(lag_s)) % operations
    expected_s = steps * operations * STEP_S
    assert 0.6 * expected_s < fresh_lag(lag_s, places) < 1.8 * expected_s


def test_without_the_places_a_lag_that_grows_within_a_step_would_count_several_times():
    lag_s = lags(np.random.default_rng(1), 12, 6, is_carried=True)
    expected_s = 12 * 6 * STEP_S
    assert fresh_lag(lag_s, np.zeros(len(lag_s))) > 1.8 * expected_s


@pytest.mark.parametrize(
    ("ends", "places"),
    [
        ([1, 4, 7, 10, 13], [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]),
        ([1, 4, 7, 10, 12], [0] * 14),
        ([1, 4, 7], [0] * 14),
        ([], [0] * 14),
    ],
    ids=["regular", "irregular", "few", "none"],
)
def test_the_places_of_operations_are_told_apart_where_a_sequence_is_repeated(ends, places):
    assert places_of(np.array(ends, dtype=np.int64), 14).tolist() == places


def test_what_is_brought_along_turns_no_lag_into_its_opposite():
    lag_s = np.array([[3.0, -3.0], [1.0, -1.0], [-2.0, 2.0]])
    fresh_s = fresh_lags(lag_s, np.ones((3, 1)))
    assert fresh_s.tolist() == [[3.0, -3.0], [0.0, 0.0], [-2.0, 2.0]]
