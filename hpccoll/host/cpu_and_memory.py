"""Facts about the machine that need no MPI, so that login nodes can collect them too."""

import json
import os
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath


def cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory available to new processes of this host, within the limits of this job."""
    match = re.search(
        r"^MemAvailable:\s+(\d+) kB$", (root / "proc/meminfo").read_text(), re.MULTILINE
    )
    available = int(match[1]) * 1024 if match else sys.maxsize
    return min([available, *_free_in_cgroups(root)])


def _free_in_cgroups(root: Path) -> Iterator[int]:
    """Yield the bytes left below the memory limit of each control group of this process and of their ancestors.

    Slurm limits jobs by control groups (task/cgroup): memory.max and memory.current of version 2,
    other names in version 1 (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of
    Linux).
    """
    names = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for directory, (limit, used) in product(_control_groups("memory", root), names):
        with suppress(OSError, ValueError):  # some groups have no limit; "max" means none
            stat = (directory / "memory.stat").read_text()
            in_use = int((directory / used).read_text())
            cached = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)
            if cached:
                in_use -= int(cached[1])  # reclaimable
            yield max(0, int((directory / limit).read_text()) - in_use)


def cpu_quotas(root: Path = Path("/")) -> dict[str, float]:
    """Return the CPUs that each control group of this process, and each of their ancestors, grants all its processes.

    Containers are limited so (docker --cpus, limits of Kubernetes): cpu.max of version 2,
    cpu.cfs_quota_us and cpu.cfs_period_us of version 1 (cgroup-v2.rst, scheduler/sched-bwc.rst of
    Linux).

    Returns:
        The CPU seconds per second, by an identity that all processes of the host have in common.
    """
    quotas = {}
    for directory in _control_groups("cpu", root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with suppress(OSError, ValueError):  # no limit: "max" or -1
                text = " ".join((directory / name).read_text() for name in names)
                quota, period = map(int, text.split())
                stat = directory.stat()
                if quota > 0 < period:
                    quotas[f"{stat.st_dev}:{stat.st_ino}"] = quota / period
    return quotas


def usable_cpus(root: Path = Path("/")) -> float:
    """Return the number of CPUs of this host, or the smallest quota of this process if that is less."""
    return min([os.cpu_count() or 1, *cpu_quotas(root).values()])


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the directories of the control groups of this process that have a controller, and of their ancestors.

    The groups are relative to the root of a hierarchy, or of this namespace, and mounts may begin
    below it, as those of containers do: their lists (proc_pid_cgroup(5), proc_pid_mountinfo(5)) are
    read together.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return
    groups: dict[str, str] = {}
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), path)
    for line in mounts:
        mount, _, filesystem = line.partition(" - ")
        begin, mount_point = map(PurePosixPath, mount.split()[3:5])
        kind, _, options = filesystem.split(" ", 2)
        name = None
        if kind == "cgroup2":
            name = ""
        elif kind == "cgroup" and controller in options.split(","):
            name = controller
        if name is None or name not in groups:
            continue
        group = PurePosixPath(groups[name])
        below = group.relative_to(begin) if group.is_relative_to(begin) else PurePosixPath()
        for directory in (below, *below.parents):
            yield root / mount_point.relative_to("/") / directory


MIN_SHARED_BYTES = 1 << 30
"""Free bytes of shared memory that are enough for MPI and NCCL; containers have 64 MiB by default."""

MPICH_BYTES_PER_RANK = 5_390_000
"""Shared memory that MPICH 5.0.2 uses for each rank of a node: 5.14 MiB, on 1, 2, 4 and 8 ranks (ch4:ucx)."""

SHARED_MEMORY_WARNING = "# shared memory: "
"""The beginning of the line in which a rank says that it is too small."""

SHARED_MEMORY_REMEDY = (
    "start the container with more (docker --shm-size=2g, in Kubernetes an emptyDir volume with medium Memory at "
    "/dev/shm), or with the host's (--ipc=host)"
)
"""What to do where shared memory is too small."""


@dataclass(frozen=True, slots=True)
class SharedMemorySpace:
    """The bytes that processes of this host can share: MPICH, Open MPI and NCCL allocate them at /dev/shm.

    ``size`` is 0 if no process can write there.
    """

    size: int
    free: int

    @classmethod
    def read(cls, root: Path = Path("/")) -> "SharedMemorySpace":
        directory = root / "dev/shm"
        if not os.access(directory, os.W_OK):
            return cls(0, 0)
        usage = os.statvfs(directory)
        return cls(usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize)

    def __str__(self) -> str:
        if not self.size:
            return "/dev/shm cannot be written"  # noqa: S108  a message
        return f"/dev/shm has {_binary_size(self.size)}, {_binary_size(self.free)} of them free"  # noqa: S108  a message

    def is_too_small_for(self, ranks: int) -> bool:
        """Return whether ``ranks`` ranks of MPICH use more than there is; some versions then die of signal 7 or 11."""
        return self.size < ranks * MPICH_BYTES_PER_RANK or self.free < MPICH_BYTES_PER_RANK


def _binary_size(nbytes: int) -> str:
    if nbytes < 2**30:
        return f"{nbytes / 2**20:.4g} MiB"
    return f"{nbytes / 2**30:.3g} GiB"


CPU_QUOTA_REMEDY = (
    "give the container a CPU for each rank (docker --cpus, resources.limits.cpu of Kubernetes)"
)
"""What to do where ranks outnumber the CPUs of a quota."""

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
    """Return one entry for each distinct value, which JSON can hold, at ``name``, with the hosts that have it."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, value in value_of_host.items():
        hosts[json.dumps(value)].append(host)
    return [{"hosts": members, name: json.loads(value)} for value, members in hosts.items()]
