"""The collectives that some ranks of a recorded job have in common, and what these ranks do between them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.store.waiting import SYNCHRONISING, Seconds, beyond_others
from hpccoll.traces.operation_times import MatchedOperation, OperationTimes
from hpccoll.traces.recorded_job import RecordedOperation

Integers: TypeAlias = NDArray[np.int64]

FEWEST_REPEATS = 4
"""How often a kind of collective occurs, at least, to divide a job by it."""

FEWEST_WRITES = 5
"""The times at which a recorder wrote, for the time between them to say how much passed between operations."""

DEVIATION, ERROR_OF_MEDIAN = 1.4826, 1.2533
"""The standard deviation of a normal distribution, by its median absolute deviation; the standard
error of a median, by that of a mean."""

EQUAL_SIZES = 0.1
"""The sizes of ranks are alike in the mean, if they differ by at most this part."""


@dataclass(frozen=True)
class RankRecords:
    """The operations of a rank, with what they cost it: its waiting, or the whole time where that is not known."""

    operations: Sequence[RecordedOperation]
    costs_s: Mapping[int, float]  # by the identity of the record
    bounded: Collection[int]  # the identities of records whose waiting is known

    def is_bounded(self, operation: RecordedOperation) -> bool:
        """Return whether the waiting in an operation is known."""
        return id(operation) in self.bounded

    def cost_s(self, operation: RecordedOperation) -> float:
        """Return what an operation costs the rank; its whole time if it was not matched."""
        return self.costs_s.get(id(operation), operation.duration_s or 0.0)

    @cached_property
    def keys(self) -> Mapping[int, int] | None:
        """The order of operations by the clock of the rank; None if a record has no time."""
        keys = dict[int, int]()
        for operation in self.operations:
            time_ns = _order_ns(operation)
            if time_ns is None:
                return None
            keys[id(operation)] = time_ns
        return keys


def _order_ns(operation: RecordedOperation) -> int | None:
    """Return the most exact time by which the operations of a rank are in order."""
    if operation.enqueued_ns is None:
        return operation.started_ns
    return operation.enqueued_ns


class SharedOperations:
    """The collectives that some ranks have in common, and what else these ranks do between them.

    Tables are [operation, rank]: a row is of the time from one synchronising collective to the next
    one. What happens before the first one is left out, because recorders begin at different times.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        members: Sequence[OperationTimes],
        records: Mapping[int, RankRecords],
        shifts_s: Mapping[int, float],
    ) -> None:
        self.ranks = ranks
        self.shifts_s = shifts_s
        self.rank_records = [records[rank] for rank in ranks]
        self.is_ordered = all(records.keys is not None for records in self.rank_records)
        self.synchronising = self._in_order(
            [times for times in members if times.waiting is not None]
        )
        self.uneven = [
            times
            for times in members
            if times.waiting is None and times.collective in SYNCHRONISING
        ]
        self.rows = len(self.synchronising) - 1
        self.moments = (
            [self._moments(column) for column in range(len(ranks))] if self.is_ordered else []
        )

    @property
    def has_unequal_blocks(self) -> bool:
        """Whether the blocks of some collective differ between ranks."""
        return bool(self._unequal())

    def step_ends(self) -> Integers:
        """Return the rows at which a step begins or a part of it: those that end with the rarest repeated collective.

        Kinds of collectives are told apart by group, name and size, as the first rank recorded
        them.
        """
        first = self.rank_records[0]
        shared = {id(operation.records[self.ranks[0]]) for operation in self.synchronising}
        kinds = defaultdict[tuple[object, ...], list[RecordedOperation]](list)
        for record in first.operations:
            if id(record) in shared or first.is_bounded(record):
                kinds[record.group, record.collective, record.bytes].append(record)
        repeated = []
        for records in kinds.values():
            if len(records) >= FEWEST_REPEATS:
                repeated.append(records)
        if not repeated:
            return np.arange(self.rows + 1)
        rarest = min(repeated, key=len)
        if not self.is_ordered:
            return np.arange(1, len(rarest) + 1) * self.rows // len(rarest)
        keys = first.keys or {}
        moments = sorted(keys[id(record)] for record in rarest)
        rows = np.searchsorted(self.moments[0], moments, side="right") - 1
        return rows[rows >= 0]

    def waited_s(self) -> Seconds:
        """Return what ranks waited in collectives, where that is known.

        Without aligned clocks, ranks whose sizes are alike in the mean spend the same time on
        transfer, in the mean.
        """
        waited_s = self._synchronising_s()
        for times in self.uneven if self.is_ordered else ():
            is_even = are_alike(times)
            for operation in times.operations:
                waits_s = self._waits_by_clock_s(operation)
                if waits_s is None and is_even:
                    waits_s = self._beyond_shortest_s(operation)
                if waits_s is not None:
                    self._add(operation, waits_s, waited_s)
        return waited_s

    def spent_s(self) -> Seconds:
        """Return what ranks spent in operations, without the transfer of collectives whose waiting is known.

        Of collectives whose blocks differ between ranks only the waiting counts, if it is known:
        their transfer differs, and computing may hide it.
        """
        spent_s = self._synchronising_s()
        left_out = {
            id(record) for operation in self.synchronising for record in operation.records.values()
        }
        for times in self._unequal():
            for operation in times.operations:
                left_out |= {id(record) for record in operation.records.values()}
                waits_s = self._waits_by_clock_s(operation)
                if waits_s is not None:
                    self._add(operation, waits_s, spent_s)
        for column, records in enumerate(self.rank_records):
            own = [record for record in records.operations if id(record) not in left_out]
            for row, record in self._placed(column, own):
                spent_s[row, column] += records.cost_s(record)
            if own and not self.is_ordered:
                spent_s[:, column] += sum(records.cost_s(record) for record in own) / len(
                    self.synchronising
                )
        return spent_s

    def larger_transfer_s(self) -> Seconds:
        """Return what ranks usually spend beyond the others in collectives whose blocks differ between ranks.

        A rank may come later to the next operation by so much, because its blocks are larger.
        """
        larger_s = np.zeros((self.rows, len(self.ranks)))
        for times in self._unequal():
            transfer_s = np.array([self._transfer_s(operation) for operation in times.operations])
            surely_s = np.maximum(_sure_median(beyond_others(transfer_s)), 0.0)
            for operation in times.operations:
                self._add(operation, surely_s, larger_s)
        return larger_s

    def _synchronising_s(self) -> Seconds:
        """Return what ranks waited in the collectives that all leave together."""
        return np.array(
            [self._beyond_shortest_s(operation) for operation in self.synchronising[1:]]
        )

    def _unequal(self) -> list[OperationTimes]:
        """Return collectives whose blocks differ between ranks, where the order of operations is known."""
        return [times for times in self.uneven if self.is_ordered and not are_alike(times)]

    @cached_property
    def wall_s(self) -> float | None:
        """The time from the first synchronising operation to the last one; None if it is not known."""
        if self.is_ordered:
            return float(np.median([moments[-1] - moments[0] for moments in self.moments])) / 1e9
        spans_ns = list[int]()
        for rank in self.ranks:
            written = {operation.records[rank].written_ns for operation in self.synchronising}
            times_ns = []
            for time_ns in written:
                if time_ns is not None:
                    times_ns.append(time_ns)
            if len(times_ns) >= FEWEST_WRITES:
                spans_ns.append(max(times_ns) - min(times_ns))
        if not spans_ns:
            return None
        return float(np.median(spans_ns)) / 1e9

    def communication_s(self) -> float:
        """Return the time that a rank spends in operations, the median over ranks."""
        spent_s = [
            sum(record.duration_s or 0.0 for record in records.operations)
            for records in self.rank_records
        ]
        return float(np.median(spent_s))

    def _in_order(self, members: Sequence[OperationTimes]) -> list[MatchedOperation]:
        """Return operations in the order of the first rank, or each kind evenly among the others."""
        placed = list[tuple[float, MatchedOperation]]()
        keys = self.rank_records[0].keys
        for times in members:
            for number, operation in enumerate(times.operations):
                place = (number + 0.5) / len(times.operations)
                if self.is_ordered and keys is not None:
                    place = keys[id(operation.records[self.ranks[0]])]
                placed.append((place, operation))
        return [operation for _, operation in sorted(placed, key=itemgetter(0))]

    def _moments(self, column: int) -> Integers:
        """Return when a rank came to the synchronising operations, by its own clock."""
        keys = self.rank_records[column].keys or {}
        rank = self.ranks[column]
        moments = [keys[id(operation.records[rank])] for operation in self.synchronising]
        return np.maximum.accumulate(np.array(moments, dtype=np.int64))

    def _placed(
        self, column: int, operations: Sequence[RecordedOperation]
    ) -> Iterator[tuple[int, RecordedOperation]]:
        """Yield operations of a rank with their rows; none if their order is not known."""
        keys = self.rank_records[column].keys
        if not self.is_ordered or keys is None:
            return
        for operation in operations:
            row = int(np.searchsorted(self.moments[column], keys[id(operation)])) - 1
            if 0 <= row < self.rows:
                yield row, operation

    def _add(self, operation: MatchedOperation, seconds: Seconds, table_s: Seconds) -> None:
        """Add seconds of each rank to the row of an operation, [operation, rank]."""
        for column, rank in enumerate(self.ranks):
            for row, _ in self._placed(column, [operation.records[rank]]):
                table_s[row, column] += seconds[column]

    def _durations_s(self, operation: MatchedOperation) -> Seconds:
        """Return the time of each rank in an operation."""
        return np.array([operation.records[rank].duration_s or 0.0 for rank in self.ranks])

    def _beyond_shortest_s(self, operation: MatchedOperation) -> Seconds:
        """Return what each rank spent in an operation beyond the shortest time: its waiting, if all leave together."""
        durations_s = self._durations_s(operation)
        waited_s: Seconds = durations_s - durations_s.min()
        return waited_s

    def _transfer_s(self, operation: MatchedOperation) -> Seconds:
        """Return what each rank spent on transfer in an operation, at most: it contains waiting that is not known."""
        durations_s = self._durations_s(operation)
        waits_s = self._waits_by_clock_s(operation)
        if waits_s is None:
            return durations_s
        return durations_s - waits_s

    def _waits_by_clock_s(self, operation: MatchedOperation) -> Seconds | None:
        """Return how long ranks waited for the last one to come; None if their clocks are not aligned."""
        begins_ns = [operation.records[rank].started_ns for rank in self.ranks]
        origin_ns = begins_ns[0]
        if not self.shifts_s or origin_ns is None:
            return None
        came_s = np.empty(len(self.ranks))
        for column, begin_ns in enumerate(begins_ns):
            if begin_ns is None:
                return None
            # differences of large integers are exact, those of doubles are not
            since_s = (begin_ns - origin_ns) / 1e9
            came_s[column] = since_s - self.shifts_s.get(self.ranks[column], 0.0)
        waits_s: Seconds = np.minimum(came_s.max() - came_s, self._durations_s(operation))
        return waits_s


def are_alike(times: OperationTimes) -> bool:
    """Return whether all ranks put in as much, and get out as much, in the mean of all operations."""
    for side in ("bytes_in", "bytes_out"):
        sizes = [
            [getattr(operation.records[rank], side) for rank in times.ranks]
            for operation in times.operations
        ]
        if any(None in sizes_of_ranks for sizes_of_ranks in sizes):
            return False
        means = np.mean(np.array(sizes, dtype=np.float64), axis=0)
        if np.ptp(means) > EQUAL_SIZES * means.max():
            return False
    return True


def _sure_median(table: Seconds) -> Seconds:
    """Return the median of each column, less its standard error."""
    median = np.median(table, axis=0)
    deviation = DEVIATION * np.median(np.abs(table - median), axis=0)
    sure: Seconds = median - ERROR_OF_MEDIAN * deviation / np.sqrt(len(table))
    return sure
