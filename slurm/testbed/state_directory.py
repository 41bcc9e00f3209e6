"""The place of a testbed: its directory below /run, what it says about it, and which processes are its own."""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cpu_limit
from errors import BrokenError, RefusedError

ROOT = Path("/run/hpccoll-testbed")
"""Where testbeds are; each has a directory of its name."""
SERVICES = {"fabric": "munged", "head": "slurmctld"}
"""What a host runs; every other one runs slurmd."""
KINDS = ("fabric", "head", "n", "a")
"""Hosts in the order in which they are listed; workers and aggregators are numbered."""
TIMEOUT_S = 60
"""How long a killed host has for going."""
LOCK_S = 3
"""How long a command waits for another one: changing faults takes less, up and down may take longer."""
POLL_S = 0.02


@dataclass(frozen=True)
class Process:
    """A process, and never a later one to which the kernel gave the same number."""

    pid: int
    born: int

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Return the process that has this number now, or raise ProcessLookupError."""
        return cls(pid, _stat(pid).born)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        with suppress(ProcessLookupError):
            return _stat(self.pid).born == self.born
        return False

    @contextmanager
    def held(self) -> Iterator[int]:
        """Have a pidfd of it, or raise ProcessLookupError."""
        pidfd = os.pidfd_open(self.pid)
        try:
            if not self.alive:
                raise ProcessLookupError
            yield pidfd
        finally:
            os.close(pidfd)

    def kill(self) -> None:
        """Kill it, and wait until it has gone; the first process of a host takes all others of the host with it."""
        with suppress(ProcessLookupError), self.held() as pidfd:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if not select.select([pidfd], [], [], TIMEOUT_S)[0]:
                raise BrokenError(
                    f"process {self.pid} was killed and does not end: is a process of its host stopped?"
                )


@dataclass(frozen=True)
class _Stat:
    """What /proc/PID/stat says."""

    command: str
    parent: int
    born: int


def _stat(pid: int) -> _Stat:
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        raise ProcessLookupError from None
    words = after.split()
    if words[0] in "ZX":  # it has ended, and its parent has not asked yet
        raise ProcessLookupError
    return _Stat(before.partition("(")[2], int(words[1]), int(words[19]))


def _services(hosts: dict[str, Process]) -> dict[str, int]:
    """Return the process of each host's service, where it runs."""
    host_of = {process.pid: host for host, process in hosts.items()}
    found = {}
    for pid in (int(place.name) for place in Path("/proc").glob("[0-9]*")):
        with suppress(ProcessLookupError):
            stat = _stat(pid)
            host = host_of.get(stat.parent)
            if host and stat.command == SERVICES.get(host, "slurmd"):
                found[host] = pid
    return found


def _rank(host: str) -> tuple[int, int, str]:
    """Return where a host comes in a list."""
    return KINDS.index(host.strip("0123456789")), len(host), host


class StateDirectory:
    """The directory of a testbed; everything that it writes is in there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = ROOT / name
        self.etc = self.directory / "etc"
        self.marker_file = self.etc / "hpccoll-testbed.json"
        self.faults_file = self.directory / "faults.json"

    @contextmanager
    def locked(self, *, create: bool) -> Iterator[bool]:
        """Hold the place alone; give whether there is one. What is empty in the end goes.

        Raises:
            RefusedError: where another command is at work on it.
        """
        lock = self._open(create=create)
        if lock is None:
            yield False
            return
        try:
            yield True
        finally:
            for directory in (self.directory, ROOT):
                with suppress(OSError):  # it is not empty
                    directory.rmdir()
            os.close(lock)

    def _open(self, *, create: bool) -> int | None:
        until = time.monotonic() + LOCK_S
        while True:
            with suppress(FileNotFoundError):
                if create:
                    self.directory.mkdir(parents=True, exist_ok=True)
                elif not self.directory.exists():
                    return None
                lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(lock)
                    if time.monotonic() < until:
                        time.sleep(POLL_S)
                        continue
                    raise RefusedError(
                        f"testbed {self.name!r}: another command is changing it; wait for it"
                    ) from None
                if os.path.samestat(os.fstat(lock), self.directory.stat()):
                    return lock
                os.close(lock)  # it was taken down in between

    def create_directories(self) -> None:
        """Make the directories."""
        for part in ("etc", "pids", "boot_id", "log", "munge", "spool", "tmp", "sys"):
            (self.directory / part).mkdir()

    def record_host(self, host: str, process: Process) -> None:
        """Write down the first process of a host."""
        (self.directory / "pids" / host).write_text(f"{process.pid} {process.born}\n")

    def hosts(self) -> dict[str, Process]:
        """Return the first process of every host that was written down: fabric, head, n1, n2..., a1, a2..."""
        found = {}
        for file in (self.directory / "pids").glob("*"):
            words = file.read_text().split()
            if len(words) == 2:  # else whoever wrote it was killed, and the host with him
                found[file.name] = Process(int(words[0]), int(words[1]))
        return {host: found[host] for host in sorted(found, key=_rank)}

    def processes(self, host: str, variable: bytes = b"") -> dict[int, int]:
        """Return the processes of a host, or those that were started with a variable, and when each was born."""
        found, own = {}, Path(f"/proc/{self.hosts()[host].pid}/ns/pid").readlink()
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if (place / "ns/pid").readlink() == own and variable in (
                    place / "environ"
                ).read_bytes():
                    found[int(place.name)] = _stat(int(place.name)).born
        return found

    def marker(self) -> dict[str, Any] | None:
        """Return what `up` wrote when it had finished."""
        with suppress(OSError, ValueError):
            marker: dict[str, Any] = json.loads(self.marker_file.read_text())
            return marker
        return None

    def survey(self) -> dict[str, Any]:
        """Return the state: `up` (whole), `damaged`, or `down`; every host, its first process and its service."""
        hosts, marker = self.hosts(), self.marker()
        services = _services(hosts)
        whole = marker is not None and services.keys() == hosts.keys()
        return {
            "name": self.name,
            "state": "up" if whole else "damaged" if hosts else "down",
            "directory": str(self.directory),
            "hosts": {
                host: {
                    "init": process.pid if process.alive else None,
                    SERVICES.get(host, "slurmd"): services.get(host),
                }
                for host, process in hosts.items()
            },
            "marker": marker,
        }

    def clear(self) -> None:
        """End every host and remove every file: what `up` made, whole or not."""
        for process in self.hosts().values():
            process.kill()
        cpu_limit.release(self.name, "*", os.getpid())
        until = time.monotonic() + TIMEOUT_S
        # a host that has not heard of its end yet may still write
        while items := list(self.directory.iterdir()):
            if time.monotonic() > until:
                raise BrokenError(f"{items[0]} cannot be removed")
            for item in items:
                with suppress(OSError):
                    shutil.rmtree(item) if item.is_dir() else item.unlink()
