"""Errors of a case that may run on a GPU; ranks without GPUs need no other module about them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu


@contextmanager
def gpu_errors(gpu: "Gpu | None") -> Iterator[None]:
    """Raise GpuFailedError in place of an error that a failed GPU causes, such as CuPy's error of a call of NCCL."""
    if gpu is None:
        yield
        return
    from hpccoll.transports.nccl.nccl_errors import NCCL_EXCEPTIONS  # only ranks with GPUs need it

    try:
        yield
    except NCCL_EXCEPTIONS:  # RuntimeError is also the base of CuPy's errors of CUDA, and of ours
        gpu.idle()
        raise
