"""From which rate of the network downward compression pays: there codecs and wire take as long as the whole step."""

import math
from collections.abc import Callable
from typing import NamedTuple

from hpccoll.common.units import format_bit_rate

NETWORKS = 1e-3, 1e2
"""The rates of the slowest and the fastest network that are tried, over that of the machine's own."""

ALIKE = 1e-3
"""The relative difference of two networks up to which one stands for the other."""


class PayingRate(NamedTuple):
    """The rates of a link, in bits a second, below which a compressed step takes less than the same one without.

    A rate of 0 means that it takes longer on every network that was tried.
    """

    likely: float
    low: float  # the lower end of the interval
    high: float  # the upper end
    most: float  # the fastest link that was tried

    @classmethod
    def of(cls, link: float, likely: float, ends: tuple[float, float]) -> "PayingRate":
        """Return the rates of factors of ``paying_factor``; ``ends`` are the factors of the interval.

        ``link`` is the rate of the machine's link in bytes a second, of payload or with headers: so
        are the rates.
        """
        factors = likely, *ends
        bits = 8 * link
        return cls(bits * likely, bits * min(factors), bits * max(factors), bits * NETWORKS[1])

    @property
    def text(self) -> str:
        """The rates in words: ``pays below 3.1 Gbit/s (2.7 Gbit/s to 3.6 Gbit/s)``."""
        head = f"pays {self._words(self.likely, 'below ')}"
        if self.low == self.high:
            return head
        return f"{head} ({self._words(self.low)} to {self._words(self.high)})"

    def _words(self, rate: float, before: str = "") -> str:
        if rate >= self.most:
            return f"at any rate up to {format_bit_rate(self.most)}"
        if not rate:
            return "at no rate"
        return f"{before}{format_bit_rate(rate)}"


def paying_factor(longer_s: Callable[[float], float]) -> float:
    """Return how many times as fast a network is on which a compressed step takes as long as the same one without.

    Args:
        longer_s: returns by how many seconds compression makes the step longer, given how many
            times as fast the network is; it is negative for slower networks than the one that is
            sought.

    Returns:
        0 if the step is longer on all of NETWORKS, and the fastest of them if it is shorter on all.
    """
    slow, fast = NETWORKS
    if longer_s(slow) >= 0:
        return 0.0
    if longer_s(fast) < 0:
        return fast
    while fast > slow * (1 + ALIKE):
        middle = math.sqrt(slow * fast)
        if longer_s(middle) >= 0:
            fast = middle
        else:
            slow = middle
    return math.sqrt(slow * fast)
