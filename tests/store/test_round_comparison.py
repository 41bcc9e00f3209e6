"""Rows are compared in the rounds that one launch measured, and a clear winner wins each of them."""

from functools import reduce

import numpy as np
import raw_examples

from hpccoll.analysis.round_comparison import clearly_faster, disjoint, paired_rounds, round_statistics
from hpccoll.cases.case import Effort
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.statistics import make_row


def measured(*rounds_ns, runs=None):
    """Return the row of a case with these durations in nanoseconds in each round."""
    start = np.zeros((len(rounds_ns[0]), 2), np.int64)
    parts = [
        CaseTimes.from_samples(
            start, start + np.array(samples)[:, None], one_clock=True, limit=1 << 22, round_number=number
        )
        for number, samples in enumerate(rounds_ns, 1)
    ]
    outcome = raw_examples.outcome(times=reduce(CaseTimes.merge, parts))
    job = raw_examples.job(outcome.case, effort=Effort(rounds=len(rounds_ns)))
    return make_row(job, raw_examples.attempt(), outcome, runs=runs)


def around(median, half=10):
    """Return nine durations whose interval reaches ``half`` to either side of their median."""
    return [median - half] * 4 + [median] + [median + half] * 4


def test_intervals_are_disjoint_only_if_both_are_known():
    assert disjoint((1, 2), (3, 4))
    assert not disjoint((1, 3), (3, 4))
    assert not disjoint((3, 4), (1, 2))
    assert not disjoint(None, (3, 4))
    assert not disjoint((1, 2), None)


def test_with_several_rounds_each_median_must_be_below_the_interval_of_the_other_row():
    slow = measured(around(120), around(220), around(420))
    assert clearly_faster(measured(around(105), around(205), around(405)), slow)
    assert not clearly_faster(measured(around(105), around(205), around(412)), slow)
    assert not clearly_faster(slow, slow)


def test_with_one_round_the_intervals_must_be_disjoint():
    assert clearly_faster(measured(around(100)), measured(around(121)))
    assert not clearly_faster(measured(around(100)), measured(around(119)))


def test_rounds_of_different_launches_are_not_compared():
    fast = measured(around(100), around(100), runs={1: "a", 2: "b"})
    slow = measured(around(200), around(90), runs={1: "a", 2: "a"})
    assert [(mine.median, other.median) for mine, other in paired_rounds(fast, slow)] == [(100e-9, 200e-9)]
    assert clearly_faster(fast, slow)


def test_a_row_without_a_time_has_no_rounds():
    skipped = raw_examples.skipped()
    row = make_row(raw_examples.job(skipped.case), raw_examples.attempt(), skipped)
    assert round_statistics(row) == {}
    assert not clearly_faster(row, measured(around(100)))
    assert not clearly_faster(measured(around(100)), row)
