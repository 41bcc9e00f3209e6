"""The record of an attempt with its provenance: machine, libraries and settings, as rank 0 assembles it for all."""

import os
import platform
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from hpccoll.common.units import format_cpu_list
from hpccoll.common.version import __version__
from hpccoll.host.cpu_and_memory import cpu_model, group_by_host
from hpccoll.host.env_allowlist import allowed_variables
from hpccoll.host.gpu_facts import gpu_description, gpu_provenance, gpus_are_shared
from hpccoll.host.mpi_library import mpi_library
from hpccoll.host.place_facts import is_oversubscribed
from hpccoll.host.program_facts import git_commit, launcher_command_lines, package_versions
from hpccoll.measure.rank_report import RankReport
from hpccoll.schedule import Layout
from hpccoll.store.raw_results import Attempt, RankLocation
from hpccoll.store.schema import ON_SHARED_GPU, ON_TESTBED


def _machine(hosts: Sequence[str], hardware: Sequence[str]) -> str:
    """Return the name of the machine, which does not depend on the number of nodes, because it labels charts."""
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    if len(hosts) == 1:
        where = hosts[0]
    else:
        where = f"{hosts[0]} and others"
    if cluster:
        where = f"cluster {cluster}"
    return f"{where}, {' and '.join(hardware)} a node"


def _hardware(report: RankReport) -> str:
    """Return the hardware of a node in words, as a rank on it sees it."""
    quota = ""
    if report.quotas:
        quota = f" with a quota of {min(report.quotas.values()):g} CPUs"
    return " and ".join([report.cpu + quota, *gpu_description(report.gpu)])


def assemble_attempt(reports: Sequence[RankReport], number: int, aggregators: int) -> Attempt:
    """Return the record of an attempt from the reports of all ranks, [rank]."""
    places = _places(reports)
    layout = Layout(tuple(place.node for place in places), aggregators=aggregators)
    hosts = list(dict.fromkeys(place.host for place in places))
    testbed = next((report.testbed for report in reports if report.testbed), None)
    port_names: set[str] = set()
    for report in reports:
        port_names.update(str(port["name"]) for port in report.ports)
    kind = ON_TESTBED if testbed else "measured"
    if gpus_are_shared(_gpus(reports)):
        kind = ON_SHARED_GPU
    return Attempt(
        run_id=str(uuid.uuid4()),
        number=number,
        places=places,
        kind=kind,
        machine=_machine(hosts, sorted(set(map(_hardware, reports)))),
        ranks=layout.ranks,
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        mapping=layout.mapping,
        aggregators=layout.aggregators,
        oversubscribed=_is_any_node_oversubscribed(places, reports, on_testbed=bool(testbed)),
        ports=tuple(sorted(port_names)),
        provenance=_provenance(reports, hosts, testbed),
    )


def _places(reports: Sequence[RankReport]) -> tuple[RankLocation, ...]:
    """Return where each rank runs; nodes, clocks and racks are numbered in the order in which ranks name them."""
    nodes: dict[tuple[str, str], int] = {}
    clocks: dict[str, int] = {}
    racks: dict[str, int] = {}
    places = []
    for report in reports:
        place = RankLocation(
            host=report.host,
            node=nodes.setdefault((report.host, report.boot), len(nodes)),
            clock=clocks.setdefault(report.boot, len(clocks)),
            pid=report.pid,
            affinity=format_cpu_list(report.cpus),
            rack=racks.setdefault(report.rack, len(racks)),
        )
        places.append(place)
    return tuple(places)


def _gpus(reports: Sequence[RankReport]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(report.host, report.gpu) for report in reports]


def _is_any_node_oversubscribed(
    places: Sequence[RankLocation], reports: Sequence[RankReport], *, on_testbed: bool
) -> bool:
    by_node: dict[int, list[RankReport]] = defaultdict(list)
    for place, report in zip(places, reports, strict=True):
        # all hosts of a testbed share the CPUs of one machine
        machine = 0 if on_testbed else place.node
        by_node[machine].append(report)
    for reports_of_node in by_node.values():
        if is_oversubscribed(
            [report.cpus for report in reports_of_node],
            [report.quotas for report in reports_of_node],
        ):
            return True
    return False


def _provenance(
    reports: Sequence[RankReport], hosts: Sequence[str], testbed: object
) -> dict[str, object]:
    """Return the machine, libraries and settings of an attempt."""
    ports_of_host: dict[str, Any] = dict.fromkeys(hosts, ())
    for report in reports:
        if report.ports:
            ports_of_host[report.host] = report.ports
    cpu_quota = {}
    quotas = list(chain.from_iterable(report.quotas.values() for report in reports))
    if quotas:
        cpu_quota["cpu_quota"] = min(quotas)
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    memory_bytes = page_bytes * os.sysconf("SC_PHYS_PAGES")
    kernel = f"{platform.system()} {platform.release()}"
    gpus = gpu_provenance(_gpus(reports))
    return {
        "hpccoll": __version__,
        "git_commit": git_commit(),
        "versions": package_versions(),
        "mpi": mpi_library(),
        "hosts": hosts,
        "testbed": testbed,
        "ports": group_by_host("ports", ports_of_host),
        **gpus,
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        **cpu_quota,
        "memory_bytes": memory_bytes,
        "kernel": kernel,
        "launcher": launcher_command_lines(),
        "variables": allowed_variables(),
    }
