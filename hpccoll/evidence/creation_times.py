"""How long the ranks of each communicator took to create it, from NCCL's log.

With the subsystem INIT or PROFILE each rank logs its time and that of its phases, in seconds with
two decimals, after ``Init COMPLETE`` and from the same thread (ncclCommInitRankFunc in
src/init.cc). 2.22 logs ``Init timings: rank 0 nranks 8 total 1.23 (kernels 0.11, bootstrap ...)``;
from 2.23 on it is ``Init timings - ncclCommInitRank: rank 0 ...`` with the phase ``alloc``. The
line names no communicator: it is the one that the thread has just completed. Versions 2.18.3 to
2.21 log only ``Init START`` and ``Init COMPLETE``; the time between them is known if the log has
the time of day, in prefixes or from 2.26 on by NCCL_DEBUG_TIMESTAMP_LEVELS=INFO. NCCL logs START
after the bootstrap in 2.18.3 to 2.22, and before it from 2.23 on.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_record import CommunicatorCreation

_DAY_S = 86400.0


class CommunicatorRank(NamedTuple):
    """A rank of a communicator, as it logs that it creates it: the communicator's name and size, and the rank."""

    name: str
    size: int
    rank: int


UNNAMED = ""
"""The name of a communicator whose beginning and end the log does not have, as after a search for ``Init timings``."""


@dataclass(slots=True)
class _RankTimes:
    """The times of one rank of a communicator in seconds: NCCL's own, and from START to COMPLETE by the log's clock."""

    rank: int
    host: str | None
    total_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    logged_s: float | None = None


_COLUMNS = attrgetter("rank", "host", "total_s", "logged_s")


class CreationTimes:
    """The times that ranks log when they create communicators."""

    def __init__(self) -> None:
        # by process and address: the time of day
        self._started: dict[tuple[str, str], float | None] = {}
        # by thread: its last one, without timings
        self._completed: dict[str, tuple[CommunicatorRank, _RankTimes]] = {}
        self._created: Counter[tuple[str, CommunicatorRank]] = Counter()  # by process
        self._communicators: defaultdict[tuple[str, int, int], list[_RankTimes]] = defaultdict(list)

    def add_start(self, address: str, message: LogMessage) -> None:
        self._started[message.writer, address] = message.clock_s

    def add_end(self, address: str, member: CommunicatorRank, message: LogMessage) -> None:
        started = self._started.pop((message.writer, address), None)
        times = self._new_times(member, message)
        times.logged_s = _elapsed_s(started, message.clock_s)
        self._completed[message.thread] = member, times

    def add_timings(
        self,
        size: int,
        rank: int,
        total_s: float,
        phases_s: Mapping[str, float],
        message: LogMessage,
    ) -> None:
        member, times = self._completed.pop(message.thread, (None, None))
        if member is None or times is None or (member.size, member.rank) != (size, rank):
            times = self._new_times(CommunicatorRank(UNNAMED, size, rank), message)
        times.total_s = total_s
        times.phases_s = phases_s

    def _new_times(self, member: CommunicatorRank, message: LogMessage) -> _RankTimes:
        """Return the times of a rank, to be filled in.

        Names of communicators may come again, such as those of splits: the k-th of a process is the
            k-th of its peers.
        """
        times = _RankTimes(member.rank, message.host)
        number = self._created[message.writer, member]
        self._created[message.writer, member] += 1
        self._communicators[member.name, member.size, number].append(times)
        return times

    def communicators(self) -> Iterator[CommunicatorCreation]:
        """Yield the communicators with times, without those in which a rank comes twice: they share their name."""
        for (name, size, _), logged in self._communicators.items():
            ranks = set(map(attrgetter("rank"), logged))
            timed = sorted(filter(_has_time, logged), key=attrgetter("rank"))
            if timed and len(ranks) == len(logged) and max(ranks) < size:
                yield _creation(name, size, timed)


def _has_time(times: _RankTimes) -> bool:
    return times.total_s is not None or times.logged_s is not None


def _creation(name: str, size: int, timed: list[_RankTimes]) -> CommunicatorCreation:
    phases_s: dict[str, list[float | None]] = {}
    for number, times in enumerate(timed):
        for phase, time_s in times.phases_s.items():
            column = phases_s.setdefault(phase, [None] * len(timed))
            column[number] = time_s
    ranks, hosts, totals_s, logged_s = zip(*map(_COLUMNS, timed), strict=True)
    by_phase = {phase: tuple(column) for phase, column in phases_s.items()}
    return CommunicatorCreation(
        name=name,
        size=size,
        ranks=ranks,
        hosts=hosts,
        total_s=totals_s,
        phases_s=by_phase,
        logged_s=logged_s,
    )


def _elapsed_s(start_s: float | None, end_s: float | None) -> float | None:
    """Return the seconds from one time of day to the next; None if one is unknown, or if the clock went back."""
    if start_s is None or end_s is None:
        return None
    elapsed_s = round((end_s - start_s) % _DAY_S, 9)
    return elapsed_s if elapsed_s < _DAY_S / 2 else None
