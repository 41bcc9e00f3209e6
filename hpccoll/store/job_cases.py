"""The cases of a raw file: what was measured of each, and why rounds are missing.

Rows, gaps and the progress of the job are made from it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hpccoll.cases.case import Job
from hpccoll.store.raw_results import CaseHistory, Outcome, RawResults


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCases:
    """What a raw file says of the cases of its job."""

    raw: RawResults
    histories: Mapping[str, CaseHistory]  # of each case with an outcome, by its id
    done: Collection[str]  # the ids of the cases with an outcome of every round
    measurements: int  # the measured rounds of all cases
    # why a case that is not done failed, by its id, if a note or the end of its job says so
    failures: Mapping[str, str]
    noted: Collection[str]  # the ids of the cases on which a rank left a note
    stop_reason: str | None  # why the job ended, if a note says so
    # of each case that has a row: those with an outcome, and then those that failed in a launch
    # before they had one
    row_histories: tuple[CaseHistory, ...]

    @property
    def job(self) -> Job:
        return self.raw.job

    @property
    def is_complete(self) -> bool:
        """Whether every case has an outcome of every round."""
        return all(case.id in self.done for case in self.job.cases)


def job_cases(raw: RawResults) -> JobCases:
    """Return what a raw file, which does not change any more, says of the cases of its job."""
    every = list(raw.histories())  # launches of other programs may have the same case
    histories = {history.outcome.case.id: history for history in every}
    done = raw.done
    reasons = raw.failure_reasons()
    failures: dict[str, str] = {}
    for case_id in (*histories, *(case.id for case in raw.job.cases)):
        failure = None if case_id in done else reasons.of(case_id)
        if failure:
            failures[case_id] = failure
    row_histories: list[CaseHistory] = []
    for history in every:
        row_histories.append(history.with_failure(failures.get(history.outcome.case.id)))
    for case in raw.job.cases:
        if raw.attempts and case.id in failures and case.id not in histories:
            last_attempt, _ = raw.attempts[-1]
            outcome = Outcome(case=case, status="failed", reason=failures[case.id])
            row_histories.append(CaseHistory.of(raw.job, last_attempt, outcome))
    return JobCases(
        raw=raw,
        histories=histories,
        done=done,
        measurements=raw.measurements,
        failures=failures,
        noted=reasons.noted,
        stop_reason=raw.stop_reason,
        row_histories=tuple(row_histories),
    )
