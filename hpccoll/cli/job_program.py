"""The ranks of ``hpccoll run`` and ``hpccoll train``, from the options to what is printed at the end."""

import argparse
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hpccoll.cases.case import Job, Shape
from hpccoll.cli import run_options
from hpccoll.cli.rank_program import run_rank
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import RANKS
from hpccoll.common.text import join_ends
from hpccoll.common.units import format_size
from hpccoll.evidence import log_settings
from hpccoll.evidence.own_nccl_log import OWN_LOG
from hpccoll.measure import mpi_startup

if TYPE_CHECKING:
    from hpccoll.evidence.gpu_pair import GpuPair
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.measure.job_runner import JobRunner, Probe
    from hpccoll.measure.ranks import Ranks
    from hpccoll.render.run_table import PrintedTable
    from hpccoll.store.raw_results import CaseHistory

TRAIN = "train"


def main(argv: Sequence[str], command: str = "run") -> int:
    """Run one rank of ``run`` or ``train``, and return its exit code."""
    return run_rank(argv, lambda options: JobProgram(options, command))


class JobProgram:
    """The cases of a job, which a command line describes or names.

    Args:
        argv: the options.
        command: ``run`` or ``train``.

    Raises:
        BadInputError: if an option is invalid.
    """

    def __init__(self, argv: Sequence[str], command: str) -> None:
        if not {"--job", "--compute"} & {each.partition("=")[0] for each in argv}:
            # Only training steps multiply large matrices; NumPy, which the parser of ``train`` imports, would start a
            # useless thread per core in every rank.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        parser = run_options.build_train_parser() if command == TRAIN else run_options.build_parser()
        self.arguments = parser.parse_args(argv)
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
            return print_dry_run(arguments) if first else 0
        if arguments.probe:
            log_settings.enable_logging(arguments.probe)  # before any library reads its variables
        self._shape = _read_shape(arguments)
        # Libraries read the variables when they start, and MPI_Init starts some of them.
        if environment := run_options.variant_settings(arguments)["environment"]:
            from hpccoll.cases.variants import named_variants

            ranks = mpi_startup.count_ranks(mpi_startup.LAUNCHERS)
            if not named_variants()[arguments.variant].fails_everywhere(ranks):  # then all cases are skipped
                os.environ.update(environment)
        return None

    def run(self, ranks: "Ranks", stop: mpi_startup.StopSignal) -> int:
        """Measure, and print the results."""
        from hpccoll.measure.case_factory import preflight
        from hpccoll.measure.job_runner import JobRunner, Launch
        from hpccoll.measure.ranks import check_shape

        arguments = self.arguments
        if self._shape:
            check_shape(ranks, self._shape, arguments.hosts.split(",") if arguments.hosts else ())
        if arguments.check:
            return print_ranks(ranks)
        if arguments.try_gpu_pair:
            from hpccoll.measure.gpu_pair_trial import try_gpu_pair

            return try_gpu_pair(ranks, arguments.try_gpu_pair)
        # Only rank 0 reads the job file: it may exist on one node only, and an error is raised on all ranks.
        job = ranks.run_at_root(lambda: run_options.job_from_args(arguments, ranks.layout(0)))
        job = _with_plans(ranks, job)
        if run_options.takes_sizes_that_fit(arguments):
            from hpccoll.measure.fitting_sizes import job_of_fitting_sizes

            job = job_of_fitting_sizes(ranks, job)
        if not arguments.job:
            preflight(ranks, job)
        if arguments.probe:
            return _probe(ranks, job, stop, arguments)
        if ranks.comm.rank == 0:
            from hpccoll.render.run_table import PrintedTable  # other ranks print nothing

            self._table = PrintedTable()
        launch = Launch(
            show=self._show, pending_signal=lambda: stop.signal, exit_limit=mpi_startup.deadline,
            network=arguments.network, probe=_probe_in_launch(arguments, ranks, job),
            probe_result=_load_evidence(arguments, ranks), gpu_pair=_load_gpu_pair(arguments, ranks),
        )  # fmt: skip
        self.runner = JobRunner(ranks, job, arguments.out, launch)
        try:
            if any(case.transport == "nccl" for case in job.cases):
                OWN_LOG.begin()
            return self._measure(stop)
        finally:
            OWN_LOG.end()

    def _show(self, job: Job, history: "CaseHistory", position: int, of: int) -> None:
        """Print a round of a case at rank 0."""
        if self._table is not None:
            self._table.show(job, history, position, of)

    def _measure(self, stop: mpi_startup.StopSignal) -> int:
        runner = cast("JobRunner", self.runner)
        with stop.measuring():
            try:
                return 0 if runner.run() or self.arguments.exit_zero else 3
            finally:
                if self._table is not None:
                    print_results(runner, self._table)
                    warn_if_busy(runner)

    def end(self, _code: int) -> None:
        """Print what is left to measure, and end a launch that has lost a rank."""
        if self.runner:
            if self._table is not None:
                print_remaining(self.runner, nothing=self._table.empty)
            self.runner.group.end_launch()  # by MPI_Abort, if it has lost a rank


def _read_shape(arguments: argparse.Namespace) -> Shape | None:
    if arguments.hosts and arguments.shape is None:
        raise BadInputError("--hosts", arguments.hosts, "hosts of a --shape, such as 4x2")
    return None if arguments.shape is None else run_options.parse_shape(arguments.shape)


def _with_plans(ranks: "Ranks", job: Job) -> Job:
    """Register the plans of a job, which only rank 0 reads and proves, and check the cases that name them.

    The job that is returned has no paths: results are the same wherever a plan was.
    """
    if job.plans:
        from hpccoll.cases.catalogue import check_job
        from hpccoll.interop.mscclpp_reader import proven_plans, register_plans

        register_plans(ranks.run_at_root(lambda: proven_plans(job.plans)))
        ranks.run_at_root(lambda: check_job(job))
    return replace(job, plans={})


def _probe(ranks: "Ranks", job: Job, stop: mpi_startup.StopSignal, arguments: argparse.Namespace) -> int:
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.log_probe import probe

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
    elsewhere = arguments.job or arguments.workload or arguments.evidence
    if elsewhere or not any(case.transport == "nccl" for case in job.cases):
        return None
    if any(ranks.comm.allgather(log_settings.log_variables_of_user())):
        return None
    from hpccoll.measure.log_probe import probe_in_launch

    return probe_in_launch


def _load_evidence(arguments: argparse.Namespace, ranks: "Ranks") -> "ProbeResult | None":
    """Return the evidence of the probe, None without one; print what is missing.

    Missing evidence is no error: a probe that failed does not cost the measurement.
    """
    if not arguments.evidence:
        return None
    from hpccoll.evidence.probe_result import ProbeResult

    found = ranks.run_at_root(lambda: ProbeResult.load(arguments.evidence))
    if found.failure and ranks.comm.rank == 0:
        state = "the evidence is incomplete" if found.record else "no evidence"
        print(f"# {state}: the probe {found.failure}", flush=True)
    return found


def _load_gpu_pair(arguments: argparse.Namespace, ranks: "Ranks") -> "GpuPair | None":
    if not arguments.gpu_pair:
        return None
    from hpccoll.evidence.gpu_pair import GpuPair

    return ranks.run_at_root(lambda: GpuPair.load(arguments.gpu_pair))


DRY_RANKS = "8"
"""The default number of ranks of a dry run."""


def print_results(program: "JobRunner", table: "PrintedTable") -> None:
    """Print the table, what to use, how noisy the measurements were, and what NCCL's own calls ran as."""
    if table.empty:
        return
    from hpccoll.analysis.measurement_quality import lowered_clocks, noise_note
    from hpccoll.analysis.recommendations import ranges_by_setting, recommend
    from hpccoll.analysis.series_points import series_points
    from hpccoll.analysis.step_comparison import compare_steps, late_findings, product_findings
    from hpccoll.render.answers import Answers, conclusion_lines
    from hpccoll.render.printed_evidence import executed_lines
    from hpccoll.store.load_results import to_results
    from hpccoll.store.result_files import ResultFiles

    results = to_results(ResultFiles(raw_results=[program.results.raw]))
    recommendations = recommend(results)
    table.end(program.job, program.results.raw.histories(), ranges_by_setting(recommendations))
    compared = compare_steps(results.rows, {run.run_id: run.machine for run in results.runs})
    names = {point.row.key: point.rank_name for point in series_points(results, {})}
    found = (*product_findings(compared, results.step_times.get), *late_findings(compared, names))
    found = (*found, *lowered_clocks(results))
    remarks = (*(f"{each} {each.remedy}" for each in found), noise_note(results))
    for line in filter(None, (*conclusion_lines(results, Answers(recommendations)), *remarks)):
        print(f"# {line}")
    for line in executed_lines(program.results.raw):
        print(f"# executed: {line}")


def warn_if_busy(program: "JobRunner") -> None:
    """Print what else used the machine during the measurements, if it was enough to disturb them."""
    from hpccoll.store.host_load import busy_hosts, describe_busy

    attempt = next((attempt for attempt, _ in reversed(program.results.raw.attempts)), None)
    if attempt and program.has_results and (busy := busy_hosts(attempt.provenance)):
        print(f"# busy machine: {describe_busy(busy)}; do: measure when it is idle")


def print_remaining(program: "JobRunner", *, nothing: bool) -> None:
    """Print why measurements are missing, or that none were left."""
    from hpccoll.store.journal import journal_path

    job, out = program.job, program.results.out
    if program.stop_signal:
        kept = "nothing is kept without --out"
        if out:
            done = f"{program.results.raw.measurements} of {job.measurements} measurements are in {journal_path(out)}"
            kept = f"{done}; the same command measures the rest"
        print(f"# interrupted by {signal.Signals(program.stop_signal).name}: {kept}")
    elif not program.has_results:
        print("# nothing was measured; see the reason of each case")
    elif nothing and out:
        ends = join_ends(map(format_size, sorted(case.bytes for case in job.cases)))
        print(f"# {out} is complete, {ends}: nothing left to measure")


def print_ranks(ranks: "Ranks") -> int:
    if ranks.comm.rank == 0:
        counts = ", ".join(f"{count} on {name}" for (name, _), count in ranks.ranks_by_node.items())
        if ranks.comm.size > 1:
            print(f"# {ranks.comm.size} ranks are connected: {counts}")
        else:
            print(f"# MPI works, and this rank is alone: {counts}; do: start two ranks to check their connection,")
            print("# such as mpiexec -n 2 hpccoll run --check")
    return 0


def print_dry_run(arguments: argparse.Namespace) -> int:
    """Print the tensors, buckets and operations of each training step; nothing runs, and MPI does not start."""
    from hpccoll.cases.product import workloads
    from hpccoll.render.step_dry_run import dry_run_json, dry_run_lines
    from hpccoll.training.model_file import models_from_json

    request = run_options.train_request(arguments)
    ranks, shapes = RANKS.read("--ranks", arguments.ranks or DRY_RANKS), models_from_json(request.models)
    steps = workloads(request, shapes)
    for dtype, workload in steps:
        workload.check_ranks(ranks, dtype, arguments.op, arguments.device)
    if arguments.json:
        made = [dry_run_json(workload, ranks, dtype, shapes) for dtype, workload in steps]
        print(json.dumps(made[0] if len(made) == 1 else made, indent=1))
    else:
        for dtype, workload in steps:
            print(*dry_run_lines(workload, ranks, dtype, shapes), sep="\n")
    return 0
