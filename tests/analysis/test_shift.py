"""Shifts between runs: their intervals cover the truth as often as they say, and false alarms are as rare."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpccoll.analysis.shift import RunSpread, benjamini_hochberg, shifts

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6)


def runs(generator, cases, rounds, *, sigma=0.02, shift=0.0, spread=0.0):
    """Return the round medians of two runs; ``spread`` is that of the logarithms of the cases' deviations."""
    sigmas = sigma * np.exp(spread * generator.standard_normal(cases))
    levels = np.exp(generator.uniform(-10, 0, cases))
    cases = list(zip(levels, sigmas, strict=True))
    return [
        [
            list(level * np.exp(each * generator.standard_normal(rounds) + move))
            for level, each in cases
        ]
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
    assert benjamini_hochberg(np.array(p_values)) == pytest.approx(
        stats.false_discovery_control(p_values)
    )


def test_so_many_rounds_decide_as_the_shift_says():
    generator = np.random.default_rng(5)
    (few,) = {each.rounds_to_decide(0.05) for each in shifts(*runs(generator, 1, 3, sigma=0.06))}
    assert few > 3
    decided = shifts(*runs(generator, 40, 10 * few, sigma=0.06))
    assert all(each.low > 0.95 and each.high < 1.05 for each in decided)


def test_an_interval_beyond_the_range_of_numbers_is_cut_off():
    (shift, *_) = shifts([[1.0], [1.0], [1.0]], [[1.0], [1.0, 1.0], [1.0, 2.0]])
    assert 0 < shift.low <= shift.factor <= shift.high < math.inf


def times_of_runs(generator, runs, common, own):
    """Return times [case][run] around a microsecond, with an effect of each run and one of each case in it."""
    of_run = common * generator.standard_normal(runs)
    return 1e-6 * np.exp(of_run[None, :] + own * generator.standard_normal((40, runs)))


@pytest.mark.parametrize(
    "sizes", [[], [8 << number // 4 for number in range(40)], [*range(40)]], ids=len
)
@pytest.mark.parametrize("runs", [3, 8])
@pytest.mark.parametrize(("common", "own"), [(0.0, 0.02), (0.04, 0.01)])
def test_a_further_run_is_within_the_bounds_as_often_as_they_say(runs, common, own, sizes):
    generator = np.random.default_rng(1)
    inside = []
    for _ in range(200):
        times = times_of_runs(generator, runs + 1, common, own)
        low, high = RunSpread.of(times[:, :-1], sizes).bounds
        inside.append(((low <= times[:, -1]) & (times[:, -1] <= high)).mean())
    assert 0.90 <= np.mean(inside) <= 0.98


def test_a_run_that_is_slow_as_a_whole_is_no_evidence_about_each_of_its_cases():
    generator = np.random.default_rng(3)
    together = times_of_runs(generator, 4, 0.05, 0.001)
    apart = times_of_runs(generator, 4, 0.0, 0.05)
    assert np.median(RunSpread.of(together).degrees) == pytest.approx(3, abs=0.1)
    assert np.median(RunSpread.of(apart).degrees) > 10


def test_what_disturbs_small_messages_of_a_run_leaves_the_bounds_of_large_ones():
    times = times_of_runs(np.random.default_rng(4), 5, 0.0, 0.01)
    sizes = np.repeat([8, 64, 512, 4096, 1 << 20], 8)
    times[sizes >= 4096] *= 9
    times[sizes < 4096, 4] *= 6
    spread = RunSpread.of(times, sizes.tolist())
    reach = spread.bounds[1] / np.exp(spread.middle)
    assert reach[sizes >= 4096].max() < 1.1
    assert reach[sizes < 4096].min() > 2


def test_a_size_that_was_measured_in_calm_moments_has_the_bounds_of_sizes_that_take_about_as_long():
    times = times_of_runs(np.random.default_rng(5), 5, 0.0, 0.01)
    sizes = np.repeat([8, 64, 512, 4096, 1 << 20], 8)
    times[sizes >= 4096] *= 9
    times[(sizes == 8) | (sizes == 512)] *= [1.0, 1.2, 0.9, 1.1, 1.0]
    spread = RunSpread.of(times, sizes.tolist())
    reach = spread.bounds[1] / np.exp(spread.middle)
    assert reach[sizes == 64].min() > 1.2
    assert reach[sizes >= 4096].max() < 1.1


@given(
    st.lists(st.lists(st.floats(1e-7, 1.0), min_size=3, max_size=3), min_size=1, max_size=6),
    st.floats(0.1, 10.0),
)
def test_the_spread_does_not_depend_on_the_unit_of_time(times, unit):
    one, other = (
        RunSpread.of(times),
        RunSpread.of([[unit * each for each in case] for case in times]),
    )
    assert other.variance == pytest.approx(one.variance, rel=1e-6, abs=1e-12)
    assert other.middle == pytest.approx(one.middle + math.log(unit), abs=1e-9)
