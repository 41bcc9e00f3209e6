"""The MPI library of a counted program: whether measurements here use it, and how they can."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpccoll.cases.requirements import mpi_version, wrong_mpi
from hpccoll.common.errors import UnusableError
from hpccoll.common.own_variables import MPIEXEC_VARIABLE
from hpccoll.store.counted_job import CountedJob, mpi_library_name
from hpccoll.sweep.counted_sweep import launch_of_library, library_of
from hpccoll.sweep.paths import launcher_with_options
from hpccoll.sweep.site_file import Site, load_site

LIBRARY_FILE_VARIABLE = "MPI4PY_LIBMPI"
"""The MPI library that mpi4py's wheels load."""

CONNECTED = "from mpi4py import MPI; print(MPI.COMM_WORLD.size, MPI.Get_library_version())"
CONNECT_S = 60
"""Seconds in which two ranks connect, unless launcher and library do not fit."""

LAUNCHERS = ("mpiexec", "mpirun")


def library_variables(job: CountedJob, profile: str, site: str | None) -> dict[str, str]:
    """Return the variables with which a sweep measures the MPI library of a counted program; none if it does anyway.

    On this machine, mpi4py's wheels load the library that a variable names. On a cluster, the site file
    may bring another library than this environment's.

    Raises:
        UnusableError: if measurements would use the library of another project.
    """
    if profile != "local":
        _check_library_of_site(job, load_site(site, profile))
        return {}
    launch = launch_of_library(job)
    version = mpi_version()
    if mpi_library_name(version) == mpi_library_name(launch.library):
        return {}
    for launcher in _launchers(job):
        variables = {LIBRARY_FILE_VARIABLE: launch.path, MPIEXEC_VARIABLE: launcher}
        if _connects(launcher, variables, launch.library):
            return variables
    if wrong_mpi(library_of(job), version):
        remedy = (
            f"have {LIBRARY_FILE_VARIABLE} name the file of that library, and {MPIEXEC_VARIABLE} its mpiexec, "
            "or install hpccoll in an environment whose mpi4py finds it: without the extra 'local'"
        )
        raise _wrong_library(job, version, remedy)
    return {}


def _check_library_of_site(job: CountedJob, site: Site) -> None:
    """Raise UnusableError if jobs load the library of this environment, and it is of another project."""
    brings_its_own = site.modules or site.container or site.kubernetes or site.environment
    version = mpi_version()
    if not brings_its_own and wrong_mpi(library_of(job), version):
        remedy = "name its module in the site file (key modules), or measure in an environment whose mpi4py finds it"
        raise _wrong_library(job, version, remedy)


def _wrong_library(job: CountedJob, version: str, remedy: str) -> UnusableError:
    launch = launch_of_library(job)
    here = mpi_library_name(version) or "no MPI library"
    program = f"{mpi_library_name(launch.library)} ({launch.path})"
    return UnusableError(
        "--for", f"the program ran on {program}, and mpi4py finds {here} here; do: {remedy}"
    )


def _launchers(job: CountedJob) -> Iterator[str]:
    """Yield the paths of launchers that may be of the program's library, the likeliest first."""
    words = shlex.split(job.command)
    names = []
    if words and Path(words[0]).name.startswith(LAUNCHERS):
        names.append(words[0])
    names.append(str(Path(launch_of_library(job).path).parent.parent / "bin" / "mpiexec"))
    names.append(f"mpiexec.{library_of(job)}")  # of Debian
    names.append("mpiexec")
    paths = [shutil.which(name) for name in names]
    yield from dict.fromkeys(path for path in paths if path)


def _connects(launcher: str, variables: Mapping[str, str], library: str) -> bool:
    """Return whether a launcher connects two ranks that use a library."""
    command = [*launcher_with_options(launcher), "-n", "2", sys.executable, "-c", CONNECTED]
    environment = {**os.environ, **variables}
    try:
        child = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CONNECT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    ranks = 0
    for line in child.stdout.splitlines():
        size, _, version = line.partition(" ")
        if size == "2" and mpi_library_name(version) == mpi_library_name(library):
            ranks += 1
    return ranks == 2
