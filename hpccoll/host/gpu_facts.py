"""GPU facts: what a measurement on a GPU depends on, from an allow-list, by NVML where nvidia-ml-py is there."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from hpccoll.host.machine import group_by_host

MAX_NVLINKS = 18
"""The most NVLinks that a GPU is asked for (NVML_NVLINK_MAX_LINKS of the H100's generation)."""


def _links(nvml: Any, handle: Any) -> int:
    """Return how many NVLinks are up."""
    up = 0
    for link in range(MAX_NVLINKS):
        with suppress(nvml.NVMLError):  # a GPU has as many as it answers for
            up += bool(nvml.nvmlDeviceGetNvLinkState(handle, link))
    return up


FACT_QUERIES: Mapping[str, Callable[[Any, Any], object]] = {
    "name": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(),
    "cuda": lambda nvml, _: _version(nvml.nvmlSystemGetCudaDriverVersion()),
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "sm_clock_mhz": lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "sm_clock_max_mhz": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)),
    "power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "persistence": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "pcie_generation": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
    "pcie_width": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)),
    "nvlinks": _links,
}
"""What is recorded of a GPU, and who tells it; null where nobody does."""


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _nvml() -> Any:
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
    """Return the facts of a GPU.

    Args:
        bus: its address on the PCI bus, 0000:1b:00.0.
        nvml: the module pynvml, initialised; None to find it.
    """
    found: dict[str, object] = {"bus": bus, **dict.fromkeys(FACT_QUERIES)}
    nvml = nvml or _nvml()
    if nvml is None:
        return found
    with suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bus)
        for name, tell in FACT_QUERIES.items():
            with suppress(nvml.NVMLError):  # not every GPU has every one
                found[name] = tell(nvml, handle)
    return found


def gpu_provenance(said: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, object]:
    """Return the GPUs, the one of each rank by its address on the bus, and whether MPI takes their memory.

    Args:
        said: by each rank, its host, and of its GPU what ``Gpus.on_record`` returns; null where no case is on one.
    """
    gpus: dict[str, dict[str, object]] = defaultdict(dict)
    for host, words in said:
        if words:
            gpus[host][words["gpu"]["bus"]] = words["gpu"]
    aware = {host: words["cuda_aware_mpi"] for host, words in said if "cuda_aware_mpi" in words}
    return {
        "gpus": group_by_host("gpus", {host: [*those.values()] for host, those in gpus.items()}) or None,
        "gpu_of_rank": [words["gpu"]["bus"] if words else None for _, words in said] if gpus else None,
        "cuda_aware_mpi": group_by_host("verdict", aware) or None,
    }


def gpu_description(words: Mapping[str, Any]) -> list[str]:
    """Return the GPUs of a host in words, as many as a rank of it sees; none where no case is on one.

    Args:
        words: what ``Gpus.on_record`` returns.
    """
    return [f"{words['visible']} {words['gpu']['name'] or 'GPU'}"] if words else []


def gpus_are_shared(said: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Return whether ranks have a GPU together: what they say is how a collective works, not how fast it is."""
    gpus = [(host, words["gpu"]["bus"]) for host, words in said if words]
    return len(set(gpus)) < len(gpus)
