"""Doctor: what is right and wrong with this machine, and what to do about it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from hpccoll.host.hardware import ROOT
from hpccoll.sweep.doctor import cluster, gpu, mpi, nccl, rdma
from hpccoll.sweep.doctor.machine import Finding, Machine

CHECKS: tuple[Callable[[Machine], Iterator[Finding]], ...] = (
    mpi.library, mpi.launcher, cluster.cores, cluster.snakemake, cluster.controller, cluster.accounting,
    cluster.partitions, mpi.pmi, rdma.adapters, rdma.verbs, rdma.limits, gpu.devices, gpu.cupy, gpu.nvlink,
    gpu.affinity, rdma.direct, nccl.library, nccl.nccl4py, nccl.plugins, nccl.settings, gpu.aware_mpi, cluster.profile,
)  # fmt: skip


def examine(root: Path = ROOT) -> Iterator[Finding]:
    """Yield what is found, check by check.

    Args:
        root: the directory below which dev, etc, proc and sys of the machine are.
    """
    machine = Machine(root)
    for check in CHECKS:
        yield from check(machine)
