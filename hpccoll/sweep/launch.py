"""Launch the ranks of a job, one shape after the other; on Slurm this runs on the first node of the allocation.

If a launch fails, its measurements are still in the raw file or its journal, and the next shape is
launched.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.plan import CPUS_ON_NODE, Launcher, Plan, diagnosis_seconds
from hpccoll.cases.probe_cases import probe_cases
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.own_variables import ALLOCATION_VARIABLE, START_TIMEOUT_VARIABLE
from hpccoll.store import hdf5
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.journal import (
    LAUNCHER_RANK,
    Journal,
    journal_path,
    remove_failure_notes,
    write_failure_note,
)
from hpccoll.store.raw_results import Failure, RawResults
from hpccoll.store.result_files import has_results, read_raw
from hpccoll.sweep import child_process
from hpccoll.sweep.slurm import partitions, query, squeue
from hpccoll.sweep.slurm.controller_health import wait_for_controller

MAX_LAUNCHES = 3
"""Number of times to try a launch if srun cannot reach Slurm's controller."""
OUTAGE_S = 1800.0
"""Seconds that a job waits for the controller; after that it ends, and the sweep submits another."""
CONTROLLER_UNREACHABLE = "Unable to contact slurm controller"
"""The message of srun then, after about 9 s."""
JOB_ID = "SLURM_JOB_ID"
"""The variable that identifies an allocation."""
GPU_PAIR_S = 60.0
"""Seconds in which a pair of ranks exchanges GPU memory; its own watchdog is faster."""
OUTPUT_LOG = "launch.log"
"""The log of stdout and stderr of a probe: MPI libraries write no other log."""


def launch(plan_file: Path, name: str, out: Path) -> bool:
    """Measure the missing cases of job ``name`` into the raw file ``out``; return whether the file is complete.

    Raises:
        BadInputError: if the plan has no such job, too few hosts have the aggregator feature, or
            the ranks of this site do not find each other.
    """
    plan = Plan.load(plan_file, only=name)
    if plan.offline:
        raise BadInputError(
            "plan", str(plan_file), "a plan that was made with --profile: this one is offline"
        )
    (job,) = plan.jobs
    job_file = plan_file.parent / "jobs" / f"{name}.json"
    remove_failure_notes(out, "launch")
    output = Output(out)
    raw = output.read()
    left = [shape for shape in job.shapes if _is_incomplete(job, shape, raw)]
    if plan.launcher.slurm_conf:
        os.environ["SLURM_CONF"] = plan.launcher.slurm_conf
    try:
        hosts = squeue.allocated_hosts(os.environ[JOB_ID]) if plan.launcher.slurm else ()
        if CPUS_ON_NODE in plan.launcher.command:  # Snakemake's job step removes the variable
            os.environ[CPUS_ON_NODE] = str(squeue.cpus_of_node(os.environ[JOB_ID]))
        feature = plan.launcher.aggregator if job.dedicated_aggregators else None
        aggregators = _aggregator_hosts(job, feature, hosts) if feature else ()
        workers = [host for host in hosts if host not in aggregators]
        aliases = _host_aliases(hosts)
        job_launch = JobLaunch(plan.launcher, job, workers, aggregators, aliases)
        if left and plan.launcher.slurm and job.ranks > 1:
            job_launch.check_connection()
        gpu_pair = job_launch.try_gpu_pair(left, out)
        interrupted = job_launch.diagnose(plan.diagnose if left else None, out)
        for shape in () if interrupted else left:  # Slurm sends the signal once
            attempts = _count_attempts(raw)
            evidence = job_launch.probe(shape, job_file, out, gpu_pair)
            if _is_interrupted(log_directory(out, job, shape)):
                _record_failure(out, f"the probe of {shape.text} was interrupted by a signal")
                break  # Slurm sends the signal once
            if failure := job_launch.measure(shape, job_file, out, evidence, gpu_pair):
                _record_failure(out, f"the launch of {shape.text} {failure}")
            raw = output.read()
            if raw is not None and _count_attempts(raw) > attempts and raw.interrupted:
                break  # the time limit is near
    except BadInputError as error:
        _record_failure(out, str(error))
        raise
    return _finalize(job, output)


def _allocation() -> str:
    """Return what identifies the nodes of this launch: a Slurm job or a pod of Kubernetes; ``local`` without them."""
    return os.environ.get(JOB_ID) or os.environ.get(ALLOCATION_VARIABLE) or "local"


def log_directory(out: Path, job: Job, shape: Shape) -> Path:
    """Return the directory of the logs of a probe, next to the raw file ``out``."""
    return out.with_name(f"{job.name}.{shape}.logs")


def _is_interrupted(logs: Path) -> bool:
    """Return whether a signal ended the probe that logs into a directory."""
    if not logs.exists():
        return False
    from hpccoll.evidence.log_settings import INTERRUPTED_FILE  # few jobs are probed

    return (logs / INTERRUPTED_FILE).exists()


def _has_evidence(file: Path, job: Job, where: str) -> bool:
    """Return whether ``file`` holds the complete evidence of an earlier probe of this job in this allocation."""
    from hpccoll.evidence.probe_result import ProbeResult  # few jobs are probed

    try:
        result = ProbeResult.load(file)
    except BadInputError:  # it is absent or truncated
        return False
    complete = result.record is not None and result.failure is None
    return complete and (result.job_sha256, result.allocation) == (job.sha256, where)


def _host_aliases(hosts: Sequence[str]) -> dict[str, list[str]]:
    """Return the other names of hosts; none if Slurm does not answer: most hosts have one name, and the job can run."""
    try:
        return squeue.host_aliases(hosts) if hosts else {}
    except BadInputError:
        return {}


def _aggregator_hosts(job: Job, feature: str, hosts: Sequence[str]) -> tuple[str, ...]:
    fitting = partitions.hosts_with_feature(feature, hosts)
    if len(fitting) < job.aggregators:
        needed = f"{job.aggregators} that have the feature {feature}"
        raise BadInputError("hosts of aggregators", f"{len(fitting)} of {len(hosts)} hosts", needed)
    return fitting


def output_state(out: Path) -> list[tuple[int, int]]:
    """Return time and size of the raw file and its journal; they change when the ranks begin an attempt."""
    state = []
    for file in (out, journal_path(out)):
        with suppress(FileNotFoundError):  # the ranks remove the journal when they have finished
            stat = file.stat()
            state.append((stat.st_mtime_ns, stat.st_size))
    return state


class Output:
    """The raw file of a job with its journal, which is read again only after it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: list[tuple[int, int]] | None = None  # the one that was read
        self._raw: RawResults | None = None

    def read(self) -> RawResults | None:
        """Return the results; None without any.

        Raises:
            BadInputError: if they cannot be read.
        """
        state = output_state(self.path)
        if state != self._state:
            self._raw = read_raw(self.path) if has_results(self.path) else None
            self._state = state
        return self._raw


def _count_attempts(raw: RawResults | None) -> int:
    return len(raw.attempts) if raw else 0


def _is_incomplete(job: Job, shape: Shape, raw: RawResults | None) -> bool:
    done = raw.done if raw else set()
    return any(case.id not in done for case in job.cases if job.shape(case) == shape)


def _finalize(job: Job, output: Output) -> bool:
    """Return whether the raw file is complete; the workflow then finds a complete file or none.

    If all cases are in the journal but the ranks did not write the raw file, it is written here. A
    partial raw file is removed: the journal holds all its data.
    """
    raw = output.read()
    out = output.path
    if raw is None or not journal_path(out).exists():
        return raw is not None and raw.complete
    if not raw.complete:
        out.unlink(missing_ok=True)
        return False
    journal = Journal(out, job)
    hdf5.write_raw_file(journal.raw, out)
    journal.close(remove=True)
    return True


def _record_failure(out: Path, message: str) -> None:
    with suppress(OSError):  # the failure was printed already
        out.parent.mkdir(parents=True, exist_ok=True)
        write_failure_note(out, Failure(case_id="", rank=LAUNCHER_RANK, message=message))


def _pair_option(shape: Shape, gpu_pair: Path | None) -> list[str]:
    if gpu_pair is None or shape.nodes == 1:
        return []
    return ["--gpu-pair", str(gpu_pair)]


@dataclass(frozen=True, slots=True)
class JobLaunch:
    """The launches of a job."""

    launcher: Launcher  # starts the ranks
    job: Job  # the job
    hosts: Sequence[str]  # the hosts of the workers; empty if the launcher chooses them
    aggregator_hosts: Sequence[str] = ()  # the hosts of dedicated aggregators
    # other names of hosts, by their names in Slurm: MPI may know them by these
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def check_connection(self) -> None:
        """Check that two ranks find each other, on two nodes if the job has two.

        Raises:
            BadInputError: if they do not; it holds the root cause, and names ``modules`` if these
                cannot be loaded.
        """
        shape = Shape(min(2, self.job.nodes), 2)
        line = self._line(shape, "--check")
        failure = self._run(line, self.launcher.start_timeout_s)
        if failure is None:
            return
        if self.launcher.setup and (why := self._run("true", self.launcher.start_timeout_s)):
            setup = " && ".join(self.launcher.setup)
            raise BadInputError(
                "modules", setup, f"modules that a login shell can load: this {why}"
            )
        types = query.mpi_types()
        supported = [name for name in self._pmi_types() if name in types]
        valid = (
            f"the MPI library supports --mpi={' or '.join(supported)}"
            if supported
            else (f"srun --mpi supports {', '.join(types)}")
        )
        raise BadInputError(
            "launcher",
            self.launcher.command.partition(" -N ")[0],
            f"a launcher that connects two ranks: their launch {failure}; {valid}",
        )

    def _pmi_types(self) -> tuple[str, ...]:
        """Return the types of ``srun --mpi`` of the MPI library; empty if modules or a container may bring another."""
        # only launches that fail ask for them
        from hpccoll.sweep.doctor.machine import MachineFacts

        in_container = (
            self.launcher.program != "hpccoll" or "--container-image" in self.launcher.command
        )
        if self.launcher.setup or in_container:
            return ()
        return MachineFacts().pmi_types

    def diagnose(self, options: Sequence[str] | None, out: Path) -> bool:
        """Diagnose the nodes, if there are several, with options of ``hpccoll diagnose``, into a file next to ``out``.

        If the diagnosis fails, no measurement is lost; the log of the job has the reason. None: no
        diagnosis is asked.

        Returns:
            Whether a signal interrupted it.
        """
        seconds = diagnosis_seconds(self.job, options)
        if not seconds:
            return False
        from hpccoll.diagnosis.diagnosis_file import (
            diagnosis_of_job,
            is_interrupted,
            read_diagnosis,
        )
        from hpccoll.diagnosis.recorded import KEPT  # few jobs begin with a diagnosis

        file = diagnosis_of_job(out.parent, self.job.name, _allocation())
        command = self.launcher.line(Shape(self.job.nodes, self.job.nodes), self.hosts)
        # rank 0 ends it
        command = command.replace("--kill-on-bad-exit=1", "--kill-on-bad-exit=0 --wait=0")
        line = f"{command} diagnose {shlex.join([*(options or ()), '--out', str(file)])}"
        print(f"$ {line}", flush=True)
        failure = child_process.run_child(
            self._command(line), self.launcher.launch_timeout_s + 2 * seconds
        )
        if not file.exists():  # it also exits with an error if it has found something
            print(f"# no diagnosis: the launch {failure}", flush=True)
        if has_not_ended := is_interrupted(file) and KEPT in read_diagnosis(file).provenance:
            print(f"# only a part of the diagnosis: the launch {failure}", flush=True)
        if interrupted := is_interrupted(file) and not has_not_ended:
            _record_failure(out, "the diagnosis was interrupted by a signal")
        return interrupted

    def try_gpu_pair(self, shapes: Sequence[Shape], out: Path) -> Path | None:
        """Launch two ranks on two nodes that exchange GPU memory over MPI, if cases of ``shapes`` do so between nodes.

        If MPI crashes, it does so here and not in a measurement.

        Returns:
            The file of the outcome; None if nothing was tried.
        """
        between_nodes = [shape for shape in shapes if shape.nodes > 1]
        over_mpi = (
            case for case in self.job.cases if (case.device, case.transport) == ("cuda", "mpi")
        )
        if not any(self.job.shape(case) in between_nodes for case in over_mpi):
            return None
        # few jobs move GPU memory over MPI
        from hpccoll.evidence.gpu_pair import NOT_TRIED, GpuPair

        file = out.with_name(f"{self.job.name}.gpu-pair.json")
        line = f"{self._line(Shape(2, 2))} {shlex.join(['--device', 'cuda', '--try-gpu-pair', str(file)])}"
        print(f"$ {line}", flush=True)
        file.unlink(missing_ok=True)  # that of another allocation
        file.parent.mkdir(parents=True, exist_ok=True)
        failure = self._run(line, self.launcher.start_timeout_s + GPU_PAIR_S)
        try:
            outcome = GpuPair.load(file).failed(failure)
        except BadInputError:
            print(f"# {NOT_TRIED}: its launch {failure or 'wrote nothing'}", flush=True)
            return None
        outcome.save(file)
        print(f"# {outcome.description}", flush=True)
        return file

    def probe(
        self, shape: Shape, job_file: Path, out: Path, gpu_pair: Path | None = None
    ) -> Path | None:
        """Launch the probe of ``shape`` unless its evidence exists: the same ranks, untimed, with library logs.

        If a probe fails, times out or leaves no logs, no measurement is lost: the evidence file
            holds the reason.

        Returns:
            The evidence file; None if no case needs a probe, or the logs could not be written.
        """
        if not (cases := probe_cases(self.job, shape)):
            return None
        logs = log_directory(out, self.job, shape)
        where = " ".join((_allocation(), *self.hosts))
        file = logs.with_suffix(".evidence.json")
        if _has_evidence(file, self.job, where):
            return file
        from hpccoll.evidence.probe_result import ProbeResult

        line = self._line(
            shape, "--probe", str(logs), "--job", str(job_file), *_pair_option(shape, gpu_pair)
        )
        print(f"$ {line}", flush=True)
        effort = self.job.effort
        timeout_s = self.launcher.start_timeout_s + len(cases) * effort.seconds + effort.timeout
        try:
            rmtree(logs, ignore_errors=True)  # from an earlier probe
            logs.mkdir(parents=True)
            failure = child_process.run_child(self._command(line), timeout_s, logs / OUTPUT_LOG)
            result = ProbeResult.from_logs(
                logs, failure, job_sha256=self.job.sha256, allocation=where
            )
            with replacing_file(file) as unfinished:
                unfinished.write_text(json.dumps(result.to_json(), indent=1))
        # the disk is full, or a log is larger than LOG_BYTES
        except (OSError, UnusableError) as error:
            print(f"# no evidence: {error}", flush=True)
            return None
        return file

    def measure(
        self,
        shape: Shape,
        job_file: Path,
        out: Path,
        evidence: Path | None = None,
        gpu_pair: Path | None = None,
    ) -> str | None:
        """Run the cases of ``shape``; return how the launch failed, None if it succeeded."""
        arguments = ["--exit-zero", "--job", str(job_file), "--out", str(out)]
        arguments += ["--network", self.launcher.network] if self.launcher.network else []
        arguments += ["--evidence", str(evidence)] if evidence else []
        arguments += _pair_option(shape, gpu_pair)
        line = self._line(shape, *arguments)
        print(f"$ {line}", flush=True)
        before = output_state(out)
        # 10 % more than the ranks' own deadline, whose message says where they wait.
        return self._run(
            line,
            1.1 * self.launcher.launch_timeout_s,
            has_started=lambda: output_state(out) != before,
        )

    def _run(
        self, line: str, timeout_s: float, has_started: Callable[[], bool] | None = None
    ) -> str | None:
        """Call ``run_child``; if srun could not reach the controller, again once the controller answers.

        Running ranks do not need the controller and continue without it.
        """
        for left in reversed(range(MAX_LAUNCHES)):
            failure = child_process.run_child(
                self._command(line), timeout_s, has_started=has_started
            )
            if not (
                left
                and failure
                and CONTROLLER_UNREACHABLE in failure
                and wait_for_controller(OUTAGE_S)
            ):
                break
        return failure

    def _line(self, shape: Shape, *arguments: str) -> str:
        """Return the command line of a launch of ranks with some arguments."""
        options = ["--shape", str(shape)]
        hosts = [*self.hosts[: shape.nodes], *self.aggregator_hosts[: shape.aggregators]]
        if hosts:
            names = ["=".join((host, *self.aliases.get(host, ()))) for host in hosts]
            options += ["--hosts", ",".join(names)]
        if any(case.device == "cuda" and self.job.shape(case) == shape for case in self.job.cases):
            options += ["--device", "cuda"]
        return f"{self.launcher.line(shape, hosts)} run {shlex.join([*options, *arguments])}"

    def _command(self, line: str) -> list[str]:
        """Return the shell command that runs ``line``: a login shell if modules must be loaded."""
        setup = self.launcher.setup and [
            f"export PATH={shlex.quote(os.environ['PATH'])}",
            *self.launcher.setup,
        ]
        # The variables of the variant come last: they are what the sweep compares.
        environment = {
            START_TIMEOUT_VARIABLE: f"{self.launcher.launch_timeout_s:g}",
            **self.job.environment,
        }
        variables = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        return ["bash", "-lc" if setup else "-c", " && ".join([*setup, *variables, f"exec {line}"])]
