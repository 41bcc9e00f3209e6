"""What is slow in a recorded job: transfer and waiting of each collective, late ranks, and what communication costs.

Clocks of hosts differ; ranks end a collective together, in which none can end before all have come.
The clock of each host is therefore shifted by the median difference of such ends, and what is left
bounds what is known about the order of starts.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from hpccoll.store.waiting import NO_RANK, LateRank, Seconds, Waiting, late_ranks, waiting_of
from hpccoll.traces.late import Lag, find_lags
from hpccoll.traces.operation_times import MatchedOperation, OperationTimes, match_operations
from hpccoll.traces.recorded_job import Computing, Group, RecordedJob, RecordedOperation, union_of

RESOLUTION_S = 2e-6
"""Recorders count microseconds."""

RESIDUAL_QUANTILE = 0.9
"""Of the operations, by how far apart the ends of their ranks are after the shift of the clocks."""


class RankTimes(NamedTuple):
    """What communication cost a rank, in seconds; None where its files do not tell."""

    rank: int
    host: str | None
    communication_s: float  # the union of its operations
    operations_s: float  # the sum of their durations, which is more where it has several at once
    transfer_s: float | None  # in operations that all ranks recorded; None without any
    waiting_s: float | None  # likewise: what is left of the operations is either of both
    exposed_s: float | None  # of that, while its device computed nothing
    window_s: float | None
    step_s: float | None

    @property
    def share(self) -> float | None:
        """The share of communication in the window of the record."""
        if not self.window_s:
            return None
        return self.communication_s / self.window_s

    @property
    def exposed(self) -> float | None:
        """The share of communication that no computing hides."""
        if self.exposed_s is None or not self.window_s:
            return None
        return self.exposed_s / self.window_s


@dataclass(frozen=True)
class SlowParts:
    """What is slow in a job; times in seconds."""

    times: Sequence[OperationTimes]
    ranks: Sequence[RankTimes]
    came_last: Sequence[LateRank]
    late: Sequence[Lag]
    unjudged: Sequence[int]  # the ranks that could not be judged late or not
    residual_s: float | None  # the uncertainty of the order of starts; None without such times
    shifts_s: Mapping[int, float]  # by rank: what is subtracted from the clock of its host
    unmatched: Mapping[Group, int]  # operations of groups whose ranks recorded different ones
    # of the time, by which a late rank is late; None: of the time in operations
    least_part: float | None = None

    def begin_ns(self, record: RecordedOperation) -> float | None:
        """Return when an operation began, by the aligned clocks; None where that is not known."""
        if record.started_ns is None:
            return None
        return record.started_ns - self.shifts_s.get(record.rank, 0.0) * 1e9

    @cached_property
    def hosts(self) -> Mapping[int, str | None]:
        """The hosts of ranks; None where they are not known."""
        return {recorded.rank: recorded.host for recorded in self.ranks}

    @cached_property
    def in_order(self) -> Sequence[tuple[float, OperationTimes, int]]:
        """When the first rank began each operation, as ``begin_ns``, with the times that have it, and its row there."""
        begun = []
        for times in self.times:
            for row, operation in enumerate(times.operations):
                begins = map(self.begin_ns, operation.records.values())
                first = min((begin for begin in begins if begin is not None), default=None)
                if first is not None:
                    begun.append((first, times, row))
        return sorted(begun, key=itemgetter(0))

    @property
    def opening(self) -> tuple[str, float] | None:
        """The first operation, and by how much a rank came after the others: its recorder may have started late."""
        if not self.in_order:
            return None
        _, times, row = self.in_order[0]
        if times.waiting is None or times.waiting.last[row] == NO_RANK:
            return None
        return times.collective, float(times.waiting.late_s[row])


def slow_parts(job: RecordedJob) -> SlowParts | None:
    """Return what is slow in a job; None if no operation has a duration, unless the files record operations only."""
    timed = []
    for call in job.operations:
        if call.duration_s is not None and 0 <= call.duration_s < math.inf:
            timed.append(call)
    if not timed:
        if job.progress or not job.operations:
            return None
        called, unmatched = match_operations(job.operations)
        times = list(_collectives(called, {}, None))
        return SlowParts(times, (), (), (), (), None, {}, unmatched)
    matched, unmatched = match_operations(timed)
    hosts = {rank.rank: rank.host for rank in job.ranks if rank.host}
    shifts_s, residual_s = _align(matched, hosts)
    if residual_s is not None and residual_s > float(
        np.median([call.duration_s or 0.0 for call in timed])
    ):
        shifts_s = {}
        residual_s = None  # the ends were noticed late: the durations say more about the order
    times = list(_collectives(matched, shifts_s, residual_s))
    _excuse(times)
    waits = []
    for operation_times in times:
        if operation_times.waiting and operation_times.is_complete:
            waits.append((operation_times.waiting, operation_times.ranks))
    rank_times = list(_rank_times(job, timed, waits))
    steps = max((record.steps for record in job.computing), default=1)
    lags = find_lags(timed, times, {} if residual_s is None else shifts_s, steps)
    shifts_s = _begin_together(timed, hosts, shifts_s) | shifts_s
    unjudged = {rank.rank for rank in rank_times} - {*lags.judged}
    return SlowParts(
        times=times,
        ranks=rank_times,
        came_last=late_ranks(waits),
        late=lags.late,
        unjudged=sorted(unjudged),
        residual_s=residual_s,
        shifts_s=shifts_s,
        unmatched=unmatched,
        least_part=lags.least_part,
    )


class _Ends(NamedTuple):
    """The ends of operations that the same ranks recorded."""

    ranks: tuple[int, ...]
    since_s: Seconds  # [operation, rank]: since the earliest end of the operation


def _ends_by_ranks(matched: Iterable[MatchedOperation]) -> list[_Ends]:
    """Return the ends of the operations that several ranks left together."""
    by_ranks = defaultdict[tuple[int, ...], list[Seconds]](list)
    for operation in matched:
        if not operation.is_bounded:
            continue
        ended = {
            rank: record.ended_ns
            for rank, record in operation.records.items()
            if record.ended_ns is not None
        }
        if len(ended) > 1:
            # differences of large integers are exact, those of doubles are not
            origin = min(ended.values())
            by_ranks[tuple(ended)].append(
                np.array([(end - origin) / 1e9 for end in ended.values()])
            )
    return [_Ends(ranks, np.array(rows)) for ranks, rows in by_ranks.items()]


def _align(
    matched: Sequence[MatchedOperation], hosts: Mapping[int, str]
) -> tuple[dict[int, float], float | None]:
    """Return the shift of each rank's clock, and the residual, in seconds; None without ends on several ranks.

    Ranks of one host have one clock, and one whose host is not known has its own.
    """
    ends = _ends_by_ranks(matched)
    if not ends:
        return {}, None
    clock = dict(hosts)
    for part in ends:
        clock |= {rank: hosts.get(rank, str(rank)) for rank in part.ranks}
    aligned = _aligned_clocks([_ends_by_clock(part, clock) for part in ends])
    shifts = {rank: aligned[name] for rank, name in clock.items() if name in aligned}
    spreads = []
    for part in ends:
        columns = []
        for column, rank in enumerate(part.ranks):
            if rank in shifts:
                columns.append(column)
        if columns:
            shift_s = np.array([shifts[part.ranks[column]] for column in columns])
            spreads.append(np.ptp(part.since_s[:, columns] - shift_s, axis=1))
    return shifts, float(np.quantile(np.concatenate(spreads), RESIDUAL_QUANTILE))


def _ends_by_clock(part: _Ends, clock: Mapping[int, str]) -> dict[str, Seconds]:
    """Return the ends of each operation by each clock, [operation]: the median over its ranks."""
    columns = defaultdict[str, list[int]](list)
    for column, rank in enumerate(part.ranks):
        columns[clock[rank]].append(column)
    return {
        name: _row_medians(part.since_s[:, columns_of_clock])
        for name, columns_of_clock in columns.items()
    }


def _row_medians(table: Seconds) -> Seconds:
    ordered = np.sort(table, axis=1)
    count = table.shape[1]
    medians: Seconds = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) / 2
    return medians


def _aligned_clocks(ends: Sequence[Mapping[str, Seconds]]) -> dict[str, float]:
    """Return what clocks are ahead of the one with most operations, in seconds, if operations join them with it."""
    counts = Counter[str]()
    for part in ends:
        for name, ends_s in part.items():
            counts[name] += len(ends_s)
    aligned = {counts.most_common(1)[0][0]: 0.0}
    while True:  # each round aligns the clocks that share a collective with one that is aligned
        differences = defaultdict[str, list[Seconds]](list)
        for part in ends:
            aligned_ends = [
                ends_s - aligned[name] for name, ends_s in part.items() if name in aligned
            ]
            if not aligned_ends or len(aligned_ends) == len(part):
                continue
            shift_s = _row_medians(np.stack(aligned_ends, axis=1))
            for name, ends_s in part.items():
                if name not in aligned:
                    differences[name].append(ends_s - shift_s)
        if not differences:
            return aligned
        aligned |= {
            name: float(np.median(np.concatenate(parts))) for name, parts in differences.items()
        }


def _begin_together(
    timed: Iterable[RecordedOperation], hosts: Mapping[int, str], shifts_s: Mapping[int, float]
) -> dict[int, float]:
    """Return shifts by which clocks that no collective aligns begin with the others, if they share no moment."""
    clock = {}  # of each rank; all aligned ranks have one
    spans = defaultdict[str, list[float]](list)  # by the name of the clock
    for call in timed:
        rank = call.rank
        if rank in shifts_s:
            clock[rank] = ""
        else:
            clock[rank] = hosts.get(rank, str(rank))
        if call.started_ns is not None:
            begin = call.started_ns / 1e9 - shifts_s.get(rank, 0.0)
            spans[clock[rank]] += [begin, begin + (call.duration_s or 0.0)]
    first = {name: min(moments) for name, moments in spans.items()}
    if not first or max(first.values()) <= min(map(max, spans.values())):
        return {}
    origin = first.get("", min(first.values()))
    return {rank: first[name] - origin for rank, name in clock.items() if name in first}


def _collectives(
    matched: Iterable[MatchedOperation], shifts_s: Mapping[int, float], residual_s: float | None
) -> Iterator[OperationTimes]:
    by_kind: defaultdict[tuple[Group, str, bool], list[MatchedOperation]] = defaultdict(list)
    for operation in matched:
        by_kind[operation.first.group, operation.first.collective, operation.is_complete].append(
            operation
        )
    for (group, name, complete), operations in by_kind.items():
        ranks = sorted({rank for operation in operations for rank in operation.records})
        waiting = None
        are_bounded = all(operation.is_bounded for operation in operations)
        if are_bounded and operations[0].first.duration_s is not None:
            durations, starts = _durations_and_starts(operations, ranks, shifts_s)
            has_all_starts = (np.isnan(starts) == np.isnan(durations)).all()
            is_ordered = residual_s is not None and has_all_starts
            resolution = max(RESOLUTION_S, residual_s or 0.0)
            waiting = waiting_of(durations, starts if is_ordered else None, resolution)
        yield OperationTimes(group, name, operations, ranks, waiting, complete)


def _durations_and_starts(
    operations: Sequence[MatchedOperation], ranks: Sequence[int], shifts_s: Mapping[int, float]
) -> tuple[Seconds, Seconds]:
    """Return how long ranks were in operations, and when they came by the aligned clocks, [operation, rank] in seconds.

    Starts are since that of the first record. What is not known is NaN.
    """
    column_of = {rank: column for column, rank in enumerate(ranks)}
    shift_of = np.array([shifts_s.get(rank, math.nan) for rank in ranks])
    shape = len(operations), len(ranks)
    durations = np.full(shape, np.nan)
    starts = np.full(shape, np.nan)
    for row, operation in enumerate(operations):
        origin = operation.first.started_ns or 0
        records = operation.records.values()
        columns = [column_of[rank] for rank in operation.records]
        durations[row, columns] = [record.duration_s for record in records]
        since_s = [
            math.nan if record.started_ns is None else (record.started_ns - origin) / 1e9
            for record in records
        ]
        starts[row, columns] = np.array(since_s) - shift_of[columns]
    return durations, starts


_Waits: TypeAlias = Mapping[tuple[Group | None, int], Sequence[tuple[int, int]]]
"""The end and the begin of what ranks waited in operations, in ns of their clocks, in order, by group and rank.

Those of all groups are below the group None.
"""


def _excuse(times: Sequence[OperationTimes]) -> None:
    """Take back that a rank was late where, since it met a group, it only waited in another one, and no longer does."""
    waits = _waits_by_group_and_rank(times)
    for operation_times in times:
        if operation_times.waiting is not None:
            for row in np.flatnonzero(operation_times.waiting.last != NO_RANK).tolist():
                _excuse_last_rank(operation_times, operation_times.waiting, row, waits)


def _waits_by_group_and_rank(times: Iterable[OperationTimes]) -> _Waits:
    waits = defaultdict[tuple[Group | None, int], list[tuple[int, int]]](list)
    for operation_times in times:
        if operation_times.waiting is None:
            continue
        in_group = [waits[operation_times.group, rank] for rank in operation_times.ranks]
        in_any_group = [waits[None, rank] for rank in operation_times.ranks]
        for operation, waiting_s in zip(
            operation_times.operations, operation_times.waiting.waiting_s.tolist(), strict=False
        ):
            for column, rank in enumerate(operation_times.ranks):
                record = operation.records.get(rank)
                if record is not None and record.started_ns is not None:
                    span = record.started_ns + round(waiting_s[column] * 1e9), record.started_ns
                    in_group[column].append(span)
                    in_any_group[column].append(span)
    for spans in waits.values():
        spans.sort(key=itemgetter(0))
    return waits


def _excuse_last_rank(
    operation_times: OperationTimes, waiting: Waiting, row: int, waits: _Waits
) -> None:
    """Subtract from the lateness of the last rank of an operation what it waited since it last met the group."""
    rank = operation_times.ranks[waiting.last[row]]
    came = operation_times.operations[row].records[rank].started_ns
    if came is None:
        return
    end_of = itemgetter(0)
    since = _LONG_AGO_NS
    met = waits.get((operation_times.group, rank), ())
    meetings_before = bisect_left(met, came, key=end_of)
    if meetings_before:
        since, _ = met[meetings_before - 1]
    own = waits.get((None, rank), ())
    first = bisect_right(own, since, key=end_of)
    following = bisect_right(own, came, key=end_of)
    waiting.late_s[row] -= _length((max(begin, since), end) for end, begin in own[first:following])
    if waiting.late_s[row] <= RESOLUTION_S:
        waiting.last[row] = NO_RANK


_LONG_AGO_NS = -(1 << 62)


def _rank_times(
    job: RecordedJob,
    timed: Sequence[RecordedOperation],
    waits: Iterable[tuple[Waiting, Sequence[int]]],
) -> Iterator[RankTimes]:
    transfer_s = defaultdict[int, float](float)
    waiting_s = defaultdict[int, float](float)
    for waiting, ranks in waits:
        for rank_number, waited_s in zip(
            ranks, waiting.waiting_s.sum(axis=0).tolist(), strict=True
        ):
            transfer_s[rank_number] += float(waiting.transfer_s.sum())
            waiting_s[rank_number] += waited_s
    computing = defaultdict[int, list[Computing]](list)
    for record in job.computing:
        computing[record.rank].append(record)
    operations = defaultdict[int, list[RecordedOperation]](list)
    for call in timed:
        operations[call.rank].append(call)
    timed_ranks = [rank for rank in job.ranks if rank.rank in operations]
    for rank in sorted(timed_ranks, key=lambda rank: rank.rank):
        number = rank.rank
        records = computing[number]
        communication_s, exposed_s = _communication_s(operations[number], records)
        window_s = step_s = None
        if records:
            window_s = _length(record.window_ns for record in records)
        if window_s:
            step_s = window_s / sum(record.steps for record in records)
        yield RankTimes(
            rank=number,
            host=rank.host,
            communication_s=communication_s,
            operations_s=_sum_s(operations[number]),
            transfer_s=transfer_s.get(number),
            waiting_s=waiting_s.get(number),
            exposed_s=exposed_s,
            window_s=window_s,
            step_s=step_s,
        )


def _communication_s(
    operations: Sequence[RecordedOperation], records: Sequence[Computing]
) -> tuple[float, float | None]:
    """Return the communication of a rank and the part of it that no computing hides, which may be unknown."""
    spans = []
    for call in operations:
        if call.started_ns is None or call.ended_ns is None:
            return _sum_s(operations), None
        spans.append((call.started_ns, call.ended_ns))
    communication_s = _length(spans)
    if not records:
        return communication_s, None
    computed = list[tuple[int, int]]()
    for record in records:
        computed.extend(record.spans_ns)
    return communication_s, _length([*spans, *computed]) - _length(computed)


def _sum_s(operations: Iterable[RecordedOperation]) -> float:
    return sum(call.duration_s or 0.0 for call in operations)


def _length(spans: Iterable[tuple[int, int]]) -> float:
    """Return the length of the union of spans in ns, in seconds."""
    return sum(end - begin for begin, end in union_of(spans)) / 1e9
