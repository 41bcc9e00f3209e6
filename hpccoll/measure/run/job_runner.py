"""Runs a job on all ranks, round by round, and keeps the outcomes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hpccoll.cases.case import COMPILED, PYTHON, Case, Job, Shape
from hpccoll.common.errors import ExcludedError, UnusableError
from hpccoll.executor.choice import agree_on_executor
from hpccoll.measure.provenance import LoadRecorder, gather_attempt
from hpccoll.measure.ranks import Ranks, print_of_rank
from hpccoll.measure.run.attempt_runner import AttemptRunner
from hpccoll.measure.run.copy_rates import copy_rates
from hpccoll.measure.run.job_results import JobResults
from hpccoll.measure.run.recovery import RankGroup
from hpccoll.measure.run.workload_runner import begin_workloads
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.store.raw_results import Attempt, CaseHistory, Failure
from hpccoll.store.schema import HOST_LOAD

if TYPE_CHECKING:
    from hpccoll.evidence.gpu_pair import GpuPair
    from hpccoll.evidence.probe_result import ProbeResult
    from hpccoll.executor.compiled_executor import ExecutorOptions
    from hpccoll.measure.gpu_assignment import RankGpus

Show = Callable[[Job, CaseHistory, int, int], None]
Probe: TypeAlias = "Callable[[Ranks, Job, Callable[[], int], RankGpus], ProbeResult | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What surrounds a job: who shows its rounds and may stop it, and what is known of its library.

    ``show`` is called at rank 0 after each round of a case, with the job, the history of the case,
    and how many rounds are measured and to be measured. ``pending_signal`` returns the signal on
    which this rank is to stop after the current round, 0 if none has come. ``exit_limit`` ends this
    process if it blocks for too long where there is no watchdog. ``probe`` runs a log probe in this
    launch if anything is left to be measured; ``probe_result`` is that of another launch, used at
    rank 0. ``gpu_pair`` is what a launch of two ranks has found of GPU memory between nodes, on all
    ranks; None if there was none. ``network`` is ``rdma`` or ``tcp`` if the nodes should use it.
    """

    show: Show
    pending_signal: Callable[[], int] = lambda: 0
    exit_limit: Callable[[], AbstractContextManager[None]] = nullcontext
    probe_result: "ProbeResult | None" = None
    probe: "Probe | None" = None
    gpu_pair: "GpuPair | None" = None
    network: str | None = None


class EarlierLaunches(NamedTuple):
    """What earlier launches of a job have done, as rank 0 finds it in the results."""

    last_attempt: int  # its number; 0 if there was none
    all_right: bool  # whether no result is wrong
    has_results: bool
    left: list[tuple[int, Case]]  # the rounds of cases to be measured, in their order


class JobRunner:
    """A launch of a job: one attempt, and another attempt whenever the group of ranks loses a rank.

    Created and run on all ranks together. The cases of ``job`` that have the shape of ``ranks`` are
    run; no results are kept if ``out`` is None.
    """

    def __init__(self, ranks: Ranks, job: Job, out: Path | None, launch: Launch) -> None:
        self.group = RankGroup(ranks, job.aggregators, launch.gpu_pair)
        self.job = job
        self.launch = launch
        self.results, self.me = JobResults(job, out), ranks.comm.rank
        self.attempt_number = 0  # the number of the current attempt
        self.has_results = False  # whether any case was measured, in this or an earlier attempt
        self.stop_signal = 0  # the signal on which all ranks have stopped, 0 if none
        self.progress = RankProgress()
        self.runner: AttemptRunner | None = None

    def run(self) -> bool:
        """Measure all rounds that are not measured yet.

        Returns:
            whether everything is measured and no result is wrong; False if all cases are skipped.

        Raises:
            BadInputError: on all ranks, if the job cannot be run as requested; no result is lost.
        """
        group = self.group
        launch = self.launch
        shape = self.group.shape
        if any(case.transport == "nccl" for case in self.job.cases):
            begin_workloads(self.job.cases)
        if shape not in self.job.shapes:
            planned = " or ".join(shape.text for shape in self.job.shapes)
            raise UnusableError("launch", f"{shape.text}, and job {self.job.name} is for {planned}")
        earlier = group.ranks.run_at_root(lambda: self._open(shape))
        self.has_results = earlier.has_results
        self.attempt_number = earlier.last_attempt
        left = earlier.left
        if not left:
            # an earlier launch may have ended before it wrote the results
            with launch.exit_limit():
                group.ranks.run_at_root(self.results.finish)
            return earlier.all_right and self.has_results
        probe_result = launch.probe_result
        if launch.probe:
            probe_result = launch.probe(group.ranks, self.job, launch.pending_signal, group.gpus)

        def is_excluded() -> bool:
            return self.runner is not None and self.runner.is_excluded()

        try:
            with watchdog(self.progress, self.job.effort.timeout, self.report_failure, is_excluded):
                fine = self._run_attempts(shape, left, probe_result)
        except ExcludedError:
            print_of_rank(
                self.me, "stalled; the other ranks continued without it, and it ends with them"
            )
            group.end_launch(excluded=True)
            raise
        except BaseException:
            self.results.discard()
            raise
        with launch.exit_limit():
            loss = None if group.complete else group.loss
            group.ranks.run_at_root(lambda: self.results.finish(self.stop_signal, loss))
        return fine and earlier.all_right and self.has_results and not self.stop_signal

    def _run_attempts(
        self, shape: Shape, left: list[tuple[int, Case]], probe_result: "ProbeResult | None"
    ) -> bool:
        """Run attempts until the rounds ``left`` are measured or a signal stops the job; return whether all are right.

        Raises:
            ExcludedError: on a rank that the others have gone on without.
        """
        all_right, job = True, self.job
        while left:
            # the probe ran on all ranks
            shared_result = probe_result if self.group.complete else None
            attempt, options = self._begin_attempt(shared_result)
            load = LoadRecorder(self.group.ranks.comm, attempt)
            attempt = replace(
                attempt, provenance={**attempt.provenance, HOST_LOAD: load.gather_start()}
            )
            if self.me == 0:
                self.results.records.begin(attempt)
            self.runner = AttemptRunner(
                self.group, job, attempt, shared_result, self.progress, options
            )
            all_right &= self._run_rounds(self.runner, left)
            if not self.runner.ranks_lost:
                used = {HOST_LOAD: load.gather_end()}  # what else used the hosts
                if self.me == 0:
                    self.results.records.add_provenance(used)
                self.runner.close()
                break
            rest = None
            if self.group.can_continue:
                rest = self.group.shape
            job, left = self.group.ranks.run_at_root(partial(self._left_for, shape, rest))
        return all_right

    def _open(self, shape: Shape) -> "EarlierLaunches":
        """Open the results at rank 0, and return what earlier launches have done and left."""
        # the other ranks get the order from rank 0
        from hpccoll.measure.run.round_order import rounds_left

        earlier = self.results.open()
        left = rounds_left(self.job, shape, earlier)
        return EarlierLaunches(earlier.last_attempt, earlier.all_right, earlier.has_results, left)

    def _left_for(self, shape: Shape, rest: Shape | None) -> tuple[Job, list[tuple[int, Case]]]:
        """Return, at rank 0, the job that the ``rest`` of the ranks can measure, and the rounds that are left of it."""
        from hpccoll.measure.run.round_order import Completed, job_for_remaining_ranks, rounds_left

        earlier = Completed.of(self.results.raw)
        job = job_for_remaining_ranks(self.job, shape, rest, earlier)
        return job, rounds_left(job, rest, earlier) if rest else []

    def _begin_attempt(
        self, probe_result: "ProbeResult | None"
    ) -> tuple[Attempt, "ExecutorOptions | None"]:
        """Return the record of an attempt, and how the compiled executor runs in it; None for the Python executor."""
        self.attempt_number += 1
        group = self.group
        ranks = self.group.ranks
        attempt = gather_attempt(
            ranks, self.attempt_number, group.gpu_provenance(self.job), group.aggregators
        )
        requested = ranks.run_at_root(self.results.requested_executor)
        options = None
        if requested != PYTHON:
            required = requested == COMPILED
            options = agree_on_executor(
                ranks.comm, required=required, oversubscribed=attempt.oversubscribed
            )
        spins = options is not None and not options.oversubscribed
        executor = {
            "executor": COMPILED if options else PYTHON,
            "waiting": "spins" if spins else "yields",
        }
        rates = copy_rates(ranks, self.job, attempt, options, self.progress)
        request = {"order_seed": self.job.seed, "network": self.launch.network}
        provenance = {**attempt.provenance, **executor, **request, **group.provenance(), **rates}
        if self.me == 0 and not group.complete:
            print(f"# attempt {self.attempt_number} continues with {group.shape.text}", flush=True)
        evidence = probe_result.to_json() if probe_result else None
        return replace(attempt, provenance=provenance, evidence=evidence), options

    def _run_rounds(self, runner: AttemptRunner, left: list[tuple[int, Case]]) -> bool:
        """Measure the rounds ``left`` until a signal or the loss of a rank; return whether all results are right."""
        fine = True
        finished: set[str] = set()  # cases that were skipped or failed: so would their other rounds
        for position, (number, case) in enumerate(left, 1):
            if case.id in finished:
                continue
            if stop_signal := self.group.ranks.max_over_ranks(self.launch.pending_signal()):
                self.stop_signal = stop_signal
                break
            self.progress.begin(f"case {case.id}", case.id)
            if self.me == 0:
                self.results.records.start(case)
            outcome = runner.run_round(case, number)
            fine &= outcome.status == "ok" or (outcome.status == "skipped" and number == 1)
            self.has_results |= outcome.timed
            if outcome.status in ("skipped", "failed"):
                finished.add(case.id)
            if self.me == 0:
                self.progress.enter("writing its outcome")
                self.results.record(outcome)
                self.launch.show(
                    self.job, next(self.results.raw.histories(case.id)), position, len(left)
                )
            if runner.ranks_lost:
                break
        return fine

    def report_failure(self, message: str) -> None:
        """Print the reason why this rank fails, and record it next to the journal; callable from any thread."""
        print_of_rank(self.me, message)
        self.note_failure(message)

    def note_failure(self, message: str) -> None:
        failure = Failure(
            case_id=self.progress.case, rank=self.me, message=message, attempt=self.attempt_number
        )
        self.results.note_failure(failure)
