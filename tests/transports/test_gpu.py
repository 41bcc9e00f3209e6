"""The GPU of a process: errors of its stream, and copies to it; CuPy is real, or recorded, and there is no device."""

import platform
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from hpccoll.errors import GpuFailedError
from hpccoll.transports.gpu import Gpu, gpu_errors
from hpccoll.transports.nccl.cupy_device import CupyDevice
from hpccoll.transports.nccl.stream_plan import StreamPlan

DONE, NOT_READY, ILLEGAL_ADDRESS, NVLINK = 0, 600, 700, 220
"""Numbers of cudaError_t (driver_types.h of CUDA 12)."""


def gpu_with(cupy, stream):
    gpu = Gpu.__new__(Gpu)  # whose constructor needs a device
    gpu._cupy, gpu.stream, gpu.id = cupy, stream, "0000:1b:00.0"
    return gpu


@pytest.fixture
def gpu(require, monkeypatch, mpiexec):  # noqa: ARG001  the name of the host is MPI's
    """A GPU with CuPy's own functions, whose stream has the status ``gpu.status``."""
    require(find_spec("cupy"), "cupy is not installed")
    import cupy

    gpu = gpu_with(cupy, SimpleNamespace(ptr=1, synchronize=lambda: None))
    gpu.status = DONE
    monkeypatch.setattr(cupy.cuda.runtime, "streamQuery", lambda _ptr: gpu.status)
    return gpu


@pytest.mark.mpi
def test_an_error_on_the_stream_is_raised_with_its_name_and_is_not_unfinished_work(gpu):
    device = CupyDevice(gpu, None)
    assert device.idle()
    gpu.status = NOT_READY
    assert not device.idle()
    for status, name in ((ILLEGAL_ADDRESS, "cudaErrorIllegalAddress"), (NVLINK, "cudaErrorNvlinkUncorrectable")):
        gpu.status = status
        with pytest.raises(GpuFailedError, match=rf"GPU 0000:1b:00.0 of {platform.node()} failed: {name}: "):
            device.idle()
        progress = StreamPlan(device, np.empty(0), [int], "a group").progress()  # the watchdog asks for it
        assert name in progress


@pytest.mark.mpi
def test_an_error_that_a_failed_gpu_causes_is_replaced_by_its_own(gpu):
    class NcclError(RuntimeError):
        pass

    def fails(on):
        with gpu_errors(on):
            raise NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR")

    for on, status, kind in ((gpu, NVLINK, GpuFailedError), (gpu, NOT_READY, NcclError), (None, NVLINK, NcclError)):
        gpu.status = status
        with pytest.raises(kind):
            fails(on)


class RecordedStream:
    """A stream that copies when it is synchronised, as coherent systems may do."""

    def __init__(self):
        self.queue = []

    def synchronize(self):
        for copy in self.queue:
            copy()
        self.queue.clear()


class Target(np.ndarray):
    def set(self, source, stream):
        at, count, dtype = source.ctypes.data, source.size, source.dtype  # and no reference, like cupy.ndarray

        def copy():
            import ctypes

            self.ravel()[:] = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(at), dtype)

        stream.queue.append(copy)


def test_an_upload_is_complete_before_its_source_is_freed():
    stream = RecordedStream()
    gpu = gpu_with(SimpleNamespace(empty=lambda shape, dtype: np.zeros(shape, dtype).view(Target)), stream)
    uploaded = gpu.upload(np.arange(12).reshape(3, 4).T)  # of which a contiguous copy is made
    assert not stream.queue
    assert uploaded.tolist() == np.arange(12).reshape(3, 4).T.tolist()
