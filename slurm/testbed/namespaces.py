"""What the kernel offers and Python 3.11 does not: mounts, namespaces, and death together with the parent."""

import ctypes
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNTS, NAME, IPC, PIDS, NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
"""The namespaces of sched.h: CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET."""
EVERYTHING = MOUNTS | NAME | IPC | PIDS | NETWORK
"""What makes a host."""
BIND, MOVE, RECURSIVE, SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
"""Flags of sys/mount.h."""
NET_ADMIN, SYS_ADMIN = 12, 21
"""Rights, by their numbers in linux/capability.h."""
PDEATHSIG = 1
"""The option of prctl by which a process dies with its parent."""

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(namespaces: int) -> None:
    """Give this process namespaces of its own (of pids, only its children are in)."""
    _check(_libc.unshare(namespaces), "unshare")


def enter(pidfd: int, namespaces: int) -> None:
    """Go over into namespaces of a process (into those of pids, only children that are forked from now on)."""
    _check(_libc.setns(pidfd, namespaces), "setns")


def may_make_hosts() -> bool:
    """Return whether this process has the rights for that, which root in a container often lacks."""
    effective = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    )
    return all(int(effective.split()[1], 16) >> right & 1 for right in (SYS_ADMIN, NET_ADMIN))


@contextmanager
def network(pidfd: int) -> Iterator[None]:
    """Be in the network of another process: a socket made there stays there, and so does a program started there."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        enter(pidfd, NETWORK)
        try:
            yield
        finally:
            enter(own, NETWORK)
    finally:
        os.close(own)


def mount(
    source: str | Path, target: str | Path, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    """Mount something; errors name the target."""
    words = [os.fsencode(word) for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data.encode()), f"mount on {target}")


def die_with(parent: int) -> None:
    """Have this process killed when its parent, known by a pidfd, ends; end here if that has happened already."""
    _check(_libc.prctl(PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
    if select.select([parent], [], [], 0)[0]:
        os._exit(128 + signal.SIGKILL)


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
