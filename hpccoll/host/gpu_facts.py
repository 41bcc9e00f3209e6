"""Facts about GPUs that affect measurements. NVML reports them if nvidia-ml-py is installed."""

import ctypes
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccoll.common.units import parse_cpu_list
from hpccoll.host.cpu_and_memory import group_by_host

MAX_NVLINKS = 18
"""The number of NVLinks that are queried (NVML_NVLINK_MAX_LINKS of the H100's generation)."""


FABRIC_COMPLETED = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED of nvml.h: the GPU has joined the fabric of its NVLink domain."""


def _active_nvlinks(nvml: Any, handle: Any) -> int:
    up = 0
    for link in range(MAX_NVLINKS):
        with suppress(nvml.NVMLError):  # the GPU has fewer links
            up += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
    return up


def _nvlink_domain(nvml: Any, handle: Any) -> str | None:
    """Return the NVLink domain and clique of a GPU; None if its NVLink reaches no other host.

    NCCL compares the same fields (ncclMnnvlCheck in src/mnnvl.cc of 2.30.7).
    """
    try:
        info = nvml.c_nvmlGpuFabricInfoV_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    except AttributeError:  # an older nvidia-ml-py
        return None
    domain = bytes(info.clusterUuid)
    if info.state != FABRIC_COMPLETED or not any(domain):
        return None
    return f"{domain.hex()}.{info.cliqueId}"


FACT_QUERIES: Mapping[str, Callable[[Any, Any], object]] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(),
    "cuda": lambda nvml, _: _version(nvml.nvmlSystemGetCudaDriverVersion()),
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "sm_clock_mhz": lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "sm_clock_max_mhz": lambda nvml, gpu: int(
        nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
    ),
    "memory_clock_mhz": lambda nvml, gpu: int(
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    ),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "persistence": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "pcie_generation": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
    "pcie_width": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)),
    "nvlinks": _active_nvlinks,
    "nvlink_domain": _nvlink_domain,
}
"""The recorded facts of a GPU, each with its NVML query; a fact is null if the query fails."""


def _version(number: int) -> str:
    major, minor = divmod(number, 1000)
    return f"{major}.{minor // 10}"


def load_nvml() -> Any:
    """Return the initialised module pynvml; None if it is not installed, or there is no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpu_facts(bus: str, nvml: Any = None) -> dict[str, object]:
    """Return the facts of the GPU at a PCI bus address such as 0000:1b:00.0."""
    facts: dict[str, object] = {"bus": bus, **dict.fromkeys(FACT_QUERIES)}
    nvml = nvml or load_nvml()
    if nvml is None:
        return facts
    with suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bus)
        for name, query in FACT_QUERIES.items():
            with suppress(nvml.NVMLError):  # some GPUs do not support every query
                facts[name] = query(nvml, handle)
    return facts


def is_near(bus: str, cpus: Collection[int], sys: Path = Path("/sys")) -> bool | None:
    """Return whether a rank is on the NUMA node of a GPU; None if the kernel does not report it.

    A rank is near if most of its CPUs are on that node, or if it may use all of the node's CPUs
    (local_cpulist is in Documentation/ABI/testing/sysfs-bus-pci of Linux).
    """
    path = sys / "bus/pci/devices" / bus.lower() / "local_cpulist"
    try:
        local = parse_cpu_list(path.read_text().strip())
    except (OSError, ValueError):
        return None
    if not local:
        return None
    near = local.intersection(cpus)
    return 2 * len(near) > len(cpus) or near == local


def gpu_provenance(records: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, object]:
    """Return the GPUs of all hosts and of ranks, whether MPI accepts GPU memory, and the NCCL of each host.

    Also the ranks that are far from their GPU, and those that see no other GPU although ranks of
    their host use some. ``records`` has the host and the GPU record of each rank; the record is
    empty if no case runs on a GPU.
    """
    gpus: dict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for host, record in records:
        if record:
            gpus[host][_identity(record)] = record["gpu"]
    gpus_of_host = {host: list(facts.values()) for host, facts in gpus.items()}
    # A process sees one slice of a GPU (MIG) at most, so that slices of one GPU do not count.
    with_more_gpus = set()
    for host, facts in gpus_of_host.items():
        if len({fact["bus"] for fact in facts}) > 1:
            with_more_gpus.add(host)
    far: list[int] = []
    seeing_one: list[int] = []
    for rank, (host, record) in enumerate(records):
        if record.get("near") is False:
            far.append(rank)
        if record.get("visible") == 1 and host in with_more_gpus:
            seeing_one.append(rank)
    bus_of_rank = [record["gpu"]["bus"] if record else None for _, record in records]
    return {
        "gpus": group_by_host("gpus", gpus_of_host) or None,
        "event_floor_ns_of_rank": _event_floors(records),
        "gpu_of_rank": bus_of_rank if gpus else None,
        "ranks_far_from_gpu": far or None,
        "ranks_seeing_one_gpu": seeing_one or None,
        "cuda_aware_mpi": group_by_host("verdict", _facts_of_hosts(records, "cuda_aware_mpi"))
        or None,
        "nccl": group_by_host("library", _facts_of_hosts(records, "nccl")) or None,
    }


def _facts_of_hosts(records: Sequence[tuple[str, Mapping[str, Any]]], name: str) -> dict[str, Any]:
    """Return a fact by host: that of the last rank there that has it."""
    return {host: record[name] for host, record in records if name in record}


def _event_floors(records: Sequence[tuple[str, Mapping[str, Any]]]) -> list[int | None] | None:
    """Return the time between two events in a row on the GPU of each rank, in ns; None if none is known."""
    floors: list[int | None] = []
    is_known = False
    for _, record in records:
        floor = record.get("event_floor_ns")
        floors.append(floor)
        is_known |= floor is not None
    if is_known:
        return floors
    return None


def gpu_description(record: Mapping[str, Any]) -> list[str]:
    """Return a one-element list such as ``["8 NVIDIA H100"]``, empty if no case runs on a GPU."""
    if not record:
        return []
    name = record["gpu"]["name"] or "GPU"
    return [f"{record['visible']} {name}"]


def _identity(record: Mapping[str, Any]) -> str:
    """Return what no other GPU of a host has: slices of a GPU (MIG) have UUIDs of their own and one bus address."""
    return str(record.get("uuid") or record["gpu"]["bus"])


def gpus_are_shared(records: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Return whether ranks share a GPU, or a MIG slice; such timings say nothing about speed."""
    gpus = [(host, _identity(record)) for host, record in records if record]
    return len(set(gpus)) < len(gpus)
