"""Checks of the MPI library, of mpiexec, and of the PMI types of srun."""

import json
import subprocess
from collections.abc import Iterator

from hpccoll.common.errors import BadInputError
from hpccoll.host.abandoned_memory import abandoned_files
from hpccoll.host.cpu_and_memory import SHARED_MEMORY_REMEDY
from hpccoll.sweep.child_process import MEMORY_FAULT, is_memory_fault
from hpccoll.sweep.doctor.findings import DoctorFinding, Severity, finding
from hpccoll.sweep.doctor.machine import MachineFacts, error_line
from hpccoll.sweep.paths import mpiexec_command

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"
"""Each rank writes its line in one call, so that lines of ranks do not mix."""


def library(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check that mpi4py finds an MPI library."""
    child = machine.library
    memory = machine.shared_memory
    if child.returncode and is_memory_fault(child.returncode, memory, child.stderr.splitlines()):
        error, remedy = error_line(child), SHARED_MEMORY_REMEDY
        yield finding("mpi_without_memory", "WRONG", error=error, found=memory, remedy=remedy)
        return
    if child.returncode:
        yield finding("mpi_broken", "WRONG", error=error_line(child))
        return
    _, version_text = json.loads(child.stdout)
    yield finding("mpi", version=" ".join(version_text.splitlines()[0].split()))


def launcher(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check that mpiexec belongs to the MPI library: two ranks must be in one communicator.

    If Slurm answers, srun starts the ranks, and only the profile local needs mpiexec.
    """
    severity: Severity = "warn" if machine.settings else "WRONG"
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    remedy = f"for profile local only: {remedy}" if machine.settings else remedy
    try:
        child = machine.python(HELLO, *mpiexec_command(), "-n", "2")
    except BadInputError as error:
        no_remedy = "srun starts ranks here" if machine.settings else ""
        yield finding("mpiexec_missing", severity, error=error, remedy=no_remedy)
        return
    except subprocess.TimeoutExpired:
        yield finding("mpiexec_timeout", severity, remedy=remedy)
        return
    if child.stdout.count("ranks 2") == 2:
        yield finding("mpiexec")
        return
    lines, memory = [*child.stdout.splitlines(), *child.stderr.splitlines()] or [""], machine.shared_memory
    error_text = next(filter(MEMORY_FAULT.search, lines), lines[-1])
    if child.returncode and (memory.is_too_small_for(2) or is_memory_fault(child.returncode, memory)):
        yield finding("mpiexec_without_memory", severity, error=error_text, found=memory, remedy=SHARED_MEMORY_REMEDY)
        return
    yield finding("mpiexec_disconnected", severity, error=error_text, remedy=remedy)


def abandoned_memory(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Count the shared memory that killed ranks have left."""
    directory = machine.root / "dev/shm"
    if sizes := [size for _, size in abandoned_files(directory)]:
        yield finding("abandoned_memory", "warn", files=len(sizes), mib=sum(sizes) / 2**20, directory=directory)


def pmi(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check that Slurm and the MPI library have a PMI type in common."""
    if not machine.settings:
        return
    types, supported = ", ".join(machine.mpi_types) or "nothing", machine.pmi_types
    if not supported:
        yield finding("pmi_unknown", "warn", types=types)
    elif machine.mpi_type is None:
        yield finding("pmi_mismatch", "WRONG", types=types, library=" or ".join(supported))
    else:
        default = machine.settings.get("MpiDefault")
        kind = "pmi_default" if default == machine.mpi_type else "pmi_option"
        yield finding(kind, types=types, library=" and ".join(supported), default=default, chosen=machine.mpi_type)
