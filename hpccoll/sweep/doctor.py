"""Doctor: what is right and wrong with this machine, and what to do about it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.measure.machine import available_memory, cpu_model, testbed
from hpccoll.sweep import slurm
from hpccoll.sweep.locate import mpiexec

HELLO = r"import os; from mpi4py import MPI; os.write(1, b'ranks %d\n' % MPI.COMM_WORLD.size)"  # in one piece
LIBRARY = "import json; from mpi4py import MPI; print(json.dumps([MPI.get_vendor()[0], MPI.Get_library_version()]))"

SPEAKS = {
    "CRAY MPICH": ("cray_shasta", "pmi2"),
    "Open MPI": ("pmix",),
    "Intel MPI": ("pmi2",),
    "MVAPICH": ("pmi2",),
    "MPICH": ("pmi2",),
}
"""The types of ``srun --mpi`` that a library speaks, by a word of what it says of itself; the first match counts."""

LEAST_AGE_S = 300
"""The least MinJobAge with which squeue shows Snakemake the end of every job: it looks every 180 s at the latest."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``fatal`` where it has to be mended before a sweep can run."""

    what: str
    state: str
    remedy: str = ""
    fatal: bool = False


class Machine:
    """What several checks ask of this machine, asked once."""

    @cached_property
    def library(self) -> subprocess.CompletedProcess[str]:
        """What the MPI library says of itself, in a child, because MPI can be started once and may fail by abort."""
        return _python(LIBRARY)

    @cached_property
    def speaks(self) -> tuple[str, ...]:
        """The types of ``srun --mpi`` that the MPI library speaks, the best first; none where that is not known."""
        if self.library.returncode:
            return ()
        vendor, words = json.loads(self.library.stdout)
        types = next((types for name, types in SPEAKS.items() if name in f"{vendor} {words}"), ())
        built_for_pmix = "pmix" in words.lower()  # MPICH tells how it was configured
        return ("pmix", *types) if built_for_pmix and "pmix" not in types else types

    @cached_property
    def controller(self) -> dict[str, str] | str:
        """The settings of Slurm's controller, or why it does not tell them."""
        try:
            return slurm.configuration()
        except BadInputError as error:
            said = error.expected.rpartition("scontrol: ")[2]  # its last words
            return re.sub("^a (request that Slurm grants|controller that answers): ", "", said)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Slurm's controller, none where it does not answer."""
        return self.controller if isinstance(self.controller, dict) else {}

    @cached_property
    def accounting(self) -> bool:
        return slurm.accounting()

    @cached_property
    def mpi_types(self) -> list[str]:
        return slurm.mpi_types()

    @property
    def mpi_type(self) -> str | None:
        """The type of ``srun --mpi`` for the library here, None where none is known."""
        return next((name for name in self.speaks if name in self.mpi_types), None)


def examine() -> Iterator[Finding]:
    """Yield what is found, check by check."""
    machine = Machine()
    for check in CHECKS:
        yield from check(machine)


def _python(code: str, *launcher: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [*launcher, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def _mpi(machine: Machine) -> Iterator[Finding]:
    """See that mpi4py finds a library."""
    child = machine.library
    if child.returncode:
        said = (child.stderr.strip().splitlines() or ["it died"])[-1]
        yield Finding("MPI library", said, "pip install 'hpccoll[local]', or load your site's MPI module", fatal=True)
        return
    _, words = json.loads(child.stdout)
    yield Finding("MPI library", " ".join(words.splitlines()[0].split()))


def _launcher(machine: Machine) -> Iterator[Finding]:
    """See that the launcher and the library are of one kind: two ranks must know of each other.

    Where Slurm answers, srun starts ranks, and mpiexec matters to profile local only.
    """
    fatal = not machine.settings
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    remedy = remedy if fatal else f"for profile local only: {remedy}"
    try:
        child = _python(HELLO, *mpiexec(), "-n", "2")
    except BadInputError as error:
        yield Finding("launcher", str(error), "" if fatal else "srun starts ranks here", fatal=fatal)
        return
    except subprocess.TimeoutExpired:
        yield Finding("launcher", "two ranks did not end within 60 s", remedy, fatal=fatal)
        return
    if child.stdout.count("ranks 2") == 2:
        yield Finding("launcher", "mpiexec starts two ranks that know of each other")
        return
    said = (child.stderr.strip().splitlines() or [child.stdout.strip()])[-1]
    yield Finding("launcher", f"two ranks do not know of each other ({said})", remedy, fatal=fatal)


def _cores(_: Machine) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    gib = available_memory() / 2**30
    yield Finding("machine", f"{cores} CPUs of {cpu_model()}, {gib:.1f} GiB of memory free",
                  f"more than {cores} ranks share cores, and results say so")  # fmt: skip


def _snakemake(_: Machine) -> Iterator[Finding]:
    try:
        yield Finding("Snakemake", version("snakemake"))
    except PackageNotFoundError:
        yield Finding("Snakemake", "not installed", "pip install snakemake", fatal=True)


def _slurm(machine: Machine) -> Iterator[Finding]:
    if shutil.which("sbatch") is None:
        yield Finding("Slurm", "no sbatch on PATH")
    elif isinstance(machine.controller, str):
        said = f"sbatch is on PATH, but no controller answers ({machine.controller})"
        yield Finding("Slurm", said, "if this is a cluster, see 'scontrol ping'")
    else:
        settings = machine.settings
        yield Finding("Slurm", f"{settings.get('SLURM_VERSION')}, cluster {settings.get('ClusterName')}")


def _accounting(machine: Machine) -> Iterator[Finding]:
    """See where the end of jobs can be read: in the database, or for some minutes in squeue."""
    if not machine.settings:
        return
    kind = machine.settings.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    if machine.accounting:
        yield Finding("accounting", "sacct answers")
        return
    if kind == "slurmdbd":
        remedy = "see 'sacct'; until it answers use profile slurm-nodbd, for Snakemake would wait for ever"
        yield Finding("accounting", "there is a database, but sacct does not answer", remedy)
    else:
        yield Finding("accounting", f"no database ({kind or 'none'}): the end of jobs is read from squeue")
    said = machine.settings.get("MinJobAge", "")
    seconds = int(said.split()[0]) if said[:1].isdecimal() else 0
    if seconds < LEAST_AGE_S:
        wanted = f"the admin sets MinJobAge={LEAST_AGE_S} or more in slurm.conf, and says 'scontrol reconfigure'"
        yield Finding("MinJobAge", f"squeue forgets jobs after {seconds} s, and Snakemake would wait for ever",
                      wanted, fatal=True)  # fmt: skip
    else:
        yield Finding("MinJobAge", f"squeue shows jobs for {seconds} s after their end")


def _partitions(machine: Machine) -> Iterator[Finding]:
    if not machine.settings:
        return
    try:
        names = dict.fromkeys(slurm.ask("sinfo", "-h", "-o", "%P").split())
        partitions = {name: slurm.partition(name.rstrip("*")) for name in names}
    except BadInputError as error:
        yield Finding("partitions", str(error), fatal=True)
        return
    told = [
        f"{name} {one.usable} of {one.nodes} nodes usable"
        + (f", at most {one.largest} for a job" if one.largest else "")
        for name, one in partitions.items()
    ]
    default = " (* is the default)" if any(name.endswith("*") for name in names) else ""
    usable = any(one.usable for one in partitions.values())
    yield Finding("partitions", ("; ".join(told) or "none that you may see") + default,
                  "" if usable else "see sinfo -R", fatal=not usable)  # fmt: skip


def _pmi(machine: Machine) -> Iterator[Finding]:
    """See that Slurm and the MPI library have a language in common by which ranks find each other."""
    if not machine.settings:
        return
    listed = f"srun --mpi can be {', '.join(machine.mpi_types) or 'nothing'}"
    if not machine.speaks:
        yield Finding("PMI", listed, "in the site file, launcher: srun --mpi=TYPE, as the MPI library has it")
    elif machine.mpi_type is None:
        missing = f"the MPI library speaks {' or '.join(machine.speaks)}"
        yield Finding("PMI", f"{listed}; {missing}", "the admin adds that plugin of Slurm's, or use another MPI",
                      fatal=True)  # fmt: skip
    else:
        default = machine.settings.get("MpiDefault")
        known = f"the MPI library speaks {' and '.join(machine.speaks)}"
        wanted = f"srun takes {default} by itself" if default == machine.mpi_type else (
            f"in the site file, launcher: srun --mpi={machine.mpi_type}; by itself srun takes {default}"
        )  # fmt: skip
        yield Finding("PMI", f"{listed}; {known}", wanted)


def _gpu(_: Machine) -> Iterator[Finding]:
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    yield Finding("GPU", f"{found} NVIDIA devices" if found else "no NVIDIA device")


def _rdma(_: Machine) -> Iterator[Finding]:
    adapters = sorted(place.name for place in Path("/sys/class/infiniband").glob("*"))
    yield Finding("RDMA", ", ".join(adapters) or "no InfiniBand or RoCE adapter: MPI between nodes would use TCP")


def _profile(machine: Machine) -> Iterator[Finding]:
    """Say which profile fits, and how to see that ranks start: that takes an allocation, so it is left to people."""
    if not machine.settings:
        yield Finding("profile", "local, for there is no Slurm here")
        return
    name, reason = "slurm-nodbd", "Slurm answers, sacct does not"
    if testbed() is not None:
        name, reason = "testbed", "this is a host of slurm/testbed"
    elif machine.accounting:
        name, reason = "slurm", "Slurm answers, and so does sacct"
    how = f"srun -N 2 -n 2 --mpi={machine.mpi_type or 'TYPE'} hpccoll run --check"
    yield Finding("profile", f"{name}, for {reason}", f"to see that ranks find each other: {how}")


CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    _mpi, _launcher, _cores, _snakemake, _slurm, _accounting, _partitions, _pmi, _gpu, _rdma,
    _profile,
)  # fmt: skip
