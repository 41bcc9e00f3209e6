"""Bandwidth of the memory that ranks of one node share: what a single copy of the data needs at the rate of a copy.

The rate is measured in each launch (measure/run/copy_rates.py), for several sizes, because caches
that hold the data are faster than memory. The bytes are those of ``Collective.memory``.
"""

from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from hpccoll.schedule import COLLECTIVES
from hpccoll.store.schema import BEYOND_CACHES, COPY_RATES

if TYPE_CHECKING:
    from hpccoll.store.rows import Row, Run


@dataclass(frozen=True, slots=True)
class CopyRates:
    """The rate of copies between all ranks of a node at once; without sizes it is unknown."""

    ranks: int = 0  # the ranks that copied
    sizes: tuple[float, ...] = ()  # the bytes of the two buffers of a rank, ascending
    # for each, the bytes per second that all ranks together read and wrote
    rates: tuple[float, ...] = ()

    @classmethod
    def of(cls, run: "Run | None") -> "CopyRates":
        """Return the rates that ``run`` recorded; unknown ones if it recorded none, or if they are damaged."""
        recorded: Any = run.provenance.get(COPY_RATES) if run else None
        pairs = []
        try:
            for entry in recorded["sizes"]:
                pairs.append((float(entry["bytes"]), float(entry["Bps"])))
            ranks = int(recorded["ranks"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return UNKNOWN_RATES
        pairs.sort()
        if not all(0 < number < inf for number in chain.from_iterable(pairs)):
            return UNKNOWN_RATES
        sizes = tuple(size for size, _ in pairs)
        rates = tuple(rate for _, rate in pairs)
        return cls(ranks, sizes, rates)

    def rate(self, nbytes: float) -> float | None:
        """Return the rate for two buffers of ``nbytes``: logarithmic between sizes.

        It is None below the smallest: there the time of a call is not that of its bytes. Above the
        largest it is the rate of that one, or None if caches may have held it, because memory did
        not suffice for larger ones.
        """
        if not self.sizes or nbytes < self.sizes[0] or self.sizes[-1] < min(nbytes, BEYOND_CACHES):
            return None
        log_rate = np.interp(np.log(nbytes), np.log(self.sizes), np.log(self.rates))
        return float(np.exp(log_rate))


UNKNOWN_RATES = CopyRates()


def memory_limit(row: "Row", memory: CopyRates) -> float | None:
    """Return the busbw of a single copy of the data of ``row`` at the rate of a copy; None if either is unknown.

    All ranks of the launch must take part, on one node, with a core each and with their buffers in
    its memory.
    """
    collective = COLLECTIVES.get(row.collective)
    if collective is None or collective.memory is None or collective.busbw is None or row.floor:
        return None
    all_take_part = row.nodes <= 1 and row.ranks == memory.ranks and row.ranks > 1
    if not all_take_part or row.oversubscribed or row.device != "cpu":
        return None
    share = collective.buffer_share(row.ranks, in_place=row.in_place)
    rate = memory.rate(row.bytes * share)
    return rate and rate * collective.busbw(row.ranks) / collective.memory(row.ranks, row.in_place)
