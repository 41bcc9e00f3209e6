"""GPUs: what this process lacks to use one, and the one that it uses. CuPy is imported where a case needs it."""

import ctypes
import gc
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import BFLOAT16
from hpccoll.transports.operation import Array, address

if TYPE_CHECKING:
    from hpccoll.transports.mpi.step import DeferredCall  # at run time it would start MPI, before whom a GPU is taken

INSTALL = "pip install 'hpccoll[cuda12]', or hpccoll[cuda13] where the driver is newer"

GpuArray: TypeAlias = Any
"""An array of CuPy; those of bfloat16 hold its bits, as uint16."""

Event: TypeAlias = Any
"""An event of CuPy."""


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
def missing_for_gpu(transport: str, dtype: str = "float32") -> str | None:
    """Return why this process cannot move ``dtype`` in a GPU's memory over ``transport``, or None where it can."""
    if not device_count():
        return "no CUDA device"
    if find_spec("cupy") is None:
        return f"cupy is not installed ({INSTALL})"
    if dtype == BFLOAT16 and find_spec("ml_dtypes") is None:
        return f"ml_dtypes is not installed ({INSTALL})"
    return _missing_nvrtc() or (_missing_nccl() if transport == "nccl" else None)


def _missing_nvrtc() -> str | None:
    from cupy_backends.cuda.libs import nvrtc

    try:
        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        return f"NVRTC not found, which compiles kernels: {' '.join(str(error).split())} ({INSTALL})"
    return None


def _missing_nccl() -> str | None:
    import warnings

    with warnings.catch_warnings(record=True) as said:  # CuPy warns of a library that it does not find
        warnings.simplefilter("always")
        from cupy.cuda import nccl
    if nccl.available:
        return None
    words = " ".join(str(said[0].message).split()) if said else "CuPy finds no libnccl"
    return f"NCCL not found: {words}"


def select_gpu(number: int) -> Any:
    """Have this process use the GPU ``number`` of those that it sees, and return CuPy's device."""
    import cupy

    device = cupy.cuda.Device(number)
    device.use()
    return device


class Gpu:
    """The GPU of this process, and the one stream on which all is queued; CuPy's calls go on it, too.

    Args:
        number: of the device among those that the process sees.
    """

    def __init__(self, number: int) -> None:
        import cupy

        self._cupy = cupy
        self.number = number
        self.device = select_gpu(number)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> GpuArray:
        """Return an uninitialised array of ``count`` elements, which begins at a multiple of 512 bytes."""
        return self._cupy.empty(count, gpu_dtype(dtype))

    def at(self, place: int, count: int, dtype: np.dtype[np.generic], owner: object) -> GpuArray:
        """Return what lies at an address that somebody else has allocated, as an array that holds ``owner``."""
        of = gpu_dtype(dtype)
        memory = self._cupy.cuda.UnownedMemory(place, count * of.itemsize, owner, self.number)
        return self._cupy.ndarray(count, of, self._cupy.cuda.MemoryPointer(memory, 0))

    def pinned(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array of host memory that copies from and to the GPU without a detour."""
        if not count:
            return np.empty(0, gpu_dtype(dtype))
        memory = self._cupy.cuda.PinnedMemory(count * dtype.itemsize)  # CuPy's pool would round it up to a power of two
        return np.frombuffer(self._cupy.cuda.PinnedMemoryPointer(memory, 0), gpu_dtype(dtype), count)

    def upload(self, values: NDArray[Any]) -> GpuArray:
        """Return a copy of ``values`` on the GPU; what is queued after it finds it there."""
        copy = self._cupy.empty(values.shape, values.dtype)
        copy.set(np.ascontiguousarray(values), stream=self.stream)
        return copy

    def download(self, array: GpuArray) -> NDArray[Any]:
        """Return a copy on the host, after all that was queued."""
        copy: NDArray[Any] = self._cupy.asnumpy(array, stream=self.stream)
        self.stream.synchronize()
        return copy

    def address(self, array: GpuArray) -> int:
        """Return where an array begins."""
        return address(array)

    def kernel(self, source: Path, name: str, itemsize: int) -> Callable[..., None]:
        """Return a kernel of a file of CUDA C++, compiled with ITEMSIZE for elements of so many bytes.

        It takes a grid, a block and its arguments, and is queued on the stream.
        """
        function, stream = _function(self.number, source, name, itemsize), self.stream

        def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[object, ...]) -> None:
            function(grid, block, arguments, 0, stream)  # named: whatever stream is CuPy's current one

        return launch

    def copy(self, target: GpuArray, source: GpuArray) -> "DeferredCall":
        """Return the call that queues a copy between arrays of one length, of which one is pinned."""
        runtime = self._cupy.cuda.runtime
        return runtime.memcpyAsync, (
            address(target),
            address(source),
            source.nbytes,
            runtime.memcpyDefault,
            self.stream.ptr,
        )

    def synchronize(self) -> None:
        """Return when all that was queued is done."""
        self.stream.synchronize()

    @property
    def fences(self) -> "Sequence[DeferredCall]":
        """Calls that stand before MPI is handed memory: it does not know of streams."""
        return [(self.synchronize, ())]

    def event(self) -> Event:
        """Return an event with a time, to be recorded on the stream."""
        return self._cupy.cuda.Event()

    def elapsed_ns(self, start: Event, end: Event) -> int:
        """Return the time between two events that have been, in ns; they tell it to about half a microsecond."""
        milliseconds: float = self._cupy.cuda.get_elapsed_time(start, end)
        return round(milliseconds * 1e6)

    @property
    def free_bytes(self) -> int:
        """The bytes of memory that can be had, by whichever process, what CuPy keeps for this one among it."""
        free, _ = self.device.mem_info
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    @property
    def id(self) -> str:
        """The bus address of the device: ranks that say the same on one node share it."""
        return str(self.device.pci_bus_id)

    def release(self) -> None:
        """Give back what memory CuPy keeps of arrays that are gone."""
        gc.collect()  # some name each other
        self.stream.synchronize()
        self._cupy.get_default_memory_pool().free_all_blocks()


@cache
def _function(number: int, source: Path, name: str, itemsize: int) -> Callable[..., None]:  # noqa: ARG001 - one per device
    import cupy

    program = cupy.RawModule(code=source.read_text(), options=(f"-DITEMSIZE={itemsize}",))
    function: Callable[..., None] = program.get_function(name).kernel
    return function


def gpu_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype of arrays on a GPU, which CuPy must know: that of the bits for one that NumPy lacks."""
    return dtype if dtype.kind in "fiu" else np.dtype(f"u{dtype.itemsize}")
