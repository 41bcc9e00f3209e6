"""Provenance: the machine, libraries and settings of an attempt, gathered from all of its ranks."""

import os
import platform
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from hpccoll.common.units import format_cpu_list
from hpccoll.common.version import __version__
from hpccoll.host.cpu_and_memory import cpu_model, cpu_quotas, group_by_host, testbed_facts
from hpccoll.host.env_allowlist import allowed_variables
from hpccoll.host.gpu_facts import gpu_description, gpu_provenance, gpus_are_shared
from hpccoll.host.machine_load import load_between, read_load
from hpccoll.host.mpi_library import mpi_library
from hpccoll.host.network_ports import port_facts
from hpccoll.host.process_facts import (
    boot_id,
    git_commit,
    is_oversubscribed,
    launcher_command_lines,
    node_name,
    package_versions,
    rack_name,
)
from hpccoll.measure.ranks import Ranks
from hpccoll.schedule import Layout
from hpccoll.store.raw_results import Attempt, RankLocation
from hpccoll.store.schema import ON_SHARED_GPU, ON_TESTBED


@dataclass(frozen=True, slots=True)
class _RankReport:
    host: str
    boot: str
    rack: str
    pid: int
    cpus: frozenset[int]
    quotas: Mapping[str, float]
    hardware: str
    testbed: dict[str, object] | None
    ports: Sequence[Mapping[str, object]]
    gpu: Mapping[str, Any]


def gather_attempt(ranks: Ranks, number: int, gpu: Mapping[str, Any], aggregators: int = 0) -> Attempt:
    """Return the record of an attempt; all ranks call this together and get the same one.

    ``gpu`` is the record of this rank's GPU (``RankGpus.provenance``).
    """
    quotas = cpu_quotas()
    quota = f" with a quota of {min(quotas.values()):g} CPUs" if quotas else ""
    report = _RankReport(
        node_name(), boot_id(), rack_name(), os.getpid(), frozenset(os.sched_getaffinity(0)), quotas,
        hardware=" and ".join([f"{os.cpu_count()} CPUs of {cpu_model()}{quota}", *gpu_description(gpu)]),
        testbed=testbed_facts(), ports=port_facts(), gpu=gpu,
    )  # fmt: skip
    reports = ranks.comm.gather(report)
    return ranks.run_at_root(lambda: _attempt(reports or (), number, aggregators))  # rank 0 has those of all


def _machine(hosts: Sequence[str], hardware: Sequence[str]) -> str:
    """Return the name of the machine, which does not depend on the number of nodes, because it labels charts."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    where = f"cluster {cluster}" if cluster else hosts[0] if len(hosts) == 1 else f"{hosts[0]} and others"
    return f"{where}, {' and '.join(hardware)} a node"


def _attempt(reports: Sequence[_RankReport], number: int, aggregators: int) -> Attempt:
    nodes: dict[tuple[str, str], int] = {}
    clocks: dict[str, int] = {}
    racks: dict[str, int] = {}
    places = tuple(
        RankLocation(
            host=report.host,
            node=nodes.setdefault((report.host, report.boot), len(nodes)),
            clock=clocks.setdefault(report.boot, len(clocks)),
            pid=report.pid,
            affinity=format_cpu_list(report.cpus),
            rack=racks.setdefault(report.rack, len(racks)),
        )
        for report in reports
    )
    testbed = next((report.testbed for report in reports if report.testbed), None)
    by_node: dict[int, list[_RankReport]] = defaultdict(list)
    for place, report in zip(places, reports, strict=True):
        by_node[0 if testbed else place.node].append(report)  # all hosts of a testbed share the CPUs of one machine
    quotas = [cpus for report in reports for cpus in report.quotas.values()]
    layout = Layout(tuple(place.node for place in places), aggregators=aggregators)
    hosts = list(dict.fromkeys(place.host for place in places))
    gpus = [(report.host, report.gpu) for report in reports]
    return Attempt(
        run_id=str(uuid.uuid4()), number=number, places=places,
        kind=ON_SHARED_GPU if gpus_are_shared(gpus) else ON_TESTBED if testbed else "measured",
        machine=_machine(hosts, sorted({report.hardware for report in reports})),
        ranks=layout.ranks, nodes=layout.nodes, ranks_per_node=layout.ranks_per_node,
        mapping=layout.mapping, aggregators=layout.aggregators,
        oversubscribed=any(
            is_oversubscribed([each.cpus for each in node], [each.quotas for each in node]) for node in by_node.values()
        ),
        ports=tuple(sorted({str(port["name"]) for report in reports for port in report.ports})),
        provenance={
            "hpccoll": __version__,
            "git_commit": git_commit(),
            "versions": package_versions(),
            "mpi": mpi_library(),
            "hosts": hosts,
            "testbed": testbed,
            "ports": group_by_host("ports", {report.host: report.ports for report in reports}),
            **gpu_provenance(gpus),
            "cpu": cpu_model(),
            "cpus": os.cpu_count(),
            **({"cpu_quota": min(quotas)} if quotas else {}),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"{platform.system()} {platform.release()}",
            "launcher": launcher_command_lines(),
            "variables": allowed_variables(),
        },
    )  # fmt: skip


class LoadRecorder:
    """Records what else uses the hosts of an attempt; created and used on all of its ranks together.

    The first rank of each clock domain samples its machine: hosts of a testbed share one.
    """

    def __init__(self, comm: MPI.Intracomm, attempt: Attempt) -> None:
        clocks, mine = [place.clock for place in attempt.places], attempt.places[comm.rank].clock
        self._comm, self._host = comm, attempt.places[comm.rank].host
        self._own = {place.pid for place in attempt.places if place.clock == mine}
        self._before = read_load() if clocks.index(mine) == comm.rank else None

    def gather_start(self) -> list[Mapping[str, object]]:
        """Return, at rank 0, the load average of each host at the beginning; empty on other ranks."""
        before = {"host": self._host, "load_average": [self._before.load_average]} if self._before else None
        return [each for each in self._comm.gather(before) or () if each is not None]

    def gather_end(self) -> list[Mapping[str, object]]:
        """Return, at rank 0, what else used each host since the beginning; empty on other ranks."""
        return [each for each in self._comm.gather(self.end()) or () if each is not None]

    def end(self) -> Mapping[str, object] | None:
        """Return what else used the host of this rank since the beginning; None if another rank samples it."""
        after = read_load() if self._before else None
        used = load_between(self._before, after, self._own) if self._before and after else None
        return None if used is None else {"host": self._host, **used}
