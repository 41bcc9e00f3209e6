"""MPI and its launchers: a library is there, and ranks find each other."""

import json
import subprocess
from collections.abc import Iterator

from hpccoll.errors import BadInputError
from hpccoll.sweep.doctor.findings import DoctorFinding, Severity, found
from hpccoll.sweep.doctor.machine import Machine, error_line
from hpccoll.sweep.paths import mpiexec_command

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"  # in one piece


def library(machine: Machine) -> Iterator[DoctorFinding]:
    """See that mpi4py finds a library."""
    child = machine.library
    if child.returncode:
        yield found("mpi_broken", "WRONG", error=error_line(child))
        return
    _, words = json.loads(child.stdout)
    yield found("mpi", version=" ".join(words.splitlines()[0].split()))


def launcher(machine: Machine) -> Iterator[DoctorFinding]:
    """See that the launcher and the library are of one kind: two ranks must know of each other.

    Where Slurm answers, srun starts ranks, and mpiexec matters to profile local only.
    """
    severity: Severity = "warn" if machine.settings else "WRONG"
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    remedy = f"for profile local only: {remedy}" if machine.settings else remedy
    try:
        child = machine.python(HELLO, *mpiexec_command(), "-n", "2")
    except BadInputError as error:
        no_remedy = "srun starts ranks here" if machine.settings else ""
        yield found("mpiexec_missing", severity, error=error, remedy=no_remedy)
        return
    except subprocess.TimeoutExpired:
        yield found("mpiexec_timeout", severity, remedy=remedy)
        return
    if child.stdout.count("ranks 2") == 2:
        yield found("mpiexec")
        return
    error_text = (child.stderr.strip().splitlines() or [child.stdout.strip()])[-1]
    yield found("mpiexec_disconnected", severity, error=error_text, remedy=remedy)


def pmi(machine: Machine) -> Iterator[DoctorFinding]:
    """See that Slurm and the MPI library have a language in common by which ranks find each other."""
    if not machine.settings:
        return
    types, speaks = ", ".join(machine.mpi_types) or "nothing", machine.pmi_types
    if not speaks:
        yield found("pmi_unknown", "warn", types=types)
    elif machine.mpi_type is None:
        yield found("pmi_mismatch", "WRONG", types=types, library=" or ".join(speaks))
    else:
        default = machine.settings.get("MpiDefault")
        kind = "pmi_default" if default == machine.mpi_type else "pmi_option"
        yield found(kind, types=types, library=" and ".join(speaks), default=default, chosen=machine.mpi_type)
