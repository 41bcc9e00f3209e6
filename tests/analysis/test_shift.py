"""Shifts between runs: their intervals cover the truth as often as they say, and false alarms are as rare."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpccoll.analysis.shift import benjamini_hochberg, shifts

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6)


def runs(generator, cases, rounds, *, sigma=0.02, shift=0.0, spread=0.0):
    """Return the round medians of two runs; ``spread`` is that of the logarithms of the cases' deviations."""
    sigmas = sigma * np.exp(spread * generator.standard_normal(cases))
    levels = np.exp(generator.uniform(-10, 0, cases))
    cases = list(zip(levels, sigmas, strict=True))
    return [
        [list(level * np.exp(each * generator.standard_normal(rounds) + move)) for level, each in cases]
        for move in (0.0, shift)
    ]


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=8))
def test_exchanging_the_runs_inverts_every_factor_and_interval(cases):
    old, new = [list(each) for each in zip(*cases, strict=True)]
    for there, back in zip(shifts(old, new), shifts(new, old), strict=True):
        assert (there is None) == (back is None)
        if there and back:
            assert there.factor * back.factor == pytest.approx(1)
            assert there.low * back.high == pytest.approx(1, rel=1e-6)
            assert there.p_value == pytest.approx(back.p_value, abs=1e-9)


def test_without_any_repeated_round_nothing_is_known():
    assert shifts([[1.0], [2.0]], [[1.5], [2.0]]) == [None, None]
    assert shifts([[1.0, 1.1], []], [[1.5, 1.4], [1.0, 1.2]])[1] is None
    assert shifts([], []) == []


@pytest.mark.parametrize(("rounds", "spread"), [(3, 0.0), (3, 0.7), (5, 0.7)])
def test_intervals_cover_the_truth_as_often_as_they_say(rounds, spread):
    generator = np.random.default_rng(3)
    covered, count = 0, 0
    for _ in range(60):
        for each in shifts(*runs(generator, 40, rounds, shift=0.1, spread=spread)):
            covered += each.low <= math.exp(0.1) <= each.high
            count += 1
    assert covered / count == pytest.approx(0.95, abs=0.02)


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=30))
def test_adjusted_p_values_are_those_of_scipy(p_values):
    assert benjamini_hochberg(np.array(p_values)) == pytest.approx(stats.false_discovery_control(p_values))


def test_so_many_rounds_decide_as_the_shift_says():
    generator = np.random.default_rng(5)
    (few,) = {each.rounds_to_decide(0.05) for each in shifts(*runs(generator, 1, 3, sigma=0.06))}
    assert few > 3
    decided = shifts(*runs(generator, 40, 10 * few, sigma=0.06))
    assert all(each.low > 0.95 and each.high < 1.05 for each in decided)


def test_an_interval_beyond_the_range_of_numbers_is_cut_off():
    (shift, *_) = shifts([[1.0], [1.0], [1.0]], [[1.0], [1.0, 1.0], [1.0, 2.0]])
    assert 0 < shift.low <= shift.factor <= shift.high < math.inf
