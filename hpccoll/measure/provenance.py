"""Provenance: where and with what an attempt runs, gathered from all of its ranks."""

import os
import platform
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mpi4py import MPI

from hpccoll import __version__
from hpccoll.host.env_allowlist import allowed_variables
from hpccoll.host.environment import (
    boot_id,
    format_cpu_list,
    git_commit,
    is_oversubscribed,
    launcher_command_lines,
    node_name,
    package_versions,
    rack_name,
)
from hpccoll.host.gpu_facts import gpu_description, gpu_provenance, gpus_are_shared
from hpccoll.host.machine import cpu_model, group_by_host, testbed_facts
from hpccoll.host.mpi_library import mpi_library
from hpccoll.host.network_ports import port_facts
from hpccoll.schedule import Layout
from hpccoll.spec.case import Job
from hpccoll.store.raw import Attempt, RankLocation


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


def gather_attempt(comm: MPI.Intracomm, job: Job, number: int, gpu: Mapping[str, Any]) -> Attempt:
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
        hardware=" and ".join([f"{os.cpu_count()} CPUs of {cpu_model()}", *gpu_description(gpu)]),
        testbed=testbed_facts(),
        ports=port_facts(),
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
        RankLocation(
            host=home.host,
            node=nodes.setdefault((home.host, home.boot), len(nodes)),
            clock=clocks.setdefault(home.boot, len(clocks)),
            pid=home.pid,
            affinity=format_cpu_list(home.cpus),
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
        kind="measured on a shared GPU" if gpus_are_shared(gpus) else "measured on a testbed" if bed else "measured",
        machine=_machine(hosts, sorted({home.hardware for home in homes})),
        ranks=layout.ranks,
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        mapping=layout.mapping,
        aggregators=layout.aggregators,
        oversubscribed=any(map(is_oversubscribed, masks.values())),
        places=places,
        ports=tuple(sorted({str(port["name"]) for home in homes for port in home.ports})),
        provenance={
            "hpccoll": __version__,
            "git_commit": git_commit(),
            "versions": package_versions(),
            "mpi": mpi_library(),
            "hosts": hosts,
            "testbed": bed,
            "ports": group_by_host("ports", {home.host: home.ports for home in homes}),
            **gpu_provenance(gpus),
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"{platform.system()} {platform.release()}",
            "launcher": launcher_command_lines(),
            "variables": allowed_variables(),
            "order_seed": job.seed,
        },
    )
