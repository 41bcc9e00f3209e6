"""Verdicts on two runs: what became slower, what is gone or wrong, what stayed, and what else changed."""

import pytest
from compared_runs import SIZES, results
from row_examples import make_row

from hpccoll.analysis.run_comparison import (
    IMPROVEMENT,
    MISSING,
    NEW,
    REGRESSION,
    UNCHANGED,
    UNDECIDED,
    WRONG,
    check_tolerance,
    compare,
)
from hpccoll.analysis.shift import Shift
from hpccoll.common.errors import UnusableError
from hpccoll.render.comparison_tables import change_label, shift_interval_label
from hpccoll.store.rows import Gap, Results


def verdicts(old, new, **options):
    return {int(case.case_id.split("-")[2]): case.verdict for case in compare(old, new, **options).cases}


def test_a_slower_and_a_faster_case_are_found_among_unchanged_ones():
    found = verdicts(results(), results({1024: 1.2, 2048: 0.8}, seed=2))
    assert found == dict.fromkeys(SIZES, UNCHANGED) | {1024: REGRESSION, 2048: IMPROVEMENT}
    assert compare(results(), results({1024: 1.2}, seed=2)).worse
    assert not compare(results(), results({1024: 0.8}, seed=2)).worse


def test_a_change_below_the_tolerance_is_no_regression():
    found = verdicts(results(noise=0.001), results(dict.fromkeys(SIZES, 1.03), seed=2, noise=0.001))
    assert set(found.values()) == {UNCHANGED}
    strict = verdicts(results(noise=0.001), results(dict.fromkeys(SIZES, 1.03), seed=2, noise=0.001), tolerance=0.02)
    assert set(strict.values()) == {REGRESSION}


def test_noise_is_undecided_and_says_how_many_rounds_would_decide():
    compared = compare(results(rounds=3, noise=0.1), results(rounds=3, noise=0.1, seed=2))
    assert {case.verdict for case in compared.cases} <= {UNDECIDED}
    assert all("rounds of each run would decide" in case.reason for case in compared.cases)


def test_what_is_gone_is_missing_with_its_reason_and_what_is_there_now_is_new():
    gone = results(
        {1024: None}, missing=[Gap(case="ring-2-1024-0", job="local", status="failed", reason="rank 1 died")]
    )
    (missing,) = compare(results(), gone).of(MISSING)
    assert missing.reason == "rank 1 died"
    assert compare(results(), gone).worse
    assert [case.verdict for case in compare(gone, results()).cases].count(NEW) == 1
    assert not compare(gone, results()).worse


def test_a_wrong_result_is_worse_however_fast_it_is():
    wrong = results({1024: 0.5}, seed=2)
    broken = make_row(nbytes=1024, seconds=1e-9, status="wrong", reason="3 elements differ")
    compared = compare(results(), Results(rows=(broken, *wrong.rows[1:]), runs=wrong.runs, planned=8))
    assert (compared.cases[0].verdict, compared.cases[0].reason) == (WRONG, "3 elements differ")


def test_what_the_harness_itself_takes_is_not_compared():
    slower = make_row(algorithm="null", seconds=5e-7)
    old, new = (Results(rows=(*each.rows, floor), runs=each.runs, planned=9) for each, floor in [
        (results(), make_row(algorithm="null", seconds=2e-7)), (results(seed=2), slower),
    ])  # fmt: skip
    assert {case.verdict for case in compare(old, new).cases} == {UNCHANGED}
    assert not compare(old, results(seed=2)).of(MISSING)


def test_what_neither_run_could_measure_is_no_case_of_the_comparison():
    skipped = make_row(nbytes=1 << 30, status="skipped", reason="needs a GPU", algbw_Bps=None, median_s=None)
    runs = [results(), results(seed=2)]
    old, new = (Results(rows=(*each.rows, skipped), runs=each.runs, planned=9) for each in runs)
    assert len(compare(old, new).cases) == len(SIZES)
    (gone,) = compare(Results(rows=(*runs[0].rows, make_row(nbytes=1 << 30)), runs=runs[0].runs, planned=9), new).of(
        MISSING
    )
    assert gone.reason == "needs a GPU"


def test_cases_are_matched_by_what_was_asked_and_where():
    elsewhere = results(ranks=4)
    with pytest.raises(UnusableError, match="no case in common"):
        compare(results(), elsewhere)
    other = results(dtype="float64")
    with pytest.raises(UnusableError, match="float64"):
        compare(results(), other)


@pytest.mark.parametrize(
    ("now", "changed"),
    [(["n1.cluster.example", "N2"], False), (["n2", "n1"], False), (["n1", "n3"], True), (["n1"], True)],
)
def test_hosts_change_if_they_are_others_and_not_if_their_names_have_domains(now, changed):
    old = results(provenance={"hosts": ["n1", "n2"]})
    compared = compare(old, results(provenance={"hosts": now}, seed=2))
    assert ("hosts" in compared.changes) is changed


def test_changes_of_the_provenance_are_named_and_those_of_every_run_are_not():
    before = {"versions": {"numpy": "2.4"}, "variables": {"SLURM_JOB_ID": "1"}, "host_load": [], "kernel": "6.1"}
    now = {"versions": {"numpy": "2.5"}, "variables": {"SLURM_JOB_ID": "2", "UCX_TLS": "tcp"}, "kernel": "6.1"}
    compared = compare(results(provenance=before), results(provenance=now, seed=2))
    assert compared.changes == {"variables.UCX_TLS": ("none", "tcp"), "versions.numpy": ("2.4", "2.5")}


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((1.12, 1.08, 1.162), ("+12.0 %", "+8.0 to +16.2 %")),
        ((0.25, 0.0004, 0.5), ("4.0 times as fast", "2,500 to 2.0 times as fast")),
        ((2.4, 1.9, 8425), ("2.4 times as long", "+90.0 % to 8,425 times as long")),
        ((1.9996, 0.5001, 1.999), ("2.0 times as long", "2.0 times as fast to +99.9 %")),
    ],
)
def test_a_change_is_a_percentage_and_from_twice_and_half_the_time_on_a_factor(factors, words):
    shift = Shift(*factors, p_value=0.5, deviation=0.1, freedom=4)
    assert (change_label(shift.factor), shift_interval_label(shift)) == words


@pytest.mark.parametrize("tolerance", [0.0, -0.1, 1.0, float("nan")])
def test_a_tolerance_that_is_no_share_is_refused(tolerance):
    with pytest.raises(UnusableError, match="--tolerance"):
        check_tolerance(tolerance)
