"""Which ranks of a recorded job are late: those that others wait for, again and again, without having waited.

From one operation that the ranks of a group leave together to another one they spend the same time. What a rank spends
less in operations than the others, it did something else, while they waited for it; no clock is needed for that. A rank
that another group held up spent as much in the operations of that one, and is not late.

A job is divided into parts, into its steps where these are known. A rank is late if it is in most of them, by more than
chance and by more than GPUs differ. Ranks are compared where they do the same: in no group that contains a smaller one,
nor among those that exchange messages, as the stages of a pipeline do.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.waiting import SYNCHRONISING, Seconds, beyond_others
from hpccoll.traces.operation_times import MatchedOperation, OperationTimes
from hpccoll.traces.records import MESSAGES, RecordedOperation

Integers: TypeAlias = NDArray[np.int64]

FEWEST_PARTS, MAX_PARTS = 3, 12
"""The parts of a job; with fewer ones a late rank cannot be told from chance."""

LEAST_PART, LEAST_S = 0.02, 1e-4
"""By how much a late rank is late, at least: a part of the time, as GPUs differ, and seconds in a part of the job."""

LEAST_OF_COMMUNICATION = 0.2
"""Likewise, as a part of the time in operations, where no record says how much time passed."""

LATE_SHARE = 0.75
"""The share of the parts in which a late rank is late, at least, and later than the others."""

SURE = 4.0
"""How many standard errors the lag of a late rank is from 0, at least, with as few parts as there are: its t, as the
normal deviate of the same chance (Wallace, Bounds on normal approximations to Student's and the chi-square
distributions, 1959)."""

DEVIATION, ERROR_OF_MEDIAN = 1.4826, 1.2533
"""The standard deviation of a normal distribution, by its median absolute deviation; the standard error of a median, by
that of a mean."""

OWN_PART = 0.5
"""The part of its lag that a late rank did not wait for others, at least."""

FEWEST_WRITES = 5
"""The times at which a recorder wrote, for the time between them to say how much passed between operations."""

EQUAL_SIZES = 0.1
"""The sizes of ranks are alike in the mean, if they differ by at most this part."""


class Lag(NamedTuple):
    """By how much a rank is late."""

    rank: int
    part: float | None  # of the time; None where no record says how much time passed
    total_s: float
    parts: int  # of the job, in the median of which it is late by so much


class Lags(NamedTuple):
    """Which ranks are late."""

    late: Sequence[Lag]  # the latest first
    judged: Collection[int]  # the ranks of which it is known whether they are late


@dataclass(frozen=True)
class _RankRecords:
    """The operations of a rank, with what they cost it: its waiting, or the whole time where that is not known."""

    operations: Sequence[RecordedOperation]
    costs_s: Mapping[int, float]  # by the identity of the record
    bounded: Collection[int]  # the identities of records whose waiting is known

    def is_bounded(self, operation: RecordedOperation) -> bool:
        """Return whether the waiting in an operation is known."""
        return id(operation) in self.bounded

    def cost_s(self, operation: RecordedOperation) -> float:
        """Return what an operation costs the rank; of one that was not matched its whole time."""
        return self.costs_s.get(id(operation), operation.duration_s or 0.0)

    @cached_property
    def keys(self) -> Mapping[int, int] | None:
        """The order of operations by the clock of the rank; None if a record has no time."""
        times = {id(each): _time(each) for each in self.operations}
        known = {key: time for key, time in times.items() if time is not None}
        return known if len(known) == len(times) else None


def find_lags(
    timed: Iterable[RecordedOperation], times: Sequence[OperationTimes], shifts_s: Mapping[int, float], steps: int
) -> Lags:
    """Return the late ranks, and those of which it is known whether they are.

    Args:
        timed: all operations with durations.
        times: the same, by groups, with their waiting.
        shifts_s: the shift of the clock of each rank, in seconds; empty if clocks are not aligned.
        steps: the steps in the record, 1 if they are unknown.
    """
    costs_s = _costs(times)
    bounded = {
        id(record)
        for of in times
        if of.waiting is not None and of.is_complete
        for operation in of.operations
        for record in operation.records.values()
    }
    by_rank = defaultdict[int, list[RecordedOperation]](list)
    for each in timed:
        by_rank[each.rank].append(each)
    records = {rank: _RankRecords(operations, costs_s, bounded) for rank, operations in by_rank.items()}
    lags, judged = dict[int, Lag](), set[int]()
    for ranks, members in _comparable(times, records):
        shared = _SharedOperations(ranks, members, records, shifts_s)
        bounds = shared.bounds(steps)
        if len(bounds) <= FEWEST_PARTS:
            continue
        judged |= {*ranks}
        for lag in shared.lags(bounds):
            if lag.rank not in lags or lags[lag.rank].total_s < lag.total_s:
                lags[lag.rank] = lag
    return Lags(sorted(lags.values(), key=lambda lag: (-lag.total_s, lag.rank)), judged)


def _time(operation: RecordedOperation) -> int | None:
    """Return the most exact time of an operation by which those of its rank are in order."""
    return operation.started_ns if operation.enqueued_ns is None else operation.enqueued_ns


def _costs(times: Iterable[OperationTimes]) -> dict[int, float]:
    """Return the waiting of each record, and its whole duration where the waiting is not known."""
    costs_s = dict[int, float]()
    for of in times:
        columns = {rank: column for column, rank in enumerate(of.ranks)}
        for row, operation in enumerate(of.operations):
            for rank, record in operation.records.items():
                costs_s[id(record)] = record.duration_s or 0.0
                if of.waiting is not None and of.is_complete:
                    costs_s[id(record)] = float(of.waiting.waiting_s[row, columns[rank]])
    return costs_s


def _comparable(
    times: Iterable[OperationTimes], records: Mapping[int, _RankRecords]
) -> Iterator[tuple[tuple[int, ...], list[OperationTimes]]]:
    """Yield sets of ranks that do the same, with the collectives of all of them.

    Where the order of operations is not known, each collective is judged by itself.
    """
    of_ranks = defaultdict[tuple[int, ...], list[OperationTimes]](list)
    partners = set[frozenset[int]]()  # pairs of ranks that exchange messages, or may do so
    for of in times:
        if of.is_complete and of.collective not in MESSAGES:
            of_ranks[tuple(of.ranks)].append(of)
        elif of.collective in MESSAGES:
            partners |= _pairs(of)
    waited = [ranks for ranks, members in of_ranks.items() if any(each.waiting is not None for each in members)]
    for ranks in waited:
        has_smaller = any(frozenset(smaller) < frozenset(ranks) for smaller in waited)
        if has_smaller or any(pair <= frozenset(ranks) for pair in partners):
            continue
        if all(records[rank].keys is not None for rank in ranks):
            yield ranks, of_ranks[ranks]
        else:
            yield from ((ranks, [of]) for of in of_ranks[ranks] if of.waiting is not None)


def _pairs(messages: OperationTimes) -> set[frozenset[int]]:
    """Return the pairs of ranks that exchange messages; none if each one does with all others, as in an all-to-all."""
    peers = defaultdict[int, set[int | None]](set)
    for operation in messages.operations:
        for rank, record in operation.records.items():
            peers[rank].add(record.peer)
    group = messages.group
    ranks = len(group.ranks) or group.size
    if ranks > 2 and all(len(of_rank) == ranks - 1 for of_rank in peers.values()):
        return set()
    if group.of_job and not any(None in of_rank for of_rank in peers.values()):
        return {frozenset((rank, peer)) for rank, of_rank in peers.items() for peer in of_rank if peer is not None}
    members = group.ranks if group.of_job else messages.ranks  # who exchanges messages with whom is not known
    return {frozenset(pair) for pair in combinations(members, 2)}


class _SharedOperations:
    """The collectives that some ranks have in common, and what else these ranks do between them.

    Tables are [operation, rank]: a row is of the time from one synchronising collective to the next one; what is
    before the first one is left out, because recorders begin at different times.
    """

    def __init__(
        self, ranks: Sequence[int], members: Sequence[OperationTimes], records: Mapping[int, _RankRecords],
        shifts_s: Mapping[int, float],
    ) -> None:  # fmt: skip
        self.ranks, self.shifts_s = ranks, shifts_s
        self.of_rank = [records[rank] for rank in ranks]
        self.is_ordered = all(each.keys is not None for each in self.of_rank)
        self.synchronising = self._in_order([of for of in members if of.waiting is not None])
        self.uneven = [of for of in members if of.waiting is None and of.collective in SYNCHRONISING]
        self.rows = len(self.synchronising) - 1
        self.moments = [self._moments(column) for column in range(len(ranks))] if self.is_ordered else []

    def lags(self, bounds: Integers) -> Iterator[Lag]:
        """Yield the late ranks, in parts of the job with these bounds."""
        parts = len(bounds) - 1
        waited_s, spent_s = self._tables()
        lags_s = [-beyond_others(table) for table in (waited_s, spent_s)]
        part = _carried_part(lags_s[0])
        seen_s, own_s = (np.add.reduceat(_fresh(lag_s, part)[: bounds[-1]], bounds[:-1], axis=0) for lag_s in lags_s)
        lag_s = np.minimum(seen_s, own_s)
        is_own = np.median(own_s, axis=0) >= OWN_PART * np.median(seen_s, axis=0)
        judged = float(bounds[-1] - bounds[0]) / self.rows
        wall_s = self._wall_s()
        median_s = np.median(lag_s, axis=0)
        least_s = max(LEAST_S, self._least_s(wall_s) * judged / parts)
        for column in np.flatnonzero(_are_late(lag_s, least_s) & is_own).tolist():
            total_s = float(median_s[column]) * parts / judged
            yield Lag(self.ranks[column], total_s / wall_s if wall_s else None, total_s, parts)

    def _in_order(self, members: Sequence[OperationTimes]) -> list[MatchedOperation]:
        """Return operations in the order of the first rank, or each kind evenly among the others."""
        placed = list[tuple[float, MatchedOperation]]()
        for of in members:
            for number, operation in enumerate(of.operations):
                place = (number + 0.5) / len(of.operations)
                keys = self.of_rank[0].keys
                if self.is_ordered and keys is not None:
                    place = keys[id(operation.records[self.ranks[0]])]
                placed.append((place, operation))
        return [operation for _, operation in sorted(placed, key=itemgetter(0))]

    def _moments(self, column: int) -> Integers:
        """Return when a rank came to the synchronising operations, by its own clock."""
        keys = self.of_rank[column].keys or {}
        own = [keys[id(operation.records[self.ranks[column]])] for operation in self.synchronising]
        return np.maximum.accumulate(np.array(own, dtype=np.int64))

    def bounds(self, steps: int) -> Integers:
        """Return the rows at which parts begin, and that after the last one; fewer than two if nothing is repeated.

        The rarest collective that is repeated ends a step, or a part of it; the last one ends the last step.
        """
        ends = self._rarest_ends()
        wanted = min(MAX_PARTS, steps if steps >= FEWEST_PARTS else MAX_PARTS)
        stride = max(1, -(-len(ends) // (wanted + 1)))
        return np.unique(ends[::-stride])

    def _rarest_ends(self) -> Integers:
        """Return the rows that end with the rarest collective of the first rank that is repeated often enough."""
        own = {id(operation.records[self.ranks[0]]) for operation in self.synchronising}
        kinds = defaultdict[tuple[object, ...], list[RecordedOperation]](list)
        for each in self.of_rank[0].operations:
            if id(each) in own or self.of_rank[0].is_bounded(each):
                kinds[each.group, each.collective, each.bytes].append(each)
        repeated = [of_kind for of_kind in kinds.values() if len(of_kind) > FEWEST_PARTS]
        if not repeated:
            return np.arange(self.rows + 1)
        rarest = min(repeated, key=len)
        if not self.is_ordered:
            return np.arange(1, len(rarest) + 1) * self.rows // len(rarest)
        keys = self.of_rank[0].keys or {}
        moments = sorted(keys[id(each)] for each in rarest)
        rows = np.searchsorted(self.moments[0], moments, side="right") - 1
        return rows[rows >= 0]

    def _tables(self) -> tuple[Seconds, Seconds]:
        """Return what ranks waited where that is known, and what they spent in operations.

        Both are without the transfer of collectives whose waiting is known.
        """
        waited = np.array([_waited(operation, self.ranks) for operation in self.synchronising[1:]])
        known, spent = waited.copy(), waited.copy()
        own = {id(record) for operation in self.synchronising for record in operation.records.values()}
        for column, records in enumerate(self.of_rank):
            others = [each for each in records.operations if id(each) not in own]
            for row, each in self._placed(column, others):
                spent[row, column] += records.cost_s(each)
            if others and not self.is_ordered:
                spent[:, column] += sum(records.cost_s(each) for each in others) / len(self.synchronising)
        for of in self.uneven:
            for operation in of.operations if self.is_ordered else ():
                self._add_uneven(operation, known, is_even=_is_alike(of))
        return known, spent

    def _placed(self, column: int, operations: Sequence[RecordedOperation]) -> Iterator[tuple[int, RecordedOperation]]:
        """Yield operations of a rank with their rows; none if their order is not known."""
        keys = self.of_rank[column].keys
        if not self.is_ordered or keys is None:
            return
        for each in operations:
            row = int(np.searchsorted(self.moments[column], keys[id(each)])) - 1
            if 0 <= row < self.rows:
                yield row, each

    def _add_uneven(self, operation: MatchedOperation, known: Seconds, *, is_even: bool) -> None:
        """Add the waiting in a collective of unequal blocks, which ranks leave at different times.

        By aligned clocks it is that for the last rank to come; without these, ranks whose sizes are alike in the mean
        spend the same time on transfer, in the mean.
        """
        records = [operation.records[rank] for rank in self.ranks]
        durations = np.array([each.duration_s or 0.0 for each in records])
        waits = durations - durations.min()
        begins = [each.started_ns for each in records]
        if self.shifts_s and None not in begins:
            origin = begins[0] or 0
            came = np.array([
                ((begin or 0) - origin) / 1e9 - self.shifts_s.get(rank, 0.0)
                for rank, begin in zip(self.ranks, begins, strict=True)
            ])  # fmt: skip
            waits = np.minimum(came.max() - came, durations)
        elif not is_even:
            return
        for column, record in enumerate(records):
            for row, _ in self._placed(column, [record]):
                known[row, column] += waits[column]

    def _wall_s(self) -> float | None:
        """Return the time from the first synchronising operation to the last one; None if it is not known."""
        spans_ns = list[int]()
        if self.is_ordered:
            spans_ns = [int(moments[-1] - moments[0]) for moments in self.moments]
        else:
            for rank in self.ranks:
                written = {operation.records[rank].written_ns for operation in self.synchronising}
                known = [time for time in written if time is not None]
                if len(known) >= FEWEST_WRITES:
                    spans_ns.append(max(known) - min(known))
        return float(np.median(spans_ns)) / 1e9 if spans_ns else None

    def _least_s(self, wall_s: float | None) -> float:
        if wall_s is not None:
            return LEAST_PART * wall_s
        spent_s = [sum(each.duration_s or 0.0 for each in records.operations) for records in self.of_rank]
        return LEAST_OF_COMMUNICATION * float(np.median(spent_s))


def _are_late(lag_s: Seconds, least_s: float) -> NDArray[np.bool_]:
    """Return which ranks are late, by their lags, [part, rank], in seconds.

    They are so in most parts, and then later than all others; the lags of all ranks say what chance makes. At most half
    of the ranks are late: the others set the pace.
    """
    parts, ranks = lag_s.shape
    median_s = np.median(lag_s, axis=0)
    furthest = 4 * DEVIATION * float(np.median(np.abs(lag_s - median_s)))
    usual_s = np.clip(lag_s, median_s - furthest, median_s + furthest)
    freedom = (parts - 1) * (ranks - 1)
    error_s = ERROR_OF_MEDIAN * np.sqrt(float(np.mean((usual_s - median_s) ** 2)) / (parts - 1))
    squared_t = (median_s / max(error_s, 1e-12)) ** 2
    is_sure = freedom * np.log1p(squared_t / freedom) >= SURE**2
    is_often = (lag_s >= least_s).mean(axis=0) >= LATE_SHARE
    candidates = (median_s >= least_s) & is_sure & is_often
    if not 0 < candidates.sum() <= ranks / 2:
        return np.zeros(ranks, dtype=bool)
    latest_s = usual_s[:, ~candidates].max(axis=1, keepdims=True)
    late: NDArray[np.bool_] = candidates & ((usual_s >= latest_s).mean(axis=0) >= LATE_SHARE)
    return late


def _carried_part(late_s: Seconds) -> float:
    """Return which part of its lateness a rank brings along to the next operation.

    Where computing goes on during operations, a rank that was late once remains so until the others wait for it; then
    the same lag is seen several times. By chance ranks are late to one operation more than to the next one, unless they
    are late for the same reason: the part is the correlation of both.
    """
    chance_s = late_s - np.median(late_s, axis=0)
    largest = 3 * np.median(np.abs(chance_s))
    chance_s = np.clip(chance_s, -largest, largest)
    before, after = chance_s[:-1].ravel(), chance_s[1:].ravel()
    square = float(before @ before)
    return min(max(0.0, float(before @ after) / square), 1.0) if square else 0.0


def _fresh(late_s: Seconds, part: float) -> Seconds:
    """Return by how much each rank is late to each operation, [operation, rank], without what it brought along."""
    before = np.vstack([np.zeros_like(late_s[:1]), late_s[:-1]])
    return late_s - np.clip(part * before, np.minimum(late_s, 0), np.maximum(late_s, 0))


def _waited(operation: MatchedOperation, ranks: Sequence[int]) -> list[float]:
    """Return what each rank waited in an operation that all leave together."""
    durations = [operation.records[rank].duration_s or 0.0 for rank in ranks]
    return [each - min(durations) for each in durations]


def _is_alike(of: OperationTimes) -> bool:
    """Return whether what goes in, and what comes out, is as much at all ranks in the mean of all operations."""
    for side in ("bytes_in", "bytes_out"):
        sizes = [[getattr(operation.records[rank], side) for rank in of.ranks] for operation in of.operations]
        if any(None in each for each in sizes):
            return False
        means = np.mean(np.array(sizes, dtype=np.float64), axis=0)
        if np.ptp(means) > EQUAL_SIZES * means.max():
            return False
    return True
