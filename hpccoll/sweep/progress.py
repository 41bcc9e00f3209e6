"""Progress: how many measurements of a sweep are done, each a round of a case; read in the journals, told on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hpccoll.plan import Plan
from hpccoll.store.journal import journal_path

Show = Callable[[int], None]
OUTCOME = b'\n{"outcome"'
"""What the event of an outcome begins with in a journal."""


class Tally:
    """Counts the rounds of cases that have an outcome; reads of journals what is new: the disk is the ranks' too."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self._raw = {out / "raw" / f"{job.name}.h5": len(job.cases) * job.effort.rounds for job in plan.jobs}
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
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("measuring", total=total)
        yield lambda done: progress.update(bar, completed=done)


def _lines(total: int, console: Console) -> Show:
    begun, last = time.monotonic(), 0

    def show(done: int) -> None:
        nonlocal last
        tenths = 10 * done // max(total, 1)
        if tenths > last:
            last = tenths
            console.out(f"{done} of {total} measurements, {time.monotonic() - begun:.0f} s", highlight=False)

    return show
