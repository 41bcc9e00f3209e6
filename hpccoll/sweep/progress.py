"""Progress: how many measurements of a sweep are done, each a round of a case, and how long the others will take.

It is read in the journals, and told on stderr.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hpccoll.plan import Plan
from hpccoll.store.journal import journal_path
from hpccoll.units import format_wait

Show = Callable[[int], None]
OUTCOME = b'\n{"outcome"'
"""What the event of an outcome begins with in a journal."""


class Tally:
    """Counts the rounds of cases that have an outcome; reads of journals what is new: the disk is the ranks' too."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self._raw = {out / "raw" / f"{job.name}.h5": job.measurements for job in plan.jobs}
        self._read = dict.fromkeys(self._raw, (0, 0))  # bytes of the journal, and outcomes in them

    @property
    def total(self) -> int:
        return sum(self._raw.values())

    def done(self) -> int:
        return sum(self._done(raw, measurements) for raw, measurements in self._raw.items())

    def _done(self, raw: Path, measurements: int) -> int:
        place, outcomes = self._read[raw]
        try:
            with journal_path(raw).open("rb") as journal:
                journal.seek(place)
                text = journal.read()
        except FileNotFoundError:
            return measurements if raw.exists() else 0
        last = max(text.rfind(b"\n"), 0)  # of the last event, which may not be whole yet
        outcomes += text[:last].count(OUTCOME)
        self._read[raw] = place + last, outcomes
        # What fewer ranks measured after one had stalled, and what failed and was measured since, is no more than all.
        return min(outcomes + text[last:].count(OUTCOME), measurements)


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
        yield lambda done: progress.update(bar, completed=done, left=pace.words(done, time.monotonic()))


def _lines(total: int, console: Console) -> Show:
    begun, last, pace = time.monotonic(), 0, Pace(total)

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        tenths, left = 10 * done // max(total, 1), pace.words(done, now)
        if tenths > last:
            last = tenths
            told = f"{done} of {total} measurements", format_wait(now - begun), left
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
        self._there: int | None = None  # what was done before
        self._first: tuple[int, float] | None = None  # what was done, and when, as the clock started

    def words(self, done: int, now: float) -> str:
        """Return the time that is left once ``done`` are done; nothing where that is not known, or none is left.

        Args:
            done: so many measurements.
            now: in seconds by a clock that does not go back.
        """
        if self._there is None:
            self._there = done
        if self._first is None and done > self._there:
            self._first = done, now
        if self._first is None or done == self._first[0] or done == self._total:
            return ""
        count, begun = self._first
        return f"about {format_wait((self._total - done) * (now - begun) / (done - count))} left"
