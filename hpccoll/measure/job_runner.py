"""The rank program: runs the cases of a job on all ranks, round by round, and keeps what each one gave."""

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.attempt_runner import AttemptRunner
from hpccoll.measure.provenance import gather_attempt
from hpccoll.measure.rank_group import RankGroup
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.round_order import Completed, check_cases, job_for_remaining_ranks, rounds_left
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.spec.case import Case, Job, Shape
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.journal import Journal, has_begun, journal_path, write_failure_note
from hpccoll.store.raw import Attempt, CaseHistory, Failure, Outcome, RawResults
from hpccoll.transports.nccl.fault_tolerance import ExcludedError

MAX_DAMAGE_LINES = 5
"""Damaged lines of a journal that are named as a job goes on."""
Show = Callable[[Job, CaseHistory, int, int], None]


class JobRunner:
    """A launch of a job: one attempt at it, and another for each time that ranks are left behind by the rest.

    Made and run on all ranks together.

    Args:
        ranks: the ranks.
        job: the cases; those of the shape of these ranks are run.
        out: the raw file to write, None to keep nothing.
        show: called at rank 0 with what became of a case after each of its rounds, how many rounds of cases have been
            measured and how many there are to measure.
        told: returns the signal that tells this rank to end after the round under way of a case, 0 while there is none.
        found: what a probe found of the library's logs; used at rank 0.
        network: by what nodes should talk, ``rdma`` or ``tcp``, None where nobody has said.
        limited: a context in which this rank does not wait for the others for ever: no watchdog looks after it there.
    """

    def __init__(
        self, ranks: Ranks, job: Job, out: Path | None, show: Show, told: Callable[[], int] = lambda: 0,
        found: ProbeResult | None = None, network: str | None = None,
        limited: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self.crew, self.job, self.out, self.show, self.told = RankGroup(ranks, job.aggregators), job, out, show, told
        self.found, self.network, self.limited = found, network, limited
        self.me = ranks.comm.rank
        self.number = 0  # of this attempt
        self.timed = False  # whether there is any result
        self.ended_by = 0  # the signal that told a rank to end, and all have
        self.progress = RankProgress()
        self.sitting: AttemptRunner | None = None
        self.journal: Journal | None = None  # at rank 0, where there is an out
        self.raw = RawResults(path=out or Path(), job=job)  # the journal's where there is one

    def run(self) -> bool:
        """Measure what is not measured yet, and return whether all of it is there and no result is wrong.

        Where every case is skipped nothing is there.

        Raises:
            BadInputError: on all ranks, where the job cannot be run as it is asked; nothing is lost.
        """
        check_cases(self.job)
        shape = self.crew.shape
        if shape not in self.job.shapes:
            planned = " or ".join(shape.words for shape in self.job.shapes)
            raise UnusableError("launch", f"{shape.words}, and job {self.job.name} is for {planned}")
        earlier = self.crew.ranks.at_root(self._open)
        self.timed = earlier.timed
        left = rounds_left(self.job, shape, earlier)
        if not left:
            with self.limited():  # an earlier attempt may have ended just before it wrote the results
                self.crew.ranks.at_root(self._close)
            return earlier.fine and self.timed
        self.number = earlier.attempts
        with watchdog(self.progress, self._where, self.job.effort.timeout, self.last_words, self._left_behind):
            try:
                fine = self._measured(shape, left)
            except ExcludedError:
                fine = False
        if not self.crew.behind:
            with self.limited():
                self.crew.ranks.at_root(self._end)
        self.crew.part(self.job.effort.timeout)
        return fine and earlier.fine and self.timed and not self.ended_by

    def _measured(self, shape: Shape, left: list[tuple[int, Case]]) -> bool:
        """Measure what is ``left``, unless a signal ends it; return whether all of it is right.

        Raises:
            ExcludedError: on a rank that the others have left behind.
        """
        whole, job = True, self.job
        while left:
            self.sitting = self._begun(job)
            whole &= self._gone_through(self.sitting, left)
            if not self.sitting.parted:
                self.sitting.close()
                break
            earlier = self.crew.ranks.at_root(lambda: Completed.of(self.raw))
            rest = self.crew.shape if self.crew.enough else None
            job = job_for_remaining_ranks(self.job, shape, rest, earlier)
            left = rounds_left(job, rest, earlier) if rest else []
        return whole

    def _begun(self, job: Job) -> AttemptRunner:
        """Begin an attempt."""
        self.number += 1
        found = self.found if self.crew.whole else None  # it is of all ranks
        attempt = self._attempt(found)
        if self.journal:
            self.journal.begin(attempt)
        else:
            self.raw.attempts.append((attempt, []))
        if self.me == 0 and not self.crew.whole:
            print(f"# attempt {self.number} goes on with {self.crew.shape.words}", flush=True)
        return AttemptRunner(self.crew, job, attempt, found, self.progress)

    def _gone_through(self, sitting: AttemptRunner, left: list[tuple[int, Case]]) -> bool:
        """Measure what is ``left`` until a signal ends it or somebody is gone; return whether it is right."""
        fine = True
        over: set[str] = set()  # whose other rounds would be skipped or fail, too
        for place, (number, case) in enumerate(left, 1):
            if case.id in over:
                continue
            if told := self.crew.ranks.largest(self.told()):
                self.ended_by = told
                break
            outcome = self._recorded(sitting, case, number)
            fine &= outcome.status == "ok" or (outcome.status == "skipped" and number == 1)
            self.timed |= outcome.timed
            if outcome.status in ("skipped", "failed"):
                over.add(case.id)
            if self.me == 0:
                self.show(self.job, next(self.raw.histories(case.id)), place, len(left))
            if sitting.parted:
                break
        return fine

    def _attempt(self, found: ProbeResult | None) -> Attempt:
        crew = self.crew
        made = gather_attempt(crew.ranks.comm, self.job, self.number, crew.gpus.on_record(self.job.cases))
        provenance = {**made.provenance, "network": self.network, **crew.on_record()}
        return replace(made, provenance=provenance, evidence=found.to_json() if found else None)

    def _recorded(self, sitting: AttemptRunner, case: Case, number: int) -> Outcome:
        """Measure a round of ``case`` and put what became of it into the journal."""
        self.progress.case, self.progress.iteration = case.id, 0
        if self.journal:
            self.journal.start(case)
        outcome = sitting.outcome(case, number)
        if self.journal:
            self.journal.record(outcome)
        elif self.me == 0:
            self.raw.record(outcome)
        return outcome

    def _open(self) -> Completed:
        if self.out is None:
            return Completed()
        earlier = None
        if self.out.exists():
            earlier = self._earlier(self.out)
        if earlier:
            check_same_job(earlier, self.job, self.out)
            if earlier.complete:
                # Whoever wrote it may have ended before it removed its journal.
                journal_path(self.out).unlink(missing_ok=True)
                return Completed.of(earlier)
        self.journal = Journal(self.out, self.job, earlier)
        self.raw = self.journal.raw
        for damage in self.raw.lost[:MAX_DAMAGE_LINES]:
            print(f"# {self.journal.path}: {damage}; what it held is measured again", flush=True)
        return Completed.of(self.raw)

    def _earlier(self, out: Path) -> RawResults | None:
        """Return what a raw file holds; None where it is damaged, and its journal has all of it.

        Raises:
            BadInputError: where it is damaged, and has no journal.
        """
        from hpccoll.store import hdf5

        try:
            return hdf5.read_raw_file(out)
        except BadInputError as error:
            if not (journal_path(out).exists() and has_begun(journal_path(out))):
                raise
            print(f"# {error}; its journal is read in its place", flush=True)
            return None

    def _end(self) -> None:
        """Say why something is left, where it is, and write the results."""
        if self.ended_by and self.journal:
            who = ", as Slurm does before a time limit" if self.ended_by == signal.SIGUSR1 else ""
            self.journal.end(f"{signal.Signals(self.ended_by).name} told it to end{who}")
        if self.journal and not self.crew.whole:
            self.journal.end(*self.crew.reason)
        self._close()

    def _close(self) -> None:
        if self.journal is not None and self.out is not None:
            from hpccoll.store import hdf5

            # Who interrupts a sweep ends all of it, and a partial file that nobody removes is a result to Snakemake.
            partial = (self.raw.ended or self.raw.failed) and self.ended_by != signal.SIGINT
            if self.raw.complete or partial:
                hdf5.write_raw_file(self.raw, self.out)
            self.journal.close(remove=self.raw.complete)

    def _where(self) -> str:
        return self.sitting.where() if self.sitting else "no plan yet"

    def _left_behind(self) -> bool:
        return self.sitting is not None and self.sitting.left_behind()

    def last_words(self, message: str) -> None:
        """Print, and put into the journal, what this rank has to say before the job ends; from any thread."""
        self.crew.say(message)
        with suppress(OSError):
            if self.out is not None and journal_path(self.out).exists():  # not where out is a disk of another host
                said = Failure(case_id=self.progress.case, rank=self.me, message=message, attempt=self.number)
                write_failure_note(self.out, said)
