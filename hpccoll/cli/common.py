"""What several commands take, and how they end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from hpccoll.errors import to_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

PATHS = Annotated[list[Path], typer.Argument(help="Raw files, or directories that hold some.", metavar="PATHS...")]
PROFILE = Annotated[str, typer.Option(help="Where to run: local, slurm, slurm-nodbd or testbed; see hpccoll doctor.")]
SITE = Annotated[
    str | None,
    typer.Option(help="How jobs run on the cluster: a site file, or one of slurm/sites [all left to Slurm]"),
]
INCOMPLETE = 3
"""The exit code of what ran, where something planned is missing or wrong, or nothing could be measured."""


class FilesRead(Protocol):
    """What was read of several files."""

    @property
    def damaged(self) -> "Iterable[str]":
        """What could not be read, in a sentence each."""

    @property
    def notes(self) -> "Iterable[str]":
        """What else is to be known of the files, in a sentence each."""


def report_damaged(read: FilesRead) -> int:
    """Print on stderr what could not be read and what else is to be known, and return the exit code that follows."""
    damaged = list(read.damaged)
    for line in (*damaged, *(f"note: {note}" for note in read.notes)):
        typer.echo(f"hpccoll: {to_one_line(line)}", err=True)
    return INCOMPLETE if damaged else 0
