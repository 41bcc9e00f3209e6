"""A rank, from the command line to its exit code."""

import argparse
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.errors import BadInputError, check_arguments
from hpccoll.evidence.log_settings import (
    INTERRUPTED_FILE,
    copy_nccl_settings,
    enable_logging,
    quiet_nccl,
    remove_old_logs,
)
from hpccoll.run.job_from_args import job_from_args, parse_shape, variant_settings
from hpccoll.run.mpi_startup import (
    cancel_deadline,
    deadline,
    finalize_mpi,
    is_connected,
    launcher_rank,
    start_deadline,
    start_mpi,
    without_deadline,
)
from hpccoll.run.options import build_parser
from hpccoll.run.preflight import preflight
from hpccoll.spec.case import Job
from hpccoll.units import format_size

if TYPE_CHECKING:
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.job_runner import JobRunner
    from hpccoll.measure.ranks import Ranks


ROOT_FIRST_S = 10.0
"""How long other ranks leave rank 0 to complain before they end: a launcher may end all the rest at the first end."""


def main(argv: Sequence[str]) -> int:
    """Run one rank of ``hpccoll run`` and return its exit code.

    A complaint about the input is printed by rank 0 alone; any other exception ends all ranks with its traceback.
    """
    try:
        code = _run(argv)
        return finalize_mpi(code) if code and is_connected() else code
    finally:
        cancel_deadline()


def _run(argv: Sequence[str]) -> int:
    try:
        check_arguments(argv)
        arguments = build_parser().parse_args(argv)
        if arguments.probe:
            enable_logging(arguments.probe)  # before any library reads its variables
        return _measure(arguments)
    except BadInputError as error:
        if launcher_rank() == 0:
            print(f"hpccoll: {error}", file=sys.stderr, flush=True)
        elif not is_connected():
            time.sleep(ROOT_FIRST_S)
        return 2


class StopSignal:
    """Remembers the first signal that asks for an end; the round of the case under way is finished before it.

    Slurm sends SIGUSR1 some time before a job's limit, if asked with ``sbatch --signal=USR1@60``, and who presses
    Ctrl-C has the launcher send SIGINT (srun with its option -X).
    """

    def __init__(self) -> None:
        self.signal = 0
        signal.signal(signal.SIGUSR1, self._note)  # before MPI starts: it would end this process

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Take Ctrl-C for such a signal; at other times there is nothing to finish, and it ends this process."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)
        try:
            with without_deadline():
                yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number


def _measure(arguments: argparse.Namespace) -> int:
    told = StopSignal()
    shape = parse_shape(arguments.shape) if arguments.shape else None
    if arguments.hosts and not shape:
        raise BadInputError("--hosts", arguments.hosts, "hosts of a --shape, such as 4x2")
    os.environ.update(
        variant_settings(arguments)["environment"]
    )  # libraries read them when they start, and MPI starts some
    start_deadline()
    comm = start_mpi(arguments.device)  # --help and a misspelt option need no MPI
    from hpccoll.measure.job_runner import JobRunner
    from hpccoll.measure.printed_table import PrintedTable
    from hpccoll.measure.ranks import Ranks, abort_job, check_launch, check_shape

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
        # Rank 0 alone reads the job: a complaint is then every rank's, and the file may lie on its node alone.
        job = ranks.run_at_root(lambda: job_from_args(arguments, ranks.layout(0)))
        if not arguments.job:
            preflight(comm, job, ranks.layout(job.aggregators))
        if arguments.probe:
            return _probe(ranks, job, told, arguments.probe)
        about = _load_evidence(arguments, ranks, job)
        program = JobRunner(ranks, job, arguments.out, table.show, lambda: told.signal, *about, exit_limit=deadline)
        with told.measuring():
            try:
                code = 0 if program.run() or arguments.exit_zero else 3
            finally:
                table.end()
    except BadInputError:
        raise
    except BaseException as error:  # noqa: BLE001  whatever it is, the other ranks must not wait for this one
        if program:
            program.report_failure(f"{type(error).__name__}: {error} (case {program.progress.case})")
        traceback.print_exc()
        abort_job(comm)
    if comm.rank == 0 and program:
        _print_remaining(program, nothing=table.empty)
    return code


def _print_remaining(program: "JobRunner", *, nothing: bool) -> None:
    """Say at rank 0 why something is left, or that nothing was."""
    from hpccoll.store.journal import journal_path

    job, out = program.job, program.out
    if program.stop_signal:
        kept = "nothing is kept without --out"
        if out:
            there = f"{program.raw.measurements} of {job.measurements} measurements are in {journal_path(out)}"
            kept = f"{there}; the same command measures what is left"
        print(f"# told to end by {signal.Signals(program.stop_signal).name}: {kept}")
    elif not program.has_results:
        print("# nothing was measured: each case has its reason")
    elif nothing and out:
        sizes = [case.bytes for case in job.cases]
        ends = " to ".join(dict.fromkeys(map(format_size, (min(sizes), max(sizes)))))
        print(f"# {out} is complete, {ends}: there is nothing left to measure")


def _probe(ranks: "Ranks", job: Job, told: StopSignal, place: Path) -> int:
    from hpccoll.measure.log_probe import probe

    ranks.run_at_root(lambda: remove_old_logs(place))  # before NCCL opens its files
    copy_nccl_settings(place)
    with told.measuring():
        probe(ranks, job, lambda: told.signal)
    if not ranks.max_over_ranks(told.signal):
        return 0
    ranks.run_at_root((place / INTERRUPTED_FILE).touch)
    return 3


def _load_evidence(arguments: argparse.Namespace, ranks: "Ranks", job: Job) -> "tuple[ProbeResult | None, str | None]":
    """Return what is known of the library and the network before anything is timed, and keep the library quiet.

    Raises:
        BadInputError: on all ranks, where the evidence cannot be read.
    """
    from hpccoll.evidence.probe_result import ProbeResult

    if any(case.transport == "nccl" for case in job.cases):
        quiet_nccl()
    found = ranks.run_at_root(lambda: ProbeResult.load(arguments.evidence)) if arguments.evidence else None
    return found, arguments.network


def _print_ranks(ranks: "Ranks") -> int:
    if ranks.comm.rank == 0:
        crowds = ", ".join(f"{crowd} on {name}" for (name, _), crowd in ranks.ranks_by_node.items())
        if ranks.comm.size > 1:
            print(f"# {ranks.comm.size} ranks know of each other: {crowds}")
        else:
            print(f"# MPI works, and this rank is alone: {crowds}; start more to see that they know of each other,")
            print("# such as mpiexec -n 2 hpccoll run --check")
    return 0
