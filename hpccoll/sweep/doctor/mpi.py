"""Checks of the MPI library, of mpiexec, and of the PMI types of srun."""

import json
import subprocess

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import Finding, critical, info, warning
from hpccoll.host.abandoned_memory import abandoned_files
from hpccoll.host.cpu_and_memory import SHARED_MEMORY_REMEDY
from hpccoll.sweep.child_process import MEMORY_FAULT, is_memory_fault
from hpccoll.sweep.doctor.machine import MachineFacts, error_line
from hpccoll.sweep.paths import mpiexec_command

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"
"""Each rank writes its line in one call, so that lines of ranks do not mix."""


def mpi_library_facts(machine: MachineFacts) -> Finding:
    """Check that mpi4py finds an MPI library."""
    child = machine.library
    memory = machine.shared_memory
    if child.returncode and is_memory_fault(child.returncode, memory, child.stderr.splitlines()):
        text = f"it does not start, and {memory} ({error_line(child)})"
        return critical("mpi_without_memory", text, remedy=SHARED_MEMORY_REMEDY)
    if child.returncode:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        return critical("mpi_broken", error_line(child), remedy=remedy)
    _, version_text = json.loads(child.stdout)
    return info("mpi", " ".join(version_text.splitlines()[0].split()))


def launcher(machine: MachineFacts) -> Finding:
    """Check that mpiexec belongs to the MPI library: two ranks must be in one communicator.

    If Slurm answers, srun starts the ranks, and only the profile local needs mpiexec.
    """
    problem = warning if machine.settings else critical
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    if machine.settings:
        remedy = f"for profile local only: {remedy}"
    try:
        child = machine.python(HELLO, *mpiexec_command(), "-n", "2")
    except BadInputError as error:
        no_remedy = ""
        if machine.settings:
            no_remedy = "srun starts ranks here"
        return problem("mpiexec_missing", str(error), remedy=no_remedy)
    except subprocess.TimeoutExpired:
        return problem("mpiexec_timeout", "two ranks did not end within 60 s", remedy=remedy)
    if child.stdout.count("ranks 2") == 2:
        return info("mpiexec", "mpiexec starts two ranks in one communicator")
    lines = [*child.stdout.splitlines(), *child.stderr.splitlines()] or [""]
    memory = machine.shared_memory
    error_text = next(filter(MEMORY_FAULT.search, lines), lines[-1])
    if child.returncode and (
        memory.is_too_small_for(2) or is_memory_fault(child.returncode, memory)
    ):
        text = f"two ranks do not start, and {memory} ({error_text})"
        return problem("mpiexec_without_memory", text, remedy=SHARED_MEMORY_REMEDY)
    return problem(
        "mpiexec_disconnected",
        f"two ranks are not in one communicator ({error_text})",
        remedy=remedy,
    )


def abandoned_memory(machine: MachineFacts) -> Finding | None:
    """Count the shared memory that killed ranks have left."""
    directory = machine.root / "dev/shm"
    sizes = [size for _, size in abandoned_files(directory)]
    text = f"files in {directory}: {len(sizes)}, {sum(sizes) / 2**20:.1f} MiB"
    remedy = "nothing to do: the next launch on this machine removes them"
    if not sizes:
        return None
    return warning("abandoned_memory", text, remedy=remedy, files=len(sizes))


def pmi(machine: MachineFacts) -> Finding | None:
    """Check that Slurm and the MPI library have a PMI type in common."""
    if not machine.settings:
        return None
    supported = machine.pmi_types
    chosen = machine.mpi_type
    default = machine.settings.get("MpiDefault")
    offers = f"Slurm offers the PMI types {', '.join(machine.mpi_types) or 'nothing'}"
    text = f"{offers}; the MPI library supports {' and '.join(supported)}"
    if not supported:
        remedy = "set launcher: srun --mpi=TYPE in the site file, with a type that the MPI library supports"
        return warning("pmi_unknown", offers, remedy=remedy)
    if chosen is None:
        remedy = "the administrator adds Slurm's plugin of that type; or use another MPI library"
        return critical("pmi_mismatch", text, remedy=remedy)
    if chosen == default:
        remedy = f"no setting is needed: {default} is the default of srun"
        return info("pmi_default", text, remedy=remedy, chosen=chosen)
    remedy = f"set launcher: srun --mpi={chosen} in the site file; the default of srun is {default}"
    return info("pmi_option", text, remedy=remedy, chosen=chosen)
