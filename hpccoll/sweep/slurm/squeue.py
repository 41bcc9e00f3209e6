"""The queue: jobs of Slurm's, what becomes of them, and the hosts that one has."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.sweep.slurm.partitions import load_partition
from hpccoll.sweep.slurm.query import parse_records, run_slurm, slurm_output


def job_prefix(out: Path) -> str:
    """Return what the names of the Slurm jobs of sweeps into ``out`` begin with."""
    return "hpccoll-" + hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A Slurm job, as squeue has it: pending, running, or ended not long ago."""

    id: str
    job: str  # of ours
    state: str  # RUNNING, PENDING, COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, CANCELLED, ...
    reason: str  # why it is pending, or ended so

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


COMPLETING = "COMPLETING"
"""The state of a job that has ended, and whose nodes are not clean yet."""

LIVE_STATES = (
    "PENDING",
    "RUNNING",
    "CONFIGURING",
    COMPLETING,
    "SUSPENDED",
    "STOPPED",
    "REQUEUED",
    "RESIZING",
    "SIGNALING",
)
"""States of a job of which processes may be left."""

COMMENT = re.compile(r"rule_measure_wildcards_(.+)")
"""How Snakemake's Slurm plugin says in a job's comment which of ours it is."""


def list_jobs(prefix: str) -> list[QueuedJob]:
    """Return the Slurm jobs whose names begin with ``prefix``.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    listing = slurm_output("squeue", "--me", "--states=all", "-h", "-o", "%i|%j|%T|%r|%k")
    rows = (line.split("|", 4) for line in listing.splitlines() if line.count("|") >= 4)
    return [
        QueuedJob(number, job[1] if (job := COMMENT.search(comment)) else "", state, reason)
        for number, name, state, reason, comment in rows
        if name.startswith(prefix)
    ]


def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs; those that have ended meanwhile do not matter.

    Raises:
        BadInputError: where scancel is not there, or the controller does not answer.
    """
    if ids:
        run_slurm("scancel", *ids)


def show_job(number: str) -> dict[str, str]:
    """Return what Slurm knows of a job, by its own words; nothing where it knows it no more."""
    try:
        return next(parse_records(slurm_output("scontrol", "-o", "show", "job", number)), {})
    except BadInputError:
        return {}


def waits_for_nodes(number: str) -> bool:
    """Return whether a job asks for more nodes than its partition has left.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    facts = show_job(number)
    asked = facts.get("NumNodes", "0").partition("-")[0]
    return bool(facts) and int(asked) > load_partition(facts["Partition"]).usable


def allocated_hosts(number: str) -> tuple[str, ...]:
    """Return the names of the nodes of a job, in Slurm's order.

    Raises:
        BadInputError: where Slurm does not answer or knows no such job.
    """
    nodes = next(parse_records(slurm_output("scontrol", "-o", "show", "job", number)))["NodeList"]
    return tuple(slurm_output("scontrol", "show", "hostnames", nodes).split())
