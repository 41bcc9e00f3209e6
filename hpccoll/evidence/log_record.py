"""The content of the logs of one launch as data: which collectives ran how, over which network, and what failed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

NCCL_LIBRARIES = ("nccl", "rccl")
"""NCCL, and the library of AMD that is made from it."""

_PER_RANK_BYTES = {
    **dict.fromkeys(NCCL_LIBRARIES, ("all_gather", "reduce_scatter", "all_to_all")),
    "ucc": ("all_gather", "gather"),
}
"""For each library, the collectives whose logged bytes are those of one rank: S / p, where S counts all ranks."""

TCP_NETWORK = re.compile(r"(?i)socket|tcp|fastrak")
"""Names of NCCL's networks over TCP: its own sockets, and Google's plugins FastSocket, GPUDirectTCPX and FasTrak."""

_WITHOUT_SIZE = ("barrier",)
"""Collectives that are logged without a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """A log line, without its header, in which a library reports how it executes a collective; None if it does not say.

    ``bytes`` is the size as the library counts it. On registered windows the algorithm is
    ``symmetric``, ``copy_engine`` or ``hierarchical_ce``, for UCC the transport layers, such as
    ``sharp`` or ``ucp``. The protocol is that of NCCL, the name of a symmetric kernel, the
    operation of a copy engine, or for UCC the collective layer. ``memory`` is the type of the
    buffers, ``host`` or ``cuda``.
    """

    collective: str
    bytes: int | None
    algorithm: str
    protocol: str | None = None
    channels: int | None = None
    dtype: str | None = None
    op: str | None = None
    memory: str | None = None
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A log line, without its header, that tells why a requested feature was not used.

    The features and the reasons in plain words are those of ``fallback_reasons.toml``.
    """

    feature: str
    reason: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFailure:
    """An error that ended the creation of a communicator of NCCL, or another call: ``communicator`` or ``call``.

    ``cause`` are the warnings before it, with their places in the source; ``callers`` those that
    returned the error, from the innermost, and its name; ``processes`` is how many logged it, and
    ``hosts`` are those that their lines name.
    """

    kind: str
    cause: str
    callers: str
    processes: int
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedCommunicator:
    """A communicator of NCCL that ranks began to create, and that some or all of them did not complete.

    ``name`` is its id, or what NCCL logs of a split; ``size`` counts its ranks. ``begun`` and
    ``incomplete`` are ranks in it, in order: those that logged the beginning, and those of them
    that logged no completion.
    """

    name: str
    size: int
    begun: tuple[int, ...]
    incomplete: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimeout:
    """An operation in which PyTorch's watchdog of ``ranks`` timed out, by PyTorch's name and number.

    ``silent`` are the ranks of the job that reported no timeout, and ``silent_hosts`` where they
    ran; None if the log does not tell which ranks the group has.
    """

    operation: str
    number: int
    timeout_s: float
    ranks: tuple[int, ...]
    silent: tuple[int, ...] | None = None
    silent_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicatorCreation:
    """How long the ranks of a communicator of NCCL took to create it, in seconds.

    ``name`` and ``size`` are those of ``UnfinishedCommunicator``; the name is empty if the log has
    only the times. The other fields have an entry for each rank with a time, in the order of
    ``ranks``; None where the log has none. ``total_s`` and ``phases_s``, by NCCL's names of the
    phases, are measured by NCCL; ``logged_s`` is the time from the line ``Init START`` to
    ``Init COMPLETE`` by the clock of the log.
    """

    name: str
    size: int
    ranks: tuple[int, ...]
    hosts: tuple[str | None, ...]
    total_s: tuple[float | None, ...]
    phases_s: Mapping[str, tuple[float | None, ...]]
    logged_s: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDifference:
    """A fact that hosts log differently, and the hosts of each of its values; ports are listed."""

    fact: str
    hosts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledCost:
    """A cell of NCCL's own cost model, from the table that it logs at its start; the bandwidth is of large messages."""

    collective: str
    algorithm: str
    protocol: str
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """The content of all logs of one launch. Tuples of text hold the lines that prove a fact, without their headers."""

    # ``nccl``, ``rccl``, ``ucc``, ``sharp`` (only lines of libsharp, as under HCOLL); None if no
    # line was recognised
    library: str | None = None
    version: str | None = None  # the version of NCCL, RCCL or UCC, such as ``2.30.7``
    # the rest of the line with the version, such as ``+cuda12.9``, which tells a build that is not
    # NVIDIA's
    build: str = ""
    versions: tuple[str, ...] = ()  # the versions that lines name, if they are several
    # the nodes of the largest communicator; None if unknown, or if it has one node and others may
    # have more
    nodes: int | None = None
    ranks: int | None = None  # the ranks of the largest communicator; None if unknown
    collectives: tuple[CollectiveLine, ...] = ()  # the collectives that ran
    # the choices of algorithms whose collectives no line names, such as ``64 KiB by ring LL``
    choices: tuple[str, ...] = ()
    # the networks that NCCL names between nodes: ``IB``, ``Socket``, or the name of a plugin
    network: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # the ports that NCCL uses, such as ``mlx5_0:1/IB``
    # whether all RDMA channels use GPUDirect RDMA; None if no such channel is logged
    gdr: bool | None = None
    # the number of channels of all ranks per path, such as ``NET/IB/GDRDMA``, ``P2P/CUMEM``,
    # ``SHM``
    paths: Mapping[str, int] = field(default_factory=dict)
    nvls: tuple[str, ...] = ()  # lines that show that NVLink SHARP is set up
    collnet: tuple[str, ...] = ()  # lines that show that NCCL's CollNet is connected
    # lines of SHARP itself: its plugin has started it, its library was given a group of ranks
    sharp: tuple[str, ...] = ()
    # the trees of those groups: ``LLT`` for small messages, ``SAT`` for streaming aggregation
    trees: tuple[str, ...] = ()
    # the requested features that were not used, with reasons
    unavailable: tuple[Unavailable, ...] = ()
    failures: tuple[LoggedFailure, ...] = ()  # the errors that NCCL did not recover from
    # the communicators that ranks began and did not complete
    unfinished: tuple[UnfinishedCommunicator, ...] = ()
    # the operations in which PyTorch's watchdog timed out
    timeouts: tuple[CollectiveTimeout, ...] = ()
    # the times in which ranks created communicators
    creations: tuple[CommunicatorCreation, ...] = ()
    # the name of the plugin of each kind (``net``, ``tuner``, ``collnet``, ``profiler``)
    plugins: Mapping[str, str] = field(default_factory=dict)
    # the variables that NCCL read from the environment or a file, with their values
    settings: Mapping[str, str] = field(default_factory=dict)
    # the communicator settings that NCCL logged, by the project's names, with their values
    communicator: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # the configuration files that NCCL read
    # the rows of UCC's score map that name SHARP: UCC may choose it there, which does not prove
    # that it did
    scores: tuple[str, ...] = ()
    model: tuple[ModelledCost, ...] = ()  # NCCL's own cost model
    # the lines of level WARN, with their places in the source, without repetitions
    warnings: tuple[str, ...] = ()

    # the hosts that logged a warning, by its text, if others did not
    warning_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    host_differences: tuple[HostDifference, ...] = ()  # what hosts log differently
    network_hosts: tuple[str, ...] = ()  # the hosts that log which network NCCL uses
    # the versions of what the library runs on, by the components of the table of defects
    components: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()  # the names of the GPUs that nccl-tests lists
    # the first line of the log that matches a pattern of a known defect, by the id of its row
    defect_lines: Mapping[str, str] = field(default_factory=dict)

    @property
    def network_type(self) -> str | None:
        """The network between nodes, ``rdma`` or ``tcp``; None if no line names it."""
        used = any(path.startswith("NET/") and TCP_NETWORK.search(path) for path in self.paths)
        named = bool(self.network) and all(map(TCP_NETWORK.search, self.network))
        if used or named or self.plugins.get("fabric", "").startswith(("tcp", "sockets")):
            return "tcp"
        if not self.network:
            return None
        return "rdma"

    def counts_per_rank(self, collective: str) -> bool:
        """Return whether the logged bytes of ``collective`` are those of one rank; S counts those of all ranks."""
        return collective in _PER_RANK_BYTES.get(self.library or "", ())

    def logged_bytes(self, collective: str, nbytes: int, ranks: int) -> int | None:
        """Return the bytes that the library logs for a case of S = ``nbytes``; None for a collective without a size."""
        if collective in _WITHOUT_SIZE:
            return None
        return nbytes // ranks if self.counts_per_rank(collective) else nbytes

    def lines_of_case(
        self,
        collective: str,
        nbytes: int,
        ranks: int,
        *,
        dtype: str | None = None,
        op: str | None = None,
        memory: str | None = None,
    ) -> list[CollectiveLine]:
        """Return the lines that are about one case of S = ``nbytes`` on ``ranks`` ranks; None matches all lines.

        A line is evidence for exactly its own size. ``memory`` is the type of its buffers, ``host``
        or ``cuda``.
        """
        size = self.logged_bytes(collective, nbytes, ranks)
        ops = [None, op]
        if op == "avg":
            ops.append("sum")  # an average is a sum that the caller scales

        def is_of_case(line: CollectiveLine) -> bool:
            if line.collective != collective or line.bytes != size:
                return False
            if dtype is not None and line.dtype not in (None, dtype):
                return False
            if op is not None and line.op not in ops:
                return False
            return memory is None or line.memory in (None, memory)

        return list(filter(is_of_case, self.collectives))

    def modelled_seconds(
        self,
        collective: str,
        nbytes: int,
        ranks: int,
        *,
        dtype: str | None = None,
        op: str | None = None,
    ) -> float | None:
        """Return the time of a case by NCCL's own cost model, in seconds; None without exactly one matching cell.

        The model takes the latency of the algorithm and protocol that ran, plus the bytes at their
        bandwidth (NCCL's src/graph/tuning.cc). The corrections that NCCL makes by size (trees below
        256 MiB, rings over several nodes) are neither in the logged table nor here. The arguments
        are those of ``lines_of_case``.
        """
        lines = self.lines_of_case(collective, nbytes, ranks, dtype=dtype, op=op)
        ran = {(line.algorithm, line.protocol) for line in lines}
        candidates = [cell for cell in self.model if cell.collective == collective]
        costs = [cell for cell in candidates if (cell.algorithm, cell.protocol) in ran]
        if len(ran) > 1 or len(costs) != 1:
            return None
        cost = costs[0]
        return cost.latency_s + nbytes / cost.bytes_per_s
