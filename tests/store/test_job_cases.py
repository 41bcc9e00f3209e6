"""What a raw file says of its cases: which are done, why others failed, and what their rows are made from."""

from pathlib import Path

import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store.job_cases import job_cases
from hpccoll.store.raw_results import Failure, RawResults

DONE, CUT, LOST, LATER = CASES = [raw_examples.case(size) for size in (8, 16, 32, 64)]


def ended_job():
    """Return a job that lost a rank in its third case; the second has one round of two."""
    job = raw_examples.job(*CASES, effort=Effort(rounds=2))
    raw = RawResults(path=Path("here.h5"), job=job)
    raw.begin(raw_examples.attempt())
    for number, case in ((1, DONE), (1, CUT), (2, DONE)):
        raw.record(raw_examples.round_outcome(number, case))
    raw.failures = [Failure(case_id=case.id, rank=1, message="lost") for case in (DONE, CUT, LOST)]
    return raw


def test_a_case_with_all_rounds_has_no_failure_whatever_ranks_noted():
    cases = job_cases(ended_job())
    assert (set(cases.done), cases.measurements, cases.is_complete) == ({DONE.id}, 3, False)
    assert set(cases.failures) == {CUT.id, LOST.id}
    assert set(cases.noted) == {DONE.id, CUT.id, LOST.id}


def test_rows_are_of_cases_with_an_outcome_and_of_those_that_failed_before_they_had_one():
    rows = job_cases(ended_job()).row_histories
    assert [(row.outcome.case, row.status) for row in rows] == [
        (DONE, "ok"),
        (CUT, "partial"),
        (LOST, "failed"),
    ]
    reasons = [None, "1 of 2 rounds; rank 1 on n1: lost", "rank 1 on n1: lost"]
    assert [row.reason for row in rows] == reasons


def test_a_job_without_an_attempt_has_no_rows():
    raw = RawResults(path=Path("here.h5"), job=raw_examples.job(*CASES))
    raw.failures = [Failure(case_id=LOST.id, rank=1, message="lost")]
    assert job_cases(raw).row_histories == ()
