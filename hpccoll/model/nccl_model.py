"""NCCL's own model of its rings and trees, by which NCCL chooses between them.

An operation of S bytes takes the latency of an algorithm and a protocol, and S over its bandwidth.
Constants and formulas are those of NCCL v2.30.7-1 (src/graph/tuning.cc and connect.cc), for jobs on
at least two nodes with NVLink inside, and for network plugins that report no latency of their own,
as NCCL's do. NVLS, CollNet and PAT are left out.

The model is known to miss: for trees on nodes of 8 H800 NCCL printed 68.8 GB/s, and 81 GB/s were
measured (nccl#1154).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpccoll.model.machine_sections import NcclSection
from hpccoll.schedule import floor_log2

PROTOCOLS = ("LL", "LL128", "Simple")

BASE_US = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
"""Microseconds of any operation, by protocol (baseLatencies)."""
OPERATION_US = min(map(min, BASE_US.values())), max(map(max, BASE_US.values()))
"""The least and the most of them: schedules of messages alone do not have them."""
NVLINK_US = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
"""Microseconds of a step between GPUs of a node (hwLatencies)."""
NETWORK_US = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0)}
"""Microseconds of a step between nodes (hwLatencies); with one rank a node, rings have those of trees."""
POST_US: Mapping[str, float] = {"intel": 1.0, "amd": 2.0, "other": 1.0}
"""Microseconds in which a CPU posts a message, by its vendor: no step of a ring is shorter; with Simple three times."""
LL_LIMIT: Mapping[str, tuple[float, float]] = {
    "intel": (39.0, 20.4),
    "amd": (22.5, 19.0),
    "other": (39.0, 20.4),
}
"""Bandwidth of all channels with LL at most, in GB/s, on two and on more nodes (llMaxBws)."""
RING_LL128_LIMIT = {"ampere": (20.0, 20.0), "hopper": (36.7, 36.7), "blackwell": (40.0, 40.0)}
TREE_LL128_LIMIT = {"ampere": (20.0, 20.0), "hopper": (36.7, 29.0), "blackwell": (31.67, 20.0)}
TREE_LIMIT = {"ampere": (23.6, 17.8), "hopper": (41.4, 36.0), "blackwell": (42.8, 24.0)}
"""Bandwidth of a channel at most, in GB/s, on two and on more nodes (perChMax...Bws)."""

TREE_CORRECTION = (
    (
        1.0,
        1.0,
        1.0,
        1.0,
        0.9,
        0.8,
        0.7,
        0.7,
        0.7,
        0.7,
        0.6,
        0.5,
        0.4,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
        1.0,
        1.0,
        1.0,
        1.0,
    ),
    (
        1.0,
        1.0,
        1.0,
        1.0,
        1.0,
        0.9,
        0.8,
        0.8,
        0.8,
        0.7,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.6,
        0.8,
        0.9,
        0.9,
        0.9,
        0.9,
        1.0,
        1.0,
    ),
    (
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.9,
        0.8,
        0.7,
        0.6,
        0.6,
        0.5,
        0.5,
        0.5,
        0.5,
        0.6,
        0.7,
        0.8,
        0.7,
        0.7,
        0.8,
        0.9,
        0.9,
    ),
)
"""Factors of the bandwidth of trees, by protocol, from each power of two of bytes on, 64 first
(treeCorrectionFactor, whose last column NCCL does not use)."""

RING_STEPS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
"""The steps of a ring over n - 1, by collective."""


@dataclass(frozen=True, slots=True)
class NcclEstimate:
    """What NCCL expects of an algorithm and a protocol."""

    algorithm: str  # ``ring`` or ``tree``
    protocol: str  # ``LL``, ``LL128`` or ``Simple``
    latency_s: float  # seconds without any bytes
    bandwidth: float  # bytes a second of the vector, beyond the latency
    seconds: float  # seconds of the operation


def nccl_estimates(
    section: NcclSection, collective: str, nodes: int, ranks_per_node: int, nbytes: int
) -> list[NcclEstimate]:
    """Return NCCL's estimates of an operation by algorithm and protocol; the fastest is what NCCL would choose of them.

    Args:
        section: NCCL's channels on the machine.
        collective: the collective; others than all-reduce, reduce-scatter and all-gather have no
            estimates.
        nodes: the number of nodes; on one node, where the search finds other channels, there are no
            estimates.
        ranks_per_node: the ranks on each node.
        nbytes: the size S of the vector; of all-gather and reduce-scatter, of all blocks together.
    """
    if collective not in RING_STEPS or nodes < 2:
        return []
    return list(_Estimator(section, nodes, ranks_per_node).estimates(collective, nbytes))


class _Estimator:
    """The terms of the estimates that neither collective nor size change; times in us, bandwidths in GB/s."""

    def __init__(self, section: NcclSection, nodes: int, ranks_per_node: int) -> None:
        self.section = section
        self.nodes = nodes
        self.ranks_per_node = ranks_per_node
        self.ranks = nodes * ranks_per_node
        if nodes == 2:
            # the column of the tables of limits
            self.column, channel_rate = 0, section.intra_bytes_per_s
        else:
            self.column, channel_rate = 1, section.inter_bytes_per_s
        self.bus = section.channels * channel_rate.value / 1e9

    def estimates(self, collective: str, nbytes: int) -> Iterator[NcclEstimate]:
        for protocol in range(len(PROTOCOLS)):
            yield self.ring(collective, protocol, nbytes)
            if collective == "all_reduce":
                yield self.tree(protocol, nbytes)

    def ring(self, collective: str, protocol: int, nbytes: int) -> NcclEstimate:
        factor = RING_STEPS[collective]
        section = self.section
        is_simple = PROTOCOLS[protocol] == "Simple"
        if PROTOCOLS[protocol] == "LL":
            bus = min(self.bus / 2, LL_LIMIT[section.cpu][self.column])
        elif PROTOCOLS[protocol] == "LL128":
            limit = RING_LL128_LIMIT[section.architecture][self.column]
            bus = min(0.92 * self.bus, section.channels * limit)
        else:
            bus = self.bus
        post = POST_US[section.cpu]
        if is_simple:
            post *= 3
        step_inside = max(NVLINK_US["ring"][protocol], post)
        latencies_between = NETWORK_US["ring"]
        if self.ranks_per_node == 1:
            latencies_between = NETWORK_US["tree"]
        step_between = latencies_between[protocol]
        between = factor * (self.nodes - 1)
        inside = factor * (self.ranks - 1) - between
        latency = BASE_US["ring"][protocol] + inside * step_inside + between * step_between
        # A communicator has twice as many channels as the search has found.
        is_large = nbytes // (2 * section.channels * self.ranks) >= 64
        if is_simple and collective == "all_reduce" and is_large:
            latency *= 1.4
        bandwidth = bus * self.ranks / (factor * (self.ranks - 1))
        return _estimate("ring", protocol, latency, bandwidth, nbytes)

    def tree(self, protocol: int, nbytes: int) -> NcclEstimate:
        section = self.section
        limit = TREE_LIMIT[section.architecture][self.column]
        bus = min(0.92 * self.bus, section.channels * limit)
        if PROTOCOLS[protocol] == "LL":
            bus = min(bus / 3.8, LL_LIMIT[section.cpu][self.column])
        elif PROTOCOLS[protocol] == "LL128":
            limit = TREE_LL128_LIMIT[section.architecture][self.column]
            bus = min(bus * 120 / 128, section.channels * limit)
        if not section.balanced_trees:
            bus *= 0.85
        corrections = TREE_CORRECTION[protocol]
        if nbytes >= 64:
            power = floor_log2(nbytes // 64)
            if power < len(corrections):
                bus *= corrections[power]
        inside = (self.ranks_per_node - 1) * NVLINK_US["tree"][protocol]
        between = floor_log2(self.nodes) * NETWORK_US["tree"][protocol]
        latency = BASE_US["tree"][protocol] + 2 * (inside + between)
        return _estimate("tree", protocol, latency, bus / 2, nbytes)


def _estimate(
    algorithm: str, protocol: int, latency: float, bandwidth: float, nbytes: int
) -> NcclEstimate:
    """Return the estimate of a latency in us and an algorithm bandwidth in GB/s."""
    seconds = latency * 1e-6 + nbytes / (bandwidth * 1e9)
    return NcclEstimate(algorithm, PROTOCOLS[protocol], latency * 1e-6, bandwidth * 1e9, seconds)
