"""The states of cases without their times: what was measured, what is missing and why, and the progress of jobs."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hpccoll.store.job_cases import JobCases
from hpccoll.store.raw_results import Attempt
from hpccoll.store.rows import NOT_PLANNED, CaseStates, Gap, JobProgress, RowState, Run
from hpccoll.store.scheduler_log import ScheduledJob

if TYPE_CHECKING:
    from hpccoll.store.result_files import ResultFiles
    from hpccoll.store.sweep_notes import SweepNotes, UnstartedJob


def case_states(files: "ResultFiles", jobs: Iterable[JobCases], notes: "SweepNotes") -> CaseStates:
    """Return the states of the cases of files, which need no times.

    Args:
        files: the files.
        jobs: the cases of each raw file.
        notes: what the directories of sweeps say besides.
    """
    slurm_jobs = {job.job: job for job in notes.scheduled}  # the latest of each name
    rows: list[RowState] = []
    runs: list[Run] = []
    gaps = list(_unreadable_gaps(files))
    progress: list[JobProgress] = []
    for cases in jobs:
        rows += _row_states(cases)
        runs += runs_of(cases)
        gaps += _gaps(cases, slurm_jobs.get(cases.job.name))
        progress.append(_job_progress(cases))
    for unstarted in notes.unstarted:
        gaps += _unstarted_gaps(unstarted, slurm_jobs.get(unstarted.job.name))
        progress.append(_unstarted_progress(unstarted))
    skipped_in_jobs = [gap for gap in gaps if gap.status == "skipped"]
    return CaseStates(
        rows=tuple(rows),
        runs=tuple(runs),
        planned=sum(progress_of_job.cases for progress_of_job in progress),
        missing=tuple(gap for gap in gaps if gap.status != "skipped"),
        skipped=(*_planning_gaps(files), *skipped_in_jobs),
        scheduled=notes.scheduled,
        progress=tuple(progress),
    )


def _unreadable_gaps(files: "ResultFiles") -> Iterator[Gap]:
    for path, error in files.unreadable.items():
        yield Gap(case=path.name, job=path.stem, status="failed", reason=str(error))


def _planning_gaps(files: "ResultFiles") -> Iterator[Gap]:
    """Yield the cases that planning left out."""
    for plan in files.plans.values():
        for skip in plan.skips:
            yield Gap(case=skip.case, job=skip.job, status=NOT_PLANNED, reason=skip.reason)


def _row_states(cases: JobCases) -> Iterator[RowState]:
    for history in cases.row_histories:
        attempt = history.attempt
        yield RowState(cases.job.name, attempt.run_id, history.status, attempt.kind)


def runs_of(cases: JobCases) -> Iterator[Run]:
    """Yield the run of each attempt of a job."""
    status = "complete" if cases.is_complete else "partial"
    for attempt, _ in cases.raw.attempts:
        yield _run_of(cases, attempt, status)


def _run_of(cases: JobCases, attempt: Attempt, status: str) -> Run:
    job = cases.job
    racks = {place.node: place.rack for place in attempt.places}
    return Run(
        run_id=attempt.run_id,
        job=job.name,
        attempt=attempt.number,
        created=attempt.created,
        status=status,
        kind=attempt.kind,
        machine=attempt.machine,
        path=str(cases.raw.path),
        provenance=attempt.provenance,
        evidence=attempt.evidence,
        variant=job.variant,
        environment=job.environment,
        communicator=job.communicator,
        rank_nodes=tuple(place.node for place in attempt.places),
        racks=tuple(racks[node] for node in sorted(racks)),
        precision=job.effort.precision,
    )


def _gaps(cases: JobCases, scheduled: ScheduledJob | None) -> Iterator[Gap]:
    """Yield the cases of a job without a correct result of all rounds."""
    why_not_run = _why_not_run(cases)
    # A Slurm job that was cancelled before it had hosts did not run the case: an earlier one did.
    was_cancelled = (
        scheduled is not None and scheduled.state == "CANCELLED" and bool(scheduled.hosts)
    )
    for case in cases.job.cases:
        history = cases.histories.get(case.id)
        failure = cases.failures.get(case.id)
        status, reason = "not run", None
        if history:
            status, reason = history.status, history.reason
        elif failure and (case.id in cases.noted or not was_cancelled):
            status = "failed"
        if history is None or status == "partial":
            is_known = bool(failure or cases.stop_reason)
            why = _with_slurm_state(failure or why_not_run, scheduled, is_known=is_known)
            reason = f"{reason}; {why}" if reason else why
        if status != "ok":
            yield Gap(case=case.id, job=cases.job.name, status=status, reason=reason or "")


def _why_not_run(cases: JobCases) -> str:
    """Return why cases of a job have no outcome if no rank left a note on them."""
    if cases.raw.is_running:
        why = "its job is running"
    elif cases.stop_reason:
        why = f"the job ended before it: {cases.stop_reason}"
    else:
        why = "the job ended before it"
    if cases.raw.unrecovered_damage:
        return f"{why}, or a damaged line of its journal held it"
    return why


def _with_slurm_state(reason: str, scheduled: ScheduledJob | None, *, is_known: bool) -> str:
    """Return a reason followed by the Slurm state of the job.

    The state COMPLETED explains nothing. If ``is_known``, the reason says why a job failed, and the
    state FAILED explains nothing, either.
    """
    if scheduled is None or scheduled.state == "COMPLETED":
        return reason
    explains_nothing = is_known and scheduled.state == "FAILED"
    return f"{reason}; {scheduled.location if explains_nothing else scheduled.description}"


def _job_progress(cases: JobCases) -> JobProgress:
    """Return the progress of a job; the rate is that of its last launch, without skipped cases, which take no time."""
    raw = cases.raw
    rate = None
    if raw.is_running and raw.attempts:
        attempt, outcomes = raw.attempts[-1]
        seconds = (datetime.now(UTC) - datetime.fromisoformat(attempt.created)).total_seconds()
        timed = sum(len(outcome.rounds) for outcome in outcomes)
        rate = timed / seconds if timed and seconds > 0 else None
    # launches of other programs may have the same case, and a row each
    with_rows = {history.outcome.case.id for history in cases.row_histories}
    without_rows = [case for case in cases.job.cases if case.id not in with_rows]
    return JobProgress(
        job=cases.job.name,
        cases=len(cases.row_histories) + len(without_rows),
        done=cases.measurements,
        total=cases.job.measurements,
        is_running=raw.is_running,
        rate=rate,
    )


def _unstarted_gaps(unstarted: "UnstartedJob", scheduled: ScheduledJob | None) -> Iterator[Gap]:
    """Yield the cases of a job without results."""
    nothing = "its job has not begun"
    if unstarted.has_log:
        nothing = "its job ended before its first measurement"
    is_known = unstarted.failure is not None
    reason = _with_slurm_state(unstarted.failure or nothing, scheduled, is_known=is_known)
    for case in unstarted.job.cases:
        yield Gap(case=case.id, job=unstarted.job.name, status="not run", reason=reason)


def _unstarted_progress(unstarted: "UnstartedJob") -> JobProgress:
    job = unstarted.job
    return JobProgress(job=job.name, cases=len(job.cases), done=0, total=job.measurements)
