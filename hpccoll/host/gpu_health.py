"""The state of each GPU of this host, which tells a healthy one from a failing one.

NVML reports the state. A program of its own (python -m hpccoll.host.gpu_health) asks, because a
driver that fails may never answer.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from hpccoll.host.gpu_facts import gpu_facts, load_nvml
from hpccoll.host.gpu_stack import gpu_addresses

KEPT_FACTS = (
    "name",
    "memory_bytes",
    "sm_clock_max_mhz",
    "power_limit_w",
    "ecc",
    "pcie_width",
    "nvlinks",
)
"""The facts that stay as they are while a GPU rests or works."""

UNCORRECTED, SINCE_DRIVER_START = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED and NVML_VOLATILE_ECC of nvml.h."""

HEALTH_QUERIES: Mapping[str, Callable[[Any, Any], object]] = {
    "pcie_width_max": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
    "uncorrected_errors": lambda nvml, gpu: int(
        nvml.nvmlDeviceGetTotalEccErrors(gpu, UNCORRECTED, SINCE_DRIVER_START)
    ),
    # corrected, uncorrected, pending, failed
    "remapping_pending": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[2]),
    "remapping_failed": lambda nvml, gpu: bool(nvml.nvmlDeviceGetRemappedRows(gpu)[3]),
    "clock_events": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
    "processes": lambda nvml, gpu: len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
}
"""The state of a GPU, each with its NVML query; a value is missing if the query fails."""


def gpu_state(bus: str, nvml: Any) -> dict[str, object]:
    """Return the facts and the state of the GPU at a PCI bus address; ``error`` if it does not answer."""
    try:
        gpu = nvml.nvmlDeviceGetHandleByPciBusId(bus)
    except nvml.NVMLError as error:
        return {"error": str(error)}
    facts = gpu_facts(bus, nvml)
    state: dict[str, object] = {name: facts[name] for name in KEPT_FACTS}
    for name, query in HEALTH_QUERIES.items():
        with suppress(nvml.NVMLError, AttributeError):  # an old nvidia-ml-py lacks some names
            state[name] = query(nvml, gpu)
    return state


def print_gpu_states() -> None:
    """Print the state of each GPU by its PCI bus address, as JSON; null without NVML."""
    nvml = load_nvml()
    states = None
    if nvml is not None:
        states = {bus: gpu_state(bus, nvml) for bus in gpu_addresses()}
    print(json.dumps(states))


if __name__ == "__main__":
    print_gpu_states()
