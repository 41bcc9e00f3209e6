"""The waves of an operation, at the ranks that stand for all, as runs of equal ones.

If schedules are regular and the layout is made of equal blocks of ranks, the ranks of one block
stand for all. This is exact: all blocks begin alike, a machine treats ranks alike, and what ranks
share they share inside a block; so blocks that are alike before a wave are alike after it. A
message to another block arrives where a message from another block arrives in this one. A block is
as long as the layout, the schedules and the sizes of units take to repeat.

Waves that repeat, such as those of a ring, are one run, which is read once for all bounds of a
machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, islice
from math import lcm

import numpy as np

from hpccoll.model.traffic import KEPT_MESSAGES, Ints, LaneWave, WaveRun, Waves, waves
from hpccoll.schedule import NONE, Copy, Cut, Layout, Part, RecvReduce, Schedule, Send
from hpccoll.schedule.layout import equal_block, least_period

LONGEST_RUN = 1 << 17
"""The most waves of a run that repeats: those of a second of reading, so that there is progress after it."""


class LaneRuns:
    """The runs of a lane. They are kept as long as its operation has room; the others are read again each time."""

    def __init__(self, operation: "OperationWaves", schedule: Schedule, lane: int) -> None:
        self.operation = operation
        self.schedule = schedule
        self.lane = lane
        self.kept: list[WaveRun] = []
        self.complete = False  # whether all are kept
        self.unread = self._read()

    def __iter__(self) -> Iterator[WaveRun]:
        number = 0
        while number < len(self.kept) or self._keep_next():
            yield self.kept[number]
            number += 1
        if not self.complete:
            yield from islice(self._read(), number, None)

    def _keep_next(self) -> bool:
        """Read and keep one more run; return False if there is none, or no room for it."""
        if self.complete or self.operation.room <= 0:
            return False
        try:
            run = next(self.unread, None)
            if run:
                self.kept.append(run)
                self.operation.room -= sum(len(wave.source) for wave in run.waves)
        # an interrupt, too, ends a generator, which would look like the last run
        except BaseException:
            self.unread = islice(self._read(), len(self.kept), None)
            raise
        self.complete = run is None
        return not self.complete

    def _read(self) -> Iterator[WaveRun]:
        cut = self.operation.cut
        period = max(1, self.operation.cycle(self.lane))
        most_repeats = max(1, LONGEST_RUN // period)
        if self.schedule.regularity:
            lane_waves = _regular_waves(self.schedule, cut, self.lane, self.operation.block)
        else:
            lane_waves = (wave.in_lane(cut, self.lane) for wave in waves(self.schedule))
        cycles = iter(lambda: tuple(islice(lane_waves, period)), ())
        for cycle, alike in groupby(cycles):
            while repeats := sum(1 for _ in islice(alike, most_repeats)):
                yield WaveRun(cycle, repeats)


class OperationWaves:
    """The runs of all lanes of an operation; those of one schedule and size are shared.

    Args:
        schedules: the schedules of the slices.
        cut: how the vector is cut into lanes and units.
        everyone: whether to yield the messages of all ranks, where some stand for all as well.
    """

    def __init__(self, schedules: Sequence[Schedule], cut: Cut, *, everyone: bool = False) -> None:
        self.schedules = schedules
        self.layout = schedules[0].layout
        self.cut = cut
        self.block = self.layout.ranks if everyone else _common_block(schedules, cut)
        self.room = KEPT_MESSAGES
        self.runs_by_lane: dict[tuple[int, int], LaneRuns] = {}

    @property
    def placed(self) -> Layout:
        """The layout of the ranks that the messages of the waves name: of two blocks, if one stands for all."""
        if self.block == self.layout.ranks:
            return self.layout
        return self.layout.subset(range(2 * self.block))

    def cycle(self, lane: int) -> int:
        """Return after how many waves those of a lane may repeat; 0 if it is unknown."""
        regularity = self.schedules[lane % len(self.schedules)].regularity
        if regularity is None or not regularity.shifts:
            return 0
        period = _unit_period(self.cut, lane)
        return period if period * self.block <= KEPT_MESSAGES else 0

    def of(self, lane: int) -> LaneRuns:
        """Return the runs of a lane."""
        number = lane % len(self.schedules)
        is_equal = self.cut.call.traffic is None  # lanes of one size are alike
        key = number, int(self.cut.edges(lane)[-1]) if is_equal else lane
        if key not in self.runs_by_lane:
            self.runs_by_lane[key] = LaneRuns(self, self.schedules[number], lane)
        return self.runs_by_lane[key]


@lru_cache(maxsize=2)
def operation_waves(schedules: tuple[Schedule, ...], cut: Cut) -> OperationWaves:
    """Return the waves of an operation, the same for all bounds of a machine."""
    return OperationWaves(schedules, cut)


def largest_fold(waves: Waves) -> int:
    """Return the most bytes that a rank folds of one wave of messages; 0 if it folds none."""
    largest = 0
    for run in waves.of(0):
        for wave in run.waves:
            if wave.reduces.any():
                folded = np.bincount(wave.target % waves.block, wave.nbytes * wave.reduces)
                largest = max(largest, int(folded.max()))
    return largest


def cut_of_port(cut: Cut, ports: int) -> Cut:
    """Return the cut of the part of a vector that each port of a rank sends."""
    return replace(cut, count=-(-cut.count // ports))


def _common_block(schedules: Sequence[Schedule], cut: Cut) -> int:
    """Return how many ranks, the first ones, stand for all; all ranks if no fewer can."""
    layout = schedules[0].layout
    lane_of_size = {int(cut.edges(lane)[-1]): lane for lane in range(cut.lanes)}
    units = lcm(*(_unit_period(cut, lane) for lane in lane_of_size.values()))
    block = 1
    for schedule in schedules:
        regularity = schedule.regularity
        if regularity is None or (units > 1 and regularity.shifts is None):
            return layout.ranks
        block = lcm(block, regularity.period)
        if regularity.shifts:
            block = lcm(block, units)
    block = lcm(block, equal_block(layout))
    return block if layout.ranks % block == 0 else layout.ranks


def _unit_period(cut: Cut, lane: int) -> int:
    """Return after how many units the sizes of the units of a lane repeat."""
    return least_period(np.diff(cut.edges(lane)))


def _regular_waves(schedule: Schedule, cut: Cut, lane: int, block: int) -> Iterator[LaneWave]:
    """Yield the waves of a regular schedule at the ranks of its first block, which may be all ranks.

    Where ranks do what rank 0 does, shifted, its steps alone are read, as numbers.
    """
    ranks = schedule.layout.ranks
    everyone = np.arange(block)
    shifts = schedule.regularity and schedule.regularity.shifts
    edges = cut.edges(lane) * cut.itemsize
    lengths = np.diff(edges)
    period = _unit_period(cut, lane)
    waves_by_content: dict[object, LaneWave] = {}
    targets: dict[object, Ints] = {}
    for step in schedule.steps(everyone if shifts is None else 0):
        messages = [action for action in step.actions if not isinstance(action, Copy)]
        if not messages or np.all(messages[0].peer == NONE):
            continue  # copies on a rank take no time
        send, arrival = messages if isinstance(messages[0], Send) else reversed(messages)
        if shifts is None:
            peer = np.asarray(send.peer)
            nbytes = cut.lengths(lane, send.part, everyone) * cut.itemsize
            place: object = peer.tobytes()
            key: object = place, type(arrival), nbytes.tobytes()
        else:
            place = send.peer
            key = (
                place,
                type(arrival),
                *((r.first % period, r.last - r.first) for r in send.part.ranges),
            )
        if key not in waves_by_content:
            if len(waves_by_content) * block > KEPT_MESSAGES:
                waves_by_content.clear()
                targets.clear()
            if shifts is not None:
                peer = (everyone + send.peer) % ranks
                if period == 1 or not shifts:
                    nbytes = np.full(
                        block, sum(edges[r.last] - edges[r.first] for r in send.part.ranges)
                    )
                else:
                    nbytes = _shifted_bytes(send.part, lengths, shifts * everyone)
            target = targets.setdefault(place, np.where(peer < block, peer, block + peer % block))
            reduces = np.full(block, isinstance(arrival, RecvReduce))
            waves_by_content[key] = LaneWave.of(everyone, target, reduces, nbytes, everyone)
        yield waves_by_content[key]


def _shifted_bytes(part: Part, lengths: Ints, shifts: Ints) -> Ints:
    """Return the bytes of each rank that sends the units of ``part``, shifted; ``lengths`` are those of all units."""
    total = np.zeros(len(shifts), np.int64)
    for unit in part.units:
        total += lengths[(unit + shifts) % len(lengths)]
    return total
