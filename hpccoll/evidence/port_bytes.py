"""What ports carried, as evidence: with SHARP one vector goes up, where a ring sends 2(n-1)/n."""

from dataclasses import dataclass

LEAST_BYTES = 64 * 1024
"""Of a smaller vector the ports count headers, handshakes and what else goes over them rather than itself."""

LEAST_VECTORS = 0.9
"""A node that is counted to have sent less than its vector was not counted whole."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the ports of a node sent for one all-reduce, in vectors of its size S.

    With SHARP a node sends its vector up once. A flat ring of n ranks sends 2(n-1)/n vectors from each node; trees and
    hierarchical algorithms 2(N-1)/N on N nodes, on average, which on two nodes is one vector too. The middle between
    one and that divides them.

    Args:
        nbytes: S.
        ranks: n.
        nodes: N, None where it is not known.
        sent: bytes that all ports of a node sent for one operation; None where they were not counted.
    """

    nbytes: int
    ranks: int
    nodes: int | None
    sent: float | None

    @property
    def tell(self) -> bool:
        """Whether they were counted, for a vector that dwarfs the headers of its packets and what else uses ports."""
        return self.sent is not None and self.nbytes >= LEAST_BYTES

    @property
    def vectors(self) -> float:
        return (self.sent or 0.0) / self.nbytes

    @property
    def others(self) -> float:
        """The least that anything but SHARP sends, on three nodes and more; a ring's on fewer."""
        apart = self.nodes if self.nodes is not None and self.nodes > 2 else self.ranks
        return 2 * (apart - 1) / apart

    @property
    def contradict(self) -> bool:
        """Whether more was sent than SHARP sends."""
        return self.tell and self.others > 1 and self.vectors > (1 + self.others) / 2

    @property
    def prove(self) -> bool:
        """Whether one vector was sent, and nothing but SHARP sends so little; less is what was not counted."""
        return self.tell and (self.nodes or 0) > 2 and self.vectors >= LEAST_VECTORS and not self.contradict

    @property
    def expected(self) -> str:
        """What SHARP and others send, in vectors, in words."""
        what = "a ring" if (self.nodes or 0) <= 2 else "anything else"
        return f"SHARP sends 1 and {what} {self.others:.2f}"

    def __str__(self) -> str:
        if self.sent is None:
            return "bytes per port are not known"
        if not self.tell:
            return "bytes per port say nothing of so small a vector"
        said = f"{self.vectors:.2f} vectors left a node for each operation"
        if self.vectors < LEAST_VECTORS:
            return f"{said}, fewer than any algorithm sends: the ports do not count all"
        return f"{said}, where {self.expected}"
