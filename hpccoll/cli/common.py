"""Arguments and exit codes that several commands share."""

import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from hpccoll.errors import to_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PATHS = Annotated[list[Path], typer.Argument(help="raw files, or directories with raw files", metavar="PATHS...")]
PROFILE = Annotated[
    str, typer.Option(help="execution profile: local, slurm, slurm-nodbd or testbed; see hpccoll doctor")
]
SITE = Annotated[
    str | None,
    typer.Option(help="site file of the cluster, or the name of one in slurm/sites [Slurm's defaults]"),
]
INCOMPLETE = 3
"""The exit code if something planned is missing or wrong, or nothing could be measured."""


class FilesRead(Protocol):
    """The result of reading several files."""

    @property
    def damaged(self) -> "Iterable[str]":
        """A sentence for each file that could not be read."""

    @property
    def notes(self) -> "Iterable[str]":
        """Sentences with other remarks on the files."""


def report_damaged(read: FilesRead) -> int:
    """Print unreadable files and notes on stderr, and return the exit code."""
    damaged = list(read.damaged)
    for line in (*damaged, *(f"note: {note}" for note in read.notes)):
        typer.echo(f"hpccoll: {to_one_line(line)}", err=True)
    return INCOMPLETE if damaged else 0


REDRAW_S = 0.2
"""Seconds between two counts on a terminal."""


@contextmanager
def progress_counter(what: str) -> "Iterator[Callable[[int, int | None], None]]":
    """Yield a function that shows how many of all are done, on stderr if that is a terminal."""
    shown = sys.stderr.isatty()
    last = monotonic()

    def show(done: int, of: int | None = None) -> None:
        nonlocal last
        if shown and monotonic() - last > REDRAW_S:
            last = monotonic()
            count = f"{done:,}" if of is None else f"{done:,} of {of:,}"
            typer.echo(f"\r{count} {what} ", nl=False, err=True)

    try:
        yield show
    finally:
        if shown:
            typer.echo("\r\x1b[K", nl=False, err=True)
