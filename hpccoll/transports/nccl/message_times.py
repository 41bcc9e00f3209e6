"""The logical time of each message of a schedule: the first time at which both its ranks have reached it.

Each message belongs to the group of its time. Both ranks then have it in the group of the same
number, and each rank executes its groups in order, so that groups cannot deadlock. A step whose
messages have several times spans several groups; the next step has later times.

The times are those of the in-place schedule: contributions in src do not change the messages.
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
"""The times of a rank's messages by (sends, peer), in the order of its steps and as listed in each step."""


def message_times(schedule: Schedule, repetitions: int, me: int) -> MessageTimes:
    """Return the times of the messages of a rank, where all ranks run the schedule ``repetitions`` times."""
    table = _schedule_times(schedule, repetitions)
    times: dict[tuple[bool, int], deque[int]] = defaultdict(deque)
    for sends, order, mine, peers in ((True, table.sent, 0, 1), (False, table.received, 1, 0)):
        own = order[table.endpoints[mine][order] == me]
        for peer, time in zip(
            table.endpoints[peers][own].tolist(), table.time[own].tolist(), strict=True
        ):
            times[sends, peer].append(time)
    return times


@dataclass(frozen=True, slots=True)
class _ScheduleTimes:
    """The messages between different ranks."""

    # the source and the target of each message, copies within a rank included
    endpoints: NDArray[np.int32]
    time: NDArray[np.int32]  # the time of each message
    # the numbers of the messages in the order in which their senders reach them
    sent: NDArray[np.int32]
    # the numbers of the messages in the order in which their receivers reach them
    received: NDArray[np.int32]


# all sizes of a sweep need the same table; a ring of 64 ranks has 8064 messages
@lru_cache(maxsize=16)
def _schedule_times(schedule: Schedule, repetitions: int) -> _ScheduleTimes:
    def steps(me: Index) -> Iterator[Step]:
        return chain.from_iterable(schedule.steps(me) for _ in range(repetitions))

    # the time at which each rank's current step began
    step_start = np.zeros(schedule.layout.ranks, np.int32)
    numbers: dict[Messages, NDArray[np.int32]] = {}
    endpoints = [np.empty((2, 0), np.int32)]
    time = [np.empty(0, np.int32)]
    received = [np.empty(0, np.int32)]
    count = 0
    receiver_times: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    for now, matched in enumerate(match(Schedule(schedule.layout, schedule.units, steps))):
        for m in matched.sent:
            numbers[m] = np.arange(count, count + len(m.source), dtype=np.int32)
            endpoints.append(np.array([m.source, m.target], np.int32))
            time.append(np.full(len(m.source), now, np.int32))
            count += len(m.source)
        for m in matched.landed:
            received.append(numbers.pop(m))
            receiver_times.append((received[-1], step_start[m.target]))
        step_start[matched.ended] = now + 1
    all_endpoints = np.concatenate(endpoints, axis=1)
    all_times = np.concatenate(time)
    for number, receiver_time in receiver_times:
        all_times[number] = np.maximum(all_times[number], receiver_time)
    between_ranks = all_endpoints[0] != all_endpoints[1]  # copies within a rank are not messages
    order = np.concatenate(received)
    sent = np.flatnonzero(between_ranks).astype(np.int32)
    return _ScheduleTimes(all_endpoints, all_times, sent, order[between_ranks[order]])
