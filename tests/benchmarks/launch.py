"""Launches of ranks on this machine, and of a job of the rank program."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpccoll.cases.case import Job
from hpccoll.store.journal import journal_path
from hpccoll.sweep.paths import mpiexec_command


def mpiexec(ranks: int) -> list[str]:
    """Return the command that starts ``ranks`` ranks here, with the whole path of mpiexec."""
    name, *options = mpiexec_command()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return [shutil.which(name, path=path) or name, *options, "-n", str(ranks)]


def run_job(
    job: Job, start: Sequence[str], raw: Path, variables: Mapping[str, str] | None = None
) -> None:
    """Measure all cases of a job in one launch; a raw file of an earlier one is replaced, not resumed."""
    for old in (raw, journal_path(raw)):
        old.unlink(missing_ok=True)
    path = raw.with_suffix(".json")
    path.write_text(job.to_json())
    command = [
        *start,
        sys.executable,
        "-m",
        "hpccoll",
        "run",
        "--job",
        str(path),
        "--out",
        str(raw),
        "--exit-zero",
    ]
    output(command, variables)


def output(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it prints; end this program with all of it if the command fails."""
    environment = {**os.environ, **(variables or {})}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
    return ended.stdout
