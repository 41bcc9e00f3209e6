"""Which launches are of one machine, and what it is called: launches name it, or have hosts in common."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from hpccoll.store.host_names import canonical_hosts, host_ranges
from hpccoll.store.rows import Row, Run


def machine_names(runs: Iterable[Run]) -> dict[str, str]:
    """Return the machine of each run, by run_id: as its file names it, or else the hosts of all its launches.

    It is empty where neither is known.
    """
    runs = list(runs)
    canonical = canonical_hosts(host for run in runs for host in run.hosts)
    hosts_of_run = {run.run_id: {canonical[host] for host in run.hosts} for run in runs}
    machines = _joined(hosts_of_run.values())
    names: dict[str, str] = {}
    for run in runs:
        named = run.provenance.get("machine")
        if named:
            names[run.run_id] = str(named)
            continue
        hosts = hosts_of_run[run.run_id]
        own_machine = next((machine for machine in machines if machine & hosts), set())
        names[run.run_id] = host_ranges(sorted(own_machine))
    return names


def _joined(sets_of_hosts: Iterable[set[str]]) -> list[set[str]]:
    """Return sets of hosts, those that have a host in common as one."""
    machines: list[set[str]] = []
    for hosts in sets_of_hosts:
        joined = set(hosts)
        separate = []
        for machine in machines:
            if machine & joined:
                joined |= machine
            else:
                separate.append(machine)
        machines = [*separate, joined]
    return machines


def has_mixed_curve(
    rows: Iterable[Row], machine_of_run: Mapping[str, str], curve_of: Callable[[Row], str]
) -> bool:
    """Return whether a curve has rows from several machines.

    Args:
        rows: the rows.
        machine_of_run: the machine of each run, by run_id; those without a name do not count.
        curve_of: returns the name of the curve that a row belongs to.
    """
    machines: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        machine = machine_of_run.get(row.run_id)
        if machine:
            machines[row.collective, curve_of(row)].add(machine)
    return any(len(names) > 1 for names in machines.values())
