"""The machine: facts that need no MPI, so that a login node can ask for them too."""

import json
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path


def cpu_model() -> str:
    """Return the processor's name."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory that new processes of this host can have, of this job where it has a limit.

    Args:
        root: the directory below which proc and sys are.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE)
    free = [int(found[1]) * 1024] if found else [sys.maxsize]
    return min([*free, *_free_in_cgroups(root)])


def _free_in_cgroups(root: Path) -> Iterator[int]:
    """Yield what is left of the memory limits of the control groups of this process, those above it among them.

    Slurm limits a job by them (task/cgroup): memory.max and memory.current of version 2, other names in version 1
    (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux).
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
        for part in (below, *below.parents):
            with suppress(OSError, ValueError):  # not every group has a limit, and "max" is none
                place = root / mount / part
                stat = (place / "memory.stat").read_text()
                cached = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)  # given up when asked for
                taken = int((place / used).read_text()) - (int(cached[1]) if cached else 0)
                yield max(0, int((place / limit).read_text()) - taken)


TESTBED_FILE = Path("/etc/slurm/hpccoll-testbed.json")
"""Where a host of slurm/testbed says that it is one, and what its wire carries."""


def testbed_facts() -> dict[str, object] | None:
    """Return what the testbed that this host belongs to says of itself, None on real hosts."""
    try:
        said: dict[str, object] = json.loads(TESTBED_FILE.read_text())
    except OSError:
        return None
    return said


def group_by_host(name: str, said: Mapping[str, object]) -> list[dict[str, object]]:
    """Return what hosts say, as ``name``, said once for all that say the same."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, words in said.items():
        hosts[json.dumps(words)].append(host)
    return [{"hosts": those, name: json.loads(words)} for words, those in hosts.items()]
