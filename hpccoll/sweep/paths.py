"""Where things are: the workflow, which ships with the package, and the programs that start ranks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import hpccoll
from hpccoll.errors import UnusableError


def _shipped(name: str, *checkout: str) -> Path:
    """Return a directory that ships inside an installed package, or lies beside that of a checkout."""
    package = Path(hpccoll.__file__).parent
    shipped = package / name
    return shipped if shipped.is_dir() else package.parent.joinpath(*checkout)


def workflows() -> Path:
    """Return the directory of the Snakefile."""
    return _shipped("_workflows", "workflows")


def site_files() -> list[Path]:
    """Return the site files that come with hpccoll."""
    return sorted(_shipped("_sites", "slurm", "sites").glob("*.yaml"))


def default_sweep() -> Path:
    return workflows() / "config" / "default.yaml"


def mpiexec() -> list[str]:
    """Return the launcher that ranks are started with, and the options that it needs here.

    It is named as it is found with the directory of this Python first on PATH, which is how the rules look for it: a
    plan does not depend on where the environment lies.

    Raises:
        UnusableError: where there is none.
    """
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        raise UnusableError("launcher", f"no mpiexec in {beside} or on PATH: {remedy}")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version:
        return ["mpiexec", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return ["mpiexec"]
