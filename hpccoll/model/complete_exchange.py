"""Complete exchanges: steps in which each rank sends to all others at once, at the ranks that stand for all.

All ranks of p send p - 1 messages in one step: 67 million for 8,192 ranks, too many to follow. But
ranks that lie alike do alike, and all of them share what they pass in the same way. So the ranks of
one equal block stand for all, and a link of a torus carries the mean of all links of its dimension
and direction. If units differ in size, all count as the largest one, because the rank that sends or
folds it ends last.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from hpccoll.model.traffic import LaneWave, WaveRun
from hpccoll.schedule import NONE, Cut, RecvReduce, Schedule, Send, Step
from hpccoll.schedule.layout import equal_block
from hpccoll.schedule.step import Copy


class ExchangeWaves:
    """The waves of an operation all of whose steps are complete exchanges: see ``equal_waves.OperationWaves``.

    Args:
        schedule: the schedule.
        cut: how the vector is cut, into one lane.
    """

    def __init__(self, schedule: Schedule, cut: Cut) -> None:
        self.layout = schedule.layout
        self.cut = cut
        self.block = equal_block(self.layout)
        self.placed = self.layout  # the ranks that targets are
        self._runs = [WaveRun((self._wave(step),), 1) for step in _steps(schedule, 0)]

    def of(self, lane: int) -> Sequence[WaveRun]:
        """Return the runs of a lane: there is only the first one."""
        return self._runs if lane == 0 else ()

    def _wave(self, step: Step) -> LaneWave:
        """Return a step of the block; other ranks send as much as the first one to ranks that are as far away."""
        sends = _sends(step)
        largest_unit = int(np.diff(self.cut.edges(0)).max()) * self.cut.itemsize
        sizes = [largest_unit * _units_of(send) for send in sends]
        shifts = np.array([send.peer for send in sends], np.int64)
        everyone = np.arange(self.block)
        source = np.tile(everyone, len(sends))
        target = (source + np.repeat(shifts, self.block)) % self.layout.ranks
        nbytes = np.repeat(np.array(sizes, np.int64), self.block)
        is_folded = any(isinstance(action, RecvReduce) for action in step.actions)
        return LaneWave.of(source, target, np.full(len(source), is_folded), nbytes, everyone)


@lru_cache(maxsize=4)
def complete_exchanges(schedule: Schedule, cut: Cut) -> ExchangeWaves | None:
    """Return the waves of an operation if all of its steps are complete exchanges in one lane; else None."""
    ranks = schedule.layout.ranks
    if cut.lanes > 1 or cut.call.traffic is not None or schedule.layout.aggregators:
        return None
    if all(_exchanges_only(schedule, me) for me in (0, ranks // 2, ranks - 1)):
        return ExchangeWaves(schedule, cut)
    return None


def _exchanges_only(schedule: Schedule, me: int) -> bool:
    """Return whether a rank has steps, and sends messages to all other ranks in each of them."""
    has_steps = False
    for step in _steps(schedule, me):
        if not _sends_to_all(step, schedule.layout.ranks):
            return False
        has_steps = True
    return has_steps


def _steps(schedule: Schedule, me: int) -> Iterator[Step]:
    """Yield the steps of a rank that have messages."""
    for step in schedule.steps(me):
        if any(not isinstance(action, Copy) and action.peer != NONE for action in step.actions):
            yield step


def _sends(step: Step) -> list[Send]:
    return [action for action in step.actions if isinstance(action, Send)]


def _units_of(send: Send) -> int:
    return sum(int(ends.last - ends.first) for ends in send.part.ranges)


def _sends_to_all(step: Step, ranks: int) -> bool:
    """Return whether a rank sends a message to every other rank."""
    peers = {int(send.peer) for send in _sends(step)}
    return len(_sends(step)) == ranks - 1 and len(peers - {NONE}) == ranks - 1
