"""A host: one process that has a network, a name, mounts, pids and shared memory of its own, and is the first there.

Its namespaces live and die with it. Killing it kills everything on the host at once, like pulling
the plug.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import namespaces
from errors import BrokenError
from state_directory import Process, StateDirectory

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
"""What services run with: nothing of the user's."""


class Host:
    """A host that is being brought up; until `leave` it dies with the process that opened it."""

    def __init__(self, testbed: StateDirectory, name: str) -> None:
        self.testbed, self.name, self.pidfd = testbed, name, -1
        self.log = testbed.directory / "log" / f"{name}.log"
        with self.log.open("ab") as log:
            self._starter = subprocess.Popen(
                [sys.executable, "-S", "-E", "-B", __file__, str(testbed.directory), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,
                text=True,
            )

    def wait(self) -> None:
        """Wait until it is furnished, and write down its first process."""
        if self._starter.stdout is None or not (said := self._starter.stdout.readline()):
            raise BrokenError(f"host {self.name} does not come up: {log_tail(self.log)}")
        self.process = Process.of(int(said))
        self.testbed.record_host(self.name, self.process)
        self.pidfd = os.pidfd_open(self.process.pid)
        self._starter.wait()

    def start(self, *command: str | Path) -> None:
        """Have a service started by the host's first process."""
        self._order([str(word) for word in command])

    def leave(self) -> None:
        """Have it stay when this process ends."""
        self._order("stay")

    def call(self, *command: str, batch: Sequence[str] = ()) -> str:
        """Run a program in its network, with ``batch`` as its input lines; return what it said."""
        return call(self.name, self.pidfd, *command, batch=batch)

    def _order(self, order: str | list[str]) -> None:
        if self._starter.stdin is None:
            raise BrokenError(f"host {self.name} takes no orders")
        self._starter.stdin.write(json.dumps(order) + "\n")
        self._starter.stdin.flush()


def call(name: str, pidfd: int, *command: str, batch: Sequence[str] = ()) -> str:
    """Run a program in the network of the host with that first process, as `Host.call` does."""
    with namespaces.network(pidfd):
        ended = subprocess.run(
            command,
            env=ENVIRONMENT,
            input="\n".join(batch),
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode:
        raise BrokenError(f"{' '.join(command)} on {name}: {' '.join(ended.stderr.split())}")
    return ended.stdout


def log_tail(log: Path) -> str:
    """Return the last line of a log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else f"{log} is empty"


def _set_up_mounts(state: Path, name: str) -> None:
    """Make the mounts of a host. Only it has them, while what is mounted outside later is seen here too."""
    namespaces.mount("none", "/", flags=namespaces.RECURSIVE | namespaces.SLAVE)
    namespaces.mount("proc", "/proc", "proc")
    # By the boot id, UCX and NCCL tell hosts apart: with one boot id for all they would use shared
    # memory across hosts.
    boot_id = state / "boot_id" / name
    boot_id.write_text(f"{uuid.uuid4()}\n")
    namespaces.mount(boot_id, "/proc/sys/kernel/random/boot_id", flags=namespaces.BIND)
    # A new sysfs shows this network's devices, and no cgroups; Slurm needs those.
    namespaces.mount("sysfs", state / "sys", "sysfs")
    namespaces.mount(
        "/sys/fs/cgroup", state / "sys/fs/cgroup", flags=namespaces.BIND | namespaces.RECURSIVE
    )
    namespaces.mount(state / "sys", "/sys", flags=namespaces.MOVE)
    namespaces.mount("tmpfs", "/dev/shm", "tmpfs", data="mode=1777")  # noqa: S108 - the mount point, not a file
    namespaces.mount(state / "hosts", "/etc/hosts", flags=namespaces.BIND)
    namespaces.mount(state / "etc", "/etc/slurm", flags=namespaces.BIND)
    socket.sethostname(name)
    without = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    if without.exists():  # it would chatter, and port counters would count it
        without.write_text("1")


def _serve() -> None:
    """Start what is ordered, then bury the dead for ever; end if whoever gives the orders dies before "stay"."""
    for line in sys.stdin:
        order = json.loads(line)
        if order == "stay":
            break
        # The services are the host's: they outlive this scope, and _reap_children waits for them.
        subprocess.Popen(order, stdin=subprocess.DEVNULL, start_new_session=True)
    else:
        return
    sys.stdin.close()
    _reap_children()


def _reap_children() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigwait([signal.SIGCHLD])


def main(state: Path, name: str) -> None:
    """Become a host."""
    namespaces.unshare(namespaces.EVERYTHING)
    if os.fork():
        os._exit(0)
    outside = Path("/proc/self").readlink()  # this is still the /proc of outside
    _set_up_mounts(state, name)
    print(outside, flush=True)
    os.dup2(2, 1)
    _serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
