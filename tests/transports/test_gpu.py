"""The GPU of a process: errors of its stream, and copies to it; CuPy is real, or recorded, and there is no device."""

import importlib
import platform
import re
import tomllib
import weakref
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from hpccoll.common.errors import GpuFailedError
from hpccoll.host import gpu_stack
from hpccoll.transports import gpu as transports_gpu
from hpccoll.transports.gpu import Gpu, device_uuid, missing_cublas
from hpccoll.transports.gpu_errors import gpu_errors
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
    selected, gpu.device = [], SimpleNamespace(use=lambda: selected.append(gpu.status))
    device = CupyDevice(gpu, None)
    assert gpu.idle()
    gpu.status = NOT_READY
    assert not gpu.idle()
    for status, name in (
        (ILLEGAL_ADDRESS, "cudaErrorIllegalAddress"),
        (NVLINK, "cudaErrorNvlinkUncorrectable"),
    ):
        gpu.status = status
        with pytest.raises(
            GpuFailedError, match=rf"GPU 0000:1b:00.0 of {platform.node()} failed: {name}: "
        ):
            gpu.idle()
        # the watchdog asks for it
        progress = StreamPlan(device, np.empty(0), [int], "a group").progress()
        assert name in progress
    assert selected == [ILLEGAL_ADDRESS, NVLINK]  # in the watchdog's thread, not for every poll


@pytest.mark.mpi
def test_an_error_that_a_failed_gpu_causes_is_replaced_by_its_own(gpu):
    class NcclError(RuntimeError):
        pass

    def fails(on, error):
        with gpu_errors(on):
            raise error

    nameless = KeyError(8)  # CuPy has no name for this status of NCCL
    for error in (NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR"), nameless):
        own = type(error)
        for on, status, kind in (
            (gpu, NVLINK, GpuFailedError),
            (gpu, NOT_READY, own),
            (None, NVLINK, own),
        ):
            gpu.status = status
            with pytest.raises(kind):
                fails(on, error)


def test_an_upload_is_complete_before_its_source_is_freed():
    """A coherent system copies when the stream is synchronised, and CuPy keeps no reference to the source."""
    queue, made = [], []

    class Target(np.ndarray):
        def set(self, source, stream):
            made.append(weakref.ref(source))
            queue.append(lambda: np.copyto(self, made[0]()))
            assert stream is gpu.stream

    def query(_stream):
        for copy in queue:
            copy()
        return DONE

    cupy = SimpleNamespace(
        empty=lambda shape, dtype: np.zeros(shape, dtype).view(Target),
        cuda=SimpleNamespace(runtime=SimpleNamespace(streamQuery=query)),
    )
    gpu = gpu_with(cupy, SimpleNamespace(ptr=1))
    values = np.arange(12).reshape(3, 4).T  # of which a contiguous copy is made
    assert gpu.upload(values).tolist() == values.tolist()
    assert made[0]() is None


def test_devices_are_distinguished_by_the_uuid_that_the_driver_reports(monkeypatch):
    uuids = [bytes(16), bytes(range(16))]

    def get(device, number):
        device._obj.value = number
        return 0 if number < len(uuids) else 101

    def get_uuid(buffer, device):
        buffer.raw = uuids[device.value % 2]
        return 0

    driver = SimpleNamespace(cuDeviceGet=get, cuDeviceGetUuid_v2=get_uuid)
    monkeypatch.setattr(transports_gpu.ctypes, "CDLL", lambda _: driver)
    expected = [
        "00000000-0000-0000-0000-000000000000",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        None,
    ]
    assert [device_uuid(number) for number in range(3)] == expected


def test_memory_that_is_exported_alone_shares_no_block_of_cudamalloc_with_other_memory():
    allocated = []
    runtime = SimpleNamespace(malloc=lambda nbytes: allocated.append(nbytes) or 1 << 30)
    gpu = gpu_with(SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)), None)
    for nbytes in (1, 1 << 21, (1 << 21) + 1):
        assert gpu.allocate_exportable(nbytes) == 1 << 30
    assert allocated == [1 << 21, 1 << 21, 1 << 22]


@pytest.mark.parametrize(("majors", "missing"), [([9, 6], True), ([7, 9], False)])
def test_the_peer_kernel_needs_instructions_that_all_gpus_have(monkeypatch, majors, missing):
    def get(device, number):
        device._obj.value = number

    def get_attribute(value, _attribute, device):
        value._obj.value = majors[device.value]

    driver = SimpleNamespace(cuDeviceGet=get, cuDeviceGetAttribute=get_attribute)
    monkeypatch.setattr(transports_gpu.ctypes, "CDLL", lambda _: driver)
    monkeypatch.setattr(transports_gpu, "device_count", lambda: len(majors))
    monkeypatch.setattr(transports_gpu, "find_spec", lambda _: None)  # the next reason
    reason = transports_gpu.missing_for_gpu.__wrapped__("peer")
    assert ("compute capability" in reason) == missing


def test_without_a_gpu_the_reason_says_where_to_run(monkeypatch):
    monkeypatch.setattr(transports_gpu, "device_count", lambda: 0)
    assert "do: run it on a node with GPUs" in transports_gpu.missing_for_gpu.__wrapped__("nccl")


@pytest.mark.parametrize(("version", "too_old"), [("13.6.0", True), ("14.0.0", False)])
def test_a_cupy_that_is_too_old_is_the_reason_before_it_is_imported(monkeypatch, version, too_old):
    monkeypatch.setattr(transports_gpu, "device_count", lambda: 1)
    monkeypatch.setattr(transports_gpu, "find_spec", lambda _: "there")
    monkeypatch.setattr(gpu_stack, "installed_version", {"cupy-cuda13x": version}.get)
    monkeypatch.setattr(transports_gpu, "_missing_library", lambda *_: "asked CuPy")
    reason = transports_gpu.missing_for_gpu.__wrapped__("nccl")
    assert (
        reason.startswith("CuPy 13.6.0 is too old; valid: 14 or newer; do: pip install") == too_old
    )
    assert (reason == "asked CuPy") == (not too_old)


def test_products_of_random_matrices_have_the_asked_rows_and_number_on_the_stream_of_the_gpu(
    monkeypatch,
):
    queued, made, stream = [], [], MagicMock(current=False)
    stream.__enter__.side_effect, stream.__exit__.side_effect = (
        lambda *_, current=current: setattr(stream, "current", current) for current in (True, False)
    )

    class Recorded(np.ndarray):
        def dot(self, b, out):
            queued.append((self.shape, out.dtype.name, stream.current))
            return np.asarray(self).dot(np.asarray(b), out=np.asarray(out))

    device = gpu_with(SimpleNamespace(), stream)
    monkeypatch.setattr(
        device, "upload", lambda values: made.append(values.view(Recorded)) or made[-1]
    )
    monkeypatch.setattr(
        device, "empty", lambda count, dtype: made.append(np.empty(count, dtype)) or made[-1]
    )
    multiply = device.products(8)
    multiply(4, 3)
    multiply(8, 1)
    assert queued == [((4, 4), "float16", True)] * 3 + [((8, 8), "float16", True)]
    one, other, product = (np.asarray(each).reshape(8, 8) for each in made)
    assert product == pytest.approx(one.astype(float) @ other.astype(float), abs=0.02)
    for values in (one, other):  # random: most bits of a matrix change from element to element
        assert len(np.unique(values)) > values.size // 2
        assert np.abs(values).max() <= 1


def test_without_cublas_there_is_a_reason_that_says_what_to_install(require):
    require(find_spec("cupy"), "cupy is not installed")
    reason = missing_cublas()
    if reason is None:  # it is installed
        importlib.import_module("cupy_backends.cuda.libs.cublas")
        return
    with pytest.raises(ImportError, match="libcublas"):  # which the first product of CuPy raises
        importlib.import_module("cupy_backends.cuda.libs.cublas")
    assert "cuBLAS" in reason


@pytest.mark.parametrize("extra", ["cuda12", "cuda13"])
def test_the_extras_for_gpus_install_every_library_of_cuda_that_is_used(extra):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (toolkit,) = (
        each for each in project["optional-dependencies"][extra] if each.startswith("cuda-toolkit")
    )
    assert set(re.search(r"\[(.*)\]", toolkit)[1].split(",")) == {"cublas", "cudart", "nvrtc"}
