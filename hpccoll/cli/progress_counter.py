"""Progress of a command on stderr, also while it computes for long without a word."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic

from hpccoll.common.terminal import show_status
from hpccoll.common.units import format_wait

REDRAW_S = 0.2
"""Seconds between two states on a terminal."""

FIRST_LINE_S, LINE_PAUSE_S = 2.0, 60.0
"""Seconds until the first line in a log, and the most between two lines; each pause is as long as all time before."""


class ProgressDisplay:
    """Shows how many of all are done: on a terminal one line that changes, in a log a line now and then.

    A thread draws it, because a computation may report nothing for minutes.
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.begun = monotonic()
        self.next_line_s = FIRST_LINE_S
        self.state: tuple[int, int | None, str, float | None] | None = None
        self.stream = sys.stderr
        self.ended = Event()
        self.lock = Lock()

    def __call__(
        self, done: int, total: int | None = None, doing: str = "", left_s: float | None = None
    ) -> None:
        """Take note of how many of how many are done, of what is being done, and of the estimated seconds left."""
        self.state = done, total, doing, left_s

    def say(self, line: str) -> None:
        """Print a line on stderr that stays there."""
        with self.lock:
            print(line, file=self.stream, flush=True)

    def draw_until_end(self) -> None:
        """Draw the latest state again and again until the display has ended."""
        while not self.ended.wait(REDRAW_S):
            with self.lock:
                self.draw()

    def draw(self) -> None:
        """Show the latest state if it is time to."""
        if self.state is None:
            return
        done, total, doing, left_s = self.state
        seconds = monotonic() - self.begun
        if total is None:
            count = f"{done:,} {self.noun}"
        else:
            count = f"{done:,} of {total:,} {self.noun}"
        left = ""
        if left_s is not None:
            left = f", about {format_wait(left_s)} left"
        text = f"{count} in {format_wait(seconds)}{left}{doing and f'; {doing}'}"
        if self.stream.isatty():
            show_status(self.stream, text)
        elif seconds >= self.next_line_s:
            self.next_line_s = seconds + min(seconds, LINE_PAUSE_S)
            print(text, file=self.stream, flush=True)


@contextmanager
def progress_counter(noun: str) -> Iterator[ProgressDisplay]:
    """Yield a display of the progress of a command, which ends with this context."""
    display = ProgressDisplay(noun)
    drawing = Thread(target=display.draw_until_end, daemon=True)
    with suppress(RuntimeError):  # no thread can be started: nothing is shown
        drawing.start()
    try:
        yield display
    finally:
        display.ended.set()
        if drawing.ident:
            drawing.join()
        show_status(display.stream, "")
