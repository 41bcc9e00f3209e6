"""Measured transfers, as logarithms of their times."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.diagnosis.records import Floats, Integers, Kind, Procedure, Purpose, Slots

DIRECTIONS: tuple[Kind, ...] = "node", "send", "receive"
"""The faults of a node that show in both directions, in what it sends, and in what it receives."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Measured slots: logarithms of times in seconds, [slots, nodes]; NaN if there is none."""

    partners: Integers
    sent: Floats  # of the transfer from each node to its partner

    @property
    def received(self) -> Floats:
        """Of the transfer from the partner of each node to it."""
        return np.asarray(np.take_along_axis(self.sent, self.partners, 1))

    @property
    def both(self) -> Floats:
        """Of the pair of each node: the mean of both directions, so that a pair occurs twice."""
        return (self.sent + self.received) / 2

    @property
    def directions(self) -> tuple[Floats, Floats, Floats]:
        """What shows the faults of DIRECTIONS."""
        return self.both, self.sent, self.received

    def less(self, expected: NDArray[np.floating]) -> "Transfers":
        """Return what is left beyond expected logarithms of times."""
        return Transfers(self.partners, self.sent - expected)


def measure_transfers(partners: Integers, purpose: Purpose) -> Procedure[Transfers]:
    """Measure slots. A pair counts only with the times of both of its directions."""
    times = yield Slots(partners, purpose)
    counts = np.isfinite(times) & (partners != np.arange(partners.shape[1]))
    counts &= np.take_along_axis(counts, partners, 1)
    return Transfers(partners, np.log(np.where(counts, times, np.nan)))
