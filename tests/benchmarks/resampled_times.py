"""Times for further diagnoses of a machine, made of recorded diagnoses of it: a bootstrap whose blocks are whole runs.

A new procedure asks for other pairs than those recorded. It follows the slots of one run in their
order, from the first again after the last. A slot takes the level (the median of the logarithms) of
its recorded slot, and each of its pairs the deviations of that very pair, in both directions at
once, from the slot of the run nearest in time in which it transferred. No transfer is taken twice,
because the chance that makes a node suspect must not confirm itself in the retest. If those of a
pair are used up, transfers of other runs follow, plus what its nodes were slower in the run that is
followed: by the difference of their lower quartiles, of sending and receiving. So what differs
between nodes and pairs stays, and so does what differed in one run only: the retest meets the noise
of the screen if that lasted.

C. A. Field, A. H. Welsh: Bootstrapping clustered data, J. R. Statist. Soc. B 69 (2007): clusters
are drawn whole.
H. R. Kuensch: The jackknife and the bootstrap for general stationary observations, Annals of
Statistics 17 (1989): blocks of what is dependent in time stay in order.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from hpccoll.diagnosis.recorded import MeasuredSlots
from hpccoll.diagnosis.robust_statistics import QUARTILE, quantile
from hpccoll.diagnosis.slot_records import Floats, Integers, Slots

Pair: TypeAlias = tuple[int, int]
"""Two endpoints, the lower one first."""


class UsedUpError(Exception):
    """There are too few recorded transfers of a pair."""


class RecordedRun:
    """The times of one diagnosis.

    Attributes:
        levels: [slots]: the median of the logarithms.
        transfers: of each pair, the slots in which it transferred, and the deviations of the
            logarithms from the level, of the transfers from its lower and from its higher endpoint.
        effects: [2, endpoints]: the lower quartiles of the deviations of what an endpoint sends,
            and of what it receives.
    """

    def __init__(self, measured: Sequence[MeasuredSlots]) -> None:
        partners = np.concatenate([each.slots.partners[: len(each.seconds)] for each in measured])
        logarithms = np.log(np.concatenate([each.seconds for each in measured]))
        logarithms[~np.isfinite(logarithms)] = np.nan
        known = np.isfinite(logarithms).any(1)
        partners, logarithms = partners[known], logarithms[known]
        self.levels = quantile(logarithms)
        deviations = logarithms - self.levels[:, None]
        received = np.take_along_axis(deviations, partners, 1)
        self.effects = np.array([quantile(each.T, QUARTILE) for each in (deviations, received)])
        self.transfers: dict[Pair, list[tuple[int, Floats]]] = defaultdict(list)
        for slot, beside in enumerate(partners):
            for pair in pairs_of(beside):
                both = deviations[slot, [*pair]]
                if np.isfinite(both).all():
                    self.transfers[pair].append((slot, both))


class ResampledTimes:
    """The times of one procedure.

    Args:
        runs: the recorded diagnoses of one machine.
        number: of the procedure; the runs take turns in being followed.

    Raises:
        UsedUpError: if there are no runs.
    """

    def __init__(self, runs: Sequence[RecordedRun], number: int) -> None:
        if not runs:
            raise UsedUpError("no run is recorded")
        first = number % len(runs)
        self.runs = [*runs[first:], *runs[:first]]
        self.slots = 0  # so far
        self.used: set[tuple[Pair, int, int]] = set()

    def measure(self, slots: Slots) -> Floats:
        """Return the times of slots, as ``records.Procedure`` has them.

        Raises:
            UsedUpError: if more transfers of a pair are asked for than are recorded.
        """
        seconds = np.full(slots.partners.shape, np.nan)
        for row, partners in zip(seconds, slots.partners, strict=True):
            levels = self.runs[0].levels
            slot = self.slots % len(levels)
            for pair in pairs_of(partners):
                row[[*pair]] = np.exp(levels[slot] + self._next(pair, slot))
            self.slots += 1
        return seconds

    def _next(self, pair: Pair, slot: int) -> Floats:
        """Return the deviations of the transfer of a pair that is nearest in time, of those not used before."""
        for number, run in enumerate(self.runs):
            for at, deviations in sorted(
                run.transfers[pair], key=lambda transfer: abs(transfer[0] - slot)
            ):
                if (pair, number, at) not in self.used:
                    self.used.add((pair, number, at))
                    send, receive = self.runs[0].effects[:, pair] - run.effects[:, pair]
                    return deviations + send + receive[::-1]
        raise UsedUpError(f"all transfers of endpoints {pair} in {len(self.runs)} runs are used up")


def pairs_of(partners: Integers) -> Iterator[Pair]:
    """Yield the pairs of a slot."""
    for one in np.flatnonzero(partners > np.arange(len(partners))).tolist():
        yield one, int(partners[one])
