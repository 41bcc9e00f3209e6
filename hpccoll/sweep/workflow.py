"""Run the workflow: start Snakemake, show the progress, and end every process and job of the sweep afterwards."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import yaml

from hpccoll.common.errors import BadInputError, UnusableError, file_error
from hpccoll.common.files import open_regular
from hpccoll.common.interruption import INTERRUPTED, interruptible
from hpccoll.store.durable_files import is_locked, open_without_links, try_lock
from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
from hpccoll.sweep.slurm.squeue import job_prefix

SWEEP_VARIABLE = "HPCCOLL_SWEEP"
"""The variable that marks processes of a sweep; its value is the directory of the results."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a sweep in good order; SIGHUP comes when a connection is lost."""
INTERRUPT_S = 60.0
"""Seconds that an interrupted Snakemake has to end its jobs."""
OUTAGE_INTERRUPT_S = 5.0
"""The same while Slurm's controller does not answer, so that no job can be cancelled."""
REFRESH_S = 0.5
"""Seconds between two updates of the progress and of Slurm's state."""
_PLAIN_NAME = re.compile(
    r"(?!(?:true|false|null|nan|inf|infinity)$)[a-z_.][a-z0-9_./+-]*", re.IGNORECASE | re.ASCII
)
"""Paths that neither YAML nor Snakemake reads as anything but text."""
POLL_S = 0.1
"""Seconds between two scans for orphans."""
LOG_TAIL_BYTES = 4096
"""The end of Snakemake's log in which its last line is looked for."""
MAX_STARTS = 3
"""Number of times to start Snakemake if it misses the end of its jobs."""


def snakemake_command(
    config: Path, profile: str, site: str | None, out: Path, extra: Sequence[str]
) -> list[str]:
    """Return the Snakemake command that measures the missing cases of ``out``.

    The profile that the user has for other workflows (SNAKEMAKE_PROFILE) does not apply: its
    executor or its dry run would decide what is measured. Snakemake's own lock is turned off:
    hpccoll's lock is per directory and ends with its process. Slurm jobs are named after the
    directory, so that the next sweep finds orphans of a killed one.

    Raises:
        BadInputError: if Snakemake would change the name of a file or directory, or its programs
            are not on PATH.
    """
    if missing := [name for name in ("bash", "which") if not shutil.which(name)]:
        raise UnusableError(
            "PATH",
            f"Snakemake starts {' and '.join(missing)}, not found there; do: add the directory",
        )
    settings = [f"out={_snakemake_path('--out', out)}", f"profile={profile}"]
    if site:
        if Path(site).exists():
            site_name = _snakemake_path("--site", Path(site))
        else:
            site_name = site
        settings.append(f"site={site_name}")
    if profile != "local" and re.search(r"[%\\]", str(out.resolve())):
        raise BadInputError(
            "--out", str(out), "a path without % and \\: Slurm replaces them in the names of logs"
        )
    slurm = (
        []
        if profile == "local"
        else [
            "--slurm-jobname-prefix",
            job_prefix(out),
            "--slurm-logdir",
            str((out / "logs" / "slurm").resolve()),
        ]
    )
    without_profile = ["--profile", "none"]
    if re.search(r"(?<!\S)--profile(?![-\w])", " ".join(extra)):
        without_profile = []
    return [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        str(workflow_directory() / "Snakefile"),
        *without_profile,
        "--workflow-profile",
        str(workflow_directory() / "profiles" / profile),
        "--configfile",
        _snakemake_path("CONFIG", config),
        "--config",
        *settings,
        "--nolock",
        *slurm,
        "raw",
        *extra,
    ]


def _snakemake_path(key: str, path: Path) -> str:
    """Return a path that Snakemake passes to its rules unchanged: the absolute path unless the name is plain.

    Snakemake parses configuration values as YAML, in a Slurm job twice, and treats braces in file
    names as wildcards.
    """
    if _PLAIN_NAME.fullmatch(str(path)):
        return str(path)
    text = str(path.absolute())
    try:
        read = yaml.load(text, yaml.BaseLoader)  # noqa: S506  BaseLoader creates only texts, lists and maps
    except yaml.YAMLError:  # Snakemake then uses the text
        read = text
    if read != text or not text.isprintable() or re.search("[{}]|['\"]$", text):
        expected = (
            "a path without braces, control characters, ': ' and ' #', and no quote at its end"
        )
        raise BadInputError(key, str(path), expected)
    return text


@contextmanager
def exclusive(out: Path) -> Iterator[None]:
    """Lock ``out`` against other sweeps.

    Raises:
        BadInputError: if it cannot be written, or another sweep is running in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = open(out / ".lock", "w", opener=open_without_links)  # noqa: SIM115  it is closed below
    except OSError as error:
        raise file_error("--out", out, error, "written") from None
    with lock:
        if not try_lock(lock):
            raise UnusableError(
                str(out), "a sweep is running in it: 'hpccoll status' shows its progress"
            )
        yield


def is_running(out: Path) -> bool:
    """Return whether a sweep is running in ``out``."""
    try:
        with open_regular(out / ".lock", str(out)) as lock:
            return is_locked(lock)
    except BadInputError:
        return False


def kill_orphans(out: Path, grace: float = 5.0) -> list[str]:
    """End the processes of earlier sweeps into ``out`` on this machine, and return their descriptions.

    SIGKILL follows SIGTERM after ``grace`` seconds, and is waited for as long. Processes that
    orphans start meanwhile are ended too.
    """
    ended: dict[int, str] = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        signalled: set[int] = set()
        until = time.monotonic() + grace
        while left := _find_orphans(out):
            for pid in left.keys() - signalled:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= left.keys()
            ended |= left
            if time.monotonic() > until:
                break
            time.sleep(POLL_S)
        if not left:
            break
    return [f"{command} (process {pid})" for pid, command in ended.items()]


def _find_orphans(out: Path) -> dict[int, str]:
    """Return the orphans by process id. An empty scan is repeated: during execve a process has no environment."""
    left = dict(_scan_processes(out))
    if not left:
        time.sleep(POLL_S)
        left = dict(_scan_processes(out))
    return left


def _scan_processes(out: Path) -> Iterator[tuple[int, str]]:
    """Yield the processes, except this one, whose environment has SWEEP_VARIABLE with ``out``."""
    mark = f"{SWEEP_VARIABLE}={out.resolve()}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and mark in (
                process / "environ"
            ).read_bytes().split(b"\0"):
                command = (
                    (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                yield int(process.name), command[:80]
        except OSError:  # the process has ended, or belongs to another user
            continue


def run_workflow(
    command: Sequence[str], out: Path, show: Callable[[], None], monitor: SlurmMonitor | None = None
) -> int:
    """Run Snakemake to its end and return its exit code, INTERRUPTED after a signal to this process.

    Snakemake drops a Slurm job from its list if one status query fails, for example because the
    controller is busy, and then waits forever. In that case, and after an outage of the controller,
    Snakemake is started again and continues from the existing files.

    Snakemake runs in its own process group. On Ctrl-C or SIGTERM the group is interrupted once:
    Snakemake forgets its Slurm jobs when it is interrupted twice.
    """
    log = out / "logs" / "snakemake.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    # Snakemake inherits it
    with open(log, "ab", opener=open_without_links) as file, interruptible(*END_SIGNALS):
        child = _start(command, file, out)
        reason = "the sweep ended without it"
        interrupted = False
        try:
            left = MAX_STARTS - 1
            while (why := _wait_for_snakemake(child, show, monitor)) and monitor:
                # restarts after an outage of the controller do not count
                left -= not monitor.outage
                outcome = "started again" if left >= 0 else "ended"
                print(f"hpccoll: {why}: it is {outcome}", file=sys.stderr)
                _interrupt(child, INTERRUPT_S)
                child.kill()  # it knows no job that it could cancel
                child.wait()
                if left < 0:
                    break
                monitor.restart()
                child = _start(command, file, out)
        except BadInputError as error:  # Slurm does not answer: the next sweep continues
            print(f"hpccoll: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            reason = "the sweep was interrupted"
            interrupted = True
            _print_note(f"interrupted: ending what runs, in {INTERRUPT_S:g} s at most")
            with suppress(KeyboardInterrupt):
                seconds = INTERRUPT_S
                if monitor:
                    monitor.controller.ask()
                    monitor.cancel_all(reason)  # before Snakemake cancels them without a reason
                    if monitor.controller.unreachable:
                        seconds = OUTAGE_INTERRUPT_S
                    else:
                        seconds = INTERRUPT_S
                _interrupt(child, seconds)
            _print_note(f"{reason}: the same command measures the rest")
        finally:
            try:
                if monitor:
                    with suppress(KeyboardInterrupt):
                        monitor.end(reason)
            finally:
                kill_orphans(out)
    code = child.wait()
    return INTERRUPTED if interrupted else code


def _print_note(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(f"hpccoll: {text}", file=sys.stderr, flush=True)


def _start(command: Sequence[str], file: IO[bytes], out: Path) -> subprocess.Popen[bytes]:
    file.write(f"\n$ {shlex.join(command)}\n".encode())
    file.flush()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=file,
        process_group=0,
        env=_snakemake_environment(out),
        preexec_fn=_interrupt_on_parent_death,  # noqa: PLW1509  it only calls
    )


def _snakemake_environment(out: Path) -> dict[str, str]:
    """Return the environment of Snakemake, and of those that it starts in Slurm jobs.

    It is without the user's profile for other workflows. If the home directory is read-only, as in
    containers, Snakemake's cache is below ``out``.
    """
    environment = {**os.environ, SWEEP_VARIABLE: str(out.resolve())}
    environment.pop("SNAKEMAKE_PROFILE", None)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snakemake"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(cache, os.W_OK | os.X_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        environment["XDG_CACHE_HOME"] = str((out / ".cache").resolve())
    return environment


def last_log_line(out: Path) -> str:
    """Return the last line of Snakemake's log that is not blank; empty without one."""
    try:
        with open_regular(out / "logs" / "snakemake.log", "log") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except (OSError, BadInputError):
        return ""
    for line in reversed(lines):
        if line.strip():
            return line.strip()
    return ""


def _wait_for_snakemake(
    child: subprocess.Popen[bytes], show: Callable[[], None], monitor: SlurmMonitor | None
) -> str:
    """Wait for the end of Snakemake; return why it must be started again, empty if it need not."""
    while not _has_ended(child, REFRESH_S):
        show()
        if monitor:
            monitor.poll()
            if monitor.missed_end:
                return "Snakemake has missed the end of its jobs"
    if monitor is None or not child.returncode:
        return ""
    monitor.controller.ask()
    while monitor.controller.unreachable:
        time.sleep(REFRESH_S)
        show()
        monitor.controller.poll()
    return "Snakemake failed while Slurm's controller did not answer" if monitor.outage else ""


def _interrupt(child: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(ProcessLookupError):  # it has ended already
        os.killpg(child.pid, signal.SIGINT)
    _has_ended(child, seconds)


_libc = ctypes.CDLL(None)  # loaded here: dlopen is not safe between fork and exec
PR_SET_PDEATHSIG = 1
"""See prctl(2)."""


def _interrupt_on_parent_death() -> None:
    """Let the kernel interrupt Snakemake, which then cancels its jobs, if this process is killed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    return child.returncode is not None
