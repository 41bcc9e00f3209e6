"""Launch: start the ranks of a job, shape after shape, where the job is; on Slurm, on the first node of the allocation.

What was measured is in the raw file or its journal, whatever becomes of a launch: the next shape is tried all the same.
"""

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.spec.case import Job, Shape
from hpccoll.spec.plan import Launcher, Plan
from hpccoll.store import hdf5
from hpccoll.store.journal import LAUNCHER, Journal, journal_path, remove_failure_notes, write_failure_note
from hpccoll.store.raw import Failure, RawResults
from hpccoll.store.result_files import best_source, read_raw
from hpccoll.sweep import child_process, probe_launch
from hpccoll.sweep.slurm import partitions, query, squeue
from hpccoll.sweep.slurm.controller import wait_for_controller

LAUNCHES = 3
"""How often a launch is tried that srun refuses because Slurm's controller does not answer it."""
OUTAGE_S = 1800.0
"""How long a job waits for the controller in all; after that it ends, and the sweep starts another."""
UNREACHED = "Unable to contact slurm controller"
"""What srun prints then, after some 9 s."""


def launch(plan_file: Path, name: str, out: Path) -> bool:
    """Measure what is missing of job ``name`` of a plan into the raw file ``out``; return whether it is complete.

    Raises:
        BadInputError: where there is no such job, its hosts are too few for aggregators, or the ranks of this site do
            not find each other.
    """
    plan = Plan.load(plan_file)
    if plan.offline:
        raise BadInputError(
            "plan", str(plan_file), "one for a cluster that was asked: say --profile when it is planned"
        )
    job, job_file = plan.job(name), plan_file.parent / "jobs" / f"{name}.json"
    remove_failure_notes(out, "launch")
    left = [shape for shape in job.shapes if _left(job, shape, _read(out))]
    if plan.launcher.slurm_conf:
        os.environ["SLURM_CONF"] = plan.launcher.slurm_conf
    try:
        hosts = squeue.allocated_hosts(os.environ["SLURM_JOB_ID"]) if plan.launcher.slurm else ()
        helpers = (
            _helpers(job, plan.launcher.aggregator, hosts)
            if job.dedicated_aggregators and plan.launcher.aggregator
            else ()
        )
        start = Start(plan.launcher, job, [host for host in hosts if host not in helpers], helpers)
        if left and plan.launcher.slurm and job.ranks > 1:
            start.check()
        for shape in left:
            attempts = _attempts(_read(out))
            evidence = start.probe(shape, job_file, out)
            if probe_launch.told_to_end(out, job, shape):
                _leave(out, f"the probe of {shape.words} was told to end")
                break  # Slurm does not say it twice
            if said := start.measure(shape, job_file, out, evidence):
                _leave(out, f"the launch of {shape.words} {said}")
            raw = _read(out)
            if raw is not None and _attempts(raw) > attempts and raw.interrupted:
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
    found = partitions.having(feature, hosts)
    if len(found) < job.aggregators:
        told = f"{job.aggregators} that have the feature {feature}"
        raise BadInputError("hosts of aggregators", f"{len(found)} of {len(hosts)} hosts", told)
    return found


def _read(out: Path) -> RawResults | None:
    best = best_source(out)
    return read_raw(best) if best and best.exists() else None


def signs(out: Path) -> list[tuple[int, int]]:
    """Return what changes when the ranks of a launch have found each other and begin an attempt."""
    found = []
    for file in (out, journal_path(out)):
        with suppress(FileNotFoundError):  # ranks that have done all remove their journal, at any moment
            stat = file.stat()
            found.append((stat.st_mtime_ns, stat.st_size))
    return found


def _attempts(raw: RawResults | None) -> int:
    return len(raw.attempts) if raw else 0


def _left(job: Job, shape: Shape, raw: RawResults | None) -> bool:
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
    hdf5.write_raw_file(journal.raw, out)
    journal.close(remove=True)
    return True


def _leave(out: Path, message: str) -> None:
    with suppress(OSError):  # it has been printed
        out.parent.mkdir(parents=True, exist_ok=True)
        write_failure_note(out, Failure(case_id="", rank=LAUNCHER, message=message))


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
        said = self._run(line, self.launcher.start_timeout_s)
        if said is not None:
            types = ", ".join(query.mpi_types())
            raise BadInputError(
                "launcher", self.launcher.command.partition(" -N ")[0],
                f"one by which two ranks find each other: their launch {said}; srun --mpi can be {types}",
            )  # fmt: skip

    def probe(self, shape: Shape, job_file: Path, out: Path) -> Path | None:
        """Have the library log what it does in the cases of ``shape``, unless it has already.

        Returns:
            the file of what the logs say; None where they cannot say anything, or there was no room for them.
        """
        file, where = probe_launch.file_of(out, self.job, shape), probe_launch.allocation(self.hosts)
        if not probe_launch.wanted(self.job, shape):
            return None
        if probe_launch.known(file, self.job, where):
            return file
        line = self._line(shape, "--probe", str(probe_launch.place_of(out, self.job, shape)), "--job", str(job_file))
        print(f"$ {line}", flush=True)
        try:
            found = probe_launch.ask(self._command(line), self.launcher.start_timeout_s, out, self.job, shape, where)
        except (OSError, UnusableError) as error:  # there is no room for logs, or they are larger than logs can be
            print(f"# no evidence: {error}", flush=True)
            return None
        if found.failure:
            lost = "the evidence is not whole" if found.record else "no evidence"
            print(f"# {lost}: the probe {found.failure}", flush=True)
        return file

    def measure(self, shape: Shape, job_file: Path, out: Path, evidence: Path | None = None) -> str | None:
        """Run the cases of ``shape``, and return how the launch failed, None where it did not."""
        asked = ["--exit-zero", "--job", str(job_file), "--out", str(out)]
        asked += ["--network", self.launcher.network] if self.launcher.network else []
        asked += ["--evidence", str(evidence)] if evidence else []
        line = self._line(shape, *asked)
        print(f"$ {line}", flush=True)
        before = signs(out)
        # Ranks that wait for one another in MPI have the first word: they know where.
        return self._run(line, 1.1 * self.launcher.launch_timeout_s, begun=lambda: signs(out) != before)

    def _run(self, line: str, seconds: float, begun: Callable[[], bool] | None = None) -> str | None:
        """Run a launch as ``child.run`` does; one that srun refused for want of the controller, again when it answers.

        Ranks that run need no controller: they go on without it.
        """
        for left in reversed(range(LAUNCHES)):
            said = child_process.run(self._command(line), seconds, begun=begun)
            if not (left and said and UNREACHED in said and wait_for_controller(OUTAGE_S)):
                break
        return said

    def _line(self, shape: Shape, *arguments: str) -> str:
        hosts = [*self.hosts[: shape.nodes], *self.helpers[: shape.aggregators]]
        asked = ["--shape", str(shape), *(["--hosts", ",".join(hosts)] if hosts else [])]
        on_gpus = any(case.device == "cuda" and self.job.shape(case) == shape for case in self.job.cases)
        asked += ["--device", "cuda"] if on_gpus else []
        return f"{self.launcher.line(shape, hosts)} run {shlex.join([*asked, *arguments])}"

    def _command(self, line: str) -> list[str]:
        """Return the shell that runs ``line``: one of a login, where modules are."""
        setup = self.launcher.setup and [f"export PATH={shlex.quote(os.environ['PATH'])}", *self.launcher.setup]
        # The variant has the last word: it is what is compared.
        environment = {"HPCCOLL_START_S": f"{self.launcher.launch_timeout_s:g}", **self.job.environment}
        variables = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        return ["bash", "-lc" if setup else "-c", " && ".join([*setup, *variables, f"exec {line}"])]
