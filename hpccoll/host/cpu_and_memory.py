"""Facts about the machine that need no MPI, so that login nodes can collect them too."""

import json
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path


def cpu_model() -> str:
    """Return the model name of the processor."""
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory available to new processes of this host, within the limits of this job.

    Args:
        root: the directory that contains proc and sys.
    """
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
    available = [int(match[1]) * 1024] if match else [sys.maxsize]
    return min([*available, *_free_in_cgroups(root)])


def _free_in_cgroups(root: Path) -> Iterator[int]:
    """Yield the bytes left below the memory limit of each control group of this process and of their ancestors.

    Slurm limits jobs by control groups (task/cgroup): memory.max and memory.current of version 2, other names in
    version 1 (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux).
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, controllers, group in (line.split(":", 2) for line in memberships):
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, limit, used = (
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            if controllers
            else ("sys/fs/cgroup", "memory.max", "memory.current")
        )
        below = Path(group.lstrip("/"))
        for cgroup in (below, *below.parents):
            with suppress(OSError, ValueError):  # some groups have no limit; "max" means none
                directory = root / mount / cgroup
                stat = (directory / "memory.stat").read_text()
                cached = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)  # reclaimable
                in_use = int((directory / used).read_text()) - (int(cached[1]) if cached else 0)
                yield max(0, int((directory / limit).read_text()) - in_use)


TESTBED_FILE = Path("/etc/slurm/hpccoll-testbed.json")
"""The file that marks a host of slurm/testbed and holds the rate of its wire."""


def testbed_facts() -> dict[str, object] | None:
    """Return the facts about the testbed of this host, None on real hosts."""
    try:
        facts: dict[str, object] = json.loads(TESTBED_FILE.read_text())
    except OSError:
        return None
    return facts


def group_by_host(name: str, value_of_host: Mapping[str, object]) -> list[dict[str, object]]:
    """Return one entry for each distinct value, with the hosts that have it.

    Args:
        name: the key of the value in each entry.
        value_of_host: the value of each host, which JSON can hold.
    """
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, value in value_of_host.items():
        hosts[json.dumps(value)].append(host)
    return [{"hosts": members, name: json.loads(value)} for value, members in hosts.items()]
