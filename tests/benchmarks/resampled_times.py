"""Times for further diagnoses of a machine, drawn from recorded diagnoses of it: a moving-block bootstrap.

A new procedure asks for other pairs than those recorded. Its slots follow recorded ones in blocks: BLOCK slots that
followed one another in one run, from a place that is drawn, then another block. A slot takes the level (the median of
the logarithms) of its recorded slot, and each of its pairs the deviations of that very pair, in both directions at
once, from the recorded slot nearest in time in which it transferred; no transfer is taken twice in a procedure. So
whatever differs between nodes and pairs for good stays, and noise that lasts stays together in time, as well as the
order of the pairs within a block allows. Nothing is assumed of its distribution.

H. R. Kuensch: The jackknife and the bootstrap for general stationary observations, Annals of Statistics 17 (1989).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.analysis.diagnosis.recorded import MeasuredSlots
from hpccoll.analysis.diagnosis.records import Floats, Integers, Slots

BLOCK = 16
"""Slots of a block: in about as many, all pairs of 16 nodes transfer once."""

LEAST_TRANSFERS = 48
"""As many transfers as a procedure asks for of one pair, at most: all pairs, links again, and the longest retest."""

FAR = 1_000_000
"""How far in time the first slots of two runs are apart, in slots: transfers of the same run come first."""


class UsedUpError(Exception):
    """There are too few recorded transfers of a pair."""


@dataclass(frozen=True)
class PairTransfers:
    """The recorded transfers of one pair of endpoints."""

    times: Integers  # [transfers]: FAR * run + slot
    deviations: Floats  # [transfers, 2]: of the logarithms, by the lower and the higher endpoint

    def nearest(self, time: int, used: set[tuple[object, int]], pair: object) -> Floats:
        """Return the deviations of the transfer that is nearest in time, of those not used, which it then is."""
        for index in np.argsort(np.abs(self.times - time), kind="stable").tolist():
            if (pair, index) not in used:
                used.add((pair, index))
                return self.deviations[index]
        raise UsedUpError(f"endpoints {pair}: {len(self.times)} transfers are recorded; record more runs")


class RecordedTimes:
    """The times of recorded diagnoses of one machine, healthy in all of them."""

    def __init__(self, runs: Iterable[Sequence[MeasuredSlots]]) -> None:
        times, levels, pairs = [], [], {}
        for run, recorded in enumerate(runs):
            partners = np.concatenate([each.slots.partners[: len(each.seconds)] for each in recorded])
            logarithms = np.log(np.concatenate([each.seconds for each in recorded]))
            for slot, (beside, values) in enumerate(zip(partners, logarithms, strict=True)):
                if not np.isfinite(values).any():
                    continue
                level, time = float(np.median(values[np.isfinite(values)])), FAR * run + slot
                levels.append(level)
                times.append(time)
                for pair in pairs_of(beside):
                    both = values[list(pair)] - level
                    if np.isfinite(both).all():
                        pairs.setdefault(pair, []).append((time, both))
        self.times, self.levels = np.array(times), np.array(levels)
        self.pairs = {
            pair: PairTransfers(np.array([time for time, _ in found]), np.array([both for _, both in found]))
            for pair, found in pairs.items()
        }
        same_run = self.times[BLOCK - 1 :] // FAR == self.times[: len(self.times) - BLOCK + 1] // FAR
        self.starts = np.flatnonzero(same_run)  # of blocks

    @property
    def is_enough(self) -> bool:
        """Whether there are as many transfers of each pair as a procedure may ask for."""
        return min(len(pair.times) for pair in self.pairs.values()) >= LEAST_TRANSFERS

    def blocks(self, rng: np.random.Generator) -> Iterator[int]:
        """Yield indices of recorded slots, block after block, without end."""
        while True:
            first = int(rng.choice(self.starts))
            yield from range(first, first + BLOCK)


class ResampledTimes:
    """The times of one procedure."""

    def __init__(self, recorded: RecordedTimes, rng: np.random.Generator) -> None:
        self.recorded, self.blocks = recorded, recorded.blocks(rng)
        self.used: set[tuple[object, int]] = set()

    def measure(self, slots: Slots) -> Floats:
        """Return the times of slots, as ``records.Procedure`` has them.

        Raises:
            UsedUpError: if more transfers of a pair are asked for than are recorded.
        """
        seconds = np.full(slots.partners.shape, np.nan)
        for row, partners in zip(seconds, slots.partners, strict=True):
            index = next(self.blocks)
            for pair in pairs_of(partners):
                deviations = self.recorded.pairs[pair].nearest(int(self.recorded.times[index]), self.used, pair)
                row[list(pair)] = np.exp(self.recorded.levels[index] + deviations)
        return seconds


def pairs_of(partners: Integers) -> Iterator[tuple[int, int]]:
    """Yield the pairs of a slot, the lower endpoint first."""
    for one in np.flatnonzero(partners > np.arange(len(partners))).tolist():
        yield one, int(partners[one])
