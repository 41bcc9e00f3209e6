"""The rank program of ``hpccoll run`` and ``hpccoll train``, from the command line to the exit code."""

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cases.case import Job, Shape
from hpccoll.cli.job_from_args import job_from_args, parse_shape, step_request, variant_settings
from hpccoll.cli.run_options import build_parser, build_train_parser
from hpccoll.common.errors import (
    BadInputError,
    GpuFailedError,
    UnusableError,
    check_arguments,
    check_resources,
    refusal_of,
)
from hpccoll.common.limits import RANKS
from hpccoll.common.units import format_size
from hpccoll.evidence.log_settings import (
    INTERRUPTED_FILE,
    copy_nccl_settings,
    enable_logging,
    log_variables_of_user,
    quiet_nccl,
    remove_old_logs,
)
from hpccoll.measure.mpi_startup import (
    cancel_deadline,
    deadline,
    finalize_mpi,
    is_connected,
    launcher_rank,
    start_deadline,
    start_mpi,
    without_deadline,
)

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.job_runner import JobRunner, Probe
    from hpccoll.measure.ranks import Ranks
    from hpccoll.render.printed_table import PrintedTable
    from hpccoll.schedule import Layout


TRAIN = "train"

DRY_RANKS = "8"
"""The default number of ranks of a dry run."""

ROOT_FIRST_S = 10.0
"""Seconds that other ranks give rank 0 to print an error: a launcher may kill all ranks when the first one exits."""


def main(argv: Sequence[str], command: str = "run") -> int:
    """Run one rank of ``hpccoll run`` or ``hpccoll train``, and return its exit code.

    Only rank 0 prints errors of the input; any other exception aborts all ranks after its traceback.
    """
    try:
        code = _run(argv, command)
        sys.stdout.flush()  # the MPI standard leaves open what happens to output after MPI_Finalize
        return finalize_mpi(code) if code and is_connected() else code
    finally:
        cancel_deadline()


def _run(argv: Sequence[str], command: str) -> int:
    first = launcher_rank() == 0
    try:
        check_arguments(argv)
        arguments = (build_train_parser() if command == TRAIN else build_parser()).parse_args(argv)
        if command != TRAIN and not arguments.job:
            # Only training steps multiply matrices; NumPy would start a useless thread per core in every rank.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if arguments.dry_run:
            return _print_dry_run(arguments) if first else 0
        if arguments.probe:
            enable_logging(arguments.probe)  # before any library reads its variables
        shape = _read_shape(arguments)
        # Libraries read the variables when they start, and MPI_Init starts some of them.
        os.environ.update(variant_settings(arguments)["environment"])
    except BadInputError as error:
        if first:
            _print_error(error)
        # All ranks have these arguments, and a launcher may kill all when one of them fails.
        return error.exit_code if first else 0
    try:
        return _measure(arguments, shape)
    except BadInputError as error:
        if first:
            _print_error(error)
        elif not is_connected():
            time.sleep(ROOT_FIRST_S)
        return error.exit_code


def _print_dry_run(arguments: argparse.Namespace) -> int:
    """Print the tensors, buckets and operations of each training step; nothing runs, and MPI does not start."""
    from hpccoll.cases.product import workloads
    from hpccoll.training.dry_run import dry_run_json, dry_run_lines
    from hpccoll.training.model_file import models_from_json

    request = step_request(arguments)
    ranks, shapes = RANKS.read("--ranks", arguments.ranks or DRY_RANKS), models_from_json(request.models)
    if arguments.json:
        made = [dry_run_json(workload, ranks, arguments.dtype, shapes) for workload in workloads(request)]
        print(json.dumps(made[0] if len(made) == 1 else made, indent=1))
    else:
        for workload in workloads(request):
            print(*dry_run_lines(workload, ranks, arguments.dtype, shapes), sep="\n")
    return 0


def _read_shape(arguments: argparse.Namespace) -> Shape | None:
    if arguments.hosts and not arguments.shape:
        raise BadInputError("--hosts", arguments.hosts, "hosts of a --shape, such as 4x2")
    return parse_shape(arguments.shape) if arguments.shape else None


def _print_error(error: BadInputError) -> None:
    print(f"hpccoll: {error}", file=sys.stderr, flush=True)


class StopSignal:
    """Keeps the first signal that requests an end; the current round of a case is finished before.

    With ``sbatch --signal=USR1@60`` Slurm sends SIGUSR1 60 s before the time limit. On Ctrl-C the launcher sends SIGINT
    (srun with -X).
    """

    def __init__(self) -> None:
        self.signal = 0
        signal.signal(signal.SIGUSR1, self._record)  # before MPI starts: the default action ends this process

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Treat SIGINT as a stop signal while measuring; at other times it ends this process."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._record)
        try:
            with without_deadline():
                yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _record(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number


def _measure(arguments: argparse.Namespace, shape: Shape | None) -> int:
    check_resources("MPI", files=16, threads=4)
    stop = StopSignal()
    start_deadline()
    comm = start_mpi(arguments.device)  # only now: --help and errors of options need no MPI
    from hpccoll.measure.job_runner import JobRunner
    from hpccoll.measure.ranks import Ranks, abort_job, check_launch, check_shape
    from hpccoll.render.printed_table import PrintedTable

    table = PrintedTable()
    program: JobRunner | None = None
    code = 1
    try:
        check_launch(comm)
        ranks = Ranks(comm)
        if shape:
            check_shape(ranks, shape, arguments.hosts.split(",") if arguments.hosts else ())
        if arguments.check:
            return _print_ranks(ranks)
        # Only rank 0 reads the job file: it may exist on one node only, and an error is raised on all ranks.
        job = ranks.run_at_root(lambda: job_from_args(arguments, ranks.layout(0)))
        if not arguments.job:
            preflight(comm, job, ranks.layout(job.aggregators))
        if arguments.probe:
            return _probe(ranks, job, stop, arguments.probe)
        in_launch = _probe_in_launch(arguments, ranks, job)
        about = _load_evidence(arguments, ranks, job)
        program = JobRunner(
            ranks, job, arguments.out, table.show, lambda: stop.signal, *about, exit_limit=deadline, probe=in_launch
        )
        with stop.measuring():
            try:
                code = 0 if program.run() or arguments.exit_zero else 3
            finally:
                _print_results(program, table)
                _warn_if_busy(program)
    except BadInputError:
        raise
    except BaseException as error:
        if comm.size == 1 and (refusal := refusal_of(error)):
            _note_failure(program, refusal)
            raise  # no other rank waits for this one
        _report_failure(program, error)
        abort_job(comm)
    if comm.rank == 0 and program:
        _print_remaining(program, nothing=table.empty)
    if program:
        program.end_launch()
    return code


def _note_failure(program: "JobRunner | None", refusal: BadInputError) -> None:
    if program:
        program.note_failure(f"{refusal} (case {program.progress.case})")


def _report_failure(program: "JobRunner | None", error: BaseException) -> None:
    """Report the exception that ends this rank: in one line if its GPU or the system failed, else with a traceback."""
    refusal = refusal_of(error)
    in_one_line = bool(refusal) or isinstance(error, GpuFailedError)
    reason = f"{'' if in_one_line else f'{type(error).__name__}: '}{refusal or error}"
    if program:
        program.report_failure(f"{reason} (case {program.progress.case})")
    elif in_one_line:  # such as in a probe
        print(f"r{launcher_rank()} | {reason}", file=sys.stderr, flush=True)
    if not in_one_line:
        traceback.print_exc()


def _print_results(program: "JobRunner", table: "PrintedTable") -> None:
    """Print the table, what to use, how noisy the measurements were, and what NCCL's own calls ran as."""
    if table.empty:
        return
    from hpccoll.analysis.noise_sentence import noise_sentence
    from hpccoll.analysis.recommendations import recommend, verdicts_by_setting
    from hpccoll.cases.algorithm_registry import WORKLOADS
    from hpccoll.render.answers import Answers, answer_lines, unanswered_lines
    from hpccoll.render.printed_evidence import executed_lines
    from hpccoll.render.step_answers import small_computations_line, step_answers
    from hpccoll.store.load_results import to_results
    from hpccoll.store.result_files import ResultFiles

    results = to_results(ResultFiles(raw_results=[program.raw]))
    recommendations = recommend(results)
    table.end(program.job, program.raw.histories(), verdicts_by_setting(recommendations))
    answers, steps = Answers(recommendations), step_answers(results)
    answered = {*answers.by_collective, *(WORKLOADS if steps else ())}
    lines = (
        *answer_lines(answers), *map(str, steps), small_computations_line(results),
        *unanswered_lines(results, answered), noise_sentence(results),
    )  # fmt: skip
    for line in filter(None, lines):
        print(f"# {line}")
    for line in executed_lines(program.raw):
        print(f"# executed: {line}")


def _warn_if_busy(program: "JobRunner") -> None:
    """Print what else used the machine during the measurements, if it was enough to disturb them."""
    from hpccoll.store.host_load import busy_hosts, describe_busy

    attempt = next((attempt for attempt, _ in reversed(program.raw.attempts)), None)
    if attempt and program.has_results and (busy := busy_hosts(attempt.provenance)):
        print(f"# busy machine: {describe_busy(busy)}; do: measure when it is idle")


def _print_remaining(program: "JobRunner", *, nothing: bool) -> None:
    """Print why measurements are missing, or that none were left."""
    from hpccoll.store.journal import journal_path

    job, out = program.job, program.out
    if program.stop_signal:
        kept = "nothing is kept without --out"
        if out:
            done = f"{program.raw.measurements} of {job.measurements} measurements are in {journal_path(out)}"
            kept = f"{done}; the same command measures the rest"
        print(f"# interrupted by {signal.Signals(program.stop_signal).name}: {kept}")
    elif not program.has_results:
        print("# nothing was measured; see the reason of each case")
    elif nothing and out:
        sizes = [case.bytes for case in job.cases]
        ends = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
        print(f"# {out} is complete, {ends}: nothing left to measure")


def _probe(ranks: "Ranks", job: Job, stop: StopSignal, logs: Path) -> int:
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.log_probe import probe

    ranks.run_at_root(lambda: remove_old_logs(logs))  # before NCCL opens its files
    copy_nccl_settings(logs)
    with stop.measuring():
        probe(ranks, job, lambda: stop.signal, RankGpus(ranks))
    if not ranks.max_over_ranks(stop.signal):
        return 0
    ranks.run_at_root((logs / INTERRUPTED_FILE).touch)
    return 3


def _probe_in_launch(arguments: argparse.Namespace, ranks: "Ranks", job: Job) -> "Probe | None":
    """Return the probe that this launch begins with: of a command line over NCCL, unless a rank's log is the user's.

    A sweep probes in launches of its own.
    """
    elsewhere = arguments.job or arguments.workload or arguments.evidence
    if elsewhere or not any(case.transport == "nccl" for case in job.cases):
        return None
    if any(ranks.comm.allgather(log_variables_of_user())):
        return None
    from hpccoll.measure.log_probe import probe_in_launch

    return probe_in_launch


def _load_evidence(arguments: argparse.Namespace, ranks: "Ranks", job: Job) -> "tuple[ProbeResult | None, str | None]":
    """Return the evidence of the probe and the expected network, and turn off NCCL's log for the timed launch.

    Raises:
        BadInputError: on all ranks, if the evidence cannot be read.
    """
    from hpccoll.evidence.probe_result import ProbeResult

    if any(case.transport == "nccl" for case in job.cases):
        quiet_nccl()
    found = ranks.run_at_root(lambda: ProbeResult.load(arguments.evidence)) if arguments.evidence else None
    return found, arguments.network


def _print_ranks(ranks: "Ranks") -> int:
    if ranks.comm.rank == 0:
        counts = ", ".join(f"{count} on {name}" for (name, _), count in ranks.ranks_by_node.items())
        if ranks.comm.size > 1:
            print(f"# {ranks.comm.size} ranks are connected: {counts}")
        else:
            print(f"# MPI works, and this rank is alone: {counts}; do: start two ranks to check their connection,")
            print("# such as mpiexec -n 2 hpccoll run --check")
    return 0


def preflight(comm: "MPI.Intracomm", job: Job, layout: "Layout") -> None:
    """Check before the first case that some case can run and every node has memory for the largest one.

    Raises:
        BadInputError: on all ranks, if a node lacks memory, no case can run, or a name in a case is unknown.
    """
    from mpi4py import MPI

    from hpccoll.analysis.choice_table import TuneTable
    from hpccoll.analysis.resolve_auto import resolve_auto
    from hpccoll.cases.memory_estimate import check_memory
    from hpccoll.cases.skip_reason import LaunchFacts, skip_reason
    from hpccoll.host.cpu_and_memory import available_memory
    from hpccoll.training.model_file import models_from_json

    table = None if job.table is None else TuneTable.from_json(job.table)
    found: list[str | None] = []
    for case in job.cases:
        facts = LaunchFacts(shape=job.shape(case), variant=job.variant, sets=job.sets)
        try:
            resolved, _ = resolve_auto(case, layout, table)
            found.append(skip_reason(case, layout, facts, resolved))
        except BadInputError as error:
            found.append(str(error))
    reasons = list(dict.fromkeys(found))
    if all(reasons):
        why = "; ".join(filter(None, reasons))
        raise UnusableError("run", f"none of its {len(job.cases)} cases can run here: {why}")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    failure = None
    try:
        models = models_from_json(job.models)
        check_memory(job.cases, job.ranks, node.size, available_memory(), aggregators=job.aggregators, models=models)
    except BadInputError as error:
        failure = error
    node.Free()
    for each in filter(None, comm.allgather(failure)):
        raise each
