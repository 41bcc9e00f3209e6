"""The states of a sweep's Slurm jobs: they explain why a job ended; whether it succeeded, only result files show."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hpccoll.common.files import read_json
from hpccoll.common.limits import JOB_BYTES
from hpccoll.common.records import from_builtins
from hpccoll.store.durable_files import remove_unfinished, replacing_file

SLURM_JOBS_FILE = "slurm.json"
"""The file in a sweep's directory; only the sweep that submits the jobs writes it."""

STATE_DESCRIPTIONS = {
    "PENDING": "it waits",
    "CONFIGURING": "its nodes start",
    "RUNNING": "it runs",
    "COMPLETING": "it ends",
    "SUSPENDED": "it is suspended",
    "COMPLETED": "it ended",
    "FAILED": "it failed",
    "TIMEOUT": "it reached its time limit",
    "NODE_FAIL": "one of its nodes failed",
    "OUT_OF_MEMORY": "it used more memory than it was given",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "another job took its nodes",
    "BOOT_FAIL": "its nodes did not start",
    "GONE": "Slurm knows it no more",
    "DEADLINE": "it could not end before its deadline",
}
"""Explanations of Slurm's job states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledJob:
    """One Slurm job."""

    job: str  # the name of the sweep's job
    id: str  # Slurm's job id
    state: str  # Slurm's state: RUNNING, TIMEOUT, NODE_FAIL, ...
    # Slurm's reason, or the sweep's if it cancelled the job; empty if there is none
    reason: str = ""
    hosts: str = ""  # the allocated hosts in Slurm's notation; empty before the job starts
    limit: str = ""  # the time limit in Slurm's notation
    log: str = ""  # the path of the job's output

    @property
    def location(self) -> str:
        """The job id and the path of the log."""
        return f"Slurm job {self.id}" + (f", log {self.log}" if self.log else "")

    @property
    def outcome(self) -> str:
        """The state and its explanation."""
        limit = f" of {self.limit}" if self.state == "TIMEOUT" and self.limit else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.state}: {STATE_DESCRIPTIONS.get(self.state, 'its state')}{limit}{reason}"

    @property
    def description(self) -> str:
        """The outcome, and where to read more, in one line."""
        return f"{self.outcome}; {self.location}"


def read_scheduled(directory: Path) -> list[ScheduledJob]:
    """Return the Slurm jobs of the sweeps into ``directory``; of one name the latest comes last."""
    try:
        return from_builtins(
            read_json(directory / SLURM_JOBS_FILE, "Slurm jobs", JOB_BYTES), list[ScheduledJob]
        )
    except ValueError:  # the file only explains: without it, results are complete
        return []


def write_scheduled(directory: Path, jobs: Iterable[ScheduledJob]) -> None:
    """Replace the file of the Slurm jobs of a sweep atomically."""
    remove_unfinished(directory / SLURM_JOBS_FILE)
    with replacing_file(directory / SLURM_JOBS_FILE) as unfinished:
        unfinished.write_text(json.dumps([asdict(job) for job in jobs], indent=1))
