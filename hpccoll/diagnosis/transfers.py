"""Measured transfers, as logarithms of their times."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.diagnosis.slot_records import Floats, Integers, Kind, Procedure, Purpose, Slots

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
        return _at_partners(self.sent, self.partners)

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


def _at_partners(values: NDArray[Any], partners: Integers) -> NDArray[Any]:
    """Return the value of the partner of each node, [slots, nodes], in less time than ``np.take_along_axis``."""
    slots, nodes = partners.shape
    first = np.arange(slots)[:, None] * nodes
    at_partners: NDArray[Any] = values.ravel().take(partners + first)
    return at_partners


def measure_transfers(partners: Integers, purpose: Purpose) -> Procedure[Transfers]:
    """Measure slots. A pair counts only with the times of both of its directions."""
    times = yield Slots(partners, purpose)
    is_valid = np.isfinite(times) & (partners != np.arange(partners.shape[1]))
    is_valid &= _at_partners(is_valid, partners)
    return Transfers(partners, np.log(np.where(is_valid, times, np.nan)))
