"""Run a command on a host as if it had been run here: its directory, environment, signals, terminal and exit code."""

import os
import signal
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import namespaces
from errors import RefusedError
from state_directory import Process

SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""What can be waited for."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes, as a shell's."""


def run(head: Process, command: Sequence[str]) -> int:
    """Run a command on the head host and return its exit code.

    The command has a process group of its own, and what arrives here goes on to that group. So a
    signal reaches it once, whether it was sent to this process, to its group, or typed.
    """
    here, environment = Path.cwd(), _environment()
    own = os.pidfd_open(os.getpid())
    with head.held() as pidfd:
        namespaces.enter(pidfd, namespaces.EVERYTHING)
    try:
        os.chdir(here)
    except OSError:
        raise RefusedError(f"the current directory, {here}, is not on the head host") from None
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if not child:
        _become(command, environment, own, mask)
    with suppress(OSError):  # whoever is first: it does the same
        os.setpgid(child, child)
    return _ChildSupervisor(child).supervise()


def _environment() -> dict[bytes, bytes]:
    """Return what this process was started with. Python adds to os.environ where the locale is C."""
    entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    pairs = [entry.partition(b"=") for entry in entries if b"=" in entry]
    return {name: value for name, _, value in pairs}


def _become(
    command: Sequence[str], environment: dict[bytes, bytes], parent: int, mask: AbstractSet[int]
) -> NoReturn:
    """Be the command, from here on."""
    code = NOT_EXECUTABLE
    try:
        namespaces.die_with(parent)
        os.setpgid(0, 0)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], list(command), environment)  # noqa: S606 - a shell is what it must not go through
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        print(f"testbed: run: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


class _ChildSupervisor:
    """What a process does while it stands for a command on another host."""

    def __init__(self, child: int) -> None:
        self.child = child
        self.terminal: int | None = None
        with suppress(OSError):
            self.terminal = os.open("/dev/tty", os.O_RDWR)

    def supervise(self) -> int:
        """Pass on signals until the command has ended, and return its exit code."""
        while True:
            number = signal.sigwait(SIGNALS)
            if number == signal.SIGCHLD:
                if (code := self._look()) is not None:
                    return code
            elif number == signal.SIGCONT:
                self._go_on()
            else:
                self._pass_on(number)

    def _look(self) -> int | None:
        pid, status = os.waitpid(self.child, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if not os.WIFSTOPPED(status):
            self._give_terminal(self.child, os.getpgrp())
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        wants_terminal = os.WSTOPSIG(status) in {signal.SIGTTIN, signal.SIGTTOU}
        if wants_terminal and self._give_terminal(os.getpgrp(), self.child):
            self._pass_on(signal.SIGCONT)
        else:
            # as the command has, for the shell that watches us
            os.kill(os.getpid(), signal.SIGSTOP)
        return None

    def _go_on(self) -> None:
        self._give_terminal(os.getpgrp(), self.child)
        self._pass_on(signal.SIGCONT)

    def _pass_on(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.child, number)

    def _give_terminal(self, holder: int, heir: int) -> bool:
        """Give the terminal from one process group to the other, if the one has it."""
        with suppress(OSError):
            if self.terminal is not None and os.tcgetpgrp(self.terminal) == holder:
                os.tcsetpgrp(self.terminal, heir)
                return True
        return False
