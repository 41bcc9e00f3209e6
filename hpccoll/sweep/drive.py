"""Drive: run the workflow from the command line, show how far it is, and leave nothing behind."""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hpccoll.case import Plan
from hpccoll.errors import BadInputError
from hpccoll.sweep.locate import workflows

MARK = "HPCCOLL_SWEEP"
"""The variable by which processes of a sweep are found; its value is the directory of the results."""


def snakemake_command(config: Path, profile: str, out: Path, extra: Sequence[str]) -> list[str]:
    """Return the command that measures what is missing in ``out``.

    Snakemake's own lock is left out: ours dies with the process that holds it, and is per directory.
    """
    return [
        sys.executable, "-m", "snakemake", "-s", str(workflows() / "Snakefile"),
        "--workflow-profile", str(workflows() / "profiles" / profile), "--configfile", str(config),
        "--config", f"out={out}", "--nolock", *(extra or ["raw"]),
    ]  # fmt: skip


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold ``out`` against other sweeps.

    Raises:
        BadInputError: where it cannot be written, or another sweep is at work in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise BadInputError("--out", str(out), f"a directory that can be written ({error.strerror})") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError("--out", str(out), "another directory: a sweep is at work in this one") from None
        yield


def end_leftovers(out: Path, grace: float = 5.0) -> list[str]:
    """End the processes that an earlier sweep into ``out`` has left on this machine, and return what they were."""
    left = dict(_marked(out))
    for pid in left:
        _kill(pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while (alive := dict(_marked(out))) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in alive:
        _kill(pid, signal.SIGKILL)
    return [f"{command} (process {pid})" for pid, command in left.items()]


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _marked(out: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes, other than this one, that carry the mark of ``out``."""
    mark = f"{MARK}={out.resolve()}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes().split(b"\0"):
                yield int(place.name), (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
        except OSError:  # it has ended, or is another user's
            continue


def cases_done(plan: Plan, out: Path) -> int:
    """Return how many cases have an outcome so far."""
    done = 0
    for job in plan.jobs:
        raw = out / "raw" / f"{job.name}.h5"
        journal = raw.with_name(raw.name + ".journal")
        if journal.exists():
            done += sum(line.startswith(b'{"outcome"') for line in journal.read_bytes().splitlines())
        elif raw.exists():
            done += len(job.cases)
    return done


def drive(command: Sequence[str], out: Path, show: Callable[[], None]) -> int:
    """Run Snakemake to its end, calling ``show`` while it runs, and return its exit code.

    Its output goes to logs/snakemake.log below ``out``. On Ctrl-C it gets the signal too and ends its jobs.
    """
    log = out / "logs" / "snakemake.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"\n$ {shlex.join(command)}\n".encode())
        file.flush()
        child = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, MARK: str(out.resolve())})
        try:
            while child.poll() is None:
                show()
                time.sleep(0.2)
        except KeyboardInterrupt:
            child.wait(timeout=60)
    end_leftovers(out)
    return child.returncode
