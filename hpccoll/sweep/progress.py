"""Progress: how many measurements of a sweep are done, each a round of a case, and how long the others will take.

It is read in the journals, and told on stderr.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hpccoll.spec.case import Job
from hpccoll.spec.plan import Plan
from hpccoll.store.journal import journal_path
from hpccoll.store.json_lines import starts_with_key
from hpccoll.units import format_wait

SKIPPED = b'"status": "skipped"'
"""What the record of an outcome has where the case has no other rounds."""


class Count(NamedTuple):
    """How many measurements are done: rounds of cases, all of them where a case is skipped; and which took time."""

    done: int
    timed: int


Show = Callable[[Count], None]


class Tally:
    """Counts the rounds of cases that have an outcome; reads of journals what is new: the disk is the ranks' too."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self._raw = {out / "raw" / f"{job.name}.h5": job for job in plan.jobs}
        self._read = dict.fromkeys(self._raw, (0, 0, 0))  # bytes of the journal, outcomes in them, and skips of those

    @property
    def total(self) -> int:
        return sum(job.measurements for job in self._raw.values())

    def count(self) -> Count:
        counts = [self._count(raw, job) for raw, job in self._raw.items()]
        return Count(sum(count.done for count in counts), sum(count.timed for count in counts))

    def _count(self, raw: Path, job: Job) -> Count:
        place, outcomes, skips = self._read[raw]
        rounds = job.effort.rounds
        try:
            with journal_path(raw).open("rb") as journal:
                journal.seek(place)
                text = journal.read()
        except FileNotFoundError:
            return Count(job.measurements, job.measurements - skips * rounds) if raw.exists() else Count(0, 0)
        *whole, last = text.split(b"\n")  # the last event may not be whole yet
        outcomes, skips = _with(whole, outcomes, skips)
        self._read[raw] = place + len(text) - len(last), outcomes, skips
        outcomes, skips = _with([last], outcomes, skips)
        # What fewer ranks measured after one had stalled, and what failed and was measured since, is no more than all.
        return Count(min(outcomes + skips * (rounds - 1), job.measurements), outcomes - skips)


def _with(events: Iterable[bytes], outcomes: int, skips: int) -> tuple[int, int]:
    """Return how many outcomes, and skips of them, there are with those of more events."""
    found = [SKIPPED in event for event in events if starts_with_key(event, "outcome")]
    return outcomes + len(found), skips + sum(found)


@contextmanager
def shown(total: int) -> Iterator[Show]:
    """Yield what shows how many of ``total`` measurements are done: a bar on a terminal, a line a tenth in a log."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield _lines(total, console)
        return
    columns = (
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    pace = Pace(total)
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("measuring", total=total, left="")
        yield lambda count: progress.update(bar, completed=count.done, left=pace.words(count, time.monotonic()))


def _lines(total: int, console: Console) -> Show:
    begun, last, pace = time.monotonic(), 0, Pace(total)

    def show(count: Count) -> None:
        nonlocal last
        now = time.monotonic()
        tenths, left = 10 * count.done // max(total, 1), pace.words(count, now)
        if tenths > last:
            last = tenths
            told = f"{count.done} of {total} measurements", format_wait(now - begun), left
            console.out(", ".join(filter(None, told)), highlight=False)

    return show


class Pace:
    """How long the rest takes, at the pace of what was measured so far.

    The clock starts with the first measurement of this sweep: what earlier ones left counts for nothing, nor does the
    time that jobs wait before it. The calls of a job come in random order, so that the first are like the others.

    Args:
        total: the number of measurements.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._there: int | None = None  # what was timed before
        self._first: tuple[int, float] | None = None  # what was timed, and when, as the clock started

    def words(self, count: Count, now: float) -> str:
        """Return the time that is left; nothing where that is not known, or none is left.

        Args:
            count: what is done.
            now: in seconds by a clock that does not go back.
        """
        if self._there is None:
            self._there = count.timed
        if self._first is None and count.timed > self._there:
            self._first = count.timed, now
        if self._first is None or count.timed <= self._first[0] or count.done == self._total:
            return ""
        timed, begun = self._first
        return f"about {format_wait((self._total - count.done) * (now - begun) / (count.timed - timed))} left"
