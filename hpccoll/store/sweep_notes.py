"""What the directories of sweeps say besides raw files: the states of Slurm jobs, and of jobs without results."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from hpccoll.cases.case import Job
from hpccoll.store.journal import read_failure_notes
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled


@dataclass(frozen=True, slots=True)
class UnstartedJob:
    """A planned job without results, which may still be queued."""

    job: Job
    has_log: bool  # whether a launch of it wrote a log
    failure: str | None  # why its launches failed, if they left notes


@dataclass(frozen=True, slots=True)
class SweepNotes:
    """What the directories of sweeps say besides raw files."""

    scheduled: tuple[ScheduledJob, ...] = ()  # Slurm's jobs; of one name the latest comes last
    unstarted: tuple[UnstartedJob, ...] = ()


NO_NOTES = SweepNotes()


def read_sweep_notes(jobs: Iterable[Job], paths: Collection[Path]) -> SweepNotes:
    """Read the notes of the sweeps whose directories are among ``paths``; ``jobs`` are those without results."""
    unstarted: list[UnstartedJob] = []
    for job in jobs:
        unstarted.append(_read_notes_of_job(job, paths))
    scheduled: list[ScheduledJob] = []
    for path in paths:
        scheduled += read_scheduled(path)
    return SweepNotes(tuple(scheduled), tuple(unstarted))


def _read_notes_of_job(job: Job, paths: Iterable[Path]) -> UnstartedJob:
    has_log = False
    failure = None
    for path in paths:
        has_log = has_log or (path / "logs" / f"{job.name}.log").exists()
        notes = read_failure_notes(path / "raw" / f"{job.name}.h5")
        if notes:  # the last directory with notes counts
            failure = "; ".join(note.message for note in notes)
    return UnstartedJob(job, has_log, failure)
