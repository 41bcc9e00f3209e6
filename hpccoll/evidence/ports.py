"""What ports carried, as evidence: with SHARP one vector goes up, where a ring sends 2(n-1)/n."""

from dataclasses import dataclass


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
    def known(self) -> bool:
        return self.sent is not None and self.nbytes > 0

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
        return self.known and self.others > 1 and self.vectors > (1 + self.others) / 2

    @property
    def prove(self) -> bool:
        """Whether nothing but SHARP sends so little."""
        return self.known and (self.nodes or 0) > 2 and not self.contradict

    def __str__(self) -> str:
        if not self.known:
            return "bytes per port are not known"
        what = "a ring" if (self.nodes or 0) <= 2 else "anything else"
        told = f"where SHARP sends 1 and {what} {self.others:.2f}"
        return f"{self.vectors:.2f} vectors left a node for each operation, {told}"
