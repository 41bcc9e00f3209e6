"""Slurm jobs of sweeps: their states, their hosts, and cancelling them."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpccoll.common.errors import BadInputError
from hpccoll.common.units import parse_cpu_list
from hpccoll.store.host_names import canonical_hosts
from hpccoll.sweep.slurm.partitions import load_partition
from hpccoll.sweep.slurm.query import parse_records, run_slurm, slurm_output


def job_prefix(out: Path) -> str:
    """Return the prefix of the names of the Slurm jobs of sweeps into ``out``."""
    return "hpccoll-" + hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A Slurm job, as squeue lists it: pending, running, or recently ended."""

    id: str
    job: str  # the name of the plan's job
    # RUNNING, PENDING, COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, CANCELLED, ...
    state: str
    reason: str  # why it is pending, or why it ended in this state

    @property
    def alive(self) -> bool:
        return self.state in LIVE_STATES


COMPLETING = "COMPLETING"
"""The state of a job that has ended while Slurm still cleans up its nodes."""

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
"""States of a job that may still have processes."""

COMMENT = re.compile(r"rule_measure_wildcards_(.+)")
"""The comment that Snakemake's Slurm plugin gives a Slurm job, with the name of the plan's job."""


def list_jobs(prefix: str) -> list[QueuedJob]:
    """Return the Slurm jobs whose names begin with ``prefix``.

    Raises:
        BadInputError: if Slurm does not answer.
    """
    listing = slurm_output("squeue", "--me", "--states=all", "-h", "-o", "%i|%j|%T|%r|%k")
    rows = (line.split("|", 4) for line in listing.splitlines() if line.count("|") >= 4)
    return [
        QueuedJob(number, job[1] if (job := COMMENT.search(comment)) else "", state, reason)
        for number, name, state, reason, comment in rows
        if name.startswith(prefix)
    ]


def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs; jobs that have already ended are ignored.

    Raises:
        BadInputError: if scancel is not on PATH, or if the controller does not answer.
    """
    if ids:
        run_slurm("scancel", *ids)


def show_job(number: str) -> dict[str, str]:
    """Return the fields that scontrol prints for a job; empty if Slurm no longer knows the job."""
    try:
        return next(parse_records(slurm_output("scontrol", "-o", "show", "job", number)), {})
    except BadInputError:
        return {}


def waits_for_nodes(number: str) -> bool:
    """Return whether a job requests more nodes than its partition has usable ones.

    Raises:
        BadInputError: if Slurm does not answer.
    """
    fields = show_job(number)
    requested = fields.get("NumNodes", "0").partition("-")[0]
    return bool(fields) and int(requested) > load_partition(fields["Partition"]).usable


def cpus_of_node(number: str) -> int:
    """Return the CPUs that a running job has on each of its nodes, the smallest number if they differ.

    Slurm counts hardware threads where its nodes are configured so (slurm.conf, CPUs). It lists the
    CPUs of a node by their hardware threads in any case (CPU_IDs), so that only the share of a node
    follows from the list.

    Raises:
        BadInputError: if Slurm does not answer or does not know the job.
    """
    text = slurm_output("scontrol", "-d", "-o", "show", "job", number)
    fields = next(parse_records(text))
    groups = re.findall(r" Nodes=(\S+) CPU_IDs=(\S+)", text)
    threads = [len(parse_cpu_list(cpus)) for nodes, cpus in groups for _ in host_names(nodes)]
    threads = threads or [1] * int(fields["NumNodes"])
    return int(fields["NumCPUs"]) * min(threads) // sum(threads)


def allocated_hosts(number: str) -> tuple[str, ...]:
    """Return the names of the nodes of a job, in Slurm's order.

    Raises:
        BadInputError: if Slurm does not answer or does not know the job.
    """
    return host_names(
        next(parse_records(slurm_output("scontrol", "-o", "show", "job", number)))["NodeList"]
    )


def host_aliases(nodes: Sequence[str]) -> dict[str, list[str]]:
    """Return the other names of nodes, by their names in Slurm: the names of their hosts, and their addresses.

    slurm.conf sets them (NodeHostname, NodeAddr); numerical addresses are left out.

    Raises:
        BadInputError: if Slurm does not answer or does not know a node.
    """
    aliases = {}
    for record in parse_records(
        slurm_output("scontrol", "-a", "-o", "show", "node", ",".join(nodes))
    ):
        names = [record[key] for key in ("NodeName", "NodeHostName", "NodeAddr") if key in record]
        node, *further = dict.fromkeys(
            canonical_hosts(name for name in names if not ADDRESS.fullmatch(name)).values()
        )
        aliases[node] = further
    return aliases


ADDRESS = re.compile(r"(\d+\.){3}\d+|.*:.*")
"""Numerical addresses of IPv4 and IPv6; no host name has a colon."""


def host_names(nodes: str) -> tuple[str, ...]:
    """Return the hosts of a list with Slurm's brackets, such as n[1-3],m7.

    Raises:
        BadInputError: if Slurm does not answer, or the list is none.
    """
    return tuple(slurm_output("scontrol", "show", "hostnames", nodes).split())
