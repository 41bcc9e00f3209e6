"""The GPU of this process, and the reasons why it cannot use one. CuPy is imported only if a case needs it."""

import ctypes
import gc
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import GpuFailedError
from hpccoll.host.gpu_stack import choose_kernel_cache, old_cupy_reason
from hpccoll.host.place_facts import node_name
from hpccoll.schedule import BFLOAT16
from hpccoll.transports.stream_wait import LIMIT_S, no_error, poll_until
from hpccoll.transports.transport_interface import address

if TYPE_CHECKING:
    # its import starts MPI, and a GPU is selected before that
    from hpccoll.executor.lowered_step import DeferredCall
    from hpccoll.schedule.operation import Array

INSTALL = "pip install 'hpccoll[cuda12]', or hpccoll[cuda13] where the driver is newer"

RANDOM_SEED = 1
"""The seed of the matrices that stand for a computation: those of all ranks are equal."""

MAX_ERROR = 120
"""The characters of a loader's error that are shown: it may list directories."""

GpuArray: TypeAlias = Any
"""A CuPy array. Arrays of bfloat16 hold its bits as uint16."""

Event: TypeAlias = Any
"""A CuPy event."""

FIRST, LAST = -1, 0
"""Priorities of streams (CUDA Runtime API, cudaStreamCreateWithPriority): blocks of kernels on LAST
start when none on FIRST waits. The next messages then start at once beside a large fold, which
fills the GPU."""

EXPORTED_BYTES = 1 << 21
"""The granularity of memory that other processes map. cudaMalloc takes smaller allocations from a
larger block, and a handle exports the whole block (CUDA Programming Guide, Interprocess
Communication)."""

CAPABILITY_MAJOR = 75
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR (cuda.h of CUDA 12 and 13)."""

PEER_CAPABILITY = 7
"""The major compute capability from which on GPUs have loads that acquire and stores that release,
as in peer.cu (PTX ISA, ld and st: sm_70)."""

CUDA_NOT_READY = 600
"""cudaErrorNotReady: work is still running (driver_types.h of CUDA 12 and 13)."""


def has_driver() -> bool:
    """Return whether the library of the driver is installed; it is not started."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@cache
def device_count() -> int:
    """Return the number of GPUs visible to this process; the driver reports it without CuPy and without a context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    ready = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if ready else 0


def device_uuid(number: int) -> str | None:
    """Return the UUID of GPU ``number``, of those visible, or of its MIG slice; None if the driver reports none.

    The slices of a GPU have the same PCI bus address. Version 2 of the query exists from CUDA 11.4
    on, and returns the UUID of the slice (CUDA Driver API, cuDeviceGetUuid_v2).
    """
    device = ctypes.c_int(0)
    uuid = ctypes.create_string_buffer(16)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        has_uuid = (
            driver.cuDeviceGet(ctypes.byref(device), number)
            == driver.cuDeviceGetUuid_v2(uuid, device)
            == 0
        )
    except (OSError, AttributeError):
        return None
    return str(UUID(bytes=uuid.raw)) if has_uuid else None


def device_bus(number: int) -> str:
    """Return the PCI bus address of GPU ``number``, of those visible, for which the driver needs no context."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int(0)
    bus = ctypes.create_string_buffer(32)
    driver.cuDeviceGet(ctypes.byref(device), number)
    driver.cuDeviceGetPCIBusId(bus, len(bus), device)
    return bus.value.decode()


def lowest_capability() -> int:
    """Return the lowest major compute capability of the GPUs visible to this process."""
    driver = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int(0)
    major = ctypes.c_int(0)
    capabilities = []
    for number in range(device_count()):
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetAttribute(ctypes.byref(major), CAPABILITY_MAJOR, device)
        capabilities.append(major.value)
    return min(capabilities)


@cache
def missing_for_gpu(transport: str, dtype: str = "float32") -> str | None:
    """Return the reason why this process cannot run ``dtype`` on a GPU over ``transport``, None if it can."""
    if not device_count():
        return "no CUDA device; do: run it on a node with GPUs (srun --gpus-per-node=8)"
    if transport == "peer" and lowest_capability() < PEER_CAPABILITY:
        return f"transport peer needs compute capability {PEER_CAPABILITY}.0 or newer; do: transport nccl"
    missing_package = _missing_package(dtype)
    if missing_package:
        return missing_package
    choose_kernel_cache()
    no_compiler = _missing_library("nvrtc", "NVRTC, the kernel compiler,")
    if no_compiler or transport != "nccl":
        return no_compiler
    return _missing_nccl()


def _missing_package(dtype: str) -> str | None:
    """Return the reason why the installed packages cannot hold ``dtype`` on a GPU, None if they can."""
    if find_spec("cupy") is None:
        return f"cupy is not installed ({INSTALL})"
    too_old = old_cupy_reason()
    if too_old:
        return too_old
    if dtype == BFLOAT16 and find_spec("ml_dtypes") is None:
        return f"ml_dtypes is not installed ({INSTALL})"
    return None


def missing_cublas() -> str | None:
    """Return the reason why this process cannot multiply matrices on a GPU, None if it can.

    CuPy loads cuBLAS for the first product, and raises ImportError without it.
    """
    return _missing_library("cublas", "cuBLAS, which multiplies matrices,")


def _missing_library(name: str, meaning: str) -> str | None:
    try:
        module = import_module(f"cupy_backends.cuda.libs.{name}")
        if name == "nvrtc":
            module.getVersion()  # NVRTC is loaded only when it is called
    except (ImportError, OSError, RuntimeError) as error:
        return f"{meaning} not found; do: {INSTALL} ({shorten(str(error), MAX_ERROR)})"
    return None


def _missing_nccl() -> str | None:
    import warnings

    # CuPy warns if it does not find the library
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from cupy.cuda import nccl
    if nccl.available:
        return None
    reason = " ".join(str(caught[0].message).split()) if caught else "CuPy finds no libnccl"
    return f"NCCL not found: {reason}"


def loaded_nccl_version() -> tuple[int, ...] | None:
    """Return the version of the NCCL that CuPy has loaded, such as (2, 28, 9); None without one."""
    try:
        from cupy.cuda import nccl

        number: int = nccl.get_version()
    except (ImportError, AttributeError):  # CuPy or the library is missing
        return None
    return number // 10000, number // 100 % 100, number % 100


def select_gpu(number: int) -> Any:
    """Make GPU ``number``, of those visible, the current device of this process, and return CuPy's device."""
    import cupy

    device = cupy.cuda.Device(number)
    device.use()
    return device


class Gpu:
    """The GPU of this process and a stream, which CuPy uses too."""

    def __init__(self, number: int) -> None:
        import cupy

        self._cupy = cupy
        self.number = number
        self.device = select_gpu(number)
        self.id = str(self.device.pci_bus_id)
        """The PCI bus address of the device; ranks of a node with the same address share the GPU."""
        self.stream = self._new_stream()
        self.stream.use()

    def _new_stream(self, priority: int = FIRST) -> Any:
        return self._cupy.cuda.Stream(non_blocking=True, priority=priority)

    def with_own_stream(self, priority: int = FIRST) -> "Gpu":
        """Return this GPU with another stream, whose work runs at the same time as that of the others."""
        gpu = copy(self)
        vars(gpu).pop("for_folds", None)
        gpu.stream = self._new_stream(priority)
        return gpu

    @cached_property
    def for_folds(self) -> "Gpu":
        """This GPU with another stream, for the folds of plans on this one."""
        return self.with_own_stream(LAST)

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> GpuArray:
        """Return an uninitialised array of ``count`` elements, aligned to 512 bytes."""
        return self._cupy.empty(count, gpu_dtype(dtype))

    def array_at(
        self, address: int, count: int, dtype: np.dtype[np.generic], owner: object
    ) -> GpuArray:
        """Return an array on memory that another library allocated; the array keeps ``owner`` alive."""
        element = gpu_dtype(dtype)
        memory = self._cupy.cuda.UnownedMemory(
            address, count * element.itemsize, owner, self.number
        )
        return self._cupy.ndarray(count, element, self._cupy.cuda.MemoryPointer(memory, 0))

    def pinned(self, count: int, dtype: np.dtype[np.generic]) -> "Array":
        """Return an uninitialised array in pinned host memory, for direct copies from and to the GPU."""
        if not count:
            return np.empty(0, gpu_dtype(dtype))
        # CuPy's pool would round it up to a power of two
        memory = self._cupy.cuda.PinnedMemory(count * dtype.itemsize)
        return np.frombuffer(
            self._cupy.cuda.PinnedMemoryPointer(memory, 0), gpu_dtype(dtype), count
        )

    def upload(self, values: NDArray[Any]) -> GpuArray:
        """Return a copy of ``values`` on the GPU; all queued work has completed when this returns."""
        copy = self._cupy.empty(values.shape, values.dtype)
        source = np.ascontiguousarray(values)
        copy.set(source, stream=self.stream)
        # CuPy does not keep ``source``, which a coherent system such as Grace copies later
        self.await_work()
        return copy

    def download(self, array: GpuArray) -> NDArray[Any]:
        """Return a copy on the host, made after all queued work."""
        self.await_work()  # CuPy's copy waits without a limit
        copy: NDArray[Any] = self._cupy.asnumpy(array, stream=self.stream)
        return copy

    def address(self, array: GpuArray) -> int:
        """Return the address of an array's first element."""
        return address(array)

    def allocate_exportable(self, nbytes: int) -> int:
        """Return the address of memory of its own allocation, outside of CuPy's pool, which other processes can map."""
        whole = -(-nbytes // EXPORTED_BYTES) * EXPORTED_BYTES
        return int(self._cupy.cuda.runtime.malloc(whole))

    def free_exportable(self, address: int) -> None:
        """Free memory of ``allocate_exportable``, which no process maps any more."""
        self._cupy.cuda.runtime.free(address)

    def export_handle(self, address: int) -> bytes:
        """Return the handle by which other processes of the node map memory of ``allocate_exportable``."""
        return bytes(self._cupy.cuda.runtime.ipcGetMemHandle(address))

    def map_exported(self, handle: bytes) -> int:
        """Return the address at which this process maps the memory of another one; its GPU may be another one, too."""
        runtime = self._cupy.cuda.runtime
        return int(runtime.ipcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess))

    def unmap_exported(self, address: int) -> None:
        """Unmap memory of ``map_exported``."""
        self._cupy.cuda.runtime.ipcCloseMemHandle(address)

    def resident_blocks(self, function: Any, threads: int) -> int:
        """Return how many blocks of a kernel without dynamic shared memory this GPU runs at once."""
        blocks_of = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        blocks: int = blocks_of(function.ptr, threads, 0)
        return blocks * int(self.device.attributes["MultiProcessorCount"])

    def kernel(self, source: Path, name: str, itemsize: int) -> Callable[..., None]:
        """Return a function that queues a kernel of CUDA C++, given its grid, block and arguments.

        The source sees the bytes of an element as ITEMSIZE.
        """
        function = _function(self.number, source, name, itemsize)
        stream = self.stream

        def launch(
            grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[object, ...]
        ) -> None:
            # explicit, because CuPy's current stream may differ
            function(grid, block, arguments, 0, stream)

        return launch

    def products(self, most_rows: int) -> Callable[[int, int], None]:
        """Return the function that queues products of square matrices, given their rows and the number of products.

        The elements are float16, whatever the type of gradients is, and are summed in float32:
        tensor cores are as fast as with bfloat16, which a V100 lacks. CuPy calls cublasGemmEx with
        CUBLAS_COMPUTE_32F (tensordot_core_v11 in cupy/_core/_routines_linalg.pyx of CuPy 14.2;
        there float32 uses TF32 only if CUPY_TF32 is set).

        The values are random: with equal ones few bits change from term to term, the GPU draws less
        power, and its clock stays higher than in training.
        """
        random = np.random.default_rng(RANDOM_SEED)
        count = most_rows * most_rows
        values = random.uniform(-1, 1, (2, count)).astype(np.float16)
        a = self.upload(values[0])
        b = self.upload(values[1])
        c = self.empty(count, values.dtype)
        stream = self.stream

        def multiply(rows: int, number: int) -> None:
            size, shape = rows * rows, (rows, rows)
            x, y = a[:size].reshape(shape), b[:size].reshape(shape)
            product = c[:size].reshape(shape)
            with stream:
                for _ in range(number):
                    x.dot(y, product)  # cupy.matmul takes the host longer

        return multiply

    def copy(self, target: GpuArray, source: GpuArray) -> "DeferredCall":
        """Return the call that queues a copy between a pinned array and one of the GPU, of the same length."""
        runtime = self._cupy.cuda.runtime
        return runtime.memcpyAsync, (
            address(target),
            address(source),
            source.nbytes,
            runtime.memcpyDefault,
            self.stream.ptr,
        )

    def select(self) -> None:
        """Make this GPU the current one of the calling thread; each thread begins with the first GPU."""
        self.device.use()

    def synchronize(self) -> None:
        """Wait for all queued work, which is that of this GPU alone: copies, folds and products.

        There is no limit: an operation of NCCL, which may never end, is awaited by ``await_work``
            or a ``Wait``.
        """
        self.stream.synchronize()  # may be timed: to poll takes a microsecond longer

    def await_work(self, limit_s: float = LIMIT_S) -> None:
        """Wait for all queued work, also that of NCCL.

        Raises:
            StalledError: if it takes longer than ``limit_s``.
            GpuFailedError: if the GPU fails.
        """
        poll_until(self.idle, no_error, limit_s, f"the work on GPU {self.id} of {node_name()}")

    def await_device(self) -> None:
        """Wait for the work of this process on all streams of the GPU, once NCCL is aborted; there is no limit."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def idle(self) -> bool:
        """Return whether all queued work has completed.

        Raises:
            GpuFailedError: if it failed; CuPy's ``Stream.done`` is False then, as for work that is
                still running.
        """
        runtime = self._cupy.cuda.runtime
        # CuPy 14.2 returns the status unchecked (runtime.pyx)
        status: int = runtime.streamQuery(self.stream.ptr)
        if status in (0, CUDA_NOT_READY):
            return status == 0
        raise GpuFailedError(
            f"GPU {self.id} of {node_name()} failed: {runtime.CUDARuntimeError(status)}"
        )

    @property
    def sync_calls(self) -> "Sequence[DeferredCall]":
        """The calls to make before MPI accesses memory, because MPI does not synchronise with streams."""
        # of folds and copies, before the messages of a plan over MPI
        return [(self.synchronize, ())]

    def event(self, *, timing: bool = True) -> Event:
        """Return an event, to be recorded on a stream; one without ``timing`` costs less."""
        return self._cupy.cuda.Event(disable_timing=not timing)

    def record(self, event: Event) -> None:
        """Queue an event: its time is that at which the stream passes it."""
        event.record(self.stream)

    def wait_event(self, event: Event) -> None:
        """Hold the work that is queued from now on until an event that was recorded on another stream."""
        self.stream.wait_event(event)

    def elapsed_ns(self, start: Event, end: Event) -> int:
        """Return the time between two completed events in ns; their resolution is about 0.5 us."""
        milliseconds: float = self._cupy.cuda.get_elapsed_time(start, end)
        return round(milliseconds * 1e6)

    @property
    def free_bytes(self) -> int:
        """The free bytes of GPU memory, including the unused memory in CuPy's pool."""
        free, _ = self.device.mem_info
        return int(free) + int(self._cupy.get_default_memory_pool().free_bytes())

    @property
    def total_bytes(self) -> int:
        """The bytes of GPU memory, free or not."""
        _, total = self.device.mem_info
        return int(total)

    def release(self) -> None:
        """Free the unused memory in CuPy's pool."""
        gc.collect()  # some arrays are in reference cycles
        self.await_work()
        self._cupy.get_default_memory_pool().free_all_blocks()


@cache
def _function(number: int, source: Path, name: str, itemsize: int) -> Callable[..., None]:  # noqa: ARG001  one per device
    import cupy

    program = cupy.RawModule(code=source.read_text(), options=(f"-DITEMSIZE={itemsize}",))
    function: Callable[..., None] = program.get_function(name).kernel
    return function


def gpu_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the dtype of GPU arrays for elements of ``dtype``: an unsigned integer if NumPy lacks the type."""
    return dtype if dtype.kind in "fiu" else np.dtype(f"u{dtype.itemsize}")
