"""Doctor: what is right and wrong with this machine, and what to do about it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.measure.machine import available_memory, cpu_model
from hpccoll.sweep.locate import mpiexec

HELLO = "from mpi4py import MPI; w = MPI.COMM_WORLD; print('ranks', w.size, flush=True)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; ``fatal`` where nothing can be measured before it is mended."""

    what: str
    state: str
    remedy: str = ""
    fatal: bool = False


def examine() -> Iterator[Finding]:
    """Yield what is found, check by check."""
    for check in CHECKS:
        yield check()


def _python(code: str, *launcher: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [*launcher, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def _mpi() -> Finding:
    """See that mpi4py finds a library; in a child, because MPI can be started once and may fail by abort."""
    child = _python("from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])")
    if child.returncode:
        said = (child.stderr.strip().splitlines() or ["it died"])[-1]
        return Finding("MPI library", said, "pip install 'hpccoll[local]', or load your site's MPI module", fatal=True)
    return Finding("MPI library", " ".join(child.stdout.split()))


def _launcher() -> Finding:
    """See that the launcher and the library are of one kind: two ranks must know of each other."""
    remedy = "use the mpiexec of the library above: put its bin directory first on PATH"
    try:
        child = _python(HELLO, *mpiexec(), "-n", "2")
    except BadInputError as error:
        return Finding("launcher", str(error), fatal=True)
    except subprocess.TimeoutExpired:
        return Finding("launcher", "two ranks did not end within 60 s", remedy, fatal=True)
    if child.stdout.count("ranks 2") == 2:
        return Finding("launcher", "mpiexec starts two ranks that know of each other")
    said = (child.stderr.strip().splitlines() or [child.stdout.strip()])[-1]
    return Finding("launcher", f"two ranks do not know of each other ({said})", remedy, fatal=True)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    gib = available_memory() / 2**30
    return Finding("machine", f"{cores} CPUs of {cpu_model()}, {gib:.1f} GiB of memory free",
                   f"more than {cores} ranks share cores, and results say so")  # fmt: skip


def _snakemake() -> Finding:
    try:
        return Finding("Snakemake", version("snakemake"))
    except PackageNotFoundError:
        return Finding("Snakemake", "not installed", "pip install snakemake", fatal=True)


def _slurm() -> Finding:
    if shutil.which("sbatch"):
        return Finding("Slurm", "sbatch is on PATH", "inside an allocation, start 'hpccoll run' with srun")
    return Finding("Slurm", "no sbatch on PATH", "profile: local")


def _gpu() -> Finding:
    found = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return Finding("GPU", f"{found} NVIDIA devices" if found else "no NVIDIA device")


def _rdma() -> Finding:
    adapters = sorted(place.name for place in Path("/sys/class/infiniband").glob("*"))
    return Finding("RDMA", ", ".join(adapters) or "no InfiniBand or RoCE adapter: MPI between nodes would use TCP")


CHECKS: tuple[Callable[[], Finding], ...] = (_mpi, _launcher, _cores, _snakemake, _slurm, _gpu, _rdma)
