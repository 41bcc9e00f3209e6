"""The machine model: what messages, ports, uplinks and reductions cost. The simulator takes one.

A message of n bytes between two ranks costs, as in LogGP, an overhead o on the CPU of each end, a latency L, and n G on
every resource that it passes; a rank's messages start at least a gap g apart. The parameters are piecewise: a
segment of sizes has its own, because MPI libraries change protocols. Messages that pass a resource at the same time
share its rate (max-min fair): the port of a node, one for each rail and direction; the uplink of a rack; the memory of
a node; the CPUs that ranks share. Ranks fold one byte after another. A rank that shares its CPUs with others takes
turns with them, because ranks that wait poll: every other rank on its CPU adds ``contention`` times as much to its
overheads and folds.

A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman: LogGP, SPAA (1995) 95-105. W. Gropp, L. Olson, P. Samfass:
Modeling MPI communication performance on SMP nodes, EuroMPI (2016) 41-50: the rates of a process and of its node.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.schedule import Layout

TIER_LABELS = {"node": "inside a node", "rack": "between nodes", "fabric": "between racks"}
"""Labels of the tiers that messages cross: see ``hpccoll.schedule.layout.TIERS``."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The costs of messages of at least ``from_bytes`` between two ranks, up to the next segment.

    Args:
        from_bytes: the smallest message.
        latency_s: L, seconds on the way, which other messages can use.
        overhead_s: o, seconds of the CPU of the sender, and as many of the receiver.
        gap_s: g, the least seconds between the starts of two messages of a rank.
        byte_s: G, seconds of a byte between two ranks that have the network for themselves.
        synchronous: whether a message waits until its receiver has begun the step that receives it (rendezvous).
    """

    from_bytes: int = 0
    latency_s: float = 0.0
    overhead_s: float = 0.0
    gap_s: float = 0.0
    byte_s: float = 0.0
    synchronous: bool = False


@dataclass(frozen=True, slots=True)
class Tier:
    """The segments of the messages that cross one tier, by size."""

    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        starts = [segment.from_bytes for segment in self.segments]
        if starts[:1] != [0] or starts != sorted(set(starts)):
            raise ValueError(f"segments start at 0 and at larger and larger sizes, not at {starts}")

    def segment(self, nbytes: float) -> Segment:
        """Return the segment of a message."""
        return self.segments[bisect_right(self.segments, nbytes, key=lambda segment: segment.from_bytes) - 1]

    def half_round_trip(self, nbytes: float) -> float:
        """Return the seconds of a message between two idle ranks: o + L + n G + o."""
        one = self.segment(nbytes)
        return 2 * one.overhead_s + one.latency_s + nbytes * one.byte_s


@dataclass(frozen=True, slots=True)
class Cpus:
    """CPUs that several ranks share, and what a message takes of them besides the overheads of its ranks.

    Args:
        cores: the number of CPUs, or the part of them that some of the ranks have.
        byte_s: seconds of one CPU for a byte of a message, both ends together.
        of: ``machine`` if all ranks share them, ``node`` if those of a node do.
        contention: what another rank on its CPU adds to a work of a rank, in times of the work alone: 1 if they take
            turns, more where waiting ranks poll, 0 where they sleep.
    """

    cores: float
    byte_s: float = 0.0
    of: str = "node"
    contention: float = 1.0

    def slowdown(self, share: float) -> float:
        """Return how many times as long a work of a rank takes if ``share`` ranks share each CPU."""
        return 1 + self.contention * (max(1.0, share) - 1)


@dataclass(frozen=True, slots=True)
class Machine:
    """The costs of messages and reductions.

    Args:
        tiers: the tiers that messages can cross, by name: see ``TIER_LABELS``.
        fold_s: seconds of a folded byte by dtype.
        port_byte_s: seconds of a byte at the port of a node, in each direction of each rail.
        burst_bytes: the bytes that pass a port at once after a pause (a token bucket).
        uplink_byte_s: seconds of a byte at the uplink of a rack, in each direction of each rail.
        memory_byte_s: seconds of a byte of all messages inside a node together.
        cpus: CPUs that ranks share; None if every rank has its own.
        unmetered_aggregators: whether the ports of aggregators have no limit.
        switches: whether aggregators are switches, with ports for all of their neighbours and reductions that cost
            nothing; else they are ranks.
    """

    tiers: Mapping[str, Tier]
    fold_s: Mapping[str, float] = field(default_factory=dict)
    port_byte_s: float = 0.0
    burst_bytes: float = 0.0
    uplink_byte_s: float = 0.0
    memory_byte_s: float = 0.0
    cpus: Cpus | None = None
    unmetered_aggregators: bool = False
    switches: bool = False

    def slowdown(self, layout: Layout) -> float:
        """Return how many times as long a work of a rank takes because others share its CPUs."""
        if self.cpus is None:
            return 1.0
        sharing = layout.ranks if self.cpus.of == "machine" else max(Counter(layout.node).values())
        return self.cpus.slowdown(sharing / self.cpus.cores)
