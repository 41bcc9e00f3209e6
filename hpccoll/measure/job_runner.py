"""Runs a job on all ranks, round by round, and keeps the outcomes in the journal and the raw file."""

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from hpccoll.cases.case import PYTHON, Case, Job, Shape
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.attempt_runner import AttemptRunner
from hpccoll.measure.executor_choice import agree_on_executor, executor_provenance
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.provenance import LoadRecorder, gather_attempt
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.recovery import ExcludedError, RankGroup
from hpccoll.measure.round_order import Completed, check_cases, job_for_remaining_ranks, rounds_left
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.store.host_load import KEY as LOAD
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.journal import Journal, has_records, journal_path, write_failure_note
from hpccoll.store.raw_results import Attempt, CaseHistory, Failure, Outcome, RawResults
from hpccoll.transports.mpi.native_executor import CompiledOptions

MAX_DAMAGE_LINES = 5
"""The maximum number of damaged lines of a journal that are printed when a job is resumed."""

Show = Callable[[Job, CaseHistory, int, int], None]
Probe = Callable[[Ranks, Job, Callable[[], int], RankGpus], ProbeResult | None]


class JobRunner:
    """A launch of a job: one attempt, and another attempt whenever the group of ranks loses a rank.

    Created and run on all ranks together.

    Args:
        ranks: all ranks of the launch.
        job: the job, of which the cases that have the shape of ``ranks`` are run.
        out: the raw file to write; None to keep no results.
        show: called at rank 0 after each round of a case, with the job, the history of the case, the number of rounds
            measured so far, and the number of rounds to measure.
        pending_signal: returns the number of the signal on which this rank is to stop after the current round; 0 if
            none has come.
        probe_result: the result of a log probe of the same job, None if there was none; used at rank 0.
        network: the network that the nodes should use, ``rdma`` or ``tcp``; None if unspecified.
        exit_limit: returns a context that ends this process if it blocks in it for too long; entered where no watchdog
            runs.
        probe: runs a log probe in this launch and returns its result; None if there is none. Called once, if anything
            is left to be measured.
    """

    def __init__(
        self, ranks: Ranks, job: Job, out: Path | None, show: Show, pending_signal: Callable[[], int] = lambda: 0,
        probe_result: ProbeResult | None = None, network: str | None = None,
        exit_limit: Callable[[], AbstractContextManager[None]] = nullcontext, probe: Probe | None = None,
    ) -> None:  # fmt: skip
        self.group, self.job, self.out = RankGroup(ranks, job.aggregators), job, out
        self.show, self.pending_signal, self.exit_limit = show, pending_signal, exit_limit
        self.probe_result, self.network, self.probe = probe_result, network, probe
        self.me = ranks.comm.rank
        self.attempt_number = 0  # the number of the current attempt
        self.has_results = False  # whether any case was measured, in this or an earlier attempt
        self.stop_signal = 0  # the signal on which all ranks have stopped, 0 if none
        self.progress = RankProgress()
        self.runner: AttemptRunner | None = None
        self.load: LoadRecorder | None = None  # of the current attempt
        self.journal: Journal | None = None  # at rank 0, if ``out`` is given
        self.raw = RawResults(path=out or Path(), job=job)  # that of the journal, if there is one

    def run(self) -> bool:
        """Measure all rounds that are not measured yet.

        Returns:
            whether everything is measured and no result is wrong; False if all cases are skipped.

        Raises:
            BadInputError: on all ranks, if the job cannot be run as requested; no result is lost.
        """
        check_cases(self.job)
        shape = self.group.shape
        if shape not in self.job.shapes:
            planned = " or ".join(shape.text for shape in self.job.shapes)
            raise UnusableError("launch", f"{shape.text}, and job {self.job.name} is for {planned}")
        earlier = self.group.ranks.run_at_root(self._open_results)
        self.has_results = earlier.has_results
        left = rounds_left(self.job, shape, earlier)
        if not left:
            with self.exit_limit():  # an earlier launch may have ended before it wrote the results
                self.group.ranks.run_at_root(self._write_results)
            return earlier.all_right and self.has_results
        self.attempt_number = earlier.last_attempt
        if self.probe:
            self.probe_result = self.probe(self.group.ranks, self.job, self.pending_signal, self.group.gpus)
        try:
            with watchdog(self.progress, self._where, self.job.effort.timeout, self.report_failure, self._is_excluded):
                fine = self._run_attempts(shape, left)
        except ExcludedError:
            self._print_message("stalled; the other ranks continued without it, and it ends with them")
            self.group.end_launch(excluded=True)
            raise
        with self.exit_limit():
            self.group.ranks.run_at_root(self._finish)
        return fine and earlier.all_right and self.has_results and not self.stop_signal

    def _run_attempts(self, shape: Shape, left: list[tuple[int, Case]]) -> bool:
        """Run attempts until the rounds ``left`` are measured or a signal stops the job; return whether all are right.

        Raises:
            ExcludedError: on a rank that the others have gone on without.
        """
        all_right, job = True, self.job
        while left:
            self.runner = self._begin_attempt(job)
            all_right &= self._run_rounds(self.runner, left)
            if not self.runner.ranks_lost:
                self._record_load()
                self.runner.close()
                break
            earlier = self.group.ranks.run_at_root(lambda: Completed.of(self.raw))
            rest = self.group.shape if self.group.can_continue else None
            job = job_for_remaining_ranks(self.job, shape, rest, earlier)
            left = rounds_left(job, rest, earlier) if rest else []
        return all_right

    def _begin_attempt(self, job: Job) -> AttemptRunner:
        """Begin an attempt on the current group."""
        self.attempt_number += 1
        probe_result = self.probe_result if self.group.complete else None  # the probe ran on all ranks
        attempt, compiled = self._gather_attempt(probe_result)
        self.load = LoadRecorder(self.group.ranks.comm, attempt)
        attempt = replace(attempt, provenance={**attempt.provenance, LOAD: self.load.gather_start()})
        if self.journal:
            self.journal.begin(attempt)
        else:
            self.raw.attempts.append((attempt, []))
        if self.me == 0 and not self.group.complete:
            print(f"# attempt {self.attempt_number} continues with {self.group.shape.text}", flush=True)
        return AttemptRunner(self.group, job, attempt, probe_result, self.progress, compiled)

    def _record_load(self) -> None:
        """Add what else used the hosts during the attempt to its provenance."""
        load = {LOAD: self.load.gather_end()} if self.load else {}
        if self.journal:
            self.journal.add_provenance(load)
        elif self.me == 0:
            self.raw.add_provenance(load)

    def _run_rounds(self, runner: AttemptRunner, left: list[tuple[int, Case]]) -> bool:
        """Measure the rounds ``left`` until a signal or the loss of a rank; return whether all results are right."""
        fine = True
        finished: set[str] = set()  # cases that were skipped or failed: so would their other rounds
        for position, (number, case) in enumerate(left, 1):
            if case.id in finished:
                continue
            if stop_signal := self.group.ranks.max_over_ranks(self.pending_signal()):
                self.stop_signal = stop_signal
                break
            outcome = self._run_round(runner, case, number)
            fine &= outcome.status == "ok" or (outcome.status == "skipped" and number == 1)
            self.has_results |= outcome.timed
            if outcome.status in ("skipped", "failed"):
                finished.add(case.id)
            if self.me == 0:
                self.show(self.job, next(self.raw.histories(case.id)), position, len(left))
            if runner.ranks_lost:
                break
        return fine

    def _gather_attempt(self, probe_result: ProbeResult | None) -> tuple[Attempt, CompiledOptions | None]:
        """Return the record of an attempt, and how the compiled executor runs in it; None for the Python executor."""
        group = self.group
        attempt = gather_attempt(group.ranks, self.job, self.attempt_number, group.gpus.provenance(self.job.cases))
        requested = group.ranks.run_at_root(self._requested_executor)
        compiled = agree_on_executor(group.ranks.comm, requested, oversubscribed=attempt.oversubscribed)
        executor = executor_provenance(compiled)
        provenance = {**attempt.provenance, **executor, "network": self.network, **group.provenance()}
        evidence = probe_result.to_json() if probe_result else None
        return replace(attempt, provenance=provenance, evidence=evidence), compiled

    def _requested_executor(self) -> str | None:
        """Return the executor of the job; if it names none, that of its earlier launches, because rounds are joined.

        Called at rank 0; None if no launch has measured anything.
        """
        earlier = (attempt.provenance.get("executor", PYTHON) for attempt, outcomes in self.raw.attempts if outcomes)
        executor = self.job.executor or next(earlier, None)
        return None if executor is None else str(executor)

    def _run_round(self, runner: AttemptRunner, case: Case, number: int) -> Outcome:
        """Measure a round of ``case`` and record its outcome in the journal."""
        self.progress.case, self.progress.iteration = case.id, 0
        if self.journal:
            self.journal.start(case)
        outcome = runner.run_round(case, number)
        if self.journal:
            self.journal.record(outcome)
        elif self.me == 0:
            self.raw.record(outcome)
        return outcome

    def _open_results(self) -> Completed:
        """Open the journal, if ``out`` is given, and return what earlier attempts have measured; called at rank 0."""
        if self.out is None:
            return Completed()
        earlier = None
        if self.out.exists():
            earlier = self._read_earlier(self.out)
        if earlier:
            check_same_job(earlier, self.job, self.out)
            if earlier.complete:
                # The launch that wrote it may have ended before it removed its journal.
                journal_path(self.out).unlink(missing_ok=True)
                return Completed.of(earlier)
        self.journal = Journal(self.out, self.job, earlier)
        self.raw = self.journal.raw
        for damage in self.raw.unrecovered_damage[:MAX_DAMAGE_LINES]:
            print(f"# {self.journal.path}: {damage}; the lost measurements are repeated", flush=True)
        return Completed.of(self.raw)

    def _read_earlier(self, out: Path) -> RawResults | None:
        """Return the content of a raw file; None if it is damaged but its journal has all of it.

        Raises:
            BadInputError: if it is damaged and has no journal.
        """
        from hpccoll.store import hdf5

        try:
            return hdf5.read_raw_file(out)
        except BadInputError as error:
            if not has_records(journal_path(out)):
                raise
            print(f"# {error}; its journal is read instead", flush=True)
            return None

    def _finish(self) -> None:
        """Record why measurements are left, if any are, and write the results; called at rank 0."""
        if self.stop_signal and self.journal:
            sender = " (Slurm sends it before the time limit)" if self.stop_signal == signal.SIGUSR1 else ""
            self.journal.end(f"stopped by {signal.Signals(self.stop_signal).name}{sender}")
        if self.journal and not self.group.complete:
            self.journal.end(*self.group.loss)
        self._write_results()

    def _write_results(self) -> None:
        if self.journal is not None and self.out is not None:
            from hpccoll.store import hdf5

            # SIGINT interrupts the whole sweep; Snakemake would then take a partial file for a complete output.
            partial = (self.raw.stop_reason or self.raw.failed_cases) and self.stop_signal != signal.SIGINT
            if self.raw.complete or partial:
                hdf5.write_raw_file(self.raw, self.out)
            self.journal.close(remove=self.raw.complete)

    def _where(self) -> str:
        return self.runner.where() if self.runner else "no plan yet"

    def _is_excluded(self) -> bool:
        return self.runner is not None and self.runner.is_excluded()

    def report_failure(self, message: str) -> None:
        """Print the reason why this rank fails, and record it next to the journal; callable from any thread."""
        self._print_message(message)
        self.note_failure(message)

    def note_failure(self, message: str) -> None:
        """Record the reason why this rank fails next to the journal."""
        with suppress(OSError):
            # A host that does not share the directory of ``out`` has no journal.
            if self.out is not None and journal_path(self.out).exists():
                case_id, number = self.progress.case, self.attempt_number
                failure = Failure(case_id=case_id, rank=self.me, message=message, attempt=number)
                write_failure_note(self.out, failure)

    def _print_message(self, message: str) -> None:
        with suppress(OSError):  # a full disk or a closed pipe must not keep the job from ending
            print(f"r{self.me} | {message}", file=sys.stderr, flush=True)

    def end_launch(self) -> None:
        """End the launch by MPI_Abort if it has lost a rank; called last, when rank 0 has printed its results."""
        self.group.end_launch()
