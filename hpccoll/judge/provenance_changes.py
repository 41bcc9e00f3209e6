"""What else differs between the runs of two sides: libraries, drivers, kernels, hosts, variables."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.rows import Run

VOLATILE = (
    "host_load", "launcher", "hosts", "ports", "testbed.calibrated", "testbed.calibration",
    "testbed.uplink_calibration", "testbed.wire_Bps", "testbed.uplink_Bps", "memory_bytes", "order_seed",
    "imported_from", "copy_rates",
)  # fmt: skip
"""Keys of the provenance that differ between any two runs, or are compared by names of their own."""

VOLATILE_VARIABLES = "SLURM_JOB_", "SLURM_STEP_", "SLURM_TOPOLOGY_ADDR", "SLURM_NODE"
"""The beginnings of variables that name the job."""

HOSTS = "hosts"
"""The name of the fact that lists the hosts of a run, joined by commas."""

Facts = Mapping[str, Sequence[str]]
"""What the runs of a side were measured with: every value of each name; none if a run does not have it."""


def facts_of_runs(runs: Iterable[Run]) -> Facts:
    """Return what runs were measured with, by name."""
    flat = [
        {HOSTS: ", ".join(sorted(run.hosts)) or "None", "kind": run.kind, **dict(_flat_values("", run.provenance))}
        for run in runs
    ]
    names = sorted({name for run in flat for name in run})
    return {name: sorted({run.get(name, "none") for run in flat}) for name in names}


def changes(old: Facts, new: Facts) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each name whose values differ, with those before and now."""
    for name in sorted(old.keys() | new.keys()):
        before, now = (side.get(name, ["none"]) for side in (old, new))
        if list(before) != list(now) and not (name == HOSTS and _are_same_hosts(before, now)):
            yield name, (", ".join(before), ", ".join(now))


def _are_same_hosts(before: Sequence[str], now: Sequence[str]) -> bool:
    lists = [[each.split(", ") for each in side] for side in (before, now)]
    names = canonical_hosts(host for side in lists for hosts in side for host in hosts)
    sets = [{frozenset(names[host] for host in hosts) for hosts in side} for side in lists]
    return sets[0] == sets[1]


def _flat_values(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in VOLATILE or (prefix == "variables." and key.startswith(VOLATILE_VARIABLES)):
            continue
        if isinstance(value, Mapping):
            yield from _flat_values(f"{name}.", value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, sort_keys=True)
