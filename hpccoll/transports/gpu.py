"""GPUs: what this process lacks to use one. CuPy is imported in here alone, where a case needs it."""

import ctypes
from functools import cache
from importlib.util import find_spec

INSTALL = "pip install 'hpccoll[cuda12]', or hpccoll[cuda13] where the driver is newer"


@cache
def device_count() -> int:
    """Return how many GPUs this process sees, by the driver itself: that takes neither CuPy nor a context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    ready = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if ready else 0


@cache
def lack(transport: str) -> str | None:
    """Return why this process cannot move a GPU's memory over ``transport``, or None where it can."""
    if not device_count():
        return "no CUDA device"
    if find_spec("cupy") is None:
        return f"cupy is not installed ({INSTALL})"
    return _nccl() if transport == "nccl" else None


def _nccl() -> str | None:
    import warnings

    with warnings.catch_warnings(record=True) as said:  # CuPy warns of a library that it does not find
        warnings.simplefilter("always")
        from cupy.cuda import nccl
    if nccl.available:
        return None
    words = " ".join(str(said[0].message).split()) if said else "CuPy finds no libnccl"
    return f"NCCL not found: {words}"
