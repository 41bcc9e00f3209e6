"""What the driver of NVIDIA's GPUs reports by its own library, without CuPy, without NVML and without a context."""

import ctypes
from typing import Any

MULTICAST_SUPPORTED = 132
"""CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED of cuda.h, from CUDA 12.1 on."""


def supports_multicast(driver: Any = None) -> bool | None:
    """Return whether GPUs can write to several of them at once through NVSwitches, which NVLS needs.

    NCCL asks for the same attribute (ncclNvlsInit in src/transport/nvls.cc of 2.28.9). It holds
    where the files of switches are hidden, in containers and virtual machines, or are on another
    machine, as with GB200.

    Args:
        driver: the library, for tests; None to load it.

    Returns:
        None if this machine cannot tell: it has no driver (a login node) or no GPU, or its driver
            is too old.
    """
    try:
        driver = driver or ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int(0)
    supported = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    if driver.cuDeviceGetAttribute(ctypes.byref(supported), MULTICAST_SUPPORTED, device):
        return None
    return bool(supported.value)
