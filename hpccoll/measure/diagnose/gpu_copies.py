"""The rates of copies between this host and each of its GPUs.

A program of its own (python -m hpccoll.measure.diagnose.gpu_copies) measures them, because a
driver that fails may never return from a call.
"""

import json
import time
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.common.errors import GpuFailedError

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

NBYTES = 256 << 20
"""The bytes of an array, which is larger than caches of GPUs; PCIe 4.0 x16 copies them in 10 ms."""

REPETITIONS = 8


def gpu_copy_rates(gpu: "Gpu") -> dict[str, float]:
    """Return the rates of a GPU in B/s: from pinned memory of the host, to it, and within the memory of the GPU.

    Within its memory, the bytes that are read and those that are written count.
    """
    nbytes = min(NBYTES, gpu.free_bytes // 4)
    element = np.dtype(np.uint8)
    host = gpu.pinned(nbytes, element)
    host[...] = 1
    first, second = (gpu.empty(nbytes, element) for _ in range(2))
    copies = {
        "from the host": (gpu.copy(first, host), nbytes),
        "to the host": (gpu.copy(host, first), nbytes),
        "in its memory": (gpu.copy(second, first), 2 * nbytes),
    }
    rates = {}
    for name, ((copy, arguments), moved_bytes) in copies.items():
        times = []
        for _ in range(1 + REPETITIONS):
            begun = time.perf_counter()
            copy(*arguments)
            gpu.synchronize()
            times.append(time.perf_counter() - begun)
        rates[name] = moved_bytes / median(times[1:])  # the first one maps memory
    return rates


def print_gpu_copy_rates() -> None:
    """Print the rates of all GPUs by their PCI bus addresses, those that failed, or why none is used, as JSON."""
    from hpccoll.transports.gpu import Gpu, device_bus, device_count, missing_for_gpu

    missing = missing_for_gpu("mpi")
    if missing:
        print(json.dumps({"skipped": missing}))
        return
    rates: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    for number in range(device_count()):
        bus = device_bus(number).lower()
        try:
            rates[bus] = gpu_copy_rates(Gpu(number))
        except (GpuFailedError, RuntimeError) as error:  # CuPy's errors of CUDA are RuntimeErrors
            failed[bus] = " ".join(str(error).split())
    print(json.dumps({"rates": rates, "failed": failed}))


if __name__ == "__main__":
    print_gpu_copy_rates()
