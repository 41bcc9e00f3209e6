"""Arguments and exit codes that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from hpccoll.errors import to_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

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
