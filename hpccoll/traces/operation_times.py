"""The operations of a recorded job with the records of all their ranks, and their transfer and waiting.

Operations are matched over ranks by their numbers, or by their order where a format numbers none.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpccoll.store.waiting import SYNCHRONISING, Waiting
from hpccoll.traces.recorded_job import MESSAGES, Group, RecordedOperation


@dataclass(frozen=True, slots=True)
class MatchedOperation:
    """An operation with the records of its ranks."""

    records: Mapping[int, RecordedOperation]  # by rank
    ranks: int  # of the group, recorded or not

    @property
    def first(self) -> RecordedOperation:
        """The record of one rank, for what all have in common."""
        return next(iter(self.records.values()))

    @property
    def bytes(self) -> int | None:
        """S: the largest one of all ranks."""
        sizes = []
        for record in self.records.values():
            if record.bytes is not None:
                sizes.append(record.bytes)
        return max(sizes, default=None)

    @property
    def is_bounded(self) -> bool:
        """Whether its shortest duration bounds the transfer."""
        return self.first.collective in SYNCHRONISING - {"all_to_all_v"} and not self.may_be_uneven

    @property
    def may_be_uneven(self) -> bool:
        """Whether the blocks of ranks may differ in size: then ranks with little data end early."""
        sizes = {record.bytes for record in self.records.values()}
        return len(sizes) > 1 or self.first.may_be_uneven

    @property
    def is_complete(self) -> bool:
        """Whether all ranks have a record of it."""
        return len(self.records) == self.ranks > 1


class OperationTimes(NamedTuple):
    """The operations of one collective in one group: those whose shortest duration bounds the transfer have waiting."""

    group: Group
    collective: str
    operations: Sequence[MatchedOperation]
    ranks: Sequence[int]  # at each position of ``waiting``
    waiting: Waiting | None
    # whether each operation has the records of all ranks: else its transfer is an upper bound
    is_complete: bool


def match_operations(
    timed: Sequence[RecordedOperation],
) -> tuple[list[MatchedOperation], dict[Group, int]]:
    """Return the operations with the records of all ranks, and how many of a group are left out, for they differ."""
    by_group: defaultdict[Group, dict[int, list[RecordedOperation]]] = defaultdict(dict)
    for call in timed:
        by_group[call.group].setdefault(call.rank, []).append(call)
    matched: list[MatchedOperation] = []
    unmatched: dict[Group, int] = {}
    for group, records_of_rank in by_group.items():
        candidates = _candidates(records_of_rank)
        same = []
        for records in candidates:
            if _is_of_one_collective(records):
                same.append(records)
        without_number = {_count_without_number(records) for records in records_of_rank.values()}
        differ = len(same) < len(candidates)
        if len(without_number) > 1 or (differ and without_number != {0}):
            same = []  # without numbers, the order says nothing of any
        if len(same) < len(candidates):
            unmatched[group] = len(candidates) - len(same)
        size = max(len(group.ranks), group.size, len(records_of_rank))
        matched += [MatchedOperation(records, size) for records in same]
    return matched, unmatched


def _candidates(
    records_of_rank: Mapping[int, Sequence[RecordedOperation]],
) -> list[dict[int, RecordedOperation]]:
    """Return what may be one operation of a group, by its number and place: the record of each rank."""
    keyed: defaultdict[tuple[object, ...], dict[int, RecordedOperation]] = defaultdict(dict)
    for rank, records in records_of_rank.items():
        seen: dict[tuple[object, ...], int] = {}
        for record in records:
            key: tuple[object, ...] = record.collective if record.by_type else "", record.sequence
            if record.collective in MESSAGES:
                key = record.collective, rank  # a message is of two ranks, and bounds nothing
            repetition = seen.get(key, 0)
            # grouped calls share a number, and others have none
            keyed[*key, repetition][rank] = record
            seen[key] = repetition + 1
    return list(keyed.values())


def _is_of_one_collective(records: Mapping[int, RecordedOperation]) -> bool:
    return len({record.collective for record in records.values()}) == 1


def _count_without_number(records: Iterable[RecordedOperation]) -> int:
    """Return how many collectives of a rank have no number."""
    return sum(record.sequence is None and record.collective not in MESSAGES for record in records)
