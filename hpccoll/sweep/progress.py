"""Progress of a sweep on stderr: how many measurements the journals hold, and the estimated time left.

A measurement is one round of one case.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.case import Job
from hpccoll.cases.plan import Plan
from hpccoll.common.terminal import show_status
from hpccoll.common.units import format_wait
from hpccoll.store.checksummed_lines import starts_with_key
from hpccoll.store.journal import journal_path

SKIPPED = b'"status": "skipped"'
"""Marks the journal record of a skipped case, which has no further rounds."""


class MeasurementCount(NamedTuple):
    """The rounds with an outcome, with all rounds of a skipped case, and the rounds that were timed."""

    done: int
    timed: int


ShowProgress = Callable[[MeasurementCount], None]


class MeasurementCounter:
    """Counts the measurements in the journals of a sweep; it reads only what was appended since the last count."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self._raw = {out / "raw" / f"{job.name}.h5": job for job in plan.jobs}
        # bytes read, outcomes in them, skipped cases among those
        self._read = dict.fromkeys(self._raw, (0, 0, 0))

    @property
    def total(self) -> int:
        return sum(job.measurements for job in self._raw.values())

    def count(self) -> MeasurementCount:
        counts = [self._count(raw, job) for raw, job in self._raw.items()]
        return MeasurementCount(
            sum(count.done for count in counts), sum(count.timed for count in counts)
        )

    def _count(self, raw: Path, job: Job) -> MeasurementCount:
        offset, outcomes, skips = self._read[raw]
        rounds = job.effort.rounds
        try:
            with journal_path(raw).open("rb") as journal:
                journal.seek(offset)
                text = journal.read()
        except FileNotFoundError:
            done = job.measurements if raw.exists() else 0
            return MeasurementCount(done, max(0, done - skips * rounds))
        *complete, last = text.split(b"\n")  # the last line may be incomplete
        outcomes, skips = _add_events(complete, outcomes, skips)
        self._read[raw] = offset + len(text) - len(last), outcomes, skips
        outcomes, skips = _add_events([last], outcomes, skips)
        # Rounds measured again after a stall or a failure must not count twice.
        return MeasurementCount(
            min(outcomes + skips * (rounds - 1), job.measurements), outcomes - skips
        )


def _add_events(events: Iterable[bytes], outcomes: int, skips: int) -> tuple[int, int]:
    """Return the numbers of outcomes and of skipped cases, increased by those of ``events``."""
    skipped = [SKIPPED in event for event in events if starts_with_key(event, "outcome")]
    return outcomes + len(skipped), skips + sum(skipped)


ALL_MEASURED = "all measured; waiting for the last job to end"
"""Printed after the last measurement: the ranks write the raw file and exit, and Snakemake notices that."""

SLURM_POLLS = " (Snakemake asks Slurm every 20 s to 3 min)"
"""Printed with it on Slurm."""


@contextmanager
def progress_display(total: int, *, slurm: bool) -> Iterator[ShowProgress]:
    """Yield a function that displays the progress on stderr: one line on a terminal, one per 10 % in a log."""
    measured = ALL_MEASURED + SLURM_POLLS * slurm
    begun = time.monotonic()
    last = 0
    pace = TimeLeft(total)

    def show(count: MeasurementCount) -> None:
        nonlocal last
        now = time.monotonic()
        tenths = 10 * count.done // max(total, 1)
        left = pace.text(count, now)
        parts = f"{count.done} of {total} measurements", format_wait(now - begun), left
        text = ", ".join(filter(None, parts))
        if sys.stderr.isatty():
            show_status(sys.stderr, measured if count.done == total else text)
        elif tenths > last:
            last = tenths
            print(text, file=sys.stderr, flush=True)
            if count.done == total:
                print(measured, file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        show_status(sys.stderr, "")


class TimeLeft:
    """Estimates the time left from the pace of the measurements so far.

    The clock starts with the first measurement of this sweep, so results of earlier sweeps and the
    time that jobs are pending do not count. Cases run in random order, so the first ones are
    representative.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._earlier: int | None = None  # measurements that were timed before this sweep
        # timed measurements and the time when the clock started
        self._first: tuple[int, float] | None = None

    def text(self, count: MeasurementCount, now: float) -> str:
        """Return the time left as text; empty if it is unknown or zero."""
        if self._earlier is None:
            self._earlier = count.timed
        if self._first is None and count.timed > self._earlier:
            self._first = count.timed, now
        if self._first is None or count.timed <= self._first[0] or count.done == self._total:
            return ""
        timed, begun = self._first
        return f"about {format_wait((self._total - count.done) * (now - begun) / (count.timed - timed))} left"
