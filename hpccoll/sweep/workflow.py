"""Drive: run the workflow from the command line, show how far it is, and leave nothing behind."""

import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import yaml

from hpccoll.errors import BadInputError, UnusableError, file_error
from hpccoll.files import open_regular
from hpccoll.store.durable_files import is_locked, lock_exclusively, open_without_links
from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.slurm.monitor import SlurmMonitor
from hpccoll.sweep.slurm.squeue import job_prefix

SWEEP_VARIABLE = "HPCCOLL_SWEEP"
"""The variable by which processes of a sweep are found; its value is the directory of the results."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a sweep in good order; the last one comes where a connection is lost."""
INTERRUPT_S = 60.0
"""How long an interrupted Snakemake has for ending its jobs."""
OUTAGE_INTERRUPT_S = 5.0
"""How long it has while Slurm's controller does not answer, so that it can cancel none."""
REFRESH_S = 0.5
"""Between two looks at what is measured, and at Slurm."""
_PLAIN_NAME = re.compile(r"(?!(?:true|false|null|nan|inf|infinity)$)[a-z_.][a-z0-9_./+-]*", re.IGNORECASE | re.ASCII)
"""Names that are text to every reader."""
POLL_S = 0.1
"""Between two looks at what a sweep has left running."""
MAX_STARTS = 3
"""How often Snakemake is started in all, where it does not see that its jobs have ended."""


def snakemake_command(config: Path, profile: str, site: str | None, out: Path, extra: Sequence[str]) -> list[str]:
    """Return the command that measures what is missing in ``out``.

    Snakemake's own lock is left out: ours dies with the process that holds it, and is per directory. Slurm jobs are
    named after the directory, by which the next sweep finds those that a killed one left behind.

    Raises:
        BadInputError: for a name of a file or directory that does not reach the rules as it is.
    """
    settings = [f"out={_snakemake_path('--out', out)}", f"profile={profile}"]
    settings += [f"site={_snakemake_path('--site', Path(site)) if Path(site).exists() else site}"] if site else []
    if profile != "local" and re.search(r"[%\\]", str(out.resolve())):
        raise BadInputError("--out", str(out), "a directory without % and \\ in its path: Slurm takes logs elsewhere")
    slurm = [] if profile == "local" else [
        "--slurm-jobname-prefix", job_prefix(out), "--slurm-logdir", str((out / "logs" / "slurm").resolve()),
    ]  # fmt: skip
    return [
        sys.executable, "-m", "snakemake", "-s", str(workflow_directory() / "Snakefile"),
        "--workflow-profile", str(workflow_directory() / "profiles" / profile),
        "--configfile", _snakemake_path("CONFIG", config),
        "--config", *settings, "--nolock", *slurm, "raw", *extra,
    ]  # fmt: skip


def _snakemake_path(key: str, path: Path) -> str:
    """Return the path by which the rules of Snakemake find a file: an absolute one, if the name is no plain word.

    Snakemake reads the values of its configuration as numbers and YAML, in a Slurm job once more, and takes braces in
    the names of files for wildcards.

    Raises:
        BadInputError: if there is no such path.
    """
    if _PLAIN_NAME.fullmatch(str(path)):
        return str(path)
    text = str(path.absolute())
    try:
        read = yaml.load(text, yaml.BaseLoader)  # noqa: S506  it makes texts, lists and maps alone
    except yaml.YAMLError:  # which Snakemake takes as it is
        read = text
    if read != text or not text.isprintable() or re.search("[{}]|['\"]$", text):
        expected = "a path without braces, control characters, ': ' and ' #', and no quote at its end"
        raise BadInputError(key, str(path), expected)
    return text


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Hold ``out`` against other sweeps.

    Raises:
        BadInputError: where it cannot be written, or another sweep is at work in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = open(out / ".lock", "w", opener=open_without_links)  # noqa: SIM115  it is closed below
    except OSError as error:
        raise file_error("--out", out, error, "written") from None
    with lock:
        if not lock_exclusively(lock):
            raise UnusableError(str(out), "a sweep is at work in it: 'hpccoll status' says how far it is")
        yield


def is_running(out: Path) -> bool:
    """Return whether a sweep holds ``out`` now."""
    try:
        with open_regular(out / ".lock", str(out)) as lock:
            return is_locked(lock)
    except BadInputError:
        return False


def kill_orphans(out: Path, grace: float = 5.0) -> list[str]:
    """End the processes that an earlier sweep into ``out`` has left on this machine, and return what they were.

    They have ``grace`` seconds to end by themselves, and are killed then, which may take as long. One of them may start
    others meanwhile, which end too.
    """
    ended: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        told: set[int] = set()
        until = time.monotonic() + grace
        while left := _find_orphans(out):
            for pid in left.keys() - told:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            told |= left.keys()
            ended |= left
            if time.monotonic() > until:
                break
            time.sleep(POLL_S)
        if not left:
            break
    return [f"{command} (process {pid})" for pid, command in ended.items()]


def _find_orphans(out: Path) -> dict[int, str]:
    """Return what ``_marked`` yields, looking twice: who is just becoming another program has no environment."""
    left = dict(_scan_processes(out))
    if not left:
        time.sleep(POLL_S)
        left = dict(_scan_processes(out))
    return left


def _scan_processes(out: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes, other than this one, that carry the mark of ``out``."""
    mark = f"{SWEEP_VARIABLE}={out.resolve()}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes().split(b"\0"):
                yield (
                    int(place.name),
                    (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80],
                )
        except OSError:  # it has ended, or is another user's
            continue


def run_workflow(
    command: Sequence[str], out: Path, show: Callable[[], None], monitor: SlurmMonitor | None = None
) -> int:
    """Run Snakemake to its end, calling ``show`` while it runs, and return its exit code.

    A ``monitor`` looks after the jobs where they are Slurm's. Snakemake forgets those whose state it was not told when
    it asked, as from a controller that is busy, and waits for ever; then it is started again, and goes on from the
    files that are there. So it is where the controller was gone for some time, however Snakemake has taken that: what
    it could not submit or see then has failed for it.

    Its output goes to logs/snakemake.log below ``out``. It has a process group of its own: on Ctrl-C or SIGTERM, all
    of it is interrupted, once (Snakemake forgets its Slurm jobs when it is interrupted twice).
    """
    log = out / "logs" / "snakemake.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab", opener=open_without_links) as file:
        # A shell that starts us in the background has SIGINT ignored, and what ignores it cannot be interrupted:
        # neither we nor Snakemake, which would inherit it.
        before = {number: signal.signal(number, signal.default_int_handler) for number in END_SIGNALS}
        child = _start(command, file, out)
        reason = "the sweep ended without it"
        try:
            left = MAX_STARTS - 1
            while (why := _wait_for_snakemake(child, show, monitor)) and monitor:
                left -= not monitor.outage  # of these there are no more than outages of the controller
                then = "started again" if left >= 0 else "ended"
                print(f"hpccoll: {why}: it is {then}", file=sys.stderr)
                _interrupt(child, INTERRUPT_S)
                child.kill()  # where that was not enough; it knows of no job to end
                child.wait()
                if left < 0:
                    break
                monitor.restart()
                child = _start(command, file, out)
        except BadInputError as error:  # of Slurm, which does not answer: who is next goes on
            print(f"hpccoll: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            reason = "the sweep was interrupted"
            with suppress(KeyboardInterrupt):
                seconds = INTERRUPT_S
                if monitor:
                    monitor.controller.ask()
                    monitor.cancel_all(reason)  # before Snakemake does, which gives no reason
                    seconds = OUTAGE_INTERRUPT_S if monitor.controller.unreachable else INTERRUPT_S
                _interrupt(child, seconds)
            with suppress(OSError):  # nobody may be there to read it
                print(f"hpccoll: {reason}: the same command measures what is left", file=sys.stderr, flush=True)
        finally:
            try:
                if monitor:
                    with suppress(KeyboardInterrupt):
                        monitor.end(reason)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                kill_orphans(out)
    return child.wait()


def _start(command: Sequence[str], file: IO[bytes], out: Path) -> subprocess.Popen[bytes]:
    file.write(f"\n$ {shlex.join(command)}\n".encode())
    file.flush()
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, process_group=0,
        env={**os.environ, SWEEP_VARIABLE: str(out.resolve())}, preexec_fn=_interrupt_on_parent_death,  # noqa: PLW1509  it only calls
    )  # fmt: skip


def _wait_for_snakemake(child: subprocess.Popen[bytes], show: Callable[[], None], monitor: SlurmMonitor | None) -> str:
    """Wait for the end of Snakemake, and return why it has to be started again; nothing where it has not."""
    while not _has_ended(child, REFRESH_S):
        show()
        if monitor:
            monitor.poll()
            if monitor.missed_end:
                return "Snakemake does not see that its jobs have ended"
    if monitor is None or not child.returncode:
        return ""
    monitor.controller.ask()
    while monitor.controller.unreachable:
        time.sleep(REFRESH_S)
        show()
        monitor.controller.poll()
    return "Snakemake failed while Slurm's controller did not answer" if monitor.outage else ""


def _interrupt(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Interrupt Snakemake and what it has started, and wait for its end, for so many ``seconds`` at most."""
    with suppress(ProcessLookupError):  # it has ended, and was waited for
        os.killpg(child.pid, signal.SIGINT)
    _has_ended(child, seconds)


_libc = ctypes.CDLL(None)  # looked up here: between fork and exec little is safe
PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


def _interrupt_on_parent_death() -> None:
    """Have Snakemake interrupted, which cancels its jobs, where this process is killed: nobody else looks after it."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Return whether a process has ended, after ``seconds`` at most."""
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    return child.returncode is not None
