"""Statistics: from raw times to a median, its confidence interval and a row."""

from dataclasses import replace

import numpy as np
import pytest
import raw_examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from hpccoll.store.case_row import make_row
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.median_interval import interval_ranks
from hpccoll.store.raw_results import CaseHistory
from hpccoll.store.statistics import median_ratio, percentile


def test_the_interval_is_the_narrowest_with_95_per_cent_confidence_and_spans_all_of_fewer_than_six():
    assert [interval_ranks(n) for n in range(1, 6)] == [(0, n - 1) for n in range(1, 6)]
    for n in (*range(6, 200), 999, 1000, 5000):
        low, high = interval_ranks(n)
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


def row(start, end, rule="max", *, one_clock=True, workers=None, attempt=None, **outcome):
    """Return the row of an outcome with times in ns, [iteration, rank]."""
    times = CaseTimes.from_samples(
        np.array(start), np.array(end), one_clock=one_clock, workers=workers
    )
    of = raw_examples.outcome(
        **{"times": times, "bytes": 1_000_000, "cpu_s": np.array([1e-6, 3e-6]), **outcome}
    )
    ranks = times.start_ns.shape[1]
    job, launch = raw_examples.job(of.case), raw_examples.attempt(ranks=ranks, **(attempt or {}))
    return make_row(job, CaseHistory.of(job, launch, of), rule)


def test_a_row_has_the_bandwidths_of_nccl_tests():
    found = row([[0, 0]] * 5, [[1_000_000, 2_000_000]] * 5)
    assert (found.rule, found.median_s, found.p99_s, found.cpu_s, found.iterations) == (
        "max",
        0.002,
        0.002,
        3e-6,
        5,
    )
    assert found.algbw_Bps == pytest.approx(1_000_000 / 0.002)
    assert found.busbw_Bps == pytest.approx(found.algbw_Bps * 2 * (2 - 1) / 2)


def test_the_rule_span_is_from_the_first_start_to_the_last_end_on_a_common_clock():
    found = [
        row([[0, 500]] * 5, [[1000, 2000]] * 5, "span", one_clock=one_clock)
        for one_clock in (True, False)
    ]
    assert [(each.rule, each.median_s) for each in found] == [("span", 2000e-9), ("max", 1500e-9)]


@pytest.mark.parametrize("rule", ["max", "span"])
def test_the_time_of_an_aggregated_operation_is_that_of_its_batch_over_their_number(rule):
    found = row(
        [[0, 0]] * 6,
        [[3000, 4000]] * 6,
        rule,
        case=raw_examples.case(timing="aggregated"),
        operations=20,
    )
    assert (found.timing, found.rule, found.operations) == ("aggregated", "max", 20)
    assert (
        found.median_s == found.p99_s == found.ci_low_s == found.ci_high_s == pytest.approx(200e-9)
    )
    assert found.algbw_Bps == pytest.approx(1_000_000 / 200e-9)


def test_the_times_of_aggregators_are_kept_and_not_summarised():
    start, end = np.array([[0, 500, 100]] * 5), np.array([[1000, 2000, 9000]] * 5)
    times = CaseTimes.from_samples(start, end, one_clock=True, workers=2)
    assert (times.end_ns == end).all()
    figures = [
        set(values.tolist())
        for values in (times.max_ns, times.min_ns, times.span_ns, times.slowest_rank)
    ]
    assert figures == [{1500}, {1000}, {2000}, {1}]
    found = row(start, end, workers=2, attempt={"aggregators": 1})
    assert (found.median_s, found.ranks, found.aggregators) == (1500e-9, 2, 1)
    assert found.busbw_Bps == found.algbw_Bps  # that of two ranks


def test_bytes_per_node_are_means_over_nodes_of_workers_and_by_port():
    times, attempt = (
        ([[0, 0]] * 5, [[1000, 2000]] * 5),
        {"aggregators": 1, "nodes": 2, "ports": ("eth0", "rail2", "ib0")},
    )
    ports = ((8.0, 2.0, None), (30.0, None, None), (250.0, 250.0, None))
    found = row(
        *times,
        attempt=attempt,
        wire_sent=(10.0, 30.0, 500.0),
        wire_received=(None, 1.0, 2.0),
        port_sent=ports,
        workers_sent_predicted=36,
        workers_received_predicted=None,
    )
    assert (found.worker_sent_predicted, found.worker_sent_measured) == (18, 20)
    assert (found.worker_received_predicted, found.worker_received_measured) == (None, None)
    assert found.port_sent == {"eth0": 19.0, "rail2": 1.0}
    assert row(*times, attempt=attempt, port_sent=()).port_sent == {}


def test_the_device_time_is_that_of_the_slowest_gpu_and_none_without_events():
    events = np.array([[700, 900], [800, 600], [100, 1500]])
    for device_ns, seconds in (
        (events, 900e-9),
        (np.where(events == 100, -1, events), None),
        (None, None),
    ):
        start, end = np.array([[0, 0]] * 3), np.array([[1000, 2000]] * 3)
        times = CaseTimes.from_samples(start, end, one_clock=True, device_ns=device_ns)
        assert row([[0, 0]], [[1, 1]], times=times).device_s == seconds


def test_the_floor_of_device_times_is_that_of_the_gpu_with_the_longest_over_the_operations_of_an_iteration():
    times = CaseTimes.from_samples(
        np.array([[0, 0]] * 3),
        np.array([[9000, 9000]] * 3),
        one_clock=True,
        device_ns=np.array([[5000, 6000]] * 3),
    )
    attempt = {"provenance": {"event_floor_ns_of_rank": [2500, 3000]}}
    found = row([[0, 0]], [[1, 1]], times=times, attempt=attempt, operations=20)
    assert (found.device_s, found.device_floor_s) == pytest.approx((300e-9, 150e-9))
    assert row([[0, 0]], [[1, 1]], times=times, operations=20).device_floor_s is None
    without_events = replace(times, device_max_ns=times.device_max_ns[:0])
    assert row([[0, 0]], [[1, 1]], times=without_events, attempt=attempt).device_floor_s is None


def test_what_was_skipped_has_no_numbers_and_a_floor_no_bandwidth():
    skipped = raw_examples.skipped()
    job = raw_examples.job(skipped.case)
    found = make_row(job, CaseHistory.of(job, raw_examples.attempt(), skipped))
    for name in (
        "median_s",
        "p99_s",
        "ci_low_s",
        "ci_high_s",
        "algbw_Bps",
        "busbw_Bps",
        "cpu_s",
        "wrong",
    ):
        assert getattr(found, name) is None
    assert (found.iterations, found.status, found.reason) == (0, "skipped", "too large")
    floor = row([[0, 0]] * 5, [[1000, 2000]] * 5, floor=True)
    assert (floor.algbw_Bps, floor.busbw_Bps, floor.floor) == (None, None, True)
