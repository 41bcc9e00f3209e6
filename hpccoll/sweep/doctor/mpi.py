"""Checks of the MPI library, of mpiexec, and of the PMI types of srun."""

import json
import subprocess
from collections.abc import Iterator

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import Finding, critical, info, warning
from hpccoll.host.abandoned_memory import abandoned_files
from hpccoll.host.cpu_and_memory import SHARED_MEMORY_REMEDY
from hpccoll.sweep.child_process import MEMORY_FAULT, is_memory_fault
from hpccoll.sweep.doctor.machine import MachineFacts, error_line
from hpccoll.sweep.paths import mpiexec_command

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"
"""Each rank writes its line in one call, so that lines of ranks do not mix."""


def mpi_library_facts(machine: MachineFacts) -> Iterator[Finding]:
    """Check that mpi4py finds an MPI library."""
    child = machine.library
    memory = machine.shared_memory
    if child.returncode and is_memory_fault(child.returncode, memory, child.stderr.splitlines()):
        text = f"it does not start, and {memory} ({error_line(child)})"
        yield critical("mpi_without_memory", text, "MPI library", SHARED_MEMORY_REMEDY)
        return
    if child.returncode:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        yield critical("mpi_broken", error_line(child), "MPI library", remedy)
        return
    _, version_text = json.loads(child.stdout)
    yield info("mpi", " ".join(version_text.splitlines()[0].split()), "MPI library")


def launcher(machine: MachineFacts) -> Iterator[Finding]:
    """Check that mpiexec belongs to the MPI library: two ranks must be in one communicator.

    If Slurm answers, srun starts the ranks, and only the profile local needs mpiexec.
    """
    problem = warning if machine.settings else critical
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    remedy = f"for profile local only: {remedy}" if machine.settings else remedy
    try:
        child = machine.python(HELLO, *mpiexec_command(), "-n", "2")
    except BadInputError as error:
        no_remedy = "srun starts ranks here" if machine.settings else ""
        yield problem("mpiexec_missing", str(error), "launcher", no_remedy)
        return
    except subprocess.TimeoutExpired:
        yield problem("mpiexec_timeout", "two ranks did not end within 60 s", "launcher", remedy)
        return
    if child.stdout.count("ranks 2") == 2:
        yield info("mpiexec", "mpiexec starts two ranks in one communicator", "launcher")
        return
    lines, memory = [*child.stdout.splitlines(), *child.stderr.splitlines()] or [""], machine.shared_memory
    error_text = next(filter(MEMORY_FAULT.search, lines), lines[-1])
    if child.returncode and (memory.is_too_small_for(2) or is_memory_fault(child.returncode, memory)):
        text = f"two ranks do not start, and {memory} ({error_text})"
        yield problem("mpiexec_without_memory", text, "launcher", SHARED_MEMORY_REMEDY)
        return
    yield problem("mpiexec_disconnected", f"two ranks are not in one communicator ({error_text})", "launcher", remedy)


def abandoned_memory(machine: MachineFacts) -> Iterator[Finding]:
    """Count the shared memory that killed ranks have left."""
    directory = machine.root / "dev/shm"
    if sizes := [size for _, size in abandoned_files(directory)]:
        text = f"files in {directory}: {len(sizes)}, {sum(sizes) / 2**20:.1f} MiB"
        remedy = "nothing to do: the next launch on this machine removes them"
        yield warning("abandoned_memory", text, "memory of killed processes", remedy, files=len(sizes))


def pmi(machine: MachineFacts) -> Iterator[Finding]:
    """Check that Slurm and the MPI library have a PMI type in common."""
    if not machine.settings:
        return
    supported, chosen, default = machine.pmi_types, machine.mpi_type, machine.settings.get("MpiDefault")
    offers = f"Slurm offers the PMI types {', '.join(machine.mpi_types) or 'nothing'}"
    text = f"{offers}; the MPI library supports {' and '.join(supported)}"
    if not supported:
        remedy = "set launcher: srun --mpi=TYPE in the site file, with a type that the MPI library supports"
        yield warning("pmi_unknown", offers, "PMI", remedy)
    elif chosen is None:
        remedy = "the administrator adds Slurm's plugin of that type; or use another MPI library"
        yield critical("pmi_mismatch", text, "PMI", remedy)
    elif chosen == default:
        remedy = f"no setting is needed: {default} is the default of srun"
        yield info("pmi_default", text, "PMI", remedy, chosen=chosen)
    else:
        remedy = f"set launcher: srun --mpi={chosen} in the site file; the default of srun is {default}"
        yield info("pmi_option", text, "PMI", remedy, chosen=chosen)
