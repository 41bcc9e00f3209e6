"""The GPU of a rank of the programs of these tests: rank k has GPU k modulo their number, or the host stands for it.

A program has the words ``host DIRECTORY`` at the end of its arguments if the NCCL test library that
is compiled in DIRECTORY stands for GPUs and NCCL (nccl_on_host.py).
"""

import os
from pathlib import Path

from hpccoll.transports import gpu
from hpccoll.transports.gpu import Gpu

SHARED_SINCE = 23000
"""The version of NCCL that lets several ranks have one GPU; before, each rank says that it is a host of its own."""

EACH_IS_A_NODE = "HPCCOLL_TEST_NODES"
"""A variable: if it is set, each rank that shares a GPU is a host of its own to every version of NCCL."""


def host_directory(arguments):
    """Return the directory of the test library, None on GPUs."""
    return Path(arguments[-1]) if arguments[-2:-1] == ["host"] else None


def gpu_of_rank(comm, directory=None):
    """Return the GPU of a rank of ``comm``, whose ranks are on one node; where there are too few, ranks share them."""
    if directory:
        from nccl_on_host import HostGpu

        return HostGpu(directory)
    gpus = gpu.device_count()
    if comm.size > gpus:
        share_a_gpu(comm.rank)
    return Gpu(comm.rank % gpus)


def share_a_gpu(rank):
    """Set what NCCL reads when it starts, so that it takes ranks that share a GPU."""
    from cupy.cuda import nccl

    os.environ.setdefault("NCCL_MAX_CTAS", "2")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if nccl.get_version() >= SHARED_SINCE and not os.environ.get(EACH_IS_A_NODE):
        os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    else:
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"


def flip_a_bit(device, result):
    """Change one bit of an array in the memory of a GPU."""
    part = result.view("u1")[:1]
    part.set(device.download(part) ^ 1, stream=device.stream)
