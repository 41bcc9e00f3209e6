"""The states of cases without their times: what was measured, what is missing and why, and the progress of jobs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cases.case import Job
from hpccoll.store.journal import read_failure_notes
from hpccoll.store.outcome_status import status_and_reason
from hpccoll.store.raw_results import Attempt, CaseHistory, Outcome, RawResults
from hpccoll.store.rows import NOT_PLANNED, CaseStates, Gap, JobProgress, RowState, Run
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled

if TYPE_CHECKING:
    from hpccoll.store.result_files import ResultFiles


def case_states(files: "ResultFiles", paths: Collection[Path] = ()) -> CaseStates:
    """Return the states of the cases of files, which need no times; ``paths`` as for ``to_results``."""
    scheduled = [job for path in paths if path.is_dir() for job in read_scheduled(path)]
    slurm_jobs = {job.job: job for job in scheduled}  # the latest of each name
    rows: list[RowState] = []
    runs: list[Run] = []
    gaps = list(_unreadable_gaps(files))
    progress: list[JobProgress] = []
    for raw in files.raw_results:
        histories = list(raw.histories())
        rows += _row_states(raw, histories)
        runs += runs_of(raw)
        gaps += _gaps(raw, histories, slurm_jobs.get(raw.job.name))
        progress.append(_job_progress(raw))
    for job in _unstarted_jobs(files):
        gaps += _unstarted_gaps(job, paths, slurm_jobs.get(job.name))
        progress.append(_unstarted_progress(job))
    skipped_in_jobs = [gap for gap in gaps if gap.status == "skipped"]
    return CaseStates(
        rows=tuple(rows),
        runs=tuple(runs),
        planned=sum(progress_of_job.cases for progress_of_job in progress),
        missing=tuple(gap for gap in gaps if gap.status != "skipped"),
        skipped=(*_planning_gaps(files), *skipped_in_jobs),
        scheduled=tuple(scheduled),
        progress=tuple(progress),
    )


def _unstarted_jobs(files: "ResultFiles") -> list[Job]:
    """Return the planned jobs without results."""
    started = {raw.job.sha256 for raw in files.raw_results}
    return [job for plan in files.plans.values() for job in plan.jobs if job.sha256 not in started]


def _unreadable_gaps(files: "ResultFiles") -> Iterator[Gap]:
    for path, error in files.unreadable.items():
        yield Gap(case=path.name, job=path.stem, status="failed", reason=str(error))


def _planning_gaps(files: "ResultFiles") -> Iterator[Gap]:
    """Yield the cases that planning left out."""
    for plan in files.plans.values():
        for skip in plan.skips:
            yield Gap(case=skip.case, job=skip.job, status=NOT_PLANNED, reason=skip.reason)


def _unstarted_progress(job: Job) -> JobProgress:
    return JobProgress(job=job.name, cases=len(job.cases), done=0, total=job.measurements)


def _job_progress(raw: RawResults) -> JobProgress:
    """Return the progress of a job; the rate is that of its last launch, without skipped cases, which take no time."""
    rate = None
    if raw.is_running and raw.attempts:
        attempt, outcomes = raw.attempts[-1]
        seconds = (datetime.now(UTC) - datetime.fromisoformat(attempt.created)).total_seconds()
        timed = sum(len(outcome.rounds) for outcome in outcomes)
        rate = timed / seconds if timed and seconds > 0 else None
    return replace(
        _unstarted_progress(raw.job), done=raw.measurements, is_running=raw.is_running, rate=rate
    )


def _unstarted_gaps(
    job: Job, paths: Iterable[Path], scheduled: ScheduledJob | None
) -> Iterator[Gap]:
    """Yield the cases of a job without results, which may still be queued."""
    has_log = any((path / "logs" / f"{job.name}.log").exists() for path in paths)
    nothing = "its job ended before its first measurement" if has_log else "its job has not begun"
    message = _launch_failure(job, paths)
    reason = _with_slurm_state(message or nothing, scheduled, is_known=message is not None)
    for case in job.cases:
        yield Gap(case=case.id, job=job.name, status="not run", reason=reason)


def _launch_failure(job: Job, paths: Iterable[Path]) -> str | None:
    """Return the failure notes of a job in the last directory that has any."""
    message = None
    for path in paths:
        failures = read_failure_notes(path / "raw" / f"{job.name}.h5") if path.is_dir() else ()
        if failures:
            message = "; ".join(failure.message for failure in failures)
    return message


def _with_slurm_state(reason: str, scheduled: ScheduledJob | None, *, is_known: bool) -> str:
    """Return a reason followed by the Slurm state of the job.

    The state COMPLETED explains nothing. If ``is_known``, the reason says why a job failed, and the
    state FAILED explains nothing, either.
    """
    if scheduled is None or scheduled.state == "COMPLETED":
        return reason
    explains_nothing = is_known and scheduled.state == "FAILED"
    return f"{reason}; {scheduled.location if explains_nothing else scheduled.description}"


def _gaps(
    raw: RawResults, histories: Iterable[CaseHistory], scheduled: ScheduledJob | None
) -> Iterator[Gap]:
    """Yield the cases of a job without a correct result of all rounds."""
    why_not_run = _why_not_run(raw)
    outcomes = {history.outcome.case.id: history.outcome for history in histories}
    failures = raw.failure_reasons()
    stop_reason = raw.stop_reason
    # A Slurm job that was cancelled before it had hosts did not run the case: an earlier one did.
    was_cancelled = (
        scheduled is not None and scheduled.state == "CANCELLED" and bool(scheduled.hosts)
    )
    for case in raw.job.cases:
        outcome = outcomes.get(case.id)
        status, reason = status_and_reason(raw.job, outcome) if outcome else ("not run", None)
        if status in ("not run", "partial"):
            failure = failures.of(case.id)
            if failure and not outcome and (failures.has_note(case.id) or not was_cancelled):
                status = "failed"
            why = _with_slurm_state(
                failure or why_not_run, scheduled, is_known=bool(failure or stop_reason)
            )
            reason = f"{reason}; {why}" if reason else why
        if status != "ok":
            yield Gap(case=case.id, job=raw.job.name, status=status, reason=reason or "")


def _why_not_run(raw: RawResults) -> str:
    """Return why cases of a job have no outcome if no rank left a note on them."""
    stop_reason = raw.stop_reason
    if raw.is_running:
        why = "its job is running"
    elif stop_reason:
        why = f"the job ended before it: {stop_reason}"
    else:
        why = "the job ended before it"
    if raw.unrecovered_damage:
        return f"{why}, or a damaged line of its journal held it"
    return why


def runs_of(raw: RawResults) -> Iterator[Run]:
    status = "complete" if raw.complete else "partial"
    for attempt, _ in raw.attempts:
        yield _run_of(raw, attempt, status)


def _run_of(raw: RawResults, attempt: Attempt, status: str) -> Run:
    job = raw.job
    racks = {place.node: place.rack for place in attempt.places}
    return Run(
        run_id=attempt.run_id,
        job=job.name,
        attempt=attempt.number,
        created=attempt.created,
        status=status,
        kind=attempt.kind,
        machine=attempt.machine,
        path=str(raw.path),
        provenance=attempt.provenance,
        evidence=attempt.evidence,
        variant=job.variant,
        environment=job.environment,
        communicator=job.communicator,
        rank_nodes=tuple(place.node for place in attempt.places),
        racks=tuple(racks[node] for node in sorted(racks)),
        precision=job.effort.precision,
    )


def _row_states(raw: RawResults, histories: Iterable[CaseHistory]) -> Iterator[RowState]:
    """Yield the states of the rows of ``_to_rows``."""
    for attempt, outcome, _ in histories:
        status, _ = status_and_reason(raw.job, outcome)
        yield RowState(raw.job.name, attempt.run_id, status, attempt.kind)
    for outcome in failed_outcomes(raw, histories):
        attempt = raw.attempts[-1][0]
        yield RowState(raw.job.name, attempt.run_id, outcome.status, attempt.kind)


def failed_outcomes(raw: RawResults, histories: Iterable[CaseHistory]) -> Iterator[Outcome]:
    """Yield an outcome for each case that failed before it had one, in a launch."""
    if not raw.attempts:
        return
    failures = raw.failure_reasons()
    seen = {history.outcome.case.id for history in histories}
    for case in raw.job.cases:
        reason = failures.of(case.id)
        if case.id not in seen and reason:
            yield Outcome(case=case, status="failed", reason=reason)
