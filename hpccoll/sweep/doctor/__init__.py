"""Checks of this machine, its cluster, its GPUs and its network for ``hpccoll doctor``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hpccoll.common.text import Finding
from hpccoll.host.gpu_stack import ROOT
from hpccoll.sweep.doctor import cluster, gpu, known_defects, links, mpi, nccl, rdma
from hpccoll.sweep.doctor.machine import MachineFacts

CHECKS: Mapping[str, Callable[[MachineFacts], Finding | None]] = {
    "shared memory": cluster.shared_memory,
    "memory of killed processes": mpi.abandoned_memory,
    "MPI library": mpi.mpi_library_facts,
    "launcher": mpi.launcher,
    "machine": cluster.cores,
    "compiled executor": cluster.executor,
    "Snakemake": cluster.snakemake,
    "Slurm": cluster.controller,
    "accounting": cluster.accounting,
    "MinJobAge": cluster.min_job_age,
    "partitions": cluster.partitions,
    "topology": cluster.topology,
    "PMI": mpi.pmi,
    "RDMA": rdma.adapters,
    "RDMA devices": rdma.verbs,
    "MTU": links.mtu,
    "PCIe of adapters": links.pcie,
    "halves of ports": links.halves,
    "locked memory": rdma.limits,
    "GPU": gpu.devices,
    "CuPy": gpu.cupy,
    "NVLink": gpu.nvlink,
    "NVLink domain": gpu.nvlink_domain,
    "GPUs and adapters": gpu.affinity,
    "GPUDirect RDMA": rdma.direct,
    "NCCL": nccl.nccl_library,
    "nccl4py": nccl.nccl4py,
    "NCCL plugins": nccl.plugins,
    "NCCL settings": nccl.settings,
    "known defects": known_defects.known_defects,
    "MPI and GPUs": gpu.aware_mpi,
    "UCX": gpu.ucx_transports,
    "load": cluster.load,
    "profile": cluster.profile,
}
"""The checks by what they are about; each returns a finding, or None if there is nothing to say."""


def examine(root: Path = ROOT) -> Iterator[Finding]:
    """Yield the findings of all checks; ``root`` holds dev, etc, proc and sys of the machine."""
    machine = MachineFacts(root)
    for title, check in CHECKS.items():
        finding = check(machine)
        if finding:
            yield replace(finding, title=title)
