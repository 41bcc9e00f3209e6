"""Assigns GPUs to ranks, finds what they lack for a transport, and records them in the provenance."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from hpccoll.cases.transport_table import NCCL_GPU_SHARING_VARIABLE, SHARED_GPU_CHOICES, TRANSPORTS
from hpccoll.cases.variants import NodeView
from hpccoll.evidence.gpu_pair import CORRECT, NOT_TRIED, GpuPair
from hpccoll.host.gpu_stack import nccl_settings
from hpccoll.host.place_facts import node_name
from hpccoll.measure.ranks import Ranks, first_reason
from hpccoll.transports import gpu
from hpccoll.transports.gpu import Gpu, select_gpu

if TYPE_CHECKING:
    from hpccoll.cases.case import Case
    from hpccoll.host.gpu_monitor import GpuMonitor
    from hpccoll.transports.mpi.cuda_aware import CudaAwareVerdict

BASE_TRANSPORT = "staged"
"""The transport whose only requirement is a GPU."""

LOCAL_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
)
"""The variables in which launchers give a rank its local rank. Slurm's comes last, because mpiexec inherits it."""


CONNECTIONS, MAX_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS", "32"
"""The variable of the number of hardware queues into which CUDA maps streams, and its largest
value; the default is 8 (CUDA C++ Programming Guide, Environment Variables). Streams that share a
queue wait for one another. A training step may have more than 8, and an operation of NCCL in front
of a queue waits for a peer, which may have another in front."""

FIRST_NCCL_THAT_SHARES = (2, 30)
"""The first version of NCCL that lets ranks share a GPU."""


@dataclass(frozen=True, slots=True)
class NcclDevice:
    """The GPU of a rank as NCCL sees it.

    ``host`` is NCCL_HOSTID if it is set, else the node; ``bus`` is the PCI address, which the
    slices of a GPU have in common, and ``uuid`` that of its GPU or slice, or the address if the
    driver reports none; ``version`` is that of NCCL, empty if unknown; ``may_share`` is whether
    NCCL_MULTI_RANK_GPU_ENABLE is set.
    """

    node: str
    host: object
    bus: str
    uuid: str
    version: tuple[int, ...]
    may_share: bool


def reason_nccl_refuses(devices: Sequence[NcclDevice]) -> str | None:
    """Return the reason why NCCL refuses a communicator of ranks with these GPUs, because some share one; else None.

    Up to 2.29 NCCL refuses two ranks of one host whose GPUs have the same bus address, and only
    they notice it; from 2.30 on it refuses two of the same UUID, unless NCCL_MULTI_RANK_GPU_ENABLE
    is set (initTransportsRank in src/init.cc of 2.28.9 and 2.30.7).
    """
    version = min((device.version for device in devices if device.version), default=())
    shares = version >= FIRST_NCCL_THAT_SHARES
    if shares and all(device.may_share for device in devices):
        return None
    by_device: dict[object, list[NcclDevice]] = defaultdict(list)
    for device in devices:
        by_device[device.host, device.uuid if shares else device.bus].append(device)
    sharing = max(by_device.values(), key=len)
    if len(sharing) == 1:
        return None
    nodes = list(dict.fromkeys(device.node for device in sharing))
    slices = len(nodes) == 1 and len({device.uuid for device in sharing}) == len(sharing)
    where = f"GPU {sharing[0].bus} of {' and '.join(nodes)}"
    if len(nodes) > 1:
        where += ", which have the same NCCL_HOSTID"
    if slices:
        mistake = f"use slices of {where}, which NCCL takes for one GPU"
    else:
        mistake = f"share {where}"
    installed = ""
    if version and not shares:
        installed = f" (this is NCCL {'.'.join(map(str, version))})"
    return f"{len(sharing)} ranks {mistake}; valid: one rank a GPU; {'; '.join(SHARED_GPU_CHOICES)}{installed}"


def assign_gpu_before_mpi() -> None:
    """Select the GPU of this rank before MPI_Init, because some libraries bind to the current GPU then.

    Cray MPICH, MVAPICH and UCC do so. CUDA, which starts here, gets as many connections as it can
    have, unless the user has set their number.
    """
    os.environ.setdefault(CONNECTIONS, MAX_CONNECTIONS)
    local_rank = next(
        (os.environ[name] for name in LOCAL_RANKS if os.environ.get(name, "").isdigit()), None
    )
    if local_rank is not None and not gpu.missing_for_gpu(BASE_TRANSPORT):
        select_gpu(int(local_rank) % gpu.device_count())


def transports_of_gpus(cases: Iterable["Case"]) -> set[str]:
    """Return the transports between GPUs that cases use."""
    return {case.transport for case in cases if case.device == "cuda"}


class RankGpus:
    """The GPUs of the ranks as launched: local rank modulo the number of GPUs on the node.

    All methods give the same result on all ranks, which call them together.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._launched_local_rank = ranks.local_rank
        # what a launch of its own has found between nodes; None if there was none
        self.pair: GpuPair | None = None
        self._missing: dict[tuple[str, str], str | None] = {}

    def subset(self, ranks: Ranks) -> "RankGpus":
        """Return the GPUs of some of the ranks, which have numbers of their own and keep their GPUs."""
        remaining = copy(self)
        remaining.ranks = ranks
        # counted and opened again
        for name in ("ranks_on_gpu", "node_view", "monitor", "sharing_refusal"):
            remaining.__dict__.pop(name, None)
        return remaining

    @cached_property
    def gpu_of_rank(self) -> Gpu:
        """The GPU of this rank, which becomes the current one."""
        return Gpu(self.number)

    @cached_property
    def silent(self) -> Mapping[str, str]:
        """Why nothing may ask for the GPUs of some hosts, by host: their driver does not answer."""
        from hpccoll.measure.gpu_liveness import reason_gpu_hangs

        return self._by_host(reason_gpu_hangs(self._launched_local_rank))

    @cached_property
    def failures(self) -> Mapping[str, str]:
        """Why the GPU of a rank cannot be used, by host; none if some ranks lack one, or a driver is silent."""
        why = None
        if self.silent or self.missing_for(BASE_TRANSPORT):
            return {}
        try:
            _ = self.gpu_of_rank
        except Exception as error:  # noqa: BLE001  of CUDA or CuPy: others would wait for this rank
            why = f"GPU {self.number} fails: {type(error).__name__}: {error}"
        return self._by_host(why)

    def _by_host(self, why: str | None) -> dict[str, str]:
        """Return the reasons of all ranks that have one, by host: the first of each."""
        hosts_and_reasons = self.ranks.comm.allgather((self.ranks.node_id[0], why))
        return {host: reason for host, reason in reversed(hosts_and_reasons) if reason}

    @property
    def number(self) -> int:
        """The device number of the GPU of this rank, which it keeps if others of its node are lost."""
        return self._launched_local_rank % gpu.device_count()

    def missing_for(self, transport: str, dtype: str = "float32") -> str | None:
        """Return the reason why ``transport`` cannot move ``dtype`` between these GPUs, None if it can."""
        key = transport, dtype
        if key not in self._missing:
            self._missing[key] = first_reason(self.ranks.comm, gpu.missing_for_gpu(*key))
            if self._missing[key] is None and transport == "mpi":
                not_aware = f"MPI is not CUDA-aware: {self.verdict.description}; do: transport nccl or staged"
                self._missing[key] = first_reason(
                    self.ranks.comm, None if self.verdict.aware else not_aware
                )
                self._missing[key] = self._missing[key] or self._failure_between_nodes
        return self._missing[key] or (self.sharing_refusal if transport == "nccl" else None)

    @property
    def _failure_between_nodes(self) -> str | None:
        """Why MPI cannot move GPU memory between the nodes of the ranks; None if it can, or if that is unknown."""
        if not self._must_cross_nodes or self.pair is None or self.pair.state == CORRECT:
            return None
        return f"MPI does not move GPU memory between nodes: {self.pair.description}; do: transport nccl or staged"

    @property
    def _must_cross_nodes(self) -> bool:
        """Whether the ranks are on several nodes, and the user does not answer for the library."""
        return len(self.ranks.ranks_by_node) > 1 and not self.verdict.assumed

    @cached_property
    def missing_cublas(self) -> str | None:
        """The reason why a rank cannot multiply matrices on its GPU, None if all can."""
        return first_reason(self.ranks.comm, gpu.missing_cublas())

    @cached_property
    def sharing_refusal(self) -> str | None:
        """The reason why NCCL refuses the ranks, because some of them share a GPU; None if it does not."""
        settings = {name: value for _, name, value in reversed(nccl_settings())}
        bus = self.gpu_of_rank.id
        own = NcclDevice(
            node=node_name(),
            host=settings.get("NCCL_HOSTID", self.ranks.node_id),
            bus=bus,
            uuid=gpu.device_uuid(self.gpu_of_rank.number) or bus,
            version=gpu.loaded_nccl_version() or (),
            may_share=settings.get(NCCL_GPU_SHARING_VARIABLE, "") not in ("", "0"),
        )
        return reason_nccl_refuses(self.ranks.comm.allgather(own))

    def assumed(self, case: "Case") -> str | None:
        """Return what ``case`` assumes of MPI: what only the user vouches for, or was not tried; None if nothing."""
        if case.device != "cuda" or case.transport != "mpi":
            return None
        if self.verdict.assumed:
            return f"MPI takes GPU memory: {self.verdict.description}"
        untried = self._must_cross_nodes and self.pair is None
        if not untried:
            return None
        return NOT_TRIED

    @cached_property
    def verdict(self) -> "CudaAwareVerdict":
        """Whether MPI accepts GPU memory, as tested by the first rank of this rank's node."""
        from hpccoll.transports.mpi import cuda_aware

        first = self.ranks.local_rank == 0
        verdicts = self.ranks.comm.allgather(
            cuda_aware.cuda_aware_verdict(self.number) if first else None
        )
        # the first rank's wins
        by_node = dict(zip(reversed(self.ranks.node_ids), reversed(verdicts), strict=True))
        return cast("CudaAwareVerdict", by_node[self.ranks.node_id])

    @cached_property
    def visible_on_hosts(self) -> Mapping[str, int]:
        """How many GPUs the ranks of each host find together: each may see one of them only."""
        host = self.ranks.node_id[0]
        numbers = range(0 if host in self.silent else gpu.device_count())
        own = [gpu.device_uuid(number) or gpu.device_bus(number) for number in numbers]
        seen_by_host = defaultdict[str, set[str]](set)
        for name, seen in self.ranks.comm.allgather((host, own)):
            seen_by_host[name].update(seen)
        return {name: len(seen) for name, seen in seen_by_host.items()}

    @property
    def facts(self) -> Mapping[str, Any]:
        """The record of the GPU of this rank, for which its driver suffices; empty without one."""
        if not gpu.device_count():
            return {}
        from hpccoll.evidence.nic_gpu_affinity import read_sysfs_topology
        from hpccoll.host.gpu_facts import gpu_facts, is_near

        bus = gpu.device_bus(self.number)
        near = [
            {"distance": port.distance, "names": port.nics}
            for port in read_sysfs_topology({0: bus})
        ]
        return {
            "gpu": {**gpu_facts(bus), "nics": next(iter(near), None)},
            "uuid": gpu.device_uuid(self.number),
            "near": is_near(bus, os.sched_getaffinity(0)),
            "visible": gpu.device_count(),
        }

    @property
    def _between_nodes(self) -> str:
        if not self._must_cross_nodes or not self.verdict.aware:
            return ""
        if self.pair:
            return self.pair.description
        return NOT_TRIED

    def provenance(self, transports: Collection[str]) -> Mapping[str, Any]:
        """Return the record of the GPU of this rank if transports use it, and of MPI and NCCL if these do."""
        if not transports or self.missing_for(BASE_TRANSPORT):
            return {}
        from hpccoll.measure.run.stream_timing import event_floor_ns
        from hpccoll.transports.nccl.loaded_library import loaded_nccl_files

        # The verdict comes first, because its child process uses the GPU.
        about: dict[str, Any] = {}
        if "mpi" in transports:
            about["cuda_aware_mpi"] = asdict(
                replace(self.verdict, between_nodes=self._between_nodes)
            )
        if "nccl" in transports and not self.missing_for("nccl"):
            version = ".".join(map(str, gpu.loaded_nccl_version() or ()))
            about["nccl"] = {"version": version, "files": loaded_nccl_files()}
        if self._are_timed_by_events(transports):
            about["event_floor_ns"] = event_floor_ns(self.gpu_of_rank)
        return {**about, **self.facts}

    def _are_timed_by_events(self, transports: Collection[str]) -> bool:
        """Return whether the operations of one of the transports are queued on a stream, between two events."""
        for name in sorted(transports):  # in the same order on all ranks
            if TRANSPORTS[name].graphs and self.missing_for(name) is None:
                return True
        return False

    @cached_property
    def node_view(self) -> NodeView:
        """The nodes as NCCL counts them: NVLink domains, if the GPUs of all ranks have one; the oldest NCCL.

        If NVML does not report the GPU of a rank, any number of hosts may be of one domain.
        """
        from hpccoll.host.gpu_facts import gpu_facts

        facts = gpu_facts(self.gpu_of_rank.id)
        own = (
            facts["nvlink_domain"],
            facts["name"] is not None,
            self.ranks.node_id,
            gpu.loaded_nccl_version(),
        )
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
    def monitor(self) -> "GpuMonitor | None":
        """The monitor of the GPU of this rank; None on all but the first of the ranks that share it, slices or not."""
        from hpccoll.host.gpu_monitor import GpuMonitor

        first = self._ranks_sharing(self.gpu_of_rank.id)[0] == self.ranks.comm.rank
        if not first:
            return None
        return GpuMonitor(self.gpu_of_rank.id)

    def _ranks_sharing(self, device: str) -> list[int]:
        own = self.ranks.node_id, device
        return [
            rank
            for rank, own_of_rank in enumerate(self.ranks.comm.allgather(own))
            if own_of_rank == own
        ]
