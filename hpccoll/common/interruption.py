"""Signals that interrupt a command."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
INTERRUPTED = 130
"""The exit code of a command that a signal interrupted, as shells report SIGINT."""


def completed(items: Iterable[T]) -> tuple[list[T], bool]:
    """Return the items that were complete before an interrupt (SIGINT), and whether there was one.

    Raises:
        KeyboardInterrupt: if there was one before the first item.
    """
    items_so_far: list[T] = []
    try:
        for item in items:
            items_so_far.append(item)  # noqa: PERF402  a list of all would be none after an interrupt
    except KeyboardInterrupt:
        if not items_so_far:
            raise
        return items_so_far, True
    return items_so_far, False


@contextmanager
def stop_requests(*numbers: signal.Signals) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether one of the signals has come, which have no other effect."""
    came: list[int] = []
    with _handled(lambda number, _: came.append(number), numbers):
        yield lambda: bool(came)


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """Let signals raise KeyboardInterrupt."""
    with _handled(signal.default_int_handler, numbers):
        yield


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], None], numbers: Iterable[signal.Signals]
) -> Iterator[None]:
    """Handle signals, also SIGINT where a shell has started this process in the background.

    Such a shell starts it with SIGINT ignored. Python lets only the main thread decide on signals:
    others change nothing.
    """
    before = {}
    if current_thread() is main_thread():
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
