"""The ranks of ``hpccoll run`` and of commands like it, from the options to what is printed at the end."""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hpccoll.cases.case import Job, Shape
from hpccoll.cli import run_options
from hpccoll.cli.extension_commands import job_command
from hpccoll.cli.rank_program import run_rank
from hpccoll.common.errors import BadInputError
from hpccoll.common.extensions import use_only
from hpccoll.measure import mpi_startup

if TYPE_CHECKING:
    from hpccoll.cli.extension_commands import JobCommand
    from hpccoll.evidence.gpu_pair import GpuPair
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.ranks import Ranks
    from hpccoll.measure.run.job_runner import JobRunner, Probe
    from hpccoll.render.run_table import PrintedTable
    from hpccoll.store.raw_results import CaseHistory

RUN = "run"


def main(argv: Sequence[str], command: str = RUN) -> int:
    """Run one rank of ``run``, or of a command like it, and return its exit code."""
    return run_rank(argv, lambda options: JobProgram(options, command))


class JobProgram:
    """The cases of a job, which a command line describes or names.

    Args:
        argv: the options.
        command: the name of the command, ``run`` or a ``JobCommand``.

    Raises:
        BadInputError: if an option is invalid.
    """

    def __init__(self, argv: Sequence[str], command: str) -> None:
        if not {"--job", "--compute"} & {word.partition("=")[0] for word in argv}:
            # Only workloads multiply large matrices; NumPy, which these commands import, would
            # start a useless thread per core in every rank.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self.arguments = _parser(command).parse_args(argv)
        self.runner: JobRunner | None = None
        self._shape: Shape | None = None
        self._table: PrintedTable | None = None  # of rank 0, once it measures

    @property
    def device(self) -> str:
        """The device of the buffers."""
        device: str = self.arguments.device
        return device

    def run_before_mpi(self, *, first: bool) -> int | None:
        """Print a dry run, or prepare the environment of libraries."""
        arguments = self.arguments
        if arguments.dry_run:
            if first:
                arguments.command.print_dry_run(arguments)
            return 0
        if arguments.probe:
            from hpccoll.evidence import log_settings

            log_settings.enable_logging(arguments.probe)  # before any library reads its variables
        self._shape = _read_shape(arguments)
        # Libraries read the variables when they start, and MPI_Init starts some of them.
        if environment := run_options.variant_settings(arguments)["environment"]:
            from hpccoll.cases.variants import named_variants

            ranks = mpi_startup.count_ranks(mpi_startup.LAUNCHERS)
            # then all cases are skipped
            if not named_variants()[arguments.variant].fails_everywhere(ranks):
                os.environ.update(environment)
        return None

    def run(self, ranks: "Ranks", stop: mpi_startup.StopSignal) -> int:
        """Measure, and print the results."""
        from hpccoll.measure.ranks import check_shape
        from hpccoll.measure.run.case_factory import preflight
        from hpccoll.measure.run.job_runner import JobRunner, Launch

        arguments = self.arguments
        if self._shape:
            check_shape(ranks, self._shape, arguments.hosts.split(",") if arguments.hosts else ())
        if arguments.check:
            return _print_ranks(ranks)
        if arguments.try_gpu_pair:
            from hpccoll.measure.run.gpu_pair_trial import try_gpu_pair

            return try_gpu_pair(ranks, arguments.try_gpu_pair)
        # Only rank 0 reads the job file: it may exist on one node only, and an error is raised on
        # all ranks.
        job = ranks.run_at_root(lambda: run_options.job_from_args(arguments, ranks.layout(0)))
        # before any rank asks for a name that hpccoll itself does not know
        use_only(job.extensions or ())
        job = _with_files(ranks, job)
        if run_options.takes_sizes_that_fit(arguments):
            from hpccoll.measure.run.fitting_sizes import job_of_fitting_sizes

            job = job_of_fitting_sizes(ranks, job)
        if not arguments.job:
            preflight(ranks, job)
        if arguments.probe:
            return _probe(ranks, job, stop, arguments)
        if ranks.comm.rank == 0:
            from hpccoll.render.run_table import PrintedTable  # other ranks print nothing

            self._table = PrintedTable()
        launch = Launch(
            show=self._show,
            pending_signal=lambda: stop.signal,
            exit_limit=mpi_startup.deadline,
            network=arguments.network,
            probe=_probe_in_launch(arguments, ranks, job),
            probe_result=_load_evidence(arguments, ranks),
            gpu_pair=_load_gpu_pair(arguments, ranks),
        )
        self.runner = JobRunner(ranks, job, arguments.out, launch)
        with _log_of_nccl(job):
            return self._measure(stop)

    def _show(self, job: Job, history: "CaseHistory", position: int, count: int) -> None:
        """Print a round of a case at rank 0."""
        if self._table is not None:
            self._table.show(job, history, position, count)

    def _measure(self, stop: mpi_startup.StopSignal) -> int:
        runner = cast("JobRunner", self.runner)
        with stop.measuring():
            try:
                return 0 if runner.run() or self.arguments.exit_zero else 3
            finally:
                if self._table is not None:
                    # other ranks print nothing
                    from hpccoll.cli.run_output import print_results, warn_if_busy

                    print_results(runner, self._table)
                    warn_if_busy(runner)

    def end(self, _code: int) -> None:
        """Print what is left to measure, and end a launch that has lost a rank."""
        if self.runner:
            if self._table is not None:
                from hpccoll.cli.run_output import print_remaining

                print_remaining(self.runner, nothing=self._table.empty)
            self.runner.group.end_launch()  # by MPI_Abort, if it has lost a rank


def _parser(command: str) -> argparse.ArgumentParser:
    if command == RUN:
        return run_options.build_parser()
    brought = cast("JobCommand", job_command(command))
    return brought.build_parser()


def _read_shape(arguments: argparse.Namespace) -> Shape | None:
    if arguments.hosts and arguments.shape is None:
        raise BadInputError("--hosts", arguments.hosts, "hosts of a --shape, such as 4x2")
    if arguments.shape is None:
        return None
    return run_options.parse_shape(arguments.shape)


@contextmanager
def _log_of_nccl(job: Job) -> Iterator[None]:
    """Keep what NCCL logs in this process, if cases of the job use it, and print it afterwards."""
    if not any(case.transport == "nccl" for case in job.cases):
        yield
        return
    from hpccoll.evidence.own_nccl_log import OWN_LOG

    try:
        OWN_LOG.begin()
        yield
    finally:
        OWN_LOG.end()


def _print_ranks(ranks: "Ranks") -> int:
    if ranks.comm.rank == 0:
        from hpccoll.cli.run_output import print_ranks

        print_ranks(ranks)
    return 0


def _with_files(ranks: "Ranks", job: Job) -> Job:
    """Register the files of algorithms of a job, which only rank 0 reads, and check the cases that name them.

    The job that is returned has no paths: results are the same wherever a file was.
    """
    if job.plans:
        from hpccoll.cases.algorithm_files import read_files, register_files
        from hpccoll.cases.catalogue import check_job

        register_files(ranks.run_at_root(lambda: read_files(job.plans)))
        ranks.run_at_root(lambda: check_job(job))
    return replace(job, plans={})


def _probe(
    ranks: "Ranks", job: Job, stop: mpi_startup.StopSignal, arguments: argparse.Namespace
) -> int:
    from hpccoll.evidence import log_settings
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.run.log_probe import probe

    logs, gpus = arguments.probe, RankGpus(ranks)
    gpus.pair = _load_gpu_pair(arguments, ranks)
    ranks.run_at_root(lambda: log_settings.remove_old_logs(logs))  # before NCCL opens its files
    log_settings.copy_nccl_settings(logs)
    with stop.measuring():
        probe(ranks, job, lambda: stop.signal, gpus)
    if not ranks.max_over_ranks(stop.signal):
        return 0
    ranks.run_at_root((logs / log_settings.INTERRUPTED_FILE).touch)
    return 3


def _probe_in_launch(arguments: argparse.Namespace, ranks: "Ranks", job: Job) -> "Probe | None":
    """Return the probe that this launch begins with: of a command line over NCCL, unless a rank's log is the user's.

    A sweep probes in launches of its own.
    """
    elsewhere = arguments.job or arguments.command or arguments.evidence
    if elsewhere or not any(case.transport == "nccl" for case in job.cases):
        return None
    from hpccoll.evidence.log_settings import log_variables_of_user

    if any(ranks.comm.allgather(log_variables_of_user())):
        return None
    from hpccoll.measure.run.log_probe import probe_in_launch

    return probe_in_launch


def _load_evidence(arguments: argparse.Namespace, ranks: "Ranks") -> "ProbeResult | None":
    """Return the evidence of the probe, None without one; print what is missing.

    Missing evidence is not an error: a probe that failed does not cost the measurement.
    """
    if not arguments.evidence:
        return None
    from hpccoll.evidence.probe_result import ProbeResult

    probe_result = ranks.run_at_root(lambda: ProbeResult.load(arguments.evidence))
    if probe_result.failure and ranks.comm.rank == 0:
        state = "no evidence"
        if probe_result.record:
            state = "the evidence is incomplete"
        print(f"# {state}: the probe {probe_result.failure}", flush=True)
    return probe_result


def _load_gpu_pair(arguments: argparse.Namespace, ranks: "Ranks") -> "GpuPair | None":
    if not arguments.gpu_pair:
        return None
    from hpccoll.evidence.gpu_pair import GpuPair

    return ranks.run_at_root(lambda: GpuPair.load(arguments.gpu_pair))
