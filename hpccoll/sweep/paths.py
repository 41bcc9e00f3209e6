"""Locations of the workflow, the site files and mpiexec."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hpccoll
from hpccoll.cases.plan import PLAN_FILE
from hpccoll.common.errors import UnusableError
from hpccoll.common.own_variables import MPIEXEC_VARIABLE


def _data_directory(name: str, *checkout: str) -> Path:
    """Return a data directory: inside an installed package, or next to the package in a checkout."""
    package = Path(hpccoll.__file__).parent
    installed = package / name
    if installed.is_dir():
        return installed
    return package.parent.joinpath(*checkout)


def workflow_directory() -> Path:
    """Return the directory of the Snakefile."""
    return _data_directory("_workflows", "workflows")


def site_files() -> list[Path]:
    """Return the site files that come with hpccoll."""
    return sorted(_data_directory("_sites", "slurm", "sites").glob("*.yaml"))


def default_sweep() -> Path:
    return workflow_directory() / "config" / "default.yaml"


def newest_sweep(results: Path) -> Path:
    """Return the directory in ``results`` of the sweep that was planned last.

    Raises:
        UnusableError: if there is none.
    """
    plans = {path: path.stat().st_mtime for path in results.glob(f"*/{PLAN_FILE}")}
    if not plans:
        raise UnusableError(f"{results}/", "it holds no sweep; do: name directories or raw files")
    return max(plans, key=plans.__getitem__).parent


SLURM_SESSION = frozenset({"SLURM_JOB_ID", "SLURM_JOBID"})
"""Variables that make mpiexec of MPICH start ranks by srun, also where the job is over or there is no srun."""


def mpiexec_command() -> list[str]:
    """Return mpiexec with the options that it needs here, on this machine.

    mpiexec is searched with the directory of this Python first on PATH, as the workflow's rules do,
    and is returned without its directory, so that a plan does not depend on where the environment
    is installed. HPCCOLL_MPIEXEC names another one.

    Raises:
        UnusableError: if no mpiexec is found.
    """
    programs = Path(sys.executable).parent
    name = os.environ.get(MPIEXEC_VARIABLE) or "mpiexec"
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    if shutil.which(name, path=path) is None:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        if name != "mpiexec":
            remedy = f"have {MPIEXEC_VARIABLE} name one that exists"
        raise UnusableError("launcher", f"no {name} in {programs} or on PATH; do: {remedy}")
    return launcher_with_options(name, path)


def launcher_with_options(name: str, path: str | None = None) -> list[str]:
    """Return a launcher, searched on ``path`` [PATH], with the options that it needs on this machine."""
    mpiexec = shutil.which(name, path=path) or name
    version = subprocess.run(
        [mpiexec, "--version"], capture_output=True, text=True, check=False
    ).stdout
    if "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version:
        return [
            name,
            "--oversubscribe",
            *(["--allow-run-as-root"] if os.geteuid() == 0 else []),
        ]
    if "HYDRA" in version and SLURM_SESSION & os.environ.keys():
        return [name, "-launcher", "fork", "-host", "localhost"]
    return [name]
