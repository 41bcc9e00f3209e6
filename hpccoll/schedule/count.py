"""Count: the messages and bytes of a schedule, per rank and tier, and along its critical path."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.cut import Cut
from hpccoll.schedule.layout import TIERS
from hpccoll.schedule.match import Messages, match
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Part, Range


@dataclass(frozen=True, slots=True)
class Counts:
    """The messages and bytes of one operation."""

    messages: NDArray[np.int64]  # sent by each rank, int [rank, tier]
    # bytes sent by each rank, int [rank, tier]; a rank's copies to itself are in tier 0
    sent: NDArray[np.int64]
    reduced: NDArray[np.int64]  # bytes folded by each rank, int [rank]
    steps: int  # the most steps with messages that follow one another
    # the most bytes that are sent one after another, where a rank sends and receives at once
    critical_bytes: int
    critical_reduced: int  # the most bytes that are folded one after another

    @property
    def wire_bytes(self) -> int:
        """Bytes that cross between nodes, all ranks together."""
        return int(self.sent[:, TIERS.index("rack") :].sum())


def count(schedules: Sequence[Schedule], cut: Cut) -> Counts:
    """Count a whole operation: every lane of ``cut``, whose schedules are taken in turn from the slices."""
    ranks = schedules[0].layout.ranks
    messages = np.zeros((ranks, len(TIERS)), np.int64)
    sent = np.zeros_like(messages)
    reduced = np.zeros(ranks, np.int64)
    steps = critical_bytes = critical_reduced = 0
    for lane in range(cut.lanes):
        counts = _count_lane(schedules[lane % len(schedules)], cut, lane)
        messages += counts.messages
        sent += counts.sent
        reduced += counts.reduced
        steps = max(steps, counts.steps)
        critical_bytes += counts.critical_bytes
        critical_reduced += counts.critical_reduced
    return Counts(messages, sent, reduced, steps, critical_bytes, critical_reduced)


def received_bytes(schedules: Sequence[Schedule], cut: Cut) -> NDArray[np.int64]:
    """Return the bytes that each rank receives from others in one operation, [rank]; lanes are as in ``count``."""
    received = np.zeros(schedules[0].layout.ranks, np.int64)
    for lane in range(cut.lanes):
        for matched in match(schedules[lane % len(schedules)]):
            for m in matched.landed:
                nbytes = cut.lengths(lane, m.landed, m.target) * cut.itemsize
                np.add.at(received, m.target, nbytes * (m.source != m.target))
    return received


def crossings(schedule: Schedule, tier: str = "node", end: str | None = None) -> NDArray[np.int64]:
    """Return how often each unit is sent from one node to another, over all ranks and steps, [unit].

    It takes as long as there are steps, and holds for every size and number of lanes: see
    ``wire_bytes``.

    Args:
        schedule: what is sent.
        tier: ``node``, or ``rack``: how often it is sent from one rack to another.
        end: ``source`` or ``target`` counts only what has this end where workers are; None counts
            all.
    """
    location = np.array(getattr(schedule.layout, tier))
    works = np.isin(location, location[: schedule.layout.workers])
    # 1 where a range that crosses begins, -1 where it ends
    edges = np.zeros(schedule.units + 1, np.int64)
    for matched in match(schedule):
        for m in matched.sent:
            away = location[m.source] != location[m.target]
            if end is not None:
                away = away & works[getattr(m, end)]
            for r in m.sent.ranges:
                np.add.at(edges, np.asarray(r.first)[away], 1)
                np.add.at(edges, np.asarray(r.last)[away], -1)
    return edges.cumsum()[:-1]


def smallest_message_units(schedule: Schedule) -> int:
    """Return the fewest units of a message from one rank to another that is not empty; 0 if there is none."""
    smallest = []
    for matched in match(schedule):
        for m in matched.sent:
            units = _units(m)
            moved = units[(m.source != m.target) & (units > 0)]
            if len(moved):
                smallest.append(int(moved.min()))
    return min(smallest, default=0)


def _units(messages: Messages) -> NDArray[np.int64]:
    lengths = [np.asarray(r.last) - np.asarray(r.first) for r in messages.sent.ranges]
    return np.broadcast_to(np.sum(lengths, axis=0), messages.source.shape)


def wire_bytes(crossings: Sequence[NDArray[np.int64]], cut: Cut) -> int:
    """Return the bytes that cross, all ranks together, from the ``crossings`` of each slice.

    It holds for equal units; for unequal blocks use ``unequal_wire_bytes``.
    """
    elements = 0
    for lane in range(cut.lanes):
        lengths = np.diff(cut.edges(lane))
        elements += int(crossings[lane % len(crossings)] @ lengths)
    return elements * cut.itemsize


def unequal_wire_bytes(schedules: Sequence[Schedule], cut: Cut, tier: str = "node") -> int:
    """Return the bytes that cross for one size with unequal blocks; each slice is matched once."""
    elements = 0
    for number, schedule in enumerate(schedules):
        location = np.array(getattr(schedule.layout, tier))
        lanes = range(number, cut.lanes, len(schedules))
        for matched in match(schedule):
            for m in matched.sent:
                away = location[m.source] != location[m.target]
                crossing = _part_of_some(m.sent, away)
                source = m.source[away]
                elements += sum(int(cut.lengths(lane, crossing, source).sum()) for lane in lanes)
    return elements * cut.itemsize


def _part_of_some(part: Part, chosen: NDArray[np.bool]) -> Part:
    """Return a part over messages as a part over those that are chosen."""
    ranges = [Range(np.asarray(r.first)[chosen], np.asarray(r.last)[chosen]) for r in part.ranges]
    return Part(part.buffer, tuple(ranges))


def _count_lane(schedule: Schedule, cut: Cut, lane: int) -> Counts:
    layout = schedule.layout
    messages = np.zeros((layout.ranks, len(TIERS)), np.int64)
    sent = np.zeros_like(messages)
    reduced = np.zeros(layout.ranks, np.int64)
    # steps, bytes and folded bytes up to the start of each rank's step
    path = np.zeros((layout.ranks, 3), np.int64)
    # the same, up to the start of the steps that its step cannot end before
    awaited = np.zeros_like(path)
    # in its step: whether messages, bytes out, bytes in, bytes folded
    step = np.zeros((layout.ranks, 4), np.int64)
    departed: dict[Messages, NDArray[np.int64]] = {}
    for matched in match(schedule):
        for m in matched.sent:
            nbytes = cut.lengths(lane, m.sent, m.source) * cut.itemsize
            tier = layout.tier(m.source, m.target)
            away = nbytes * (tier > 0)
            np.add.at(messages, (m.source, tier), nbytes > 0)
            np.add.at(sent, (m.source, tier), nbytes)
            np.maximum.at(step[:, 0], m.source, away > 0)
            np.add.at(step[:, 1], m.source, away)
            departed[m] = path[m.source]
        for m in departed:
            np.maximum.at(awaited, m.source, path[m.target])
        for m in matched.landed:
            np.maximum.at(awaited, m.target, departed.pop(m))
            nbytes = cut.lengths(lane, m.landed, m.target) * cut.itemsize
            away = nbytes * (m.source != m.target)
            np.maximum.at(step[:, 0], m.target, away > 0)
            np.add.at(step[:, 2], m.target, away)
            np.add.at(step[:, 3], m.target, nbytes * (m.operand is not None))
        added = np.stack([step[:, 0], np.maximum(step[:, 1], step[:, 2]), step[:, 3]], axis=1)
        path[matched.ended] = (np.maximum(path, awaited) + added)[matched.ended]
        reduced[matched.ended] += step[matched.ended, 3]
        step[matched.ended] = 0
    steps, critical_bytes, critical_reduced = path.max(axis=0).tolist()
    return Counts(messages, sent, reduced, steps, critical_bytes, critical_reduced)
