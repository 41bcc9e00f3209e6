"""Partitions: the resources that a job can request, and checks that Slurm grants the request."""

import getpass
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpccoll.cases.plan import UNSET_VALUES, sbatch_options
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.sweep.slurm.query import has_accounting, parse_records, slurm_output

UP = "UP"
PARTITION_STATES = {
    "DOWN": "is down: Slurm queues jobs there, and starts none",
    "DRAIN": "is drained: Slurm accepts no new jobs there",
    "INACTIVE": "is inactive: Slurm accepts no new jobs there, and starts none",
}
"""What the other states of a partition do to jobs (scontrol, State)."""

MAINTENANCE = "MAINT"
"""The state of a node in a reservation for maintenance, which sinfo prints for it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The limits of a partition, or of its nodes with a feature."""

    name: str  # the name of the partition
    nodes: int  # the number of its nodes
    cpus: tuple[int, ...]  # the number of CPUs of each node that is not down or drained
    largest: int | None  # the maximum number of nodes of a job; None if there is no limit
    accounts: tuple[str, ...] | None  # the accounts that may use it; None for all
    # the feature that the nodes have; None for all nodes of the partition
    feature: str | None = None
    state: str = UP  # as scontrol prints it
    in_maintenance: int = 0  # the number of its nodes on which no job starts because of maintenance

    @property
    def usable(self) -> int:
        return len(self.cpus)

    def why_unavailable(self, nodes: int, cpus: int, other_nodes: int = 0) -> str | None:
        """Return why a job cannot have ``nodes`` nodes with ``cpus`` CPUs each, besides its ``other_nodes`` here."""
        kind = "nodes"
        if self.feature:
            kind = f"nodes with feature {self.feature}"
        if self.largest is not None and nodes + other_nodes > self.largest:
            return f"partition {self.name} gives a job at most {self.largest} nodes"
        if self.state != UP:
            effect = PARTITION_STATES.get(self.state, "is in a state in which Slurm starts no job")
            return f"partition {self.name} {effect} (State={self.state})"
        if nodes > self.usable:
            return f"partition {self.name} has {self.nodes or 'no'} {kind}{self._why_fewer()}"
        fit = sum(available >= cpus for available in self.cpus)
        if nodes <= fit:
            return None
        return f"{fit or 'no'} {kind} of partition {self.name} have {cpus} CPUs"

    def _why_fewer(self) -> str:
        """Return why jobs cannot start on some of the nodes; empty if they can start on all."""
        why = ""
        if down := self.nodes - self.usable - self.in_maintenance:
            why += f", {down} of them down or drained"
        if self.in_maintenance:
            why += f", {self.in_maintenance} of them in maintenance"
        return why


UNUSABLE_STATES = (
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "ERROR",
    "FAIL",
    "FAILING",
    "FUTURE",
    "INVAL",
    "NO_RESPOND",
    "NOT_RESPONDING",
    "POWERED_DOWN_BAD",
    "UNKNOWN",
)
"""States, as sinfo prints them, of nodes on which no job can start (node_state_string in
slurm_protocol_defs.c of Slurm). INVAL: the node registered with less than slurm.conf says, such as
a GPU that is gone, and is drained."""


def load_partition(name: str | None, feature: str | None = None) -> Partition:
    """Return a partition, by default that of the cluster, or its nodes with a feature.

    Raises:
        BadInputError: if there is no such partition, or if Slurm does not answer.
    """
    records = {
        record["PartitionName"]: record
        for record in parse_records(slurm_output("scontrol", "-a", "-o", "show", "partition"))
    }
    defaults = [
        partition for partition, record in records.items() if record.get("Default") == "YES"
    ]
    chosen = name or (defaults[0] if defaults else None)
    if chosen is None or chosen not in records:
        raise BadInputError("partition", chosen, records)
    record = records[chosen]
    listed = slurm_output(
        "sinfo", "-h", "-N", "--noconvert", "-p", chosen, "-o", "%N|%T|%c|%b"
    ).splitlines()
    lines = sorted({tuple(line.split("|")) for line in listed})  # a hidden partition is listed, too
    nodes = [
        (state, int(cpus))
        for _, state, cpus, features in lines
        if feature in (None, *features.split(","))
    ]
    partition_state = record.get("State", UP)
    usable = list[int]()
    in_maintenance = 0
    for state, cpus in nodes:
        if _plain_state(state) == MAINTENANCE:
            in_maintenance += 1
        elif partition_state == UP and not _is_unusable(state):
            usable.append(cpus)
    limit = record.get("MaxNodes", "UNLIMITED")
    accounts = record.get("AllowAccounts", "ALL")
    return Partition(
        name=chosen,
        nodes=len(nodes),
        cpus=tuple(usable),
        largest=int(limit) if limit.isdecimal() else None,
        accounts=None if accounts == "ALL" else tuple(accounts.split(",")),
        feature=feature,
        state=partition_state,
        in_maintenance=in_maintenance,
    )


def _is_unusable(state: str) -> bool:
    """Return whether no job can start on a node in this state; a trailing * means that it does not respond."""
    return state.endswith("*") or _plain_state(state) in UNUSABLE_STATES


def _plain_state(state: str) -> str:
    """Return the state of a node without the signs behind it."""
    return state.rstrip("~#!%$@^-+").upper()


def check_account(account: str | None, where: Partition) -> None:
    """Check that jobs can be charged to an account, whose name Slurm compares without case (assoc_mgr.c).

    Names of partitions and features are compared with case (list_find_part, list_find_feature).

    Raises:
        BadInputError: if the accounting database has no such account of the user, or, if there is
            no database, if the partition does not name the account.
    """
    if account is None:
        return
    if has_accounting():
        answer = slurm_output(
            "sacctmgr",
            "-n",
            "-P",
            "show",
            "associations",
            f"user={getpass.getuser()}",
            "format=account",
        )
        accounts = sorted(set(filter(None, map(str.strip, answer.splitlines()))))
        expected = "an account of yours: " + (", ".join(accounts) or "you have none")
    else:
        accounts = list(where.accounts or ())
        named = ", ".join(accounts) or "none"
        expected = f"this cluster keeps no accounts, and partition {where.name} names {named}; do: leave the key out"
    if account.casefold() not in map(str.casefold, accounts):
        raise BadInputError("account", account, expected)


REFUSALS = {
    "invalid feature specification": "constraint",
    "memory specification can not be satisfied": "memory_mb",
    "invalid generic resource": "gres",
    "invalid qos": "qos",
    "requested time limit is invalid": "minutes",
    "invalid account": "account",
}
"""Messages of sbatch about one value, in lower case (slurm_errno.c of Slurm), with the key of a site file at fault."""


def check_request(resources: Mapping[str, int | str], site: Mapping[str, object]) -> None:
    """Check by ``sbatch --test-only`` that Slurm would accept a job, without submitting it.

    Raises:
        BadInputError: if Slurm would reject the job, with its reason and the key of the site file
            if that is clear, or if Slurm does not answer.
    """
    arguments = sbatch_options(resources)
    try:
        slurm_output("sbatch", "--test-only", *arguments, "--wrap=true")
    except UnusableError:
        raise
    except BadInputError as error:
        reason = re.sub(r"(allocation failure|sbatch: error|error): ", "", error.expected)
        key = next((key for words, key in REFUSALS.items() if words in reason.lower()), None)
        if key == "gres" and site.get(key) is None:
            key = "gpus_per_node"
        if key and (value := site.get(key)) not in UNSET_VALUES:
            raise BadInputError(key, value, reason) from None
        raise BadInputError("job", " ".join(arguments), reason) from None


def hosts_with_feature(feature: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts that have a feature, in the order of ``hosts``.

    Raises:
        BadInputError: if Slurm does not answer.
    """
    # -a: hidden partitions, too
    answer = slurm_output("sinfo", "-a", "-h", "-N", "-n", ",".join(hosts), "-o", "%N|%b")
    # sinfo lists a node once for each partition
    features = dict(line.split("|") for line in answer.splitlines())
    return tuple(host for host in hosts if feature in features.get(host, "").split(","))
