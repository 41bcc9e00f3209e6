"""What slowed GPUs down, by their recorded activity."""

from dataclasses import replace

import pytest
import raw_examples
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.store.case_row import make_row
from hpccoll.store.gpu_throttling import (
    CLOCK_SHARE,
    LIMITS,
    limits_of_rounds,
    lowered_round,
    slow_gpus,
    throttled_gpus,
)
from hpccoll.store.raw_results import CaseHistory

BUSES = ["0000:1b:00.0", "0000:2a:00.0"]
ATTEMPT = replace(raw_examples.attempt(), provenance={"gpu_of_rank": BUSES})
A, B = (f"{place.host} {bus}" for place, bus in zip(ATTEMPT.places, BUSES, strict=True))


@pytest.mark.parametrize(
    ("events", "thermal_s", "why"),
    [
        # idle, at the power limit, with synchronised boost: normal
        ((0, 0x1 | 0x4 | 0x10), (0.0, 0.0), None),
        ((0, 0x20), (0.0, 0.0), "software thermal slowdown"),
        ((0, 0x88), (0.0, 0.0), "power brake"),
        ((0, 0x48), (0.0, 2.0), "hardware thermal slowdown"),
        ((0, 0x8), (0.0, 0.0), "hardware slowdown"),
        ((0, None), (0.0, 0.1), "thermal limit"),
        ((0, None), (0.0, None), None),
        # either source is enough
        ((), (None, 0.1), "thermal limit"),
        ((None, 0x80), (), "power brake"),
    ],
)
def test_reasons_that_weaken_a_result_are_named(events, thermal_s, why):
    outcome = raw_examples.outcome(gpu_clock_events=events, gpu_thermal_s=thermal_s)
    assert throttled_gpus(ATTEMPT, outcome) == ({B: (why,)} if why else {})


@given(
    st.lists(
        st.dictionaries(st.sampled_from([*LIMITS, "gpu_power"]), st.sampled_from([0.0, 0.5])),
        max_size=3,
    )
)
def test_a_round_in_which_a_limit_lowered_a_clock_is_marked_with_the_limit(activities):
    limits = {
        name for column, name in LIMITS.items() if any(each.get(column) for each in activities)
    }
    marked = lowered_round(3, activities)
    assert (marked is None) == (not limits)
    found = limits_of_rounds("; ".join(filter(None, (marked, "4: power"))))
    expected = {3: limits, 4: {"power"}} if limits else {4: {"power"}}
    assert {number: {*of_round} for number, of_round in found.items()} == expected
    assert limits_of_rounds(None) == {}


@pytest.mark.parametrize(
    ("clocks", "slow"),
    [
        ((1.0, 1 - 1.01 * CLOCK_SHARE, None, 1.0), [1]),
        ((1.0, 1 - 0.9 * CLOCK_SHARE, 1.0), []),
        ((), []),
    ],
)
def test_a_clock_below_the_others_is_a_share_of_their_median(clocks, slow):
    attempt = replace(
        raw_examples.attempt(ranks=4), provenance={"gpu_of_rank": ["a", "b", "c", "d"]}
    )
    outcome = raw_examples.outcome(gpu_sm_clock=tuple(clock and clock * 2e9 for clock in clocks))
    assert slow_gpus(attempt, outcome) == {
        f"n{rank} {'abcd'[rank]}": pytest.approx(clocks[rank]) for rank in slow
    }


def test_a_row_has_the_extremes_over_gpus():
    outcome = raw_examples.outcome(
        gpu_sm_clock=(2e9, 1e9),
        gpu_power=(300.0, None),
        gpu_temperature=(60, 70),
        gpu_clock_events=(0x80, 0),
    )
    job = raw_examples.job(outcome.case)
    row = make_row(job, CaseHistory.of(job, ATTEMPT, outcome))
    assert (row.gpu_sm_clock, row.gpu_power, row.gpu_temperature, row.gpu_nvlink_sent) == (
        1e9,
        300.0,
        70,
        None,
    )
    assert (row.gpu_throttled, row.gpu_slow) == ({A: ("power brake",)}, {B: pytest.approx(2 / 3)})
