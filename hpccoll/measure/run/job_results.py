"""The results of a job at rank 0: kept in the journal and written to the raw file, or only held in memory.

A case is written when its last round is measured, so that no more than the times of one case are in
memory, and the other ranks wait for one case at a time. What earlier launches measured is written
in between, a case at a time.
"""

import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cases.case import PYTHON, Job
from hpccoll.common.errors import BadInputError
from hpccoll.store.raw_results import Failure, Outcome, RawResults

if TYPE_CHECKING:
    from hpccoll.measure.run.round_order import Completed
    from hpccoll.store.hdf5 import RawFileWriter
    from hpccoll.store.journal import Journal

MAX_DAMAGE_LINES = 5
"""The maximum number of damaged lines of a journal that are printed when a job is resumed."""


class JobResults:
    """The results of a job, to be written to ``out`` unless it is None; used at rank 0, except ``note_failure``."""

    def __init__(self, job: Job, out: Path | None) -> None:
        self.job, self.out = job, out
        self.raw = RawResults(path=out or Path(), job=job)  # that of the journal, if there is one
        self._journal: Journal | None = None
        self._writer: RawFileWriter | None = None
        # not after an error: the whole file is then written in the end
        self._may_write = out is not None
        # outcomes of earlier attempts: their places in the results
        self._unwritten: list[tuple[int, int]] = []

    def open(self) -> "Completed":
        """Open the journal, if ``out`` is given, and return what earlier attempts have measured."""
        from hpccoll.measure.run.round_order import Completed  # only rank 0 opens results

        if self.out is None:
            return Completed()
        from hpccoll.store.job_identity import check_same_job  # only rank 0 writes
        from hpccoll.store.journal import Journal, journal_path

        earlier = None
        if self.out.exists():
            earlier = self._read_earlier(self.out)
        if earlier:
            check_same_job(earlier, self.job, self.out)
            if earlier.complete:
                # The launch that wrote it may have ended before it removed its journal.
                journal_path(self.out).unlink(missing_ok=True)
                return Completed.of(earlier)
        self._journal = Journal(self.out, self.job, earlier)
        self.raw = self._journal.raw
        self._unwritten = [
            (attempt, number)
            for attempt, (_, outcomes) in enumerate(self.raw.attempts)
            for number in reversed(range(len(outcomes)))
        ]
        for damage in self.raw.unrecovered_damage[:MAX_DAMAGE_LINES]:
            print(
                f"# {self._journal.path}: {damage}; the lost measurements are repeated", flush=True
            )
        return Completed.of(self.raw)

    @staticmethod
    def _read_earlier(out: Path) -> RawResults | None:
        """Return the content of a raw file; None if it is damaged but its journal has all of it.

        Raises:
            BadInputError: if it is damaged and has no journal.
        """
        from hpccoll.store import hdf5
        from hpccoll.store.journal import has_records, journal_path

        try:
            return hdf5.read_raw_file(out)
        except BadInputError as error:
            if not has_records(journal_path(out)):
                raise
            print(f"# {error}; its journal is read instead", flush=True)
            return None

    @property
    def records(self) -> "Journal | RawResults":
        """What attempts, starts and outcomes of cases are added to: the journal, or results that are only in memory."""
        return self._journal or self.raw

    def record(self, outcome: Outcome) -> None:
        """Add the outcome of a case in a round, and write the case if that was its last one."""
        if self._journal is None:
            if outcome.program or outcome.times is None:
                kept = outcome.times
            else:
                kept = outcome.times.of_no_rank()
            # rows need the times of ranks only of training steps
            self.raw.record(replace(outcome, times=kept))
            return
        self._journal.record(outcome)
        place = self.raw.place(outcome.case.id)
        if place is not None and self._is_final(outcome):
            self._write(place)
        elif self._unwritten:
            self._write(self._unwritten.pop())

    def _is_final(self, outcome: Outcome) -> bool:
        """Return whether no round of the case of an outcome is left in this attempt."""
        if not outcome.timed:
            return True
        rounds = next(self.raw.histories(outcome.case.id)).outcome.rounds
        return len(rounds) == self.job.effort.rounds

    def _write(self, place: tuple[int, int]) -> None:
        """Write the outcome at this place of the results into the raw file, which has another name until the end."""
        from hpccoll.store import hdf5

        if not self._may_write or self.out is None:
            return
        attempt, outcomes = self.raw.attempts[place[0]]
        try:
            if self._writer is None:
                self._writer = hdf5.RawFileWriter(self.out, self.job)
            self._writer.write(attempt, place[1], outcomes[place[1]])
        except (OSError, ValueError) as error:  # the journal has what was measured
            print(f"# {self.out} is written in the end: {error}", flush=True)
            self._may_write = False
            self.discard()

    def _write_rest(self) -> None:
        """Write what is left, and give the raw file its name."""
        from hpccoll.store import hdf5

        if self.out is not None and self._writer is None:
            hdf5.write_raw_file(self.raw, self.out)
        elif self._writer is not None:
            self._writer.finish(self.raw)

    def discard(self) -> None:
        """Remove the raw file that is being written, if there is one; the journal has what it holds."""
        if self._writer is not None:
            self._writer.discard()
            self._writer = None

    def requested_executor(self) -> str | None:
        """Return the executor of the job; if it names none, that of its earlier launches, because rounds are joined.

        None if no launch has measured anything.
        """
        earlier = (
            attempt.provenance.get("executor", PYTHON)
            for attempt, outcomes in self.raw.attempts
            if outcomes
        )
        executor = self.job.executor or next(earlier, None)
        if executor is None:
            return None
        return str(executor)

    def finish(self, stop_signal: int = 0, loss: tuple[str, int] | None = None) -> None:
        """Record why measurements are left, if any are, and write the raw file.

        ``stop_signal`` is the number of the signal on which the job has stopped, 0 if none has
        come; ``loss`` is why cases need ranks that were lost, and the first lost rank.
        """
        if self._journal is None:
            return
        if stop_signal:
            sender = ""
            if stop_signal == signal.SIGUSR1:
                sender = " (Slurm sends it before the time limit)"
            self._journal.end(f"stopped by {signal.Signals(stop_signal).name}{sender}")
        if loss:
            self._journal.end(*loss)
        # SIGINT interrupts the whole sweep; Snakemake would then take a partial file for a complete
        # output.
        partial = (self.raw.stop_reason or self.raw.failed_cases) and stop_signal != signal.SIGINT
        try:
            if self.raw.complete or partial:
                self._write_rest()
        finally:
            self.discard()
        self._journal.close(remove=self.raw.complete)

    def note_failure(self, failure: Failure) -> None:
        """Record next to the journal why a rank fails; called on that rank, from any thread."""
        if self.out is None:
            return
        from hpccoll.store.journal import journal_path, write_failure_note

        with suppress(OSError):
            # A host that does not share the directory of ``out`` has no journal.
            if journal_path(self.out).exists():
                write_failure_note(self.out, failure)
