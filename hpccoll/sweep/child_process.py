"""Run a launcher as a child process: relay its stderr, end it at a time limit, and find the root cause of a failure."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import IO

from hpccoll.host.cpu_and_memory import (
    MIN_SHARED_BYTES,
    SHARED_MEMORY_REMEDY,
    SHARED_MEMORY_WARNING,
    SharedMemorySpace,
)

GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL, in which a launcher ends its ranks."""

DRAIN_S = 2.0
"""Seconds to read the rest of stderr after the launcher has exited."""

POLL_S = 1.0
"""Seconds between two checks whether the launch has started."""

KEPT_LINES = 200
"""Number of the first and of the last stderr lines that are kept: thousands of ranks print many."""


def run_child(
    command: Sequence[str],
    timeout_s: float,
    log_file: Path | None = None,
    has_started: Callable[[], bool] | None = None,
) -> str | None:
    """Run a launch and return how it failed, with the root cause; None if it succeeded.

    Args:
        command: the launcher's command line.
        timeout_s: the time limit of the launch, or of its start if ``has_started`` is given.
        log_file: a file for stdout and stderr; None relays them to this process.
        has_started: returns whether the launch has started; from then on the ranks' own watchdogs
            supervise it.
    """
    first = list[str]()
    last = deque[str](maxlen=KEPT_LINES)
    with ExitStack() as stack:
        log = None
        if log_file:
            log = stack.enter_context(log_file.open("w"))
        # Not a context manager: it would close the pipe, which blocks until the reader thread ends,
        # and that ends only when the last writer has closed it.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        listener = threading.Thread(
            target=_relay_stderr, args=(child, log or sys.stderr, first, last), daemon=True
        )
        listener.start()
        timed_out = not _wait(child, timeout_s, has_started)
        if timed_out:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()
            child.wait()
        listener.join(DRAIN_S)  # orphans of a killed launcher may keep the pipe open
    if child.returncode == 0:
        return None
    expected = "start" if has_started else "end"
    if timed_out:
        how = f"did not {expected} within {timeout_s:g} s"
    else:
        how = exit_text(child.returncode)
    lines = [*first, *last]
    memory = SharedMemorySpace.read()
    cause = root_cause([line for line in lines if not line.startswith(SHARED_MEMORY_WARNING)])
    if is_memory_fault(child.returncode, memory, lines):
        cause = "; ".join(filter(None, (cause, f"{memory}; do: {SHARED_MEMORY_REMEDY}")))
    return f"{how}: {cause}" if cause else how


def _wait(
    child: subprocess.Popen[str], timeout_s: float, has_started: Callable[[], bool] | None
) -> bool:
    """Wait for the end of a launch; return False if it neither ended nor started within ``timeout_s``."""
    until = time.monotonic() + timeout_s
    while True:
        left = until - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, min(left, POLL_S) if has_started else left))
        if child.returncode is not None:
            return True
        if has_started and has_started():
            child.wait()
            return True
        if left <= 0:  # checked last: the launch may have ended while this process was stopped
            return False


def _relay_stderr(
    child: subprocess.Popen[str], out: IO[str], first: list[str], last: deque[str]
) -> None:
    # the log file is closed after DRAIN_S
    with child.stderr or nullcontext(()) as lines, suppress(ValueError):
        for line in lines:
            out.write(line)
            out.flush()
            (first if len(first) < KEPT_LINES else last).append(line.strip())


def exit_text(code: int) -> str:
    """Return how a process ended."""
    if code < 0:
        return f"ended by signal {-code}"
    return f"ended with exit code {code}"


OUT_OF_MEMORY = re.compile(r"oom.?kill|out of memory", re.IGNORECASE)
"""Slurm's message about a rank that used more memory than its job was granted."""

RANK_TIMEOUT = re.compile(r"Timeout \(.*\)!")
"""The faulthandler message of a rank whose deadline passed in MPI_Init, MPI_Finalize, or while rank 0 wrote results."""

ERROR = re.compile(r"error\b", re.IGNORECASE)
"""An error line of any program; the first one often causes the others: an error of Slurm's PMI precedes MPI's."""

MEMORY_FAULT = re.compile(
    r"Bus error|Segmentation fault|signal:? (?:7|11)\b|shm_open|shared memory", re.IGNORECASE
)
"""How launchers say that a rank died of SIGBUS or SIGSEGV, and how libraries and ranks name shared memory."""

MEMORY_FAULT_CODES = [
    exit_code for code in (signal.SIGBUS, signal.SIGSEGV) for exit_code in (code, 128 + code, -code)
]
"""Exit codes of launchers and shells if such a signal ended a rank; mpiexec of MPICH prints the signal on stdout."""

SRUN_ERROR = "srun: error: "
"""How srun begins a line about itself or about tasks that failed: "srun: error: n2: task 1: Killed"."""

TERMINATED = "Terminated"
"""How srun says that a task ended by SIGTERM, which Slurm sends to all tasks of a step once one has failed."""

STEP_CANCELLED = re.compile(r"slurmstepd\S*: error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ \*\*\*")
"""How Slurm says that it ends a step, without a reason: the failed task that srun names is the reason."""

MAX_SRUN_ERRORS = 3
"""Number of srun's lines in the root cause; srun may print one for each of thousands of tasks."""


def is_memory_fault(code: int, memory: SharedMemorySpace, lines: Sequence[str] = ()) -> bool:
    """Return whether a rank may have died because shared memory is small."""
    died = code in MEMORY_FAULT_CODES or any(map(MEMORY_FAULT.search, lines))
    return died and memory.free < MIN_SHARED_BYTES


def root_cause(lines: Sequence[str]) -> str | None:
    """Return the most informative of the stderr lines; None without any.

    In this order: out of memory, an error of hpccoll, a rank's traceback, how MPI failed, the last
    line.
    """
    memory = (line for line in lines if OUT_OF_MEMORY.search(line))
    ours = (line.removeprefix("hpccoll: ") for line in lines if line.startswith("hpccoll: "))
    ranks = (line for line in lines if line.startswith("r") and " | " in line)
    return next(
        chain(
            memory, ours, ranks, filter(None, [_mpi_failure(lines)]), filter(None, reversed(lines))
        ),
        None,
    )


def _mpi_failure(lines: Sequence[str]) -> str:
    """Return how MPI failed: the first error, the timeout or the last line, and the tasks that failed."""
    timeout = next((line for line in lines if RANK_TIMEOUT.match(line)), None)
    if timeout:
        before = lines[: lines.index(timeout)]
    else:
        before = lines
    failed_tasks = _srun_errors(lines)
    task_failed_first = bool(failed_tasks) and not failed_tasks[0].endswith(TERMINATED)
    errors = (line for line in before if ERROR.search(line) and not line.startswith("srun: "))
    error = next(
        (line for line in errors if not (task_failed_first and STEP_CANCELLED.fullmatch(line))),
        None,
    )
    if timeout:
        waited = f"a rank waited too long for the others in MPI_Init, MPI_Finalize or at the end: {timeout}"
        return "; ".join(filter(None, (error, waited)))
    other_lines = (
        line for line in reversed(lines) if line and not line.startswith(("srun: ", "slurmstepd"))
    )
    return "; ".join(dict.fromkeys(filter(None, (error, next(other_lines, None), *failed_tasks))))


def _srun_errors(lines: Sequence[str]) -> list[str]:
    """Return srun's first line for each way in which tasks failed.

    The first task to fail may be a victim of another one, whose end srun learns a moment later:
    MPICH 5.0.2 may crash in a call that involves a rank that was killed.
    """
    by_way = dict[str, str]()
    for line in lines:
        way = line.rpartition(": ")[2]
        if line.startswith(SRUN_ERROR) and not (by_way and way == TERMINATED):
            by_way.setdefault(way, line)
    return list(by_way.values())[:MAX_SRUN_ERRORS]
