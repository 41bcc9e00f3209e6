"""What else differs between the runs of two sides: libraries, drivers, kernels, hosts, variables."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpccoll.common.own_variables import NODE_NAME_VARIABLE
from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.rows import Run

VOLATILE = (
    "host_load",
    "launcher",
    "hosts",
    "ports",
    "testbed.calibrated",
    "testbed.calibration",
    "testbed.uplink_calibration",
    "testbed.wire_Bps",
    "testbed.uplink_Bps",
    "memory_bytes",
    "order_seed",
    "imported_from",
    "copy_rates",
)
"""Keys of the provenance that differ between any two runs, or are compared by names of their own."""

VOLATILE_VARIABLES = (
    NODE_NAME_VARIABLE,
    "SLURM_JOB_",
    "SLURM_STEP_",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_NODE",
)
"""The beginnings of variables that name the job, or a node of it."""

HOSTS = "hosts"
"""The name of the fact that lists the hosts of a run, joined by commas."""

Facts = Mapping[str, Sequence[str]]
"""What the runs of a side were measured with: every value of each name; none if a run does not have it."""


def facts_of_runs(runs: Iterable[Run]) -> Facts:
    """Return what runs were measured with, by name."""
    facts_by_run = [_facts_of_run(run) for run in runs]
    facts = {}
    for name in sorted(set[str]().union(*facts_by_run)):
        facts[name] = sorted({run_facts.get(name, "none") for run_facts in facts_by_run})
    return facts


def _facts_of_run(run: Run) -> dict[str, str]:
    hosts = ", ".join(sorted(run.hosts)) or "None"
    return {HOSTS: hosts, "kind": run.kind, **dict(_flat_values("", run.provenance))}


def changes(old: Facts, new: Facts) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name whose values differ, with those before and now."""
    for name in sorted(old.keys() | new.keys()):
        before, now = list(old.get(name, ["none"])), list(new.get(name, ["none"]))
        if before == now or (name == HOSTS and _are_same_hosts(before, now)):
            continue
        yield name, (", ".join(before), ", ".join(now))


def _are_same_hosts(before: Sequence[str], now: Sequence[str]) -> bool:
    """Return whether both sides ran on the same sets of hosts, whether or not a name has its domain."""
    every_host: list[str] = []
    for hosts in (*before, *now):
        every_host += hosts.split(", ")
    canonical = canonical_hosts(every_host)

    def host_sets(side: Sequence[str]) -> set[frozenset[str]]:
        return {frozenset(canonical[host] for host in hosts.split(", ")) for hosts in side}

    return host_sets(before) == host_sets(now)


def _flat_values(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in VOLATILE or (prefix == "variables." and key.startswith(VOLATILE_VARIABLES)):
            continue
        if isinstance(value, Mapping):
            yield from _flat_values(f"{name}.", value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, sort_keys=True)
