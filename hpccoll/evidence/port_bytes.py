"""Port counters as evidence for SHARP: with SHARP a node sends one vector, in a ring 2(n-1)/n vectors."""

from dataclasses import dataclass

MIN_BYTES = 64 * 1024
"""For smaller vectors, headers, handshakes and other traffic dominate the bytes."""

MIN_VECTORS = 0.9
"""A node that seems to send less than its vector was not counted completely."""

PACKET_OVERHEAD_BYTES = 24
"""The bytes of a packet that are never data: the headers LRH (8) and BTH (12) and the checksum ICRC
(4) of InfiniBand. port_xmit_data counts them (InfiniBand Architecture Specification, volume 1:
PortXmitData of PortCounters). Other headers, and those of Ethernet, take more."""


@dataclass(frozen=True, slots=True)
class PortBytes:
    """The bytes that the ports of a node sent per all-reduce, in vectors of its size S.

    With SHARP a node sends its vector up once. In a flat ring of n ranks a node sends 2(n-1)/n
    vectors; with trees and hierarchical algorithms on N nodes 2(N-1)/N on average, which is one
    vector for two nodes. The threshold lies in the middle between one vector and that number.

    Everything else on the wire only adds to the bytes. Too many bytes of a small vector therefore
    contradict nothing, but too few still prove SHARP, if the packets are counted as well and their
    least overhead is subtracted.

    ``sent`` bytes and ``packets`` are what all ports of a node sent per operation; None if they
    were not counted.
    """

    nbytes: int
    ranks: int
    nodes: int | None
    sent: float | None
    packets: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether bytes were counted, for a vector that is much larger than headers and other traffic."""
        return self.sent is not None and self.nbytes >= MIN_BYTES

    @property
    def vectors(self) -> float:
        """The most vectors that the bytes can contain."""
        return ((self.sent or 0.0) - PACKET_OVERHEAD_BYTES * (self.packets or 0.0)) / max(
            self.nbytes, 1
        )

    @property
    def vectors_without_sharp(self) -> float:
        """The fewest vectors that a node sends without SHARP; on one or two nodes those of a ring."""
        parts = self.nodes if self.nodes is not None and self.nodes > 2 else self.ranks
        return 2 * (parts - 1) / parts

    @property
    def _exceeds_sharp(self) -> bool:
        return self.vectors > (1 + self.vectors_without_sharp) / 2

    @property
    def contradicts_sharp(self) -> bool:
        """Whether a node sent more than with SHARP."""
        return self.is_significant and self.vectors_without_sharp > 1 and self._exceeds_sharp

    @property
    def proves_sharp(self) -> bool:
        """Whether a node sent one vector, where every other algorithm sends more."""
        counted = self.is_significant or (self.sent is not None and self.packets is not None)
        return (
            counted
            and (self.nodes or 0) > 2
            and self.vectors >= MIN_VECTORS
            and not self._exceeds_sharp
        )

    @property
    def expectation(self) -> str:
        """The vectors that a node sends with SHARP and without, for people."""
        without = "a ring" if (self.nodes or 0) <= 2 else "anything else"
        return f"SHARP sends 1 and {without} {self.vectors_without_sharp:.2f}"

    def __str__(self) -> str:
        if self.sent is None:
            return "bytes per port are unknown"
        in_packets = "" if self.packets is None else f" in {self.packets:.1f} packets"
        if not (self.is_significant or self.proves_sharp):
            return f"{self.sent:.0f} B{in_packets} left a node for each operation, too little to be significant"
        measured = f"{self.vectors:.2f} vectors{in_packets} left a node for each operation"
        if self.vectors < MIN_VECTORS:
            return f"{measured}, fewer than with any algorithm: the port counters are incomplete"
        return f"{measured}, where {self.expectation}"
