"""The rounds of a case: merged within an attempt and over attempts, and partial until all are measured."""

from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import raw_examples
from raw_examples import round_outcome

from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.case_row import make_row
from hpccoll.store.load_results import read_results
from hpccoll.store.raw_results import COUNTED_FIELDS, CaseHistory, Outcome, RawResults
from hpccoll.store.statistics import RoundStatistics, combine_rounds

FIRST, SECOND = CASES = (raw_examples.case(1024), raw_examples.case(2048))
JOB = raw_examples.job(*CASES, effort=Effort(rounds=3))


def recorded(*attempts):
    """Return the results of attempts, each of which records some outcomes."""
    raw = RawResults(path=Path("here.h5"), job=JOB)
    for number, outcomes in enumerate(attempts, 1):
        raw.attempts.append((raw_examples.attempt(number), []))
        for outcome in outcomes:
            raw.record(outcome)
    return raw


def resumed_results():
    """Return an attempt that ended in the second round, and the next, which measured the rest."""
    return recorded(
        [round_outcome(1, FIRST), round_outcome(1, SECOND), round_outcome(2, FIRST, 6)],
        [round_outcome(2, SECOND), round_outcome(3, FIRST, 2), round_outcome(3, SECOND)],
    )


def test_an_attempt_has_one_outcome_per_case_and_a_history_names_the_run_of_each_round():
    raw = resumed_results()
    (_, before), (_, after) = raw.attempts
    assert [outcome.times.round.tolist() for outcome in before] == [[1] * 4 + [2] * 6, [1] * 4]
    assert [outcome.times.round.tolist() for outcome in after] == [[2] * 4 + [3] * 4, [3] * 2]
    assert (before[0].times.max_ns[4:] == raw_examples.times(6).max_ns).all()
    history = next(raw.histories(FIRST.id))
    assert history.outcome.times.round.tolist() == [1] * 4 + [2] * 6 + [3] * 2
    assert (history.attempt.number, history.runs) == (2, {1: "run-1", 2: "run-1", 3: "run-2"})


def test_merged_rounds_keep_the_ranks_they_have_in_common():
    few, all_of_them = (
        raw_examples.times(2, ranks=8, limit=4),
        raw_examples.times(2, ranks=8, number=2),
    )
    assert few.rank_stride == 4
    assert all_of_them.merge(few).rank_stride == few.merge(all_of_them).rank_stride == 4
    both = few.merge(all_of_them)
    assert (both.start_ns[2:] == all_of_them.start_ns[:, ::4]).all()
    assert (both.max_ns[2:] == all_of_them.max_ns).all()


def test_wrong_elements_add_up_and_untimed_fields_are_of_the_last_round():
    bad = {"wrong": 3, "status": "wrong", "reason": "rank 0: bad"}
    first = round_outcome(1, iterations=1, **bad, cpu_s=np.array([1.0, 2.0]))
    last = round_outcome(
        2, iterations=3, wrong=0, evidence="new", wire_sent=(1.0, 2.0), cpu_s=np.array([2.0, 2.0])
    )
    both = first.merge(last)
    assert (both.status, both.wrong, both.reason) == ("wrong", 3, "rank 0: bad")
    assert (both.evidence, both.wire_sent, both.cpu_s.tolist()) == ("new", (1.0, 2.0), [1.75, 2.0])
    assert last.merge(replace(first, converged=False)).converged is False
    assert replace(first, wrong=None).merge(last).wrong is None, (
        "a round that was not checked has no known faults"
    )


def test_a_round_without_counted_bytes_keeps_earlier_counts_and_evidence():
    counted = round_outcome(1, evidence="by its ports")
    nothing = dict.fromkeys(("wire_sent", "wire_received", "port_sent", "port_received"), ())
    timed = round_outcome(
        2, **nothing, wire_bytes_measured=None, counters=None, evidence=None, bytes=4096
    )
    both = counted.merge(timed)
    assert all(getattr(both, name) == getattr(counted, name) for name in COUNTED_FIELDS)
    assert (both.bytes, both.rounds, timed.merge(counted).evidence) == (
        4096,
        {1, 2},
        "by its ports",
    )
    assert both.merge(round_outcome(3, evidence="anew")).evidence == "anew"


def test_launches_that_ran_different_algorithms_are_reported_with_both():
    nothing = {"counters": None, "evidence": "its log"}
    first = round_outcome(1, executed="tree", evidence="messages", tcp_traffic="{}")
    fell_back = round_outcome(2, executed="ring (fallback: no tree)", **nothing)
    both = first.merge(fell_back)
    assert (both.executed, both.evidence) == ("tree/ring (fallback: no tree)", "messages; its log")
    assert both.tcp_traffic == "{}"
    for later in (fell_back, round_outcome(3, executed="unknown", **nothing)):
        assert both.merge(later).executed == both.executed
    for one, other in (("tree", "tree/ring"), ("tree/ring", "tree"), ("tree", "ring/tree")):
        merged = (
            round_outcome(1, executed=one)
            .merge(round_outcome(2, executed=other, **nothing))
            .executed
        )
        assert sorted(merged.split("/")) == ["ring", "tree"]
    same = first.merge(round_outcome(2, executed="tree", **nothing))
    assert (same.executed, same.evidence) == ("tree", "messages")


def test_a_file_is_partial_until_every_case_has_every_round(tmp_path):
    raw = resumed_results()
    assert raw.complete
    raw.attempts[1][1][0].times.round[:] = 2  # the third round is gone
    assert raw.done == {FIRST.id}
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    assert not hdf5.read_raw_file(tmp_path / "F.h5").complete
    results = read_results([tmp_path])
    (gap,) = results.missing
    assert (gap.case, gap.status, gap.reason) == (
        SECOND.id,
        "partial",
        "2 of 3 rounds; the job ended before it",
    )
    whole, partial = results.rows
    assert (whole.status, partial.status, partial.rounds, partial.round_medians_s[2]) == (
        "ok",
        "partial",
        2,
        None,
    )
    assert partial.round_run_ids == ("run-1", "run-2", None)


def test_a_skipped_case_is_done_and_one_skipped_in_a_later_round_is_partial():
    raw = recorded(
        [raw_examples.skipped(FIRST), round_outcome(1, SECOND), raw_examples.skipped(SECOND)]
    )
    assert raw.measured == {FIRST.id: {1, 2, 3}, SECOND.id: {1}}
    ((attempt, outcomes),) = raw.attempts
    rows = [row_of(attempt, outcome) for outcome in outcomes]
    assert [(row.status, row.reason) for row in rows] == [
        ("skipped", "too large"),
        ("partial", "1 of 3 rounds; too large"),
    ]


def test_a_failed_case_keeps_its_rounds_and_is_to_be_measured_again():
    failed = [Outcome(case=case, status="failed", reason="it stalled") for case in CASES]
    raw = recorded([failed[0], round_outcome(1, SECOND), failed[1]])
    assert raw.failed_cases == {FIRST.id, SECOND.id}
    assert raw.measured == {SECOND.id: frozenset([1])}
    ((attempt, outcomes),) = raw.attempts
    assert [row_of(attempt, outcome).status for outcome in outcomes] == ["failed", "partial"]
    raw.attempts.append((raw_examples.attempt(2), []))
    for number in (1, 2, 3):
        raw.record(round_outcome(number, FIRST))
    assert (raw.failed_cases, raw.done) == ({SECOND.id}, {FIRST.id})


def row_of(attempt, outcome):
    return make_row(JOB, CaseHistory.of(JOB, attempt, outcome))


def row_of_durations(*rounds):
    """Return the row of an outcome with the given durations in ns of each round."""
    parts = []
    for number, durations in enumerate(rounds, 1):
        times = raw_examples.times(len(durations), number=number)
        parts.append(raw_examples.outcome(FIRST, times=replace(times, max_ns=np.array(durations))))
    return row_of(raw_examples.attempt(), reduce(Outcome.merge, parts))


def test_the_median_is_the_median_of_round_medians_for_any_numbers_of_iterations():
    found = row_of_durations([100] * 6, [900] * 60, [110] * 6)
    assert found.median_s == pytest.approx(110e-9)
    assert found.round_medians_s == pytest.approx((100e-9, 900e-9, 110e-9))
    assert (found.rounds, found.iterations) == (3, 72)


def test_the_interval_of_few_rounds_encloses_all_their_intervals_and_needs_enough_iterations():
    found = row_of_durations([90, 95, 100, 105, 110, 120], [205, 210] * 3, [150] * 6)
    assert (found.ci_low_s, found.ci_high_s) == pytest.approx((90e-9, 210e-9))
    assert found.round_intervals_s[0] == pytest.approx((90e-9, 120e-9))
    short = row_of_durations([100] * 6, [100] * 5, [100] * 6)
    assert (short.ci_low_s, short.round_intervals_s[1]) == (None, None)


def test_the_interval_of_many_rounds_drops_extreme_ends_by_the_rule_of_the_median():
    rounds = [RoundStatistics(float(k), (k - 0.25, k + 0.25)) for k in range(1, 10)]
    # of 9 samples from the 2nd to the 8th
    assert combine_rounds(rounds) == RoundStatistics(5.0, (1.75, 8.25))
    assert combine_rounds(rounds[:8]) == RoundStatistics(4.5, (0.75, 8.25))
    # its ends are the outermost
    noisy = [*rounds[:4], RoundStatistics(5.0, (0.1, 50.0)), *rounds[5:]]
    assert combine_rounds(noisy) == RoundStatistics(5.0, (0.75, 9.25))


def test_the_activity_of_gpus_is_joined_over_rounds():
    first = round_outcome(
        1,
        gpu_sm_clock=(2e9, None),
        gpu_temperature=(60, None),
        gpu_clock_events=(0x4, None),
        gpu_thermal_s=(0.5, None),
        gpu_power=(300.0, None),
        gpu_nvlink_sent=(7.0, None),
        lowered_rounds="1: power",
    )
    last = round_outcome(
        2,
        gpu_sm_clock=(1e9, 2e9),
        gpu_temperature=(70, 80),
        gpu_clock_events=(0x40, 0x1),
        gpu_thermal_s=(1.0, 0.0),
        gpu_power=(200.0, None),
        gpu_nvlink_sent=(8.0, None),
        lowered_rounds="2: power, heat",
    )
    both = first.merge(last)
    assert (both.gpu_sm_clock, both.gpu_temperature, both.gpu_power) == (
        (1e9, 2e9),
        (70, 80),
        (300.0, None),
    )
    assert (both.gpu_clock_events, both.gpu_thermal_s) == ((0x44, 0x1), (1.5, 0.0))
    assert (both.gpu_nvlink_sent, both.gpu_pcie_sent) == ((8.0, None), ())
    assert both.lowered_rounds == "1: power; 2: power, heat"
    assert (
        round_outcome(3).merge(first).gpu_sm_clock
        == first.merge(round_outcome(3)).gpu_sm_clock
        == (2e9, None)
    )
