"""The GPUs of the ranks: whose is which, what is missing for a transport, and what is on record of them."""

import os
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

from hpccoll.host.gpu_facts import gpu_facts
from hpccoll.measure.ranks import Ranks
from hpccoll.spec.case import Case
from hpccoll.transports import gpu
from hpccoll.transports.gpu import Gpu, select_gpu
from hpccoll.transports.mpi import cuda_aware
from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict

BASE = "staged"
"""The transport that needs a GPU and nothing else."""


LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID", "SLURM_LOCALID",
)  # fmt: skip
"""The variables by which launchers tell a rank its number on the node; Slurm's last, for mpiexec inherits it."""


def take_early() -> None:
    """Take this rank's GPU before MPI is up: some libraries bind to the one in use then (Cray MPICH, MVAPICH, UCC)."""
    told = next((os.environ[name] for name in LOCAL_RANKS if os.environ.get(name, "").isdigit()), None)
    if told is not None and not gpu.missing_for_gpu(BASE):
        select_gpu(int(told) % gpu.device_count())


class RankGpus:
    """The GPU of each rank: by its number on the node, of all that the node's ranks see; in turn where ranks are more.

    What is said here is the same on all ranks, which ask together.

    Args:
        ranks: the ranks, as they were launched.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._missing: dict[tuple[str, str], str | None] = {}

    def subset(self, ranks: Ranks) -> "RankGpus":
        """Return the same GPUs, of some of the ranks, by numbers of their own."""
        those = copy(self)
        those.ranks = ranks
        those.__dict__.pop("sharing", None)
        return those

    @cached_property
    def own(self) -> Gpu:
        """The GPU of this rank, which is then in use."""
        return Gpu(self.number)

    @property
    def number(self) -> int:
        """The number of this rank's GPU."""
        return self.ranks.local_rank % gpu.device_count()

    def missing_for(self, transport: str, dtype: str = "float32") -> str | None:
        """Return why ``dtype`` cannot be moved over ``transport`` between GPUs here, or None where it can."""
        key = transport, dtype
        if key not in self._missing:
            self._missing[key] = self._first_reason(gpu.missing_for_gpu(*key))
            if self._missing[key] is None and transport == "mpi":
                self._missing[key] = self._first_reason(self._mpi_not_cuda_aware())
        return self._missing[key]

    def _first_reason(self, complaint: str | None) -> str | None:
        return next(filter(None, self.ranks.comm.allgather(complaint)), None)

    def _mpi_not_cuda_aware(self) -> str | None:
        return None if self.verdict.aware else f"MPI is not CUDA-aware: {self.verdict.description}"

    def assumed(self, case: Case) -> str | None:
        """Return what is taken for true of MPI in ``case`` by the word of a user alone, None for nothing."""
        over_mpi = case.device == "cuda" and case.transport == "mpi"
        return f"MPI takes GPU memory: {self.verdict.description}" if over_mpi and self.verdict.assumed else None

    @cached_property
    def verdict(self) -> CudaAwareVerdict:
        """Whether MPI takes GPU memory, as the first rank of this rank's node has found out."""
        here = self.ranks.local_rank == 0
        found = self.ranks.comm.allgather(cuda_aware.cuda_aware_verdict(self.number) if here else None)
        told = dict(zip(reversed(self.ranks.node_ids), reversed(found), strict=True))  # by the first rank of each node
        return cast("CudaAwareVerdict", told[self.ranks.node_id])

    def provenance(self, cases: Iterable[Case]) -> Mapping[str, Any]:
        """Return what is recorded of this rank's GPU where cases need one, and of MPI where they go over it."""
        transports = {case.transport for case in cases if case.device == "cuda"}
        if not transports or self.missing_for(BASE):
            return {}
        found = {"cuda_aware_mpi": asdict(self.verdict)} if "mpi" in transports else {}  # first: its child has the GPU
        return {**found, "gpu": gpu_facts(self.own.id), "visible": gpu.device_count()}

    @cached_property
    def ranks_on_gpu(self) -> int:
        """How many ranks of the node have the GPU of this one."""
        mine = self.ranks.node_id, self.own.id
        return self.ranks.comm.allgather(mine).count(mine)
