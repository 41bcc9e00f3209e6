"""The operations of a recorded job with the records of all their ranks, and their transfer and waiting.

Operations are matched over ranks by their numbers, or by their order where a format numbers none.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpccoll.store.waiting import SYNCHRONISING, Waiting
from hpccoll.traces.records import MESSAGES, Group, RecordedOperation


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
        return max((each.bytes for each in self.records.values() if each.bytes is not None), default=None)

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
    is_complete: bool  # whether each operation has the records of all ranks: else its transfer is an upper bound


def match_operations(timed: Sequence[RecordedOperation]) -> tuple[list[MatchedOperation], dict[Group, int]]:
    """Return the operations with the records of all ranks, and how many of a group are left out, for they differ."""
    by_group: defaultdict[Group, dict[int, list[RecordedOperation]]] = defaultdict(dict)
    for each in timed:
        by_group[each.group].setdefault(each.rank, []).append(each)
    matched, unmatched = list[MatchedOperation](), dict[Group, int]()
    for group, of_ranks in by_group.items():
        keyed: defaultdict[tuple[object, ...], dict[int, RecordedOperation]] = defaultdict(dict)
        for rank, records in of_ranks.items():
            seen = Counter[tuple[object, ...]]()
            for each in records:
                key: tuple[object, ...] = each.collective if each.by_type else "", each.sequence
                if each.collective in MESSAGES:
                    key = each.collective, rank  # a message is of two ranks, and bounds nothing
                keyed[*key, seen[key]][rank] = each  # grouped calls share a number, and others have none
                seen[key] += 1
        unnumbered = {sum(each.sequence is None and each.collective not in MESSAGES for each in of)
                      for of in of_ranks.values()}  # fmt: skip
        size = max(len(group.ranks), group.size, len(of_ranks))
        same = [members for members in keyed.values() if len({each.collective for each in members.values()}) == 1]
        if len(unnumbered) > 1 or (len(same) < len(keyed) and unnumbered != {0}):
            same = []  # without numbers, the order says nothing of any
        unmatched |= {group: len(keyed) - len(same)} if len(same) < len(keyed) else {}
        matched += [MatchedOperation(members, size) for members in same]
    return matched, unmatched
