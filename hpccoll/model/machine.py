"""The machine model: what messages, ports, uplinks and reductions cost. The simulator takes one.

A message of n bytes between two ranks costs, as in LogGP, an overhead o on the CPU of each end, a
latency L, and n G on every resource that it passes; a rank's messages start at least a gap g apart.
The parameters are piecewise: each range of sizes has its own, because MPI libraries change
protocols. Messages that pass a resource at the same time share its rate (max-min fair): the port of
a node, one for each rail and direction; the uplink of a rack; the memory of a node; the CPUs that
ranks share. Ranks fold one byte after another. A rank that shares its CPUs with others takes turns
with them, because ranks that wait poll: every other rank on its CPU adds ``contention`` times as
much to its overheads and folds.

A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman: LogGP, SPAA (1995) 95-105. W. Gropp, L. Olson,
P. Samfass: Modeling MPI communication performance on SMP nodes, EuroMPI (2016) 41-50: the rates of
a process and of its node.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.model.torus_links import Torus
from hpccoll.schedule import Layout
from hpccoll.schedule.layout import TIERS

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]

TIER_LABELS = {"node": "inside a node", "rack": "between nodes", "fabric": "between racks"}
"""Labels of the tiers that messages cross: see ``hpccoll.schedule.layout.TIERS``."""


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """The costs of messages between two ranks, from one size up to that of the next costs of the tier."""

    from_bytes: int = 0  # the smallest message
    latency_s: float = 0.0  # L, seconds on the way, which other messages can use
    overhead_s: float = 0.0  # o, seconds of the CPU of the sender, and as many of the receiver
    gap_s: float = 0.0  # g, the least seconds between the starts of two messages of a rank
    # G, seconds of a byte between two ranks that have the network for themselves
    byte_s: float = 0.0
    # whether a message waits until its receiver has begun the step that receives it (rendezvous)
    synchronous: bool = False


@dataclass(frozen=True, slots=True)
class Tier:
    """The costs of the messages that cross one tier, by size."""

    costs: tuple[MessageCosts, ...]

    def of(self, nbytes: float) -> MessageCosts:
        """Return the costs of a message."""
        return self.costs[bisect_right(self.costs, nbytes, key=lambda costs: costs.from_bytes) - 1]


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs that several ranks share, and what a message takes of them besides the overheads of its ranks."""

    cores: float  # the number of CPUs, or the part of them that some of the ranks have
    byte_s: float = 0.0  # seconds of one CPU for a byte of a message, both ends together
    of: str = "node"  # ``machine`` if all ranks share them, ``node`` if those of a node do
    # what another rank on its CPU adds to a work of a rank, in times of the work alone: 1 if they
    # take turns, more where waiting ranks poll, 0 where they sleep
    contention: float = 1.0

    def slowdown(self, share: float) -> float:
        """Return how many times as long a work of a rank takes if ``share`` ranks share each CPU."""
        return 1 + self.contention * (max(1.0, share) - 1)


@dataclass(frozen=True, slots=True)
class OwnMemory:
    """The costs of the buffers that an implementation of a collective has of its own: see ``memory_work``."""

    copy_byte_s: float = 0.0  # seconds of a copied byte
    # seconds of a byte of new memory, whose pages are cleared when they are first written
    new_byte_s: float = 0.0
    # what each other rank of the node that does so at the same time adds to these
    sharing_byte_s: float = 0.0
    kept_bytes: int = 0  # up to this size a buffer is not new: the C library keeps it


@dataclass(frozen=True, slots=True)
class PathCosts:
    """The costs of messages on a critical path besides those of their tiers: see ``path_times``."""

    following_s: float  # seconds of a message that its rank sends or receives after another one
    further_port_s: float | None = None  # seconds of each further port of a rank; None if unknown
    ports_byte_s: float = 0.0  # seconds of a byte at all ports of a rank together
    segment_s: float = 0.0  # seconds of each segment of a message that is folded by itself
    address_s: float = 0.0  # seconds that a message of addresses takes beyond others
    hop_s: float = 0.0  # seconds of each link of a torus that a message passes
    link_byte_s: float = 0.0  # seconds of a byte at a link, which messages share


@dataclass(frozen=True, slots=True)
class Machine:
    """The costs of messages and reductions."""

    tiers: Mapping[str, Tier]  # the tiers that messages can cross, by name: see ``TIER_LABELS``
    fold_s: Mapping[str, float] = field(default_factory=dict)  # seconds of a folded byte by dtype
    # seconds of a byte at the port of a node, in each direction of each rail
    port_byte_s: float = 0.0
    burst_bytes: float = 0.0  # the bytes that pass a port at once after a pause (a token bucket)
    # seconds of a byte at the uplink of a rack, in each direction of each rail
    uplink_byte_s: float = 0.0
    memory_byte_s: float = 0.0  # seconds of a byte of all messages inside a node together
    cpus: Cpus | None = None  # CPUs that ranks share; None if every rank has its own
    unmetered_aggregators: bool = False  # whether the ports of aggregators have no limit
    # whether aggregators are switches, with ports for all of their neighbours and reductions that
    # cost nothing; else they are ranks
    switches: bool = False
    # how far apart ranks start, in seconds for each doubling of their number: an operation that
    # follows a barrier takes that much longer
    start_skew_s: float = 0.0
    own_memory: OwnMemory | None = None  # None if it costs nothing
    # the nodes from which jobs have other costs, and these; None if all jobs have the same
    larger_jobs: tuple[int, "Machine"] | None = None
    # the costs of a machine whose times are sums along critical paths; None if they are simulated
    path: PathCosts | None = None
    # of the job: the ports of each rank, which send their parts of the vector at once, and the
    # torus of its nodes, if they are on one
    ports: int = 1
    torus: Torus | None = None

    def folding(self, dtype: str) -> str | None:
        """Return the type whose folds cost what those of ``dtype`` do; None if these cost nothing.

        On a machine that was fitted to collectives, folds of a type that no measurement has are as
        slow as the slowest measured ones.
        """
        if dtype in self.fold_s:
            return dtype
        if self.path is None:
            return None
        return max(self.fold_s, key=lambda measured: self.fold_s[measured], default=None)

    def fold_byte_s(self, dtype: str) -> float:
        """Return the seconds of a folded byte."""
        same = self.folding(dtype)
        return self.fold_s[same] if same else 0.0

    def in_job(self, nodes: int, ports: int = 1, torus: Torus | None = None) -> "Machine":
        """Return the costs in a job of ``nodes`` nodes whose ranks use ``ports`` ports each."""
        machine = self
        if self.larger_jobs and nodes >= self.larger_jobs[0]:
            machine = self.larger_jobs[1]
        return replace(machine, larger_jobs=None, ports=ports, torus=torus)

    def slowdown(self, layout: Layout) -> float:
        """Return how many times as long a work of a rank takes because others share its CPUs."""
        if self.cpus is None:
            return 1.0
        sharing = layout.ranks if self.cpus.of == "machine" else max(Counter(layout.node).values())
        return self.cpus.slowdown(sharing / self.cpus.cores)


class Use(NamedTuple):
    """The use of one kind of shared resource by some of the messages."""

    kind: str  # port out, port in, uplink out, uplink in, memory, or cpus
    owner: Ints  # the number of the resource that each of them uses
    messages: Ints  # their indices
    byte_s: float  # seconds of a byte there


def shared_resources(
    machine: Machine, layout: Layout, source: Ints, target: Ints, tier: Ints
) -> Iterator[Use]:
    """Yield what messages between ranks share, besides the rates of their ranks; ``tier`` says how far they go."""
    node = np.array(layout.node)
    rack = np.array(layout.rack)
    rail = np.array(layout.rail)
    rails = int(rail.max()) + 1
    # aggregators of other racks are above the uplinks
    below = np.isin(rack, rack[: layout.workers])
    inside = np.flatnonzero(tier == TIERS.index("node"))
    away = np.flatnonzero(tier >= TIERS.index("rack"))
    across = np.flatnonzero(tier == TIERS.index("fabric"))
    metered_ranks = layout.ranks
    if machine.switches or machine.unmetered_aggregators:
        metered_ranks = layout.workers
    metered = np.arange(layout.ranks) < metered_ranks
    port = node * rails + rail
    uplink = rack * rails + rail
    for direction, ranks in (("out", source), ("in", target)):
        if machine.port_byte_s:
            through = away[metered[ranks[away]]]
            yield Use(f"port {direction}", port[ranks[through]], through, machine.port_byte_s)
        if machine.uplink_byte_s:
            through = across[below[ranks[across]]]
            yield Use(f"uplink {direction}", uplink[ranks[through]], through, machine.uplink_byte_s)
    if machine.memory_byte_s:
        yield Use("memory", node[source[inside]], inside, machine.memory_byte_s)
    if machine.cpus and machine.cpus.byte_s:
        byte_s = machine.cpus.byte_s / machine.cpus.cores
        if machine.cpus.of == "machine":
            yield Use("cpus", np.zeros_like(source), np.arange(len(source)), byte_s)
        else:
            yield Use("cpus", node[source[inside]], inside, byte_s)
            yield Use("cpus", node[source[away]], away, byte_s / 2)
            yield Use("cpus", node[target[away]], away, byte_s / 2)


def cost_columns(tier: Tier, nbytes: Ints) -> tuple[Floats, ...]:
    """Return latency, overhead, gap, seconds of a byte and whether it is synchronous, of messages of one tier."""
    starts, table = _table(tier)
    if len(starts) == 1:
        return tuple(table)
    first, last = np.searchsorted(starts, (nbytes.min(), nbytes.max()), side="right") - 1
    if first == last:
        which = np.array([first])
    else:
        which = np.searchsorted(starts, nbytes, side="right") - 1
    return tuple(column[which] for column in table)


@lru_cache
def _table(tier: Tier) -> tuple[Ints, Floats]:
    """Return the sizes from which the costs of a tier hold, and these, [cost, range of sizes]."""
    costs = [(s.latency_s, s.overhead_s, s.gap_s, s.byte_s, s.synchronous) for s in tier.costs]
    return np.array([costs.from_bytes for costs in tier.costs]), np.array(costs, float).T
