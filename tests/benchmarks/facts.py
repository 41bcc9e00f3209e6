"""What the figures of a GPU depend on, and what its kernels take to compile."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import product

import numpy as np
from here import Here
from mps import CONTROL
from sanitizer import program as sanitizer_program
from verdicts import Verdict, recorded

from hpccoll.host.gpu_facts import gpu_facts
from hpccoll.measure.run.result_check_gpu import SOURCE as CHECK
from hpccoll.transports.gpu import loaded_nccl_version
from hpccoll.transports.nccl.fold import KERNEL_OPS, KERNEL_TYPES
from hpccoll.transports.nccl.fold import SOURCE as FOLD
from hpccoll.transports.nccl.fold import _function as fold_kernel

COMPUTE_MODES = "default", "exclusive thread", "prohibited", "exclusive process"
"""cudaComputeMode (driver_types.h)."""
QUERY = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,ecc.mode.current,power.limit,persistence_mode"


def facts(here: Here) -> Iterator[Verdict]:
    """Versions, the state of the GPU, and the compilation of the kernels."""
    import cupy

    runtime, number = cupy.cuda.runtime, here.gpu.number
    versions = {
        "CUDA of the driver": runtime.driverGetVersion(),
        "CUDA of CuPy": runtime.runtimeGetVersion(),
        "CuPy": cupy.__version__,
        "NumPy": np.__version__,
        "NCCL": ".".join(map(str, loaded_nccl_version() or ("none",))),
        "compute-sanitizer": bool(sanitizer_program()),
        "MPS": bool(shutil.which(CONTROL)),
    }
    yield recorded("versions", "; ".join(f"{name} {value}" for name, value in versions.items()))
    attributes = {
        "SMs": runtime.cudaDevAttrMultiProcessorCount,
        "L2 bytes": runtime.cudaDevAttrL2CacheSize,
        "ECC": runtime.cudaDevAttrEccEnabled,
        "copy engines": runtime.cudaDevAttrAsyncEngineCount,
    }
    known = {
        name: runtime.deviceGetAttribute(attribute, number)
        for name, attribute in attributes.items()
    }
    mode = runtime.deviceGetAttribute(runtime.cudaDevAttrComputeMode, number)
    known |= {"compute mode": COMPUTE_MODES[mode], "free GB": f"{here.gpu.free_bytes / 1e9:.1f}"}
    yield recorded("device", "; ".join(f"{name} {value}" for name, value in known.items()))
    yield recorded("clocks and power", state(here.gpu.id))
    code = f"{FOLD.read_text()}\n// {time.time_ns()}"  # which no cache has
    yield recorded("a fold kernel compiled anew, s", compiled_in(code))
    cupy.clear_memo()
    yield recorded("the same from CuPy's cache on the disk, s", compiled_in(code))
    began = time.monotonic()
    for element, op in product(KERNEL_TYPES, KERNEL_OPS):
        fold_kernel(element, op, number)
    for size, kernel in product((1, 2, 4, 8), ("fill", "count_wrong")):
        here.gpu.kernel(CHECK, kernel, size)
    yield recorded("all kernels loaded, s", time.monotonic() - began)


def compiled_in(code: str) -> float:
    """Return the seconds in which CuPy makes a kernel of the fold's source."""
    import cupy

    from hpccoll.transports.nccl.fold import kernel_macros

    options = tuple(f"-D{name}={value}" for name, value in kernel_macros("float32", "sum").items())
    began = time.monotonic()
    _ = cupy.RawKernel(code, "fold", options).kernel
    return time.monotonic() - began


def state(bus: str) -> str:
    """Return what NVML reports, by its Python binding or else by nvidia-smi."""
    known = {
        name: fact for name, fact in gpu_facts(bus).items() if fact is not None and name != "bus"
    }
    if known:
        return "; ".join(f"{name} {fact}" for name, fact in known.items())
    program = shutil.which("nvidia-smi")
    if not program:
        return "unknown: neither pynvml nor nvidia-smi"
    query = [program, f"--query-gpu={QUERY}", "--format=csv,noheader", f"--id={bus}"]
    ran = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return f"{QUERY}: {ran.stdout.strip() or ran.stderr.strip()}"
