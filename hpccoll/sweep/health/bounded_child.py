"""Child processes that never outlive their time: they are killed with all processes that they have started."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from hpccoll.host.machine_load import read_load

KILLED_S = 2.0
"""Seconds that a killed process has to end: one that waits for a driver may never do so."""

PASSES = 3
"""How often the descendants are searched: they may start others meanwhile."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child ended."""

    code: int | None  # the exit code; None if it was killed at the end of its time
    out: str
    error: str  # the last line on stderr; empty without any


def run_bounded(
    command: Sequence[str], limit_s: float, variables: Mapping[str, str]
) -> ChildResult:
    """Run a program with an environment for at most some seconds, and return its result.

    Raises:
        OSError: if it cannot be started.
    """
    # files: whoever still has the other end of a pipe would keep it open
    with TemporaryFile() as out, TemporaryFile() as err:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=variables
        )
        code = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(max(limit_s, 0.0))
        finally:  # also if a signal ends this process
            if code is None:
                _kill_with_descendants(child)
        errors = _content(err).strip().splitlines() or [""]
        return ChildResult(code, _content(out), errors[-1])


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _kill_with_descendants(child: subprocess.Popen[bytes]) -> None:
    for _ in range(PASSES):
        _kill_descendants(child.pid)
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(KILLED_S)


def _kill_descendants(ancestor: int) -> None:
    """Kill the processes that descend from a living one, and no later ones that got their numbers."""
    with ExitStack() as stack:
        handles = {}
        for pid in _descendants(ancestor):
            with suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
                stack.callback(os.close, handles[pid])
        still_descendants = _descendants(ancestor)
        for pid in handles.keys() & still_descendants:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], signal.SIGKILL)


def _descendants(ancestor: int) -> set[int]:
    sample = read_load()
    if sample is None:
        return set()
    descendants: set[int] = set()
    generation = {ancestor}
    while generation:
        children = set()
        for pid, process in sample.processes.items():
            if process.parent in generation:
                children.add(pid)
        generation = children - descendants
        descendants |= generation
    return descendants
