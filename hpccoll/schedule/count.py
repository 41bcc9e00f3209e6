"""Count: the messages and bytes of a schedule, per rank and tier, and along its critical path."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.cut import Cut
from hpccoll.schedule.layout import TIERS
from hpccoll.schedule.match import match
from hpccoll.schedule.registry import Schedule

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counts:
    """What one operation takes.

    Args:
        messages: sent by each rank, int [rank, tier].
        sent: bytes sent by each rank, int [rank, tier]; a rank's copies to itself are in tier 0.
        reduced: bytes folded by each rank, int [rank].
        rounds: the most messages that follow from one another.
        critical_bytes: the most bytes that are sent one after another, where a rank sends and receives at once.
        critical_reduced: the most bytes that are folded one after another.
    """

    messages: NDArray[np.int64]
    sent: NDArray[np.int64]
    reduced: NDArray[np.int64]
    rounds: int
    critical_bytes: int
    critical_reduced: int

    @property
    def wire_bytes(self) -> int:
        """Bytes that cross between nodes, all ranks together."""
        return int(self.sent[:, TIERS.index("rack") :].sum())


def count(schedules: Sequence[Schedule], cut: Cut) -> Counts:
    """Count a whole operation: every lane of ``cut``, whose schedules are taken in turn from the slices."""
    layout = schedules[0].layout
    messages = np.zeros((layout.ranks, len(TIERS)), np.int64)
    sent = np.zeros_like(messages)
    reduced = np.zeros(layout.ranks, np.int64)
    critical = np.zeros((cut.lanes, 3), np.int64)
    for lane in range(cut.lanes):
        path = np.zeros((3, layout.ranks), np.int64)  # rounds, bytes and folded bytes that have led to each rank
        for moment in match(schedules[lane % len(schedules)]):
            step = np.zeros((4, layout.ranks), np.int64)  # rounds, bytes out, bytes in, bytes folded of each rank
            before = path.copy()
            for m in moment.landed:
                nbytes = np.asarray(cut.lengths(lane, m.sent)) * cut.itemsize
                tier = layout.tier(m.source, m.target)
                moved = nbytes > 0
                np.add.at(messages, (m.source[moved], tier[moved]), 1)
                np.add.at(sent, (m.source, tier), nbytes)
                folded = nbytes if m.own is not None else np.zeros_like(nbytes)
                np.add.at(reduced, m.target, folded)
                away = m.source != m.target
                np.maximum.at(step[0], m.target, moved & away)
                np.add.at(step[1], m.source, nbytes * away)
                np.add.at(step[2], m.target, nbytes * away)
                np.add.at(step[3], m.target, folded)
                for ends in (m.source, m.target), (m.target, m.source):
                    for along in range(3):
                        np.maximum.at(path[along], ends[1], before[along][ends[0]])
            path += [step[0], np.maximum(step[1], step[2]), step[3]]
        critical[lane] = path.max(axis=1)
    return Counts(
        messages, sent, reduced,
        rounds=int(critical[:, 0].max()),
        critical_bytes=int(critical[:, 1].sum()),
        critical_reduced=int(critical[:, 2].sum()),
    )
