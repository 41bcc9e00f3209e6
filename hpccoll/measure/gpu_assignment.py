"""Assigns GPUs to ranks, finds what they lack for a transport, and records them in the provenance."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

from hpccoll.evidence.variants import NodeView
from hpccoll.host.gpu_facts import gpu_facts, is_near
from hpccoll.host.gpu_monitor import GpuMonitor
from hpccoll.measure.ranks import Ranks
from hpccoll.spec.case import Case
from hpccoll.transports import gpu
from hpccoll.transports.gpu import Gpu, select_gpu
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict

BASE_TRANSPORT = "staged"
"""The transport whose only requirement is a GPU."""

LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID", "SLURM_LOCALID",
)  # fmt: skip
"""The variables in which launchers give a rank its local rank. Slurm's comes last, because mpiexec inherits it."""


CONNECTIONS, MAX_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""The variable of the number of hardware queues into which CUDA maps streams, and its largest value; the default is 8
(CUDA C++ Programming Guide, Environment Variables). Streams that share a queue wait for one another. A training step
may have more than 8, and an operation of NCCL in front of a queue waits for a peer, which may have another in front."""


def assign_gpu_before_mpi() -> None:
    """Select the GPU of this rank before MPI_Init, because some libraries bind to the current GPU then.

    Cray MPICH, MVAPICH and UCC do so. CUDA, which starts here, gets as many connections as it can have, unless the
    user has set their number.
    """
    os.environ.setdefault(CONNECTIONS, MAX_CONNECTIONS)
    local_rank = next((os.environ[name] for name in LOCAL_RANKS if os.environ.get(name, "").isdigit()), None)
    if local_rank is not None and not gpu.missing_for_gpu(BASE_TRANSPORT):
        select_gpu(int(local_rank) % gpu.device_count())


class RankGpus:
    """The GPUs of the ranks: local rank modulo the number of GPUs on the node.

    All methods give the same result on all ranks, which call them together.

    Args:
        ranks: the ranks, as launched.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, self._launched_local_rank = ranks, ranks.local_rank
        self._missing: dict[tuple[str, str], str | None] = {}

    def subset(self, ranks: Ranks) -> "RankGpus":
        """Return the GPUs of some of the ranks, which have numbers of their own and keep their GPUs."""
        remaining = copy(self)
        remaining.ranks = ranks
        for name in ("ranks_on_gpu", "node_view", "monitor"):  # counted and opened again
            remaining.__dict__.pop(name, None)
        return remaining

    @cached_property
    def gpu_of_rank(self) -> Gpu:
        """The GPU of this rank, which becomes the current one."""
        return Gpu(self.number)

    @property
    def number(self) -> int:
        """The device number of the GPU of this rank, which it keeps if others of its node are lost."""
        return self._launched_local_rank % gpu.device_count()

    def missing_for(self, transport: str, dtype: str = "float32") -> str | None:
        """Return the reason why ``transport`` cannot move ``dtype`` between these GPUs, None if it can."""
        key = transport, dtype
        if key not in self._missing:
            self._missing[key] = self._first_reason(gpu.missing_for_gpu(*key))
            if self._missing[key] is None and transport == "mpi":
                self._missing[key] = self._first_reason(self._mpi_not_cuda_aware())
        return self._missing[key]

    @cached_property
    def missing_cublas(self) -> str | None:
        """The reason why a rank cannot multiply matrices on its GPU, None if all can."""
        return self._first_reason(gpu.missing_cublas())

    def _first_reason(self, reason: str | None) -> str | None:
        return next(filter(None, self.ranks.comm.allgather(reason)), None)

    def _mpi_not_cuda_aware(self) -> str | None:
        return None if self.verdict.aware else f"MPI is not CUDA-aware: {self.verdict.description}"

    def assumed(self, case: Case) -> str | None:
        """Return the assumption about MPI in ``case`` that only the user vouches for, None if there is none."""
        over_mpi = case.device == "cuda" and case.transport == "mpi"
        return f"MPI takes GPU memory: {self.verdict.description}" if over_mpi and self.verdict.assumed else None

    @cached_property
    def verdict(self) -> CudaAwareVerdict:
        """Whether MPI accepts GPU memory, as tested by the first rank of this rank's node."""
        first = self.ranks.local_rank == 0
        verdicts = self.ranks.comm.allgather(cuda_aware.cuda_aware_verdict(self.number) if first else None)
        by_node = dict(zip(reversed(self.ranks.node_ids), reversed(verdicts), strict=True))  # the first rank's wins
        return cast("CudaAwareVerdict", by_node[self.ranks.node_id])

    def provenance(self, cases: Iterable[Case]) -> Mapping[str, Any]:
        """Return the record of the GPU of this rank if cases use it, and of MPI if they use MPI on GPU memory."""
        transports = {case.transport for case in cases if case.device == "cuda"}
        if not transports or self.missing_for(BASE_TRANSPORT):
            return {}
        # The verdict comes first, because its child process uses the GPU.
        verdict = {"cuda_aware_mpi": asdict(self.verdict)} if "mpi" in transports else {}
        return {
            **verdict, "gpu": gpu_facts(self.gpu_of_rank.id), "uuid": gpu.device_uuid(self.number),
            "near": is_near(self.gpu_of_rank.id, os.sched_getaffinity(0)), "visible": gpu.device_count(),
        }  # fmt: skip

    @cached_property
    def node_view(self) -> NodeView:
        """The nodes as NCCL counts them: NVLink domains, if the GPUs of all ranks have one; the oldest NCCL.

        If NVML does not report the GPU of a rank, any number of hosts may be of one domain.
        """
        facts = gpu_facts(self.gpu_of_rank.id)
        own = facts["nvlink_domain"], facts["name"] is not None, self.ranks.node_id, gpu.nccl_version()
        domains, reported, nodes, versions = zip(*self.ranks.comm.allgather(own), strict=True)
        oldest = min(filter(None, versions), default=None)
        sizes = Counter(domains if all(domains) else nodes).values()
        if not all(reported):
            return NodeView((1, len(sizes)), (min(sizes), len(nodes)), oldest)
        return NodeView((len(sizes), len(sizes)), (min(sizes), max(sizes)), oldest)

    @cached_property
    def ranks_on_gpu(self) -> int:
        """The number of ranks that share the GPU of this rank, or its MIG slice."""
        return len(self._ranks_sharing(gpu.device_uuid(self.number) or self.gpu_of_rank.id))

    @cached_property
    def monitor(self) -> GpuMonitor | None:
        """The monitor of the GPU of this rank; None on all but the first of the ranks that share it, slices or not."""
        first = self._ranks_sharing(self.gpu_of_rank.id)[0] == self.ranks.comm.rank
        return GpuMonitor(self.gpu_of_rank.id) if first else None

    def _ranks_sharing(self, device: str) -> list[int]:
        """Return the ranks of this node with the same ``device``; all ranks call this together."""
        own = self.ranks.node_id, device
        return [rank for rank, other in enumerate(self.ranks.comm.allgather(own)) if other == own]
