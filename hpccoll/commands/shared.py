"""What several commands take, and how they end."""

from pathlib import Path
from typing import Annotated

import typer

PATHS = Annotated[list[Path], typer.Argument(help="Raw files, or directories that hold some.", metavar="PATHS...")]
PROFILE = Annotated[str, typer.Option(help="Where to run: local, slurm, slurm-nodbd or testbed; see hpccoll doctor.")]
SITE = Annotated[
    str | None,
    typer.Option(help="How jobs run on the cluster: a site file, or one of slurm/sites [all left to Slurm]"),
]
INCOMPLETE = 3
"""The exit code of what ran, where something planned is missing or wrong, or nothing could be measured."""
