"""The share of CPU time of a host: a cgroup of its own, in version 1 or 2, whichever has the controller cpu."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from errors import BrokenError

PERIOD_US = 10_000
"""Whoever has used up the share waits for the next period: a short one, so that ranks are slow and do not stutter."""
TIMEOUT_S = 60
POLL_S = 0.01


class _Version(NamedTuple):
    """A version of cgroups: where it is, how /proc/PID/cgroup calls the controller, and the files of a limit."""

    root: Path
    controller: str
    files: Mapping[str, str]


VERSIONS = (
    _Version(
        Path("/sys/fs/cgroup/cpu"),
        "cpu",
        {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": "{quota}"},
    ),
    _Version(Path("/sys/fs/cgroup"), "", {"cpu.max": f"{{quota}} {PERIOD_US}"}),
)
PROBE = (
    "test -e /sys/fs/cgroup/cpu/cgroup.procs || grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control "
    "|| echo +cpu > /sys/fs/cgroup/cgroup.subtree_control"
)
"""The command of a shell that sees to the controller, and fails where it cannot be had."""


def limit(testbed: str, host: str, share: float, processes: Callable[[], Iterable[int]]) -> None:
    """Give all processes of a host together a share of one CPU, also those that they will start."""
    version = next(version for version in VERSIONS if (version.root / "cgroup.procs").exists())
    group = version.root / _name(testbed, host)
    group.mkdir(exist_ok=True)
    for file, text in version.files.items():
        (group / file).write_text(text.format(quota=round(share * PERIOD_US)))
    while outside := set(processes()) - _members(group):
        _move(outside, group)


def release(testbed: str, host: str, home: int) -> None:
    """Remove the limit of a host, or of all where that is *; processes that still run join the one called ``home``."""
    for version in VERSIONS:
        for group in version.root.glob(_name(testbed, host)):
            until = time.monotonic() + TIMEOUT_S
            while group.exists():
                if time.monotonic() > until:
                    raise BrokenError(f"{group} cannot be removed")
                _move(_members(group), version.root / _group_of(home, version.controller))
                with suppress(OSError):  # a process that has ended still counts for a moment
                    group.rmdir()
                time.sleep(POLL_S)


def _name(testbed: str, host: str) -> str:
    return f"testbed.{testbed}.{host}"


def _group_of(pid: int, controller: str) -> str:
    lines = (line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    return next(
        path.lstrip("/") for _, controllers, path in lines if controller in controllers.split(",")
    )


def _members(group: Path) -> set[int]:
    return {int(pid) for pid in (group / "cgroup.procs").read_text().split()}


def _move(pids: Collection[int], group: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended
            (group / "cgroup.procs").write_text(str(pid))
