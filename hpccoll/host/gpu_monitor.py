"""What a GPU does while a case is measured: clocks, power, temperature, throttling and traffic, as NVML reports them.

NVML is read between blocks of operations, and never during one. Clocks, temperature and the reasons
of lowered clocks are those of the moment, about a millisecond after the last operation of a block.
Energy, the time of thermal limits and traffic are counters, whose increase covers all blocks, with
what the timing loop does between operations.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, reduce
from operator import or_
from statistics import median
from typing import Any, TypeAlias

from hpccoll.host.gpu_facts import load_nvml

Query: TypeAlias = Callable[[Any, Any], float]
"""Returns a value in SI units, given the module pynvml and the handle of a GPU."""

ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that is summed over NVLinks: UINT_MAX, as in DCGM (NvmlFieldRequiresNvLinkAggregate)."""

VALUE_TYPES_64_BITS = (2, 3, 4)
"""NVML_VALUE_TYPE_UNSIGNED_LONG, _UNSIGNED_LONG_LONG and _SIGNED_LONG_LONG (nvml.h of CUDA 12 and 13).

A counter of bytes with 32 bits is not used: PCIe 5.0 x16 wraps one in a tenth of a second.
"""

NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED."""


def _field(nvml: Any, gpu: Any, *, name: str, scope: int = 0, unit: int = 1) -> float:
    number = getattr(nvml, f"NVML_FI_DEV_{name}")
    (field,) = nvml.nvmlDeviceGetFieldValues(gpu, [(number, scope)])
    if field.nvmlReturn or field.valueType not in VALUE_TYPES_64_BITS:
        raise nvml.NVMLError(field.nvmlReturn or NOT_SUPPORTED)
    return float(field.value.ullVal) * unit


def _nvlink(direction: str, packets: str) -> tuple[Query, ...]:
    """Return the queries of the bytes over NVLink: in KiB, and, from NVLink 5 on, in bytes."""
    return (
        partial(_field, name=f"NVLINK_THROUGHPUT_DATA_{direction}", scope=ALL_LINKS, unit=1024),
        partial(_field, name=f"NVLINK_COUNT_{packets}_BYTES", scope=ALL_LINKS),
    )


STATE_QUERIES: Mapping[str, tuple[Query, ...]] = {
    "gpu_sm_clock": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,),
    "gpu_memory_clock": (
        lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,
    ),
    "gpu_temperature": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    "gpu_clock_events": (
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        # its name before driver 535
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    ),
}
"""What is read after each block, by the name of its column in raw files; the first query that a driver supports."""

STATE_SUMMARIES: Mapping[str, Callable[[Iterable[Any]], float]] = {
    "gpu_sm_clock": median,
    "gpu_memory_clock": median,
    "gpu_temperature": max,
    "gpu_clock_events": partial(reduce, or_),
}
"""How the values of all blocks become one."""


def _lowered_s(nvml: Any, gpu: Any, *, policy: str) -> float:
    """Return the seconds in which a policy has lowered the clock of a GPU; NVML counts ns (nvmlViolationTime_t)."""
    number = getattr(nvml, f"NVML_PERF_POLICY_{policy}")
    status = nvml.nvmlDeviceGetViolationStatus(gpu, number)
    return float(status.violationTime) / 1e9


ENERGY = "energy"
COUNTER_QUERIES: Mapping[str, tuple[Query, ...]] = {
    ENERGY: (lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,),  # mJ
    "gpu_power_limit_s": (partial(_lowered_s, policy="POWER"),),
    "gpu_thermal_s": (partial(_lowered_s, policy="THERMAL"),),
    "gpu_sync_boost_s": (partial(_lowered_s, policy="SYNC_BOOST"),),
    "gpu_nvlink_sent": _nvlink("TX", "XMIT"),
    "gpu_nvlink_received": _nvlink("RX", "RCV"),
    "gpu_pcie_sent": (partial(_field, name="PCIE_COUNT_TX_BYTES"),),
    "gpu_pcie_received": (partial(_field, name="PCIE_COUNT_RX_BYTES"),),
}
"""The counters, likewise; instead of the energy, the power is recorded."""

INCREASES = ("gpu_power_limit_s", "gpu_thermal_s", "gpu_sync_boost_s")
"""The counters that are recorded as they have increased."""

PER_OPERATION = ("gpu_nvlink_sent", "gpu_nvlink_received", "gpu_pcie_sent", "gpu_pcie_received")


class GpuMonitor:
    """Reads the GPU at a PCI bus address between the blocks of a measurement; ``clock`` in s is that of the power."""

    def __init__(
        self, bus: str, nvml: Any = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = nvml or load_nvml()
        self._clock = clock
        self._states = self._supported(bus, STATE_QUERIES)
        self._counters = self._supported(bus, COUNTER_QUERIES)
        self.begin()

    def _supported(
        self, bus: str, queries: Mapping[str, tuple[Query, ...]]
    ) -> dict[str, Callable[[], float]]:
        """Return the first query of each value that works for the GPU; none without NVML."""
        supported: dict[str, Callable[[], float]] = {}
        if self._nvml is None:
            return supported
        with suppress(self._nvml.NVMLError):
            gpu = self._nvml.nvmlDeviceGetHandleByPciBusId(bus)
            for name, alternatives in queries.items():
                for query in reversed(alternatives):
                    # an old nvidia-ml-py lacks some names
                    with suppress(self._nvml.NVMLError, AttributeError):
                        query(self._nvml, gpu)
                        supported[name] = partial(query, self._nvml, gpu)
        return supported

    def begin(self) -> None:
        """Begin a measurement: read the counters."""
        self._began = self._clock()
        self._iterations = 0
        self._first = self._read(self._counters)
        self._blocks: list[dict[str, float]] = []

    def after_block(self, iterations: int) -> None:
        """Read the state of the GPU after a block of ``iterations``."""
        self._iterations += iterations
        self._blocks.append(self._read(self._states))

    def _read(self, queries: Mapping[str, Callable[[], float]]) -> dict[str, float]:
        values = {}
        for name, query in queries.items():
            with suppress(self._nvml.NVMLError):
                values[name] = query()
        return values

    def activity(self, operations: int = 1) -> dict[str, float]:
        """Return what the GPU did since ``begin``, by the name of the column in raw files; without what is unknown."""
        activity = {}
        for name, summary in STATE_SUMMARIES.items():
            values = [block[name] for block in self._blocks if name in block]
            if values:
                activity[name] = summary(values)
        last = self._read(self._counters)
        seconds = self._clock() - self._began
        increases = {
            name: last[name] - first
            for name, first in self._first.items()
            if last.get(name, -1) >= first
        }
        if ENERGY in increases and seconds > 0:
            activity["gpu_power"] = increases[ENERGY] / seconds
        activity |= {name: increases[name] for name in INCREASES if name in increases}
        count = self._iterations * operations
        if count:
            activity |= {
                name: increases[name] / count for name in PER_OPERATION if name in increases
            }
        return activity
