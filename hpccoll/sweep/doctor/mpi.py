"""MPI and its launchers: a library is there, and ranks find each other."""

import json
import subprocess
from collections.abc import Iterator

from hpccoll.errors import BadInputError
from hpccoll.sweep.doctor.machine import Finding, Machine, Mark
from hpccoll.sweep.paths import mpiexec_command

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"  # in one piece


def library(machine: Machine) -> Iterator[Finding]:
    """See that mpi4py finds a library."""
    child = machine.library
    if child.returncode:
        said = (child.stderr.strip().splitlines() or ["it died"])[-1]
        yield Finding("MPI library", said, "pip install 'hpccoll[local]', or load your site's MPI module", "WRONG")
        return
    _, words = json.loads(child.stdout)
    yield Finding("MPI library", " ".join(words.splitlines()[0].split()))


def launcher(machine: Machine) -> Iterator[Finding]:
    """See that the launcher and the library are of one kind: two ranks must know of each other.

    Where Slurm answers, srun starts ranks, and mpiexec matters to profile local only.
    """
    mark: Mark = "warn" if machine.settings else "WRONG"
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    remedy = f"for profile local only: {remedy}" if machine.settings else remedy
    try:
        child = machine.python(HELLO, *mpiexec_command(), "-n", "2")
    except BadInputError as error:
        yield Finding("launcher", str(error), "srun starts ranks here" if machine.settings else "", mark)
        return
    except subprocess.TimeoutExpired:
        yield Finding("launcher", "two ranks did not end within 60 s", remedy, mark)
        return
    if child.stdout.count("ranks 2") == 2:
        yield Finding("launcher", "mpiexec starts two ranks that know of each other")
        return
    said = (child.stderr.strip().splitlines() or [child.stdout.strip()])[-1]
    yield Finding("launcher", f"two ranks do not know of each other ({said})", remedy, mark)


def pmi(machine: Machine) -> Iterator[Finding]:
    """See that Slurm and the MPI library have a language in common by which ranks find each other."""
    if not machine.settings:
        return
    listed = f"srun --mpi can be {', '.join(machine.mpi_types) or 'nothing'}"
    if not machine.pmi_types:
        yield Finding("PMI", listed, "in the site file, launcher: srun --mpi=TYPE, as the MPI library has it", "warn")
    elif machine.mpi_type is None:
        missing = f"the MPI library speaks {' or '.join(machine.pmi_types)}"
        yield Finding("PMI", f"{listed}; {missing}", "the admin adds that plugin of Slurm's, or use another MPI",
                      "WRONG")  # fmt: skip
    else:
        default = machine.settings.get("MpiDefault")
        known = f"the MPI library speaks {' and '.join(machine.pmi_types)}"
        wanted = f"srun takes {default} by itself" if default == machine.mpi_type else (
            f"in the site file, launcher: srun --mpi={machine.mpi_type}; by itself srun takes {default}"
        )  # fmt: skip
        yield Finding("PMI", f"{listed}; {known}", wanted)
