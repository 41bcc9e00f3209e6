"""The state of result files: of the jobs of each sweep, and of raw files that belong to no sweep."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypedDict

from hpccoll.common.errors import BadInputError
from hpccoll.store.case_states import case_states
from hpccoll.store.job_cases import JobCases, job_cases
from hpccoll.store.raw_results import RawResults
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.rows import NOT_PLANNED, CaseStates, Gap, GapJson, JobProgress
from hpccoll.store.sweep_notes import NO_NOTES, read_sweep_notes


class JobStatusJson(TypedDict):
    """A job, as JSON has it."""

    name: str
    state: str
    cases: int
    done: int
    measurements: int
    measured: int
    attempts: int
    missing: list[GapJson]
    skipped: list[GapJson]


class SweepStatusJson(TypedDict):
    """A sweep, or raw files that belong to none, as JSON has it."""

    directory: str | None
    running: bool
    measurements: int
    measured: int
    jobs: list[JobStatusJson]
    left_out: list[GapJson]


class _Measurements(TypedDict):
    measurements: int
    measured: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, or of the job of a raw file."""

    name: str  # the name of the job; the path of a raw file that belongs to no sweep
    # complete, partial, running, damaged (it cannot be read), or planned (it has no file)
    state: str
    results: CaseStates  # those of this job
    log: Path | None = None  # the output of its ranks

    def to_json(self) -> JobStatusJson:
        """Return the record of ``hpccoll status --json``."""
        results = self.results
        missing = _gap_records(results.missing)
        skipped = _gap_records(results.skipped)
        return {
            "name": self.name,
            "state": self.state,
            "cases": results.planned,
            "done": sum(results.done),
            **_measurements(results.progress),
            "attempts": len(results.runs),
            "missing": missing,
            "skipped": skipped,
        }


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """The state of a sweep, or of raw files that belong to none."""

    directory: Path | None  # the directory of the sweep; None of raw files that belong to none
    is_running: bool
    jobs: tuple[JobStatus, ...]
    left_out: tuple[Gap, ...] = ()  # cases that planning left out

    @property
    def progress(self) -> list[JobProgress]:
        """The progress of its jobs."""
        return list(chain.from_iterable(job.results.progress for job in self.jobs))

    @property
    def is_complete(self) -> bool:
        """Whether something was measured, and nothing is missing."""
        if any(job.results.missing for job in self.jobs):
            return False
        return any(job.results.measured for job in self.jobs)

    def to_json(self) -> SweepStatusJson:
        """Return the record of ``hpccoll status --json``."""
        directory = None if self.directory is None else str(self.directory)
        return {
            "directory": directory,
            "running": self.is_running,
            **_measurements(self.progress),
            "jobs": [job.to_json() for job in self.jobs],
            "left_out": _gap_records(self.left_out),
        }


def _gap_records(gaps: Iterable[Gap]) -> list[GapJson]:
    records = []
    for gap in gaps:
        records.append(gap.to_json())
    return records


def sweep_statuses(files: ResultFiles, running: Collection[Path]) -> list[SweepStatus]:
    """Return the status of each sweep, and then that of the raw files that belong to none.

    Args:
        files: the files below some paths; a directory with a plan is that of a sweep.
        running: the directories in which a sweep is running.
    """
    sweeps = [path.parent for path in files.plans]
    statuses = []
    for directory in sweeps:
        own_files = _select(files, directory, sweeps)
        statuses.append(_of_sweep(own_files, directory, is_running=directory in running))
    loose = _select(files, None, sweeps)
    jobs = [*map(_of_raw_file, loose.raw_results), *map(_of_damaged_file, loose.unreadable.items())]
    if jobs:
        statuses.append(SweepStatus(None, is_running=False, jobs=tuple(jobs)))
    return statuses


def _select(files: ResultFiles, sweep: Path | None, sweeps: Collection[Path]) -> ResultFiles:
    """Return the files of a sweep; if it is None those of none."""

    def belongs(path: Path) -> bool:
        first = next((directory for directory in sweeps if path.is_relative_to(directory)), None)
        return first == sweep

    return ResultFiles(
        raw_results=[raw for raw in files.raw_results if belongs(raw.path)],
        plans={path: plan for path, plan in files.plans.items() if belongs(path)},
        unreadable={path: error for path, error in files.unreadable.items() if belongs(path)},
    )


def _of_sweep(files: ResultFiles, directory: Path, *, is_running: bool) -> SweepStatus:
    jobs_with_results = list(map(job_cases, files.raw_results))
    notes = read_sweep_notes(files.unstarted_jobs, [directory])
    results = case_states(files, jobs_with_results, notes)
    cases_by_job: dict[str, JobCases] = {}
    for cases in jobs_with_results:
        cases_by_job[cases.job.name] = cases
    unreadable = {path.stem for path in files.unreadable}
    jobs = []
    for name, states in results.by_job().items():
        if name in cases_by_job:
            state = _state(cases_by_job[name])
        else:
            state = "damaged" if name in unreadable else "planned"
        log = directory / "logs" / f"{name}.log"
        jobs.append(JobStatus(name, state, states, log if log.exists() else None))
    left_out = tuple(gap for gap in results.skipped if gap.status == NOT_PLANNED)
    return SweepStatus(directory, is_running, tuple(jobs), left_out)


def _of_raw_file(raw: RawResults) -> JobStatus:
    cases = job_cases(raw)
    states = case_states(ResultFiles(raw_results=[raw]), [cases], NO_NOTES)
    return JobStatus(str(raw.path), _state(cases), states)


def _of_damaged_file(file: tuple[Path, BadInputError]) -> JobStatus:
    path, error = file
    states = case_states(ResultFiles(raw_results=[], unreadable={path: error}), [], NO_NOTES)
    return JobStatus(str(path), "damaged", states)


def _state(cases: JobCases) -> str:
    if cases.is_complete:
        return "complete"
    return "running" if cases.raw.is_running else "partial"


def _measurements(progress: Collection[JobProgress]) -> _Measurements:
    """Return the numbers of planned and of finished measurements of jobs."""
    return {
        "measurements": sum(job.total for job in progress),
        "measured": sum(job.done for job in progress),
    }
