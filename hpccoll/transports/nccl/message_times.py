"""Timetable: at which logical time every message of a schedule has both its ends under way.

A message belongs to the group of that time. Both of its ends then have it in the group of the same number, a rank's
groups come in the order of their numbers, and what ends a group is in it: groups that wait for each other for ever
cannot be. A step whose messages have several times spans as many groups; the next step has later ones.

Times come of the schedule as it is written, in place: contributions that lie in src change no message.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Index, Messages, Schedule, Step, match

MessageTimes: TypeAlias = Mapping[tuple[bool, int], deque[int]]
"""Of the messages of a rank with another, in the order of its steps and as listed in each; by (sends, peer)."""


def message_times(schedule: Schedule, times: int, me: int) -> MessageTimes:
    """Return when the messages of rank ``me`` are, where it runs through ``schedule`` so many times in a row."""
    table = _schedule_times(schedule, times)
    found: dict[tuple[bool, int], deque[int]] = defaultdict(deque)
    for sends, log, mine, peers in ((True, table.sent, 0, 1), (False, table.landed, 1, 0)):
        at = log[table.ends[mine][log] == me]
        for peer, time in zip(table.ends[peers][at].tolist(), table.time[at].tolist(), strict=True):
            found[sends, peer].append(time)
    return found


@dataclass(frozen=True, slots=True)
class _ScheduleTimes:
    """All messages between two ranks.

    Args:
        ends: the source and the target of each.
        time: of each.
        sent: their numbers in the order in which senders come to them.
        landed: their numbers in the order in which receivers do.
    """

    ends: NDArray[np.int32]
    time: NDArray[np.int32]
    sent: NDArray[np.int32]
    landed: NDArray[np.int32]


@lru_cache(maxsize=16)  # of a sweep's sizes each asks for the same: 64 ranks have 8064 messages in a ring
def _schedule_times(schedule: Schedule, times: int) -> _ScheduleTimes:
    def steps(me: Index) -> Iterator[Step]:
        return chain.from_iterable(schedule.steps(me) for _ in range(times))

    begun = np.zeros(schedule.layout.ranks, np.int32)  # when the step under way of each rank began
    numbers: dict[Messages, NDArray[np.int32]] = {}
    ends, time, landed, count = [np.empty((2, 0), np.int32)], [np.empty(0, np.int32)], [np.empty(0, np.int32)], 0
    late: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    for now, round_ in enumerate(match(Schedule(schedule.layout, schedule.units, steps))):
        for m in round_.sent:
            numbers[m] = np.arange(count, count + len(m.source), dtype=np.int32)
            ends.append(np.array([m.source, m.target], np.int32))
            time.append(np.full(len(m.source), now, np.int32))
            count += len(m.source)
        for m in round_.landed:
            landed.append(numbers.pop(m))
            late.append((landed[-1], begun[m.target]))
        begun[round_.ended] = now + 1
    both, when = np.concatenate(ends, axis=1), np.concatenate(time)
    for number, receiver in late:
        when[number] = np.maximum(when[number], receiver)
    apart = both[0] != both[1]  # what a rank copies is no message
    order = np.concatenate(landed)
    return _ScheduleTimes(both, when, np.flatnonzero(apart).astype(np.int32), order[apart[order]])
