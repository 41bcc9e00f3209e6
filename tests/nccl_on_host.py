"""CuPy's and nccl4py's own bindings of NCCL on ranks without a GPU: tests/gpu/libnccl is NCCL, host memory the GPU's.

CuPy's arrays, communicators and groups and all of nccl4py are real. What CuPy needs of CUDA is
replaced: a stream is a thread of the test library, kernels are compiled for the host and queued on
it, and uploads are made at once.
"""

import ctypes
import mmap
import os
import platform
import sys
import tempfile
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import cupy
import numpy as np
from cpu_kernels import HostGpu as HostKernels
from cpu_kernels import pause_function, queued_folds, queued_peer_kernel
from nccl_test_library import load

from hpccoll.common.errors import GpuFailedError
from hpccoll.transports import gpu
from hpccoll.transports.gpu import gpu_dtype
from hpccoll.transports.nccl import fold
from hpccoll.transports.nccl.pause import SOURCE as PAUSE
from hpccoll.transports.peer import transport
from hpccoll.transports.transport_interface import address, aligned_empty

GPUS = 8
"""The GPUs that a job finds."""

CURRENT = threading.local()
"""The number of the current device of each thread, as CUDA keeps it; each begins with the first one."""


class HostArray(cupy.ndarray):
    """An array of CuPy in host memory; CuPy's own copies need a driver."""

    def set(self, values, stream=None):
        if stream:
            stream.await_all()
        host_view(self)[...] = values

    def get(self, stream=None, **_):
        if stream:
            stream.await_all()
        return host_view(self).copy()

    def copy(self):
        return array_of(self.get())


def array_of(values, owner=None):
    """Return an array of CuPy on the memory of ``values``, which keeps ``owner`` alive."""
    memory = cupy.cuda.UnownedMemory(
        values.ctypes.data, values.nbytes, values if owner is None else owner, 0
    )
    return HostArray(values.shape, values.dtype, cupy.cuda.MemoryPointer(memory, 0))


def host_view(array):
    """Return the array of NumPy on the memory of an array of CuPy."""
    return np.frombuffer(
        (ctypes.c_char * array.nbytes).from_address(address(array)), array.dtype
    ).reshape(array.shape)


MOST_BLOCKS = 4096
"""The blocks of a kernel that run at once: each is a thread."""

POLL_S = 5e-5
"""The pause after a look at unfinished work: ranks share their cores with the threads of streams."""

STREAMS = weakref.WeakSet()
"""All streams of this process."""


class Stream:
    """A stream of the test library, with the methods of CuPy's."""

    def __init__(self, library):
        STREAMS.add(self)
        self.library, self.ptr = library, library.hostStreamCreate()
        self.handle = ctypes.c_void_p(self.ptr)

    @property
    def done(self):
        return self.library.hostStreamLeft(self.handle) == 0

    def synchronize(self):
        self.await_all()

    def await_all(self):
        """Wait as CuPy's copies do, in the order of the stream."""
        self.library.hostStreamWait(self.handle)

    def launch(self, function, *arguments):
        """Queue a call of a C function of up to seven numbers or pointers."""
        words = (ctypes.c_uint64 * 7)(*map(int, arguments))
        self.library.hostLaunch(self.handle, ctypes.cast(function, ctypes.c_void_p), words)

    def wait_event(self, event):
        self.library.hostEventWait(event.handle, self.handle)

    def begin_capture(self):
        self.library.hostCaptureBegin(self.handle)

    def end_capture(self):
        return Graph(self.library, ctypes.c_void_p(self.library.hostCaptureEnd(self.handle)))


class Graph:
    """The captured work of a stream, destroyed with the last reference as CuPy's."""

    def __init__(self, library, handle):
        self.library, self.handle = library, handle

    def launch(self, stream):
        self.library.hostGraphLaunch(stream.handle, self.handle)

    def __del__(self):
        self.library.hostGraphDestroy(self.handle)


class Event:
    """An event of the test library, with the methods of CuPy's."""

    def __init__(self, library):
        self.library, self.handle = library, ctypes.c_void_p(library.hostEventCreate())

    def record(self, stream):
        self.library.hostEventRecord(self.handle, stream.handle)

    @property
    def done(self):
        return self.library.hostEventDone(self.handle) != 0

    @property
    def at_ns(self):
        """The time at which a stream passed it last."""
        return self.library.hostEventTime(self.handle)


class HostGpu(gpu.Gpu):
    """A Gpu that is the host; the first one loads the test library.

    Args:
        directory: where everything is compiled.
        number: of the device.
    """

    free_bytes, total_bytes = 1 << 30, 4 << 30
    broken = False  # as after an error of CUDA

    def __init__(self, directory, number=0):
        self._cupy, self.number, self.id = cupy, number, f"0000:{number:02x}:00.0"
        self.library = load(directory)
        self.select()
        self.stream, self._kernels, self._directory = (
            Stream(self.library),
            HostKernels(directory),
            directory,
        )
        fold._function = queued_folds(directory)
        transport.peer_function = partial(queued_peer_kernel, directory)
        self._exported, self._mapped = {}, {}

    def calls(self):
        """Return the calls of NCCL since the last time, without ``nccl`` in front."""
        lines = self.library.hostCalls().decode().split("\n")[1:]
        self.library.hostForgetCalls()
        return [line.removeprefix("nccl") for line in lines]

    def _new_stream(self, _priority=0):
        return Stream(self.library)

    def products(self, _most_rows):
        """Return what queues a pause of 20 us in place of a product."""
        queue = self.kernel(PAUSE, "pause", 8)

        def multiply(_rows, number):
            for _ in range(number):
                queue((1,), (1,), (20_000,))

        return multiply

    def empty(self, count, dtype):
        return array_of(aligned_empty(count, gpu_dtype(dtype)))

    def array_at(self, address, count, dtype, owner):
        element = gpu_dtype(dtype)
        values = np.frombuffer(
            (ctypes.c_char * (count * element.itemsize)).from_address(address), element
        )
        return array_of(values, owner)

    def upload(self, values):
        copy = array_of(aligned_empty(values.size, values.dtype).reshape(values.shape))
        copy.set(values)
        return copy

    def allocate_exportable(self, nbytes):
        path = Path(tempfile.mkstemp(prefix="hpccoll-gpu-", dir="/dev/shm")[1])
        os.truncate(path, nbytes)
        address = self.map_exported(bytes(path))
        self._exported[address] = path
        return address

    def free_exportable(self, address):
        self._exported.pop(address).unlink()
        self.unmap_exported(address)

    def export_handle(self, address):
        return bytes(self._exported[address])

    def map_exported(self, handle):
        with Path(os.fsdecode(handle)).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._mapped[address] = memory
        return address

    def unmap_exported(self, address):
        del self._mapped[address]

    def resident_blocks(self, _function, _threads):
        return MOST_BLOCKS

    def pinned(self, count, dtype):
        return aligned_empty(count, gpu_dtype(dtype))

    def kernel(self, source, name, itemsize):
        stream = self.stream
        if source == PAUSE:
            function = pause_function(self._directory)
            return lambda _grid, _block, arguments: stream.launch(function, *arguments)
        function = self._kernels.compiled(name, itemsize)
        return lambda grid, block, arguments: stream.launch(function, *grid, *block, *arguments)

    def select(self):
        CURRENT.device = self.number
        self.library.hostSelect(self.number)

    def await_device(self):
        for stream in [*STREAMS]:
            stream.await_all()

    def idle(self):
        if getattr(CURRENT, "device", 0) != self.number:
            raise AssertionError(
                f"a query of a stream of GPU {self.number} creates a context on the current GPU"
            )
        if self.broken:
            raise GpuFailedError(
                f"GPU {self.id} of {platform.node()} failed: cudaErrorECCUncorrectable"
            )
        done = self.stream.done
        if not done:
            time.sleep(POLL_S)
        return done

    def event(self, *, timing=True):  # noqa: ARG002  events of the host have times
        return Event(self.library)

    def elapsed_ns(self, start, end):
        assert self.stream.done
        return end.at_ns - start.at_ns

    def release(self):
        assert self.stream.done


class Nvml(ModuleType):
    """The module pynvml: GPUs report what they are, their SM clock and the reasons for it, and nothing else.

    The power limit of the second GPU lowers its clock ever longer.
    """

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = range(2)
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_SYNC_BOOST = range(3)

    def __init__(self):
        super().__init__("pynvml")
        self.lowered_ns = 0

    def nvmlInit(self):  # noqa: N802
        """It is there."""

    def nvmlDeviceGetHandleByPciBusId(self, bus):  # noqa: N802
        return int(bus.split(":")[1], 16)

    def nvmlDeviceGetName(self, _gpu):  # noqa: N802
        return "host-memory GPUs of the NCCL test library"

    def nvmlDeviceGetClockInfo(self, gpu, domain):  # noqa: N802
        if domain == self.NVML_CLOCK_SM:
            return 1980 - 200 * gpu
        raise self.NVMLError

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu):  # noqa: N802
        return 0x80 if gpu == 1 else 0x4

    def nvmlDeviceGetViolationStatus(self, gpu, policy):  # noqa: N802
        if gpu == 1 and policy == self.NVML_PERF_POLICY_POWER:
            self.lowered_ns += 10**6
            return SimpleNamespace(violationTime=self.lowered_ns)
        return SimpleNamespace(violationTime=0)

    def __getattr__(self, _name):
        def fails(*_):
            raise self.NVMLError

        return fails


def install(directory):
    """Have jobs of this process find GPUs, which are the host."""
    from hpccoll.measure import gpu_assignment  # its import starts MPI

    load(directory)
    sys.modules["pynvml"] = Nvml()
    gpu.device_count = lambda: GPUS
    gpu.missing_for_gpu = lambda _transport, _dtype="float32": None
    gpu.device_uuid, gpu.device_bus = "uuid-{}".format, "0000:{:02x}:00.0".format
    gpu_assignment.select_gpu = lambda _number: None
    gpu_assignment.Gpu = partial(_named, directory)


def _named(directory, number):
    """Return a GPU, which NCCL knows as that of this rank."""
    made = HostGpu(directory, number)
    made.library.hostDevice(made.id.encode(), number)
    return made
