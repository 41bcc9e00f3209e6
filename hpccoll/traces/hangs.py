"""Who waits for whom in a job that hangs, and which ranks are waited for and wait for no other rank.

A rank has an open operation of a group if it has enqueued more than it has completed. It waits for each rank of the
group that has not enqueued the operation, and for each one that has, but completed fewer: its GPU is behind. A message
waits for its partner, unless that has as many open ones of the other direction; in groups with messages, counts say
nothing about collectives. Where only launches are counted (NCCL's RAS, gloo), a rank waits for those that
launched fewer, unless these have launched more since the poll before.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hpccoll.traces.records import Group, Progress, RecordedJob, RecordedOperation

Reason: TypeAlias = Literal["not joined", "behind", "failed", "circle", "launched"]
"""Why the job hangs: ranks did not enqueue an operation; they did, but do not complete what others completed; their
processes report an error or do not answer; ranks wait for one another; or all ranks launched all operations, so that
the GPU or the network is stuck."""
MESSAGES = {"send": "receive", "receive": "send"}


@dataclass(frozen=True, slots=True)
class BlockedRanks:
    """Ranks of a group that wait for the same other ranks."""

    group: Group
    ranks: tuple[int, ...]
    awaited: tuple[int, ...]
    operation: RecordedOperation  # the first one that the ranks waited for have not enqueued, or not completed
    behind: bool = False  # whether they have enqueued it
    polls: int | None = None  # how often launches were counted; None if completion is recorded


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a job hangs: ranks for which others wait, directly or by way of others."""

    reason: Reason
    ranks: tuple[int, ...]  # that are waited for; of a circle in its order; empty if all launched
    group: Group | None = None
    operation: RecordedOperation | None = None
    waits: tuple[BlockedRanks, ...] = ()  # the nearest first
    unrecorded: tuple[int, ...] = ()  # ranks of the group without a record
    status: str = ""  # of a process that failed

    @property
    def is_absence(self) -> bool:
        """Whether ranks are to blame, and not the GPU or the network."""
        return self.reason != "launched"


def find_hangs(job: RecordedJob) -> list[Hang]:
    """Return why a job hangs; empty if no rank waits, as far as the files say."""
    failed = [each for each in job.ranks if each.status]
    found = [Hang("failed", (each.rank,) if each.rank >= 0 else (), status=each.status or "") for each in failed]
    recorded = {each.rank for each in job.progress}
    ended = {(each.rank, each.group): each.completed for each in job.progress if each.completed is not None}
    opened = defaultdict[int, list[RecordedOperation]](list)
    for each in sorted(job.operations, key=lambda one: one.enqueued_ns or 0):
        if each.state != "completed" and (each.rank, each.group) in ended:
            opened[each.rank].append(each)
    messages = {each.group for each in job.operations if each.peer is not None}
    waits = [*_waits_by_count(job, messages), *_waits_of_messages(opened, messages, recorded)]
    if waits:
        blamed = {rank for wait in waits for rank in wait.awaited} - {rank for wait in waits for rank in wait.ranks}
        busy = {each.rank for each in job.progress if each.completed is not None and each.enqueued > each.completed}
        return [*found, *_blame(waits, blamed - busy or blamed), *_circles(waits, blamed)]
    if opened:
        circles = [*_circles([*_waits_in_order(opened)], set())]
        first = min((operations[0] for operations in opened.values()), key=lambda one: one.enqueued_ns or 0)
        unrecorded = tuple(rank for rank in first.group.ranks if first.group.of_job and rank not in recorded)
        found += circles or [Hang("launched", (), first.group, first, unrecorded=unrecorded)]
    return found


def _waits_by_count(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    polls = defaultdict[tuple[Group, str], _Polls](dict)
    for each in job.progress:
        polls[each.group, each.collective].setdefault(each.rank, []).append(each)
    recorded = dict[tuple[Group, int | None], RecordedOperation]()
    for operation in reversed(job.operations):  # so that the first one stays
        recorded[operation.group, operation.sequence] = operation
    for (group, collective), of_rank in polls.items():
        if group not in messages:
            for ranks, late, behind in _late_ranks(of_rank):
                number = min(late.values())
                counted = RecordedOperation(ranks[0], group, collective, number, state="enqueued")
                several = of_rank[min(late)]
                times = len(several) if several[-1].completed is None else None
                yield BlockedRanks(
                    group, ranks, tuple(sorted(late)), recorded.get((group, number), counted), behind, times
                )


_Polls: TypeAlias = dict[int, list[Progress]]


def _late_ranks(of_rank: _Polls) -> Iterator[tuple[tuple[int, ...], Mapping[int, int], bool]]:
    """Yield ranks that wait, with the operations that others did not enqueue or, being behind, did not complete."""
    waiting = defaultdict[int, list[int]](list)  # by the operation that they wait for
    for rank, (*_, last) in sorted(of_rank.items()):
        if last.completed is None or last.enqueued > last.completed:
            waiting[last.enqueued if last.completed is None else last.completed + 1].append(rank)
    still = {
        rank: last for rank, (*earlier, last) in of_rank.items() if not earlier or earlier[-1].enqueued == last.enqueued
    }
    for needed, ranks in waiting.items():
        behind = {
            rank: last.completed + 1
            for rank, last in still.items()
            if last.completed is not None and last.completed < min(needed - 1, last.enqueued)
        }
        absent = {rank: last.enqueued + 1 for rank, last in still.items() if last.enqueued < needed}
        absent = {rank: number for rank, number in absent.items() if rank not in behind}
        yield from ((tuple(ranks), late, late is behind) for late in (absent, behind) if late)


def _waits_of_messages(
    opened: Mapping[int, Sequence[RecordedOperation]], messages: set[Group], recorded: set[int]
) -> Iterator[BlockedRanks]:
    every = [each for operations in opened.values() for each in operations if each.group in messages]
    several = Counter((each.group, each.rank, each.collective, each.peer) for each in every)
    collectives = {(each.group, each.rank, each.sequence) for each in every if each.peer is None}
    counted = set[tuple[Group, int, str, int | None]]()
    for each in every:
        if each.peer is None:
            others = recorded.intersection(each.group.ranks)
            absent = {rank for rank in others if (each.group, rank, each.sequence) not in collectives}
        else:
            key = each.group, each.rank, each.collective, each.peer
            ours = 0 if key in counted else several[key]  # the first one stands for all
            counted.add(key)
            theirs = several[each.group, each.peer, MESSAGES.get(each.collective, ""), each.rank]
            absent = {each.peer} & recorded if ours > theirs else set()
        if absent:
            yield BlockedRanks(each.group, (each.rank,), tuple(sorted(absent)), each)


def _waits_in_order(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[BlockedRanks]:
    """Yield who waits for whom if a GPU runs one collective after the other, as ranks enqueued them."""
    at = {rank: (each[0].group, each[0].sequence) for rank, each in opened.items() if each[0].peer is None}
    for rank, place in at.items():
        later = (other for other in place[0].ranks if other in at and at[other] != place)
        awaited = tuple(other for other in later if any((each.group, each.sequence) == place for each in opened[other]))
        if awaited:
            yield BlockedRanks(place[0], (rank,), awaited, opened[rank][0], behind=True)


def _blame(waits: Sequence[BlockedRanks], blamed: set[int]) -> Iterator[Hang]:
    """Yield a hang for each operation that a rank lacks, one a rank, with the ranks that lack it."""
    together = defaultdict[int, list[int]](list)
    for rank in sorted(blamed):
        direct = [number for number, wait in enumerate(waits) if rank in wait.awaited]
        together[min(direct, key=lambda number: _order(waits[number]))].append(rank)
    for number, ranks in together.items():
        wait = waits[number]
        reason: Reason = "behind" if wait.behind else "not joined"
        yield Hang(reason, tuple(ranks), wait.group, wait.operation, tuple(_chain(waits, ranks)))


def _order(wait: BlockedRanks) -> tuple[bool, bool, int]:
    """Order waits by what they tell of those waited for: a GPU that is behind, a collective, the first operation."""
    return not wait.behind, wait.operation.peer is not None, wait.operation.enqueued_ns or 0


def _chain(waits: Sequence[BlockedRanks], ranks: Iterable[int]) -> Iterator[BlockedRanks]:
    """Yield those who wait for ranks, then those who wait for these, and so on; of each rank the first wait."""
    awaiting = defaultdict[int, list[BlockedRanks]](list)
    for wait in waits:
        for rank in wait.awaited:
            awaiting[rank].append(wait)
    reached = dict.fromkeys(ranks)
    queue = [*reached]
    for rank in queue:  # it grows
        for wait in awaiting[rank]:
            if new := [each for each in wait.ranks if each not in reached]:
                reached.update(dict.fromkeys(new))
                queue += new
                yield wait


def _circles(waits: Sequence[BlockedRanks], blamed: set[int]) -> Iterator[Hang]:
    """Yield the circles of ranks that wait for one another and, directly or not, for no rank that is to blame."""
    of_rank = defaultdict[int, list[BlockedRanks]](list)
    for wait in waits:
        for rank in wait.ranks:
            of_rank[rank].append(wait)
    idle = {rank for wait in waits for rank in wait.awaited} - of_rank.keys()
    explained = {rank for wait in _chain(waits, idle | blamed) for rank in wait.ranks}
    while rest := of_rank.keys() - explained:
        rank, path = min(rest), dict[int, BlockedRanks]()
        while rank not in path:
            path[rank], following = next(
                (wait, other) for wait in of_rank[rank] for other in wait.awaited if other in rest
            )
            rank = following
        circle = [*path][[*path].index(rank) :]
        explained |= {*circle, *(each for wait in _chain(waits, circle) for each in wait.ranks)}
        first = path[circle[0]]
        yield Hang("circle", tuple(circle), first.group, first.operation, tuple(path[each] for each in circle))
