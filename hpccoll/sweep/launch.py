"""Launch: start the ranks of a job, shape after shape, where the job is; on Slurm, on the first node of the allocation.

What was measured is in the raw file or its journal, whatever becomes of a launch: the next shape is tried all the same.
"""

import os
import re
import shlex
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hpccoll.case import Job, Launcher, Plan, Shape
from hpccoll.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.journal import LAUNCHER, Journal, forget_words, journal_path, leave_word
from hpccoll.store.raw import Failure, Raw
from hpccoll.store.results import best_of, read_raw
from hpccoll.sweep import slurm


def launch(plan_file: Path, name: str, out: Path) -> bool:
    """Measure what is missing of job ``name`` of a plan into the raw file ``out``; return whether it is complete.

    Raises:
        BadInputError: where there is no such job, its hosts are too few for aggregators, or the ranks of this site do
            not find each other.
    """
    plan = Plan.load(plan_file)
    job = plan.job(name)
    forget_words(out, "launch")
    left = [shape for shape in job.shapes if _left(job, shape, _read(out))]
    if plan.launcher.slurm_conf:
        os.environ["SLURM_CONF"] = plan.launcher.slurm_conf
    try:
        hosts = slurm.allocated_hosts(os.environ["SLURM_JOB_ID"]) if plan.launcher.slurm else ()
        helpers = _helpers(job, plan.launcher.aggregator, hosts) if job.apart and plan.launcher.aggregator else ()
        start = Start(plan.launcher, job, [host for host in hosts if host not in helpers], helpers)
        if left and plan.launcher.slurm and job.ranks > 1:
            start.check()
        for shape in left:
            attempts = _attempts(_read(out))
            said = start.measure(shape, plan_file.parent / "jobs" / f"{name}.json", out)
            if said:
                _leave(out, f"the launch of {shape.words} {said}")
            raw = _read(out)
            if raw is not None and _attempts(raw) > attempts and raw.told_to_end:
                break  # there is no time for another
    except BadInputError as error:
        _leave(out, str(error))
        raise
    return _settled(job, out)


def _helpers(job: Job, feature: str, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of the aggregators of ``job``, those that have a feature.

    Raises:
        BadInputError: where they are too few.
    """
    found = slurm.having(feature, hosts)
    if len(found) < job.aggregators:
        told = f"{job.aggregators} that have the feature {feature}"
        raise BadInputError("hosts of aggregators", f"{len(found)} of {len(hosts)} hosts", told)
    return found


def _read(out: Path) -> Raw | None:
    best = best_of(out)
    return read_raw(best) if best and best.exists() else None


def _attempts(raw: Raw | None) -> int:
    return len(raw.attempts) if raw else 0


def _left(job: Job, shape: Shape, raw: Raw | None) -> bool:
    """Return whether a case of ``shape`` has no outcome yet."""
    done = raw.done if raw else set()
    return any(case.id not in done for case in job.cases if job.shape(case) == shape)


def _settled(job: Job, out: Path) -> bool:
    """Return whether the raw file is complete; what the workflow finds there is whole.

    It is written here where the ranks had no time for it after their last case. A partial one is removed, for its
    journal holds all of it.
    """
    raw = _read(out)
    if raw is None or not journal_path(out).exists():
        return raw is not None and raw.complete
    if not raw.complete:
        out.unlink(missing_ok=True)
        return False
    journal = Journal(out, job)
    hdf5.write(journal.raw, out)
    journal.close(remove=True)
    return True


def _leave(out: Path, message: str) -> None:
    with suppress(OSError):  # it has been printed
        out.parent.mkdir(parents=True, exist_ok=True)
        leave_word(out, Failure(case_id="", rank=LAUNCHER, message=message))


@dataclass(frozen=True, slots=True)
class Start:
    """Starts the ranks of a job on the first of its hosts."""

    launcher: Launcher
    job: Job
    hosts: Sequence[str]  # none where the launcher knows them
    helpers: Sequence[str] = ()  # those of aggregators that are apart

    def check(self) -> None:
        """See that two ranks, on two nodes where there are, know of each other.

        Raises:
            BadInputError: with what they said.
        """
        shape = Shape(min(2, self.job.nodes), 2)
        line = self._line(shape, "--check")
        said = _run(self._command(line), self.launcher.patience_s)
        if said is not None:
            types = ", ".join(slurm.mpi_types())
            raise BadInputError(
                "launcher", self.launcher.command.partition(" -N ")[0],
                f"one by which two ranks find each other: their launch {said}; srun --mpi can be {types}",
            )  # fmt: skip

    def measure(self, shape: Shape, job_file: Path, out: Path) -> str | None:
        """Run the cases of ``shape``, and return how the launch failed, None where it did not."""
        line = self._line(shape, "--exit-zero", "--job", str(job_file), "--out", str(out))
        print(f"$ {line}", flush=True)
        return _run(self._command(line))

    def _line(self, shape: Shape, *arguments: str) -> str:
        hosts = [*self.hosts[: shape.nodes], *self.helpers[: shape.aggregators]]
        asked = ["--shape", str(shape), *(["--hosts", ",".join(hosts)] if hosts else [])]
        return f"{self.launcher.line(shape, hosts)} run {shlex.join([*asked, *arguments])}"

    def _command(self, line: str) -> list[str]:
        """Return the shell that runs ``line``: one of a login, where modules are."""
        setup = self.launcher.setup and [f"export PATH={shlex.quote(os.environ['PATH'])}", *self.launcher.setup]
        # The variant has the last word: it is what is compared.
        variables = [f"export {name}={shlex.quote(value)}" for name, value in self.job.environment.items()]
        return ["bash", "-lc" if setup else "-c", " && ".join([*setup, *variables, f"exec {line}"])]


def _run(command: Sequence[str], seconds: float | None = None) -> str | None:
    """Run a launch, letting its output pass, and return how it failed, in the words that tell most; None for a success.

    Args:
        command: of the launcher.
        seconds: that it has, None for as many as it takes.
    """
    said: deque[str] = deque(maxlen=200)
    late = False
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as child:
        listener = threading.Thread(target=_pass_on, args=(child, said), daemon=True)
        listener.start()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()
            child.wait()
        listener.join(LAST_WORDS_S)  # whom a killed launcher leaves behind may hold the pipe for ever
    if child.returncode == 0:
        return None
    how = f"did not end within {seconds:g} s" if late else _ended(child.returncode)
    told = _telling(said)
    return f"{how}: {told}" if told else how


GRACE_S = 10.0
"""How long a launcher has for ending its ranks before it is killed."""

LAST_WORDS_S = 2.0
"""How long what a launch still has to say is listened to when it has ended."""


def _pass_on(child: subprocess.Popen[str], said: deque[str]) -> None:
    """Let what a launch says pass to our own stderr, and remember it."""
    for words in child.stderr or ():
        sys.stderr.write(words)
        sys.stderr.flush()
        said.append(words.strip())


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


MEMORY = re.compile(r"oom.?kill|out of memory", re.IGNORECASE)
"""What Slurm says of a rank that used more memory than its job was given."""


def _telling(said: Sequence[str]) -> str | None:
    """Return what tells most: that memory ran out, our line, a rank's last words, or the last line that is not Slurm's.

    To that last one belongs which task Slurm saw end first.
    """
    memory = (line for line in said if MEMORY.search(line))
    ours = (line.removeprefix("hpccoll: ") for line in said if line.startswith("hpccoll: "))
    ranks = (line for line in said if line.startswith("r") and " | " in line)
    first = next((line for line in said if line.startswith("srun: error: ")), None)
    others = (line for line in reversed(said) if line and not line.startswith(("srun: ", "slurmstepd")))
    last = "; ".join(filter(None, (next(others, None), first)))
    return next(chain(memory, ours, ranks, [last] if last else [], filter(None, reversed(said))), None)
