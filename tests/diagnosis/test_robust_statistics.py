"""Quantiles and scales."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from hpccoll.diagnosis.matchings import random_matchings
from hpccoll.diagnosis.robust_statistics import median_of_others, quantile, robust_deviation

VALUES = some.lists(some.one_of(some.floats(-9, 9), some.just(np.nan)), min_size=1, max_size=12)


@given(values=VALUES, share=some.floats(0, 1))
def test_a_quantile_leaves_out_what_is_missing(values, share):
    present = [value for value in values if not np.isnan(value)]
    expected = np.quantile(present, share) if present else np.nan
    assert quantile(np.array(values), share) == pytest.approx(expected, nan_ok=True)


@given(nodes=some.integers(2, 15), seed=some.integers(0, 999))
def test_the_median_of_others_is_that_without_the_pair_itself(nodes, seed):
    rng = np.random.default_rng(seed)
    partners = random_matchings(nodes, 3, rng)
    values = rng.normal(size=(3, nodes))
    values = (values + np.take_along_axis(values, partners, 1)) / 2
    values[partners == np.arange(nodes)] = np.nan
    found = median_of_others(values, partners)
    for slot, node in np.ndindex(found.shape):
        ends = {node, int(partners[slot, node])}
        others = [
            values[slot, one]
            for one in range(nodes)
            if one not in ends and partners[slot, one] > one
        ]
        expected = sorted(others)[(len(others) - 1) // 2] if others and len(ends) == 2 else np.nan
        assert found[slot, node] == pytest.approx(expected, nan_ok=True)


def test_a_robust_deviation_is_that_of_normal_values_whatever_a_few_of_them_are():
    values = np.random.default_rng(1).normal(5, 2, 4000)
    values[:100] = 1e9
    assert robust_deviation(values) == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("values", [[], [np.nan]])
def test_nothing_does_not_deviate(values):
    assert robust_deviation(np.array(values)) == 0
