"""Partitions: what a job can have of a cluster, and whether it may."""

import getpass
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.sweep.slurm.query import has_accounting, parse_records, slurm_output


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

    def why_unavailable(self, nodes: int, cpus: int, beside: int = 0) -> str | None:
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


UNUSABLE_STATES = ("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "POWERED_DOWN_BAD")
"""States, as sinfo prints them, of nodes on which no job can start."""


def load_partition(name: str | None, feature: str | None = None) -> Partition:
    """Return a partition, the cluster's default one where ``name`` is None, or its nodes that have a ``feature``.

    Raises:
        BadInputError: where there is none of that name, or Slurm does not answer.
    """
    found = {
        record["PartitionName"]: record
        for record in parse_records(slurm_output("scontrol", "-a", "-o", "show", "partition"))
    }
    defaults = [known for known, record in found.items() if record.get("Default") == "YES"]
    chosen = name or (defaults[0] if defaults else None)
    if chosen is None or chosen not in found:
        raise BadInputError("partition", chosen, found)
    record = found[chosen]
    nodes = {node for node in _list_nodes(chosen) if feature is None or feature in node.features}
    up = record.get("State", "UP") == "UP"
    usable = tuple(
        node.cpus for node in sorted(nodes, key=lambda node: node.name) if up and not _is_unusable(node.state)
    )
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
class SlurmNode:
    """A node, as sinfo tells of it."""

    name: str
    state: str
    cpus: int
    features: frozenset[str]


def _list_nodes(name: str) -> Iterator[SlurmNode]:
    """Yield the nodes of a partition, which may be a hidden one."""
    for line in slurm_output("sinfo", "-h", "-N", "--noconvert", "-p", name, "-o", "%N|%T|%c|%b").splitlines():
        node, state, cpus, features = line.split("|")
        yield SlurmNode(node, state, int(cpus), frozenset(features.split(",")))


def _is_unusable(state: str) -> bool:
    """Return whether no job can start on a node of this state; a trailing * says that it does not respond."""
    return state.endswith("*") or state.rstrip("~#!%$@^-+").upper() in UNUSABLE_STATES


def check_account(account: str | None, where: Partition) -> None:
    """See that an account can be charged.

    Raises:
        BadInputError: where the cluster does not know it; without a database, where the partition does not name it.
    """
    if account is None:
        return
    if has_accounting():
        answer = slurm_output(
            "sacctmgr", "-n", "-P", "show", "associations", f"user={getpass.getuser()}", "format=account"
        )
        known = sorted(set(answer.split()))
        expected = "an account of yours: " + (", ".join(known) or "you have none")
    else:
        known = list(where.accounts or ())
        expected = f"left out: this cluster keeps no accounts, and partition {where.name} names "
        expected += ", ".join(known) or "none"
    if account not in known:
        raise BadInputError("account", account, expected)


UNSET_VALUES = (None, 0, -1)
"""What leaves an option of sbatch out."""

SBATCH_OPTIONS = {
    "nodes": "--nodes", "tasks": "--ntasks", "runtime": "--time", "slurm_partition": "--partition",
    "slurm_account": "--account", "qos": "--qos", "constraint": "--constraint", "mem_mb": "--mem",
    "cpus_per_task": "--cpus-per-task",
}  # fmt: skip
"""The options of sbatch, by the names of Snakemake's plugin for what a job asks."""


def sbatch_options(resources: Mapping[str, int | str]) -> list[str]:
    """Return the options of sbatch by which a job asks for ``resources``."""
    arguments = [
        f"{option}={resources[name]}"
        for name, option in SBATCH_OPTIONS.items()
        if resources.get(name) not in UNSET_VALUES
    ]
    return [*arguments, *shlex.split(str(resources["slurm_extra"]))]


def check_request(resources: Mapping[str, int | str]) -> None:
    """Let Slurm itself look at a job, without submitting it.

    Raises:
        BadInputError: where it would refuse, with its reason, or does not answer.
    """
    arguments = sbatch_options(resources)
    try:
        slurm_output("sbatch", "--test-only", *arguments, "--wrap=true")
    except UnusableError:
        raise
    except BadInputError as error:
        reason = re.sub(r"(allocation failure|sbatch: error|error): ", "", error.expected)
        raise BadInputError("job", " ".join(arguments), reason) from None


def hosts_with_feature(feature: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``hosts`` that have a feature, in their order.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    answer = slurm_output(
        "sinfo", "-a", "-h", "-N", "-n", ",".join(hosts), "-o", "%N|%b"
    )  # also where partitions are hidden
    features = dict(line.split("|") for line in answer.splitlines())  # a node of two partitions is there twice
    return tuple(host for host in hosts if feature in features.get(host, "").split(","))
