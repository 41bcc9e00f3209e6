"""Statistics: from raw times to a median, its confidence interval and a row."""

from dataclasses import replace

import numpy as np
import pytest
import raw_examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hpccoll.store.case_times import CaseTimes
from hpccoll.store.statistics import _interval_ranks, make_row, median_interval, median_ratio, percentile


@pytest.mark.parametrize(
    ("n", "first", "last"),
    # H. A. David, H. N. Nagaraja: Order Statistics; tables of the 95 % interval, ranks counted from 1.
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (15, 4, 12), (20, 6, 15), (25, 8, 18), (30, 10, 21), (50, 18, 33),
     (100, 40, 61)],
)  # fmt: skip
def test_the_interval_of_the_median_matches_published_tables(n, first, last):
    assert median_interval(np.arange(1, n + 1)) == ((n + 1) / 2, first, last)


def test_the_interval_is_the_narrowest_with_95_per_cent_confidence_and_spans_all_of_fewer_than_six():
    assert [_interval_ranks(n) for n in range(1, 6)] == [(0, n - 1) for n in range(1, 6)]
    for n in (*range(6, 200), 999, 1000, 5000):
        low, high = _interval_ranks(n)
        assert low + high == n - 1
        assert binom.cdf(high, n, 0.5) - binom.cdf(low, n, 0.5) >= 0.95
        assert binom.cdf(high - 1, n, 0.5) - binom.cdf(low + 1, n, 0.5) < 0.95


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 100))
def test_a_percentile_is_the_smallest_value_with_enough_values_at_or_below_it(values, q):
    found = percentile(np.array(values), q)
    assert found in values
    assert sum(v <= found for v in values) >= q / 100 * len(values) - 1e-9
    assert found == min(values) or sum(v < found for v in values) < q / 100 * len(values) + 1e-9


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_inverting_ratios_inverts_their_median(ratios):
    found = median_ratio(ratios)
    assert min(ratios) * (1 - 1e-12) <= found <= max(ratios) * (1 + 1e-12)
    assert found * median_ratio([1 / ratio for ratio in ratios]) == pytest.approx(1)
    assert median_ratio([4.0, 1.0]) == pytest.approx(2.0)


def measured(start, end, *, one_clock=True, **attempt):
    times = CaseTimes.from_samples(np.array(start), np.array(end), one_clock=one_clock)
    outcome = replace(raw_examples.outcome(), times=times, bytes=1_000_000, cpu_s=np.array([1e-6, 3e-6]))
    return raw_examples.job(outcome.case), raw_examples.attempt(ranks=2, **attempt), outcome


def test_a_row_has_the_bandwidths_of_nccl_tests():
    found = make_row(*measured([[0, 0]] * 5, [[1_000_000, 2_000_000]] * 5))
    assert (found.rule, found.median_s, found.p99_s) == ("max", 0.002, 0.002)
    assert found.algbw_Bps == pytest.approx(1_000_000 / 0.002)
    assert found.busbw_Bps == pytest.approx(found.algbw_Bps * 2 * (2 - 1) / 2)
    assert found.cpu_s == 3e-6
    assert found.iterations == 5


def test_the_rule_span_is_from_the_first_start_to_the_last_end_on_a_common_clock():
    starts, ends = [[0, 500]] * 5, [[1000, 2000]] * 5
    found = [make_row(*measured(starts, ends), "span"), make_row(*measured(starts, ends, one_clock=False), "span")]
    assert [(row.rule, row.median_s) for row in found] == [("span", 2000e-9), ("max", 1500e-9)]


@pytest.mark.parametrize("rule", ["max", "span"])
def test_the_time_of_an_aggregated_operation_is_that_of_its_batch_over_their_number(rule):
    job, attempt, outcome = measured([[0, 0]] * 6, [[3000, 4000]] * 6)
    aggregated = replace(outcome, case=replace(outcome.case, timing="aggregated"), operations=20)
    found = make_row(job, attempt, aggregated, rule)
    assert (found.timing, found.rule, found.operations) == ("aggregated", "max", 20)
    assert found.median_s == found.p99_s == found.ci_low_s == found.ci_high_s == pytest.approx(200e-9)
    assert found.algbw_Bps == pytest.approx(1_000_000 / 200e-9)


def test_the_times_of_aggregators_are_kept_and_not_summarised():
    start, end = np.array([[0, 500, 100]] * 5), np.array([[1000, 2000, 9000]] * 5)
    times = CaseTimes.from_samples(start, end, one_clock=True, workers=2)
    assert (times.end_ns == end).all()
    assert {*times.max_ns, *times.min_ns, *times.median_ns} == {1500, 1000, 1250}
    assert {*times.span_ns} == {2000}
    assert {*times.slowest_rank} == {1}
    outcome = replace(raw_examples.outcome(), times=times, bytes=1_000_000)
    found = make_row(
        raw_examples.job(outcome.case, aggregators=1), raw_examples.attempt(ranks=3, aggregators=1), outcome
    )
    assert (found.median_s, found.ranks, found.aggregators) == (1500e-9, 2, 1)
    assert found.busbw_Bps == found.algbw_Bps  # that of two ranks


def test_the_bus_bandwidth_factor_depends_on_the_collective():
    _, _, outcome = measured([[0] * 4] * 5, [[1000] * 4] * 5)
    factors = {
        "all_reduce": 1.5, "reduce_scatter": 0.75, "all_gather": 0.75, "broadcast": 1, "reduce": 1, "gather": 0.75,
        "scatter": 0.75, "all_to_all": 0.75, "all_to_all_v": 0.75, "barrier": None, "send_recv": 2, "bidirectional": 1,
        "multi_pair": 1,
    }  # fmt: skip
    for name, factor in factors.items():
        of = raw_examples.case(collective=name, algorithm="native")
        found = make_row(raw_examples.job(of, ranks=4), raw_examples.attempt(ranks=4), replace(outcome, case=of))
        assert found.algbw_Bps == (factor and pytest.approx(1_000_000 / 1e-6))
        assert found.busbw_Bps == (factor and pytest.approx(factor * found.algbw_Bps))


def test_bytes_per_node_are_means_over_nodes_of_workers_and_by_port():
    job, attempt, outcome = measured([[0, 0]] * 5, [[1000, 2000]] * 5)
    bytes_of = {"wire_sent": (10.0, 30.0, 500.0), "wire_received": (None, 1.0, 2.0)}
    ports = ((8.0, 2.0, None), (30.0, None, None), (250.0, 250.0, None))
    known = {"workers_sent_predicted": 36, "workers_received_predicted": None, "port_sent": ports}
    with_aggregator = replace(attempt, aggregators=1, nodes=2, ports=("eth0", "rail2", "ib0"))
    found = make_row(job, with_aggregator, replace(outcome, **bytes_of, **known))
    assert (found.worker_sent_predicted, found.worker_sent_measured) == (18, 20)
    assert (found.worker_received_predicted, found.worker_received_measured) == (None, None)
    assert found.port_sent == {"eth0": 19.0, "rail2": 1.0}
    uncounted = make_row(job, with_aggregator, replace(outcome, workers_sent_predicted=None, port_sent=()))
    assert (uncounted.worker_sent_predicted, uncounted.port_sent) == (None, {})


def test_the_device_time_is_that_of_the_slowest_gpu_and_none_without_events():
    job, attempt, outcome = measured([[0, 0]] * 3, [[1000, 2000]] * 3)
    events = np.array([[700, 900], [800, 600], [100, 1500]])
    assert make_row(job, attempt, replace(outcome, times=replace(outcome.times, device_ns=events))).device_s == 900e-9
    partly = np.where(events == 100, -1, events)
    assert make_row(job, attempt, replace(outcome, times=replace(outcome.times, device_ns=partly))).device_s is None
    assert make_row(job, attempt, outcome).device_s is None


def test_what_was_skipped_has_no_numbers_and_a_floor_no_bandwidth():
    skipped = raw_examples.skipped()
    found = make_row(raw_examples.job(skipped.case), raw_examples.attempt(), skipped)
    for name in ("median_s", "p99_s", "ci_low_s", "ci_high_s", "algbw_Bps", "busbw_Bps", "cpu_s", "wrong"):
        assert getattr(found, name) is None
    assert (found.iterations, found.status, found.reason) == (0, "skipped", "too large")
    job, attempt, outcome = measured([[0, 0]] * 5, [[1000, 2000]] * 5)
    floor = make_row(job, attempt, replace(outcome, floor=True))
    assert (floor.algbw_Bps, floor.busbw_Bps, floor.floor) == (None, None, True)
