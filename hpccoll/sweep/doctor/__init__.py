"""Checks of this machine, its cluster, its GPUs and its network for ``hpccoll doctor``."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hpccoll.common.text import Finding
from hpccoll.host.gpu_stack import ROOT
from hpccoll.sweep.doctor import cluster, gpu, mpi, nccl, rdma
from hpccoll.sweep.doctor.machine import MachineFacts

CHECKS: tuple[Callable[[MachineFacts], Iterator[Finding]], ...] = (
    cluster.shared_memory, mpi.abandoned_memory, mpi.mpi_library_facts, mpi.launcher, cluster.cores, cluster.executor,
    cluster.snakemake, cluster.controller, cluster.accounting, cluster.partitions, mpi.pmi, rdma.adapters,
    rdma.verbs, rdma.limits, gpu.devices, gpu.cupy, gpu.nvlink, gpu.affinity, rdma.direct, nccl.nccl_library,
    nccl.nccl4py, nccl.plugins, nccl.settings, gpu.aware_mpi, gpu.ucx_transports, cluster.load, cluster.profile,
)  # fmt: skip


def examine(root: Path = ROOT) -> Iterator[Finding]:
    """Yield the findings of all checks; ``root`` holds dev, etc, proc and sys of the machine."""
    machine = MachineFacts(root)
    for check in CHECKS:
        yield from check(machine)
