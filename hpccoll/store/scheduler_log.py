"""What the scheduler said of the jobs of a sweep: why one ended, never whether it succeeded, which files tell."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hpccoll.files import read_json
from hpccoll.limits import JOB_BYTES
from hpccoll.store.durable_files import remove_unfinished, replacing_file

SLURM_JOBS_FILE = "slurm.json"
"""The file below a sweep's directory; the sweep that submits is its only writer."""

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
"""Slurm's states of a job in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledJob:
    """One Slurm job.

    Args:
        job: which of ours.
        id: Slurm's number.
        state: Slurm's word: RUNNING, TIMEOUT, NODE_FAIL, ...
        reason: Slurm's, or ours where we cancelled it; empty where there is none.
        hosts: of the allocation, as Slurm writes lists; empty before it starts.
        limit: the time limit, as Slurm writes it.
        log: what it printed.
    """

    job: str
    id: str
    state: str
    reason: str = ""
    hosts: str = ""
    limit: str = ""
    log: str = ""

    @property
    def location(self) -> str:
        """Which it is, and where its log lies."""
        return f"Slurm job {self.id}" + (f", log {self.log}" if self.log else "")

    @property
    def description(self) -> str:
        """What became of it, in one line."""
        limit = f" of {self.limit}" if self.state == "TIMEOUT" and self.limit else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.state}: {STATE_DESCRIPTIONS.get(self.state, 'its state')}{limit}{reason}; {self.location}"


def read_scheduled(directory: Path) -> list[ScheduledJob]:
    """Return the Slurm jobs of the sweeps into ``directory``, the last one of a job last."""
    try:
        return [ScheduledJob(**fields) for fields in read_json(directory / SLURM_JOBS_FILE, "Slurm jobs", JOB_BYTES)]
    except (ValueError, TypeError):  # it only explains
        return []


def write_scheduled(directory: Path, jobs: Iterable[ScheduledJob]) -> None:
    """Write the Slurm jobs of a sweep, whole or not at all."""
    remove_unfinished(directory / SLURM_JOBS_FILE)
    with replacing_file(directory / SLURM_JOBS_FILE) as unfinished:
        unfinished.write_text(json.dumps([asdict(job) for job in jobs], indent=1))
