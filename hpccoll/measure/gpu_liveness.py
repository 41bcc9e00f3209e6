"""Whether the GPU of a rank answers: a child process asks, because a sick one may hold its process for ever.

``python -m hpccoll.measure.gpu_liveness NUMBER`` is that process: it starts CUDA, reads the facts
of all GPUs from NVML, and makes a context on its own one. Errors are left to those who need the
GPU; here only time counts.
"""

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from hpccoll.host.gpu_facts import gpu_facts
from hpccoll.transports import gpu

LIMIT_S = 60.0
"""How long the child process may take: without persistence mode the driver first loads, for up to 3 s a GPU."""

KILL_S = 1.0
"""How long its end is waited for: the kernel may never return from the driver."""

PROGRAM = sys.executable, "-m", "hpccoll.measure.gpu_liveness"


def reason_gpu_hangs(
    local_rank: int, limit_s: float = LIMIT_S, program: Sequence[str] = PROGRAM
) -> str | None:
    """Return why a rank must not use its GPU, because the driver does not answer in time; None if it does.

    Args:
        local_rank: that of the rank; its GPU is this one, modulo their number.
        limit_s: how long the driver may take.
        program: what asks, without the number.
    """
    if not gpu.has_driver():
        return None
    child = subprocess.Popen(
        [*program, str(local_rank)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        child.wait(limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(KILL_S)
        return f"the driver of its GPUs has not answered within {limit_s:g} s"
    return None


def main(local_rank: int) -> None:
    """Do what may hang, on the GPU of a local rank last."""
    count = gpu.device_count()
    for number in range(count):
        gpu_facts(gpu.device_bus(number))
    if count:
        driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        # CUdevice is the number
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), local_rank % count)


if __name__ == "__main__":
    main(int(sys.argv[1]))
