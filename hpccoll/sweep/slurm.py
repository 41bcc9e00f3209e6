"""Slurm, as its own commands tell of it: partitions and their nodes, jobs and what became of them."""

import getpass
import hashlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpccoll.errors import BadInputError

ANSWER_S = 30.0
"""How long a controller has for an answer; a busy one takes seconds."""


def call(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's to its end, whatever that is.

    Raises:
        BadInputError: where it is not on PATH, or the controller keeps it waiting.
    """
    if shutil.which(command[0]) is None:
        remedy = "load Slurm's module, or use --profile local; a plan without --profile needs neither"
        raise BadInputError("Slurm", command[0], f"a command on PATH: {remedy}")
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise BadInputError(
            "Slurm", " ".join(command), f"a controller that answers within {ANSWER_S:g} s: see 'scontrol ping'"
        ) from None


def ask(*command: str) -> str:
    """Run a command of Slurm's and return what it prints.

    Raises:
        BadInputError: where it is not on PATH, the controller does not answer, or it refuses.
    """
    ended = call(*command)
    if ended.returncode:
        said = " ".join((ended.stderr.strip() or ended.stdout.strip()).split())
        wanted = "a controller that answers" if SILENT.search(said) else "a request that Slurm grants"
        raise BadInputError("Slurm", " ".join(command), f"{wanted}: {said}")
    return ended.stdout


SILENT = re.compile("contact slurm controller|configuration source|Connection refused|timed out|DNS SRV", re.IGNORECASE)
"""What the commands say where there is no controller, or none that answers."""


def _records(text: str) -> Iterator[dict[str, str]]:
    """Yield the records that ``scontrol -o`` prints, a line each, of words ``Key=value``."""
    for line in text.splitlines():
        pairs = re.findall(r"(?:^| )(\w[\w:/]*)=(.*?)(?= \w[\w:/]*=|$)", line)
        if pairs:
            yield dict(pairs)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: what a job in it can get.

    Args:
        name: its name.
        nodes: that belong to it.
        cpus: of each of them that is not down or drained.
        largest: the most nodes that a job may have, None without such a limit.
        accounts: those that may use it, None for all.
        feature: of the nodes that are meant, None for all of them.
    """

    name: str
    nodes: int
    cpus: tuple[int, ...]
    largest: int | None
    accounts: tuple[str, ...] | None
    feature: str | None = None

    @property
    def usable(self) -> int:
        return len(self.cpus)

    def lack(self, nodes: int, cpus: int, beside: int = 0) -> str | None:
        """Return why a job cannot have so many nodes with so many CPUs each, None where it can.

        Args:
            nodes: that the job is to have.
            cpus: of each of them.
            beside: nodes that it has from this partition, too.
        """
        kind = f"nodes with feature {self.feature}" if self.feature else "nodes"
        if self.largest is not None and nodes + beside > self.largest:
            return f"partition {self.name} gives a job at most {self.largest} nodes"
        if nodes > self.usable:
            gone = self.nodes - self.usable
            lost = f", {gone} of them down or drained" if gone else ""
            return f"partition {self.name} has {self.nodes or 'no'} {kind}{lost}"
        fit = sum(has >= cpus for has in self.cpus)
        return None if nodes <= fit else f"{fit or 'no'} {kind} of partition {self.name} have {cpus} CPUs"


UNUSABLE = ("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN_BAD")
"""States, as sinfo prints them, of nodes on which no job can start."""


def partition(name: str | None, feature: str | None = None) -> Partition:
    """Return a partition, the cluster's default one where ``name`` is None, or its nodes that have a ``feature``.

    Raises:
        BadInputError: where there is none of that name, or Slurm does not answer.
    """
    found = {record["PartitionName"]: record for record in _records(ask("scontrol", "-a", "-o", "show", "partition"))}
    defaults = [known for known, record in found.items() if record.get("Default") == "YES"]
    chosen = name or (defaults[0] if defaults else None)
    if chosen is None or chosen not in found:
        raise BadInputError("partition", chosen, found)
    record = found[chosen]
    nodes = {node for node in _nodes(chosen) if feature is None or feature in node.features}
    up = record.get("State", "UP") == "UP"
    usable = tuple(node.cpus for node in sorted(nodes, key=lambda node: node.name) if up and not _unusable(node.state))
    limit, allowed = record.get("MaxNodes", "UNLIMITED"), record.get("AllowAccounts", "ALL")
    return Partition(
        name=chosen,
        nodes=len(nodes),
        cpus=usable,
        largest=int(limit) if limit.isdecimal() else None,
        accounts=None if allowed == "ALL" else tuple(allowed.split(",")),
        feature=feature,
    )


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as sinfo tells of it."""

    name: str
    state: str
    cpus: int
    features: frozenset[str]


def _nodes(name: str) -> Iterator[Node]:
    """Yield the nodes of a partition, which may be a hidden one."""
    for line in ask("sinfo", "-h", "-N", "--noconvert", "-p", name, "-o", "%N|%T|%c|%b").splitlines():
        node, state, cpus, features = line.split("|")
        yield Node(node, state, int(cpus), frozenset(features.split(",")))


def _unusable(state: str) -> bool:
    """Return whether no job can start on a node of this state; a trailing * says that it does not respond."""
    return state.endswith("*") or state.rstrip("~#!%$@^-+").upper() in UNUSABLE


def accounting() -> bool:
    """Return whether the cluster keeps accounts and finished jobs in a database that answers."""
    try:
        ask("sacct", "-X", "-n", "-S", "now")
    except BadInputError:
        return False
    return True


def check_account(account: str | None, where: Partition) -> None:
    """See that an account can be charged.

    Raises:
        BadInputError: where the cluster does not know it; without a database, where the partition does not name it.
    """
    if account is None:
        return
    if accounting():
        said = ask("sacctmgr", "-n", "-P", "show", "associations", f"user={getpass.getuser()}", "format=account")
        known = sorted(set(said.split()))
        expected = "an account of yours: " + (", ".join(known) or "you have none")
    else:
        known = list(where.accounts or ())
        expected = f"left out: this cluster keeps no accounts, and partition {where.name} names "
        expected += ", ".join(known) or "none"
    if account not in known:
        raise BadInputError("account", account, expected)


NOTHING = (None, 0, -1)
"""What leaves an option of sbatch out."""


def check_request(resources: Mapping[str, int | str]) -> None:
    """Let Slurm itself look at a job, without submitting it.

    Raises:
        BadInputError: where it would refuse, with its reason.
    """
    options = {
        "nodes": "--nodes", "tasks": "--ntasks", "runtime": "--time", "slurm_partition": "--partition",
        "slurm_account": "--account", "qos": "--qos", "constraint": "--constraint", "mem_mb": "--mem",
        "cpus_per_task": "--cpus-per-task",
    }  # fmt: skip
    asked = [f"{option}={resources[name]}" for name, option in options.items() if resources.get(name) not in NOTHING]
    try:
        ask("sbatch", "--test-only", *asked, *shlex.split(str(resources["slurm_extra"])), "--wrap=true")
    except BadInputError as error:
        reason = re.sub(r"(allocation failure|sbatch: error|error): ", "", error.expected)
        raise BadInputError("job", " ".join(asked), reason) from None


def job_prefix(out: Path) -> str:
    """Return what the names of the Slurm jobs of sweeps into ``out`` begin with."""
    return "hpccoll-" + hashlib.sha256(str(out.resolve()).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Queued:
    """A Slurm job, as squeue has it: pending, running, or ended not long ago."""

    id: str
    job: str  # of ours
    state: str  # RUNNING, PENDING, COMPLETED, FAILED, TIMEOUT, NODE_FAIL, OUT_OF_MEMORY, CANCELLED, ...
    reason: str  # why it is pending, or ended so

    @property
    def alive(self) -> bool:
        return self.state in ALIVE


ENDING = "COMPLETING"
"""The state of a job that has ended, and whose nodes are not clean yet."""

ALIVE = ("PENDING", "RUNNING", "CONFIGURING", ENDING, "SUSPENDED", "STOPPED", "REQUEUED", "RESIZING", "SIGNALING")
"""States of a job of which processes may be left."""

COMMENT = re.compile(r"rule_measure_wildcards_(.+)")
"""How Snakemake's Slurm plugin says in a job's comment which of ours it is."""


def queued(prefix: str) -> list[Queued]:
    """Return the Slurm jobs whose names begin with ``prefix``.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    said = ask("squeue", "--me", "--states=all", "-h", "-o", "%i|%j|%T|%r|%k")
    rows = (line.split("|", 4) for line in said.splitlines() if line.count("|") >= 4)
    return [
        Queued(number, job[1] if (job := COMMENT.search(comment)) else "", state, reason)
        for number, name, state, reason, comment in rows
        if name.startswith(prefix)
    ]


def cancel(ids: Sequence[str]) -> None:
    """Cancel jobs; those that have ended meanwhile do not matter.

    Raises:
        BadInputError: where scancel is not there, or the controller does not answer.
    """
    if ids:
        call("scancel", *ids)


def show_job(number: str) -> dict[str, str]:
    """Return what Slurm knows of a job, by its own words; nothing where it knows it no more."""
    try:
        return next(_records(ask("scontrol", "-o", "show", "job", number)), {})
    except BadInputError:
        return {}


def short_of_nodes(number: str) -> bool:
    """Return whether a job asks for more nodes than its partition has left.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    facts = show_job(number)
    asked = facts.get("NumNodes", "0").partition("-")[0]
    return bool(facts) and int(asked) > partition(facts["Partition"]).usable


def allocated_hosts(number: str) -> tuple[str, ...]:
    """Return the names of the nodes of a job, in Slurm's order.

    Raises:
        BadInputError: where Slurm does not answer or knows no such job.
    """
    nodes = next(_records(ask("scontrol", "-o", "show", "job", number)))["NodeList"]
    return tuple(ask("scontrol", "show", "hostnames", nodes).split())


def having(feature: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``hosts`` that have a feature, in their order.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    said = ask("sinfo", "-a", "-h", "-N", "-n", ",".join(hosts), "-o", "%N|%b")  # also where partitions are hidden
    features = dict(line.split("|") for line in said.splitlines())  # a node of two partitions is there twice
    return tuple(host for host in hosts if feature in features.get(host, "").split(","))


def mpi_types() -> list[str]:
    """Return what ``srun --mpi`` can be here.

    Raises:
        BadInputError: where srun is not there or does not answer.
    """
    listed = call("srun", "--mpi=list")
    words = [line.removeprefix("srun:").strip() for line in (listed.stdout + listed.stderr).splitlines()]
    return [word for word in words if re.fullmatch(r"\w+", word)]


def configuration() -> dict[str, str]:
    """Return the controller's settings, by their names in slurm.conf.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    pairs = (line.partition("=") for line in ask("scontrol", "show", "config").splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
