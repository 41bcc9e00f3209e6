"""The spread of runs: what the cases of a run share, what is each one's own, and what a further run may have."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.analysis.run_spread import RunSpread

CASES = 40


def times_of_runs(generator, runs, common, own):
    """Return times [case][run] around a microsecond, with an effect of each run and one of each case in it."""
    of_run = common * generator.standard_normal(runs)
    return 1e-6 * np.exp(of_run[None, :] + own * generator.standard_normal((CASES, runs)))


@pytest.mark.parametrize("runs", [3, 5, 8])
@pytest.mark.parametrize(("common", "own"), [(0.0, 0.02), (0.02, 0.005), (0.04, 0.01)])
def test_a_further_run_is_within_the_bounds_as_often_as_they_say(runs, common, own):
    generator = np.random.default_rng(1)
    inside = []
    for _ in range(200):
        times = times_of_runs(generator, runs + 1, common, own)
        low, high = RunSpread.of(times[:, :-1]).bounds
        inside.append(((low <= times[:, -1]) & (times[:, -1] <= high)).mean())
    assert 0.90 <= np.mean(inside) <= 0.98


def test_a_run_that_is_slow_as_a_whole_is_no_evidence_about_each_of_its_cases():
    generator = np.random.default_rng(3)
    together = times_of_runs(generator, 4, 0.05, 0.001)
    apart = times_of_runs(generator, 4, 0.0, 0.05)
    assert np.median(RunSpread.of(together).degrees) == pytest.approx(3, abs=0.1)
    assert np.median(RunSpread.of(apart).degrees) > 10


@given(st.lists(st.lists(st.floats(1e-7, 1.0), min_size=3, max_size=3), min_size=1, max_size=6), st.floats(0.1, 10.0))
def test_the_spread_does_not_depend_on_the_unit_of_time(times, unit):
    one, other = RunSpread.of(times), RunSpread.of([[unit * each for each in case] for case in times])
    assert other.variance == pytest.approx(one.variance, rel=1e-6, abs=1e-12)
    assert other.middle == pytest.approx(one.middle + math.log(unit), abs=1e-9)
