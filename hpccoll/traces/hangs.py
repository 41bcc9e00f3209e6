"""Who waits for whom in a job that hangs, and which ranks are waited for and wait for no other rank.

A rank has an open operation of a group if it has enqueued more than it has completed. It waits for each rank of the
group that has not enqueued the operation, and for each one that has, but completed fewer: its GPU is behind. A message
waits for its partner, unless that has as many open ones of the other direction; in groups with messages, counts say
nothing about collectives. Where only launches are counted (NCCL's RAS, gloo), a rank waits for those that launched
fewer. If a job was recorded several times, only what did not change since the time before is stuck.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hpccoll.traces.records import ANY, Group, Progress, RecordedJob, RecordedOperation

Reason: TypeAlias = Literal["not joined", "behind", "failed", "circle", "mismatch", "unrecorded", "launched"]
"""Why the job hangs: ranks did not enqueue an operation; they did, but do not complete what others completed; their
processes report an error or do not answer; ranks wait for one another, or call different operations at the same time;
nothing is recorded of them; or all ranks launched all operations, so that the GPU or the network is stuck."""
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter")
"""The collectives in which each rank names the same bytes."""
MESSAGES = {"send": "receive", "receive": "send"}


@dataclass(frozen=True, slots=True)
class BlockedRanks:
    """Ranks of a group that wait for the same other ranks."""

    group: Group
    ranks: tuple[int, ...]
    awaited: tuple[int, ...]
    operation: RecordedOperation  # the first one that the ranks waited for have not enqueued, or not completed
    behind: bool = False  # whether they have enqueued it


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a job hangs: ranks for which others wait, directly or by way of others."""

    reason: Reason
    ranks: tuple[int, ...]  # that are waited for; of a circle in its order; empty if all launched
    group: Group | None = None
    operation: RecordedOperation | None = None
    waits: tuple[BlockedRanks, ...] = ()  # the nearest first
    status: str = ""  # of a process that failed

    @property
    def is_absence(self) -> bool:
        """Whether ranks are to blame, and not the GPU or the network."""
        return self.reason not in ("launched", "unrecorded")

    def may_be_late(self, job: RecordedJob) -> bool:
        """Whether the ranks may only be late: if the job was still running, and its files are of one time."""
        return job.polls == 1 and self.reason in ("not joined", "behind")


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
    stuck = {rank: kept for rank, each in opened.items() if (kept := [one for one in each if not job.is_new(one)])}
    messages = {each.group for each in job.operations if each.peer is not None}
    completed = {(each.group, each.sequence, each.rank) for each in job.operations if each.state == "completed"}
    waits = [*_waits_by_count(job, messages), *_waits_of_messages(job, opened, messages, completed)]
    waits += _waits_for_unrecorded(stuck, recorded)
    found += _mismatches(stuck)
    if waits:
        blamed = {rank for wait in waits for rank in wait.awaited} - {rank for wait in waits for rank in wait.ranks}
        busy = {each.rank for each in job.progress if each.completed is not None and each.enqueued > each.completed}
        known = blamed & recorded
        return [*found, *_blame(waits, (known - busy or known) | blamed - recorded, recorded), *_circles(waits, blamed)]
    if stuck and not found:
        circles = [*_circles([*_waits_in_order(opened, stuck)], set())]
        first = min((operations[0] for operations in stuck.values()), key=lambda one: one.enqueued_ns or 0)
        found += circles or [Hang("launched", (), first.group, first)]
    return found


def _waits_by_count(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    polls = defaultdict[tuple[Group, str], _Polls](dict)
    for each in job.progress:
        polls[each.group, each.collective].setdefault(each.rank, []).append(each)
    recorded = dict[tuple[Group, int | None], RecordedOperation]()
    for operation in reversed(job.operations):  # so that the first one stays
        recorded[operation.group, operation.sequence] = operation
    for (group, collective), called in polls.items():
        if group not in messages:
            none = {rank: counts for rank, counts in polls.get((group, ANY), {}).items() if not counts[-1].enqueued}
            of_rank = none | called  # who called nothing called none of this type
            for ranks, late, behind in _late_ranks(of_rank):
                number = min(late.values())
                counted = RecordedOperation(ranks[0], group, collective, number, state="enqueued")
                yield BlockedRanks(group, ranks, tuple(sorted(late)), recorded.get((group, number), counted), behind)


_Polls: TypeAlias = dict[int, list[Progress]]


def _late_ranks(of_rank: _Polls) -> Iterator[tuple[tuple[int, ...], Mapping[int, int], bool]]:
    """Yield ranks that wait, with the operations that others did not enqueue or, being behind, did not complete."""
    waiting = defaultdict[int, list[int]](list)  # by the operation that they wait for
    stuck = {  # in their completed operations
        rank: last
        for rank, (*earlier, last) in sorted(of_rank.items())
        if last.completed is None or not earlier or earlier[-1].completed == last.completed
    }
    for rank, last in stuck.items():
        if last.completed is None or last.enqueued > last.completed:
            waiting[last.enqueued if last.completed is None else last.completed + 1].append(rank)
    before = max((polls[-2].enqueued for polls in of_rank.values() if len(polls) > 1), default=0)
    still = {  # a rank that was not late at the poll before may have waited itself
        rank: last
        for rank, (*earlier, last) in of_rank.items()
        if not earlier or earlier[-1].enqueued == last.enqueued < before
    }
    for needed, ranks in waiting.items():
        behind = {
            rank: last.completed + 1
            for rank, last in stuck.items()
            if last.completed is not None and last.completed < min(needed - 1, last.enqueued)
        }
        absent = {rank: last.enqueued + 1 for rank, last in still.items() if last.enqueued < needed}
        absent = {rank: number for rank, number in absent.items() if rank not in behind}
        yield from ((tuple(ranks), late, late is behind) for late in (absent, behind) if late)


def _waits_of_messages(
    job: RecordedJob,
    opened: Mapping[int, Sequence[RecordedOperation]],
    messages: set[Group],
    completed: set[tuple[Group, int | None, int]],
) -> Iterator[BlockedRanks]:
    recorded = {each.rank for each in job.progress}
    every = [each for operations in opened.values() for each in operations if each.group in messages]
    several = Counter((each.group, each.collective, each.rank, each.peer) for each in every)
    firsts = {
        (each.group, each.collective, each.rank, each.peer): each for each in reversed(every) if not job.is_new(each)
    }
    for (group, collective, rank, peer), first in firsts.items():
        if peer is None or peer not in recorded:
            continue
        if several[group, collective, rank, peer] > several[group, MESSAGES.get(collective, ""), peer, rank]:
            yield BlockedRanks(group, (rank,), (peer,), first)
    together = defaultdict[tuple[Group, str, int | None], dict[int, RecordedOperation]](dict)
    for each in every:
        if each.peer is None:
            together[each.group, each.collective, each.sequence][each.rank] = each
    for (group, _, sequence), operations in together.items():
        waiting = tuple(sorted(rank for rank, each in operations.items() if not job.is_new(each)))
        first = min(operations.values(), key=lambda one: one.enqueued_ns or 0)
        others = recorded.intersection(group.ranks) - operations.keys()
        done = {rank for rank in others if (group, sequence, rank) in completed}
        if waiting and (absent := tuple(sorted(others - done))):
            yield BlockedRanks(group, waiting, absent, first)
        elif waiting and (done := done & opened.keys()):
            yield BlockedRanks(group, tuple(sorted(done)), waiting, first, behind=True)


def _waits_for_unrecorded(
    opened: Mapping[int, Sequence[RecordedOperation]], recorded: set[int]
) -> Iterator[BlockedRanks]:
    """Yield who waits in a group of which a rank has no file: it may be that one that is missing."""
    waiting = defaultdict[Group, list[RecordedOperation]](list)
    for operations in opened.values():
        for group, first in {each.group: each for each in reversed(operations) if each.group.of_job}.items():
            waiting[group].append(first)
    for group, firsts in waiting.items():
        unrecorded = set(group.ranks) - recorded
        awaiting = [each for each in firsts if each.peer is None or each.peer in unrecorded]
        if unrecorded and awaiting:
            awaited = unrecorded if any(each.peer is None for each in awaiting) else {each.peer for each in awaiting}
            ranks = tuple(sorted(each.rank for each in awaiting))
            yield BlockedRanks(group, ranks, tuple(sorted(rank for rank in awaited if rank is not None)), awaiting[0])


def _mismatches(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[Hang]:
    """Yield the first operation of each group that ranks call with another name, size or type than most."""
    together = defaultdict[tuple[Group, int | None], dict[int, RecordedOperation]](dict)
    for operations in opened.values():
        for each in operations:
            if each.peer is None:
                together[each.group, each.sequence][each.rank] = each
    reported = set[Group]()
    for (group, _), calls in sorted(together.items(), key=lambda item: item[0][1] or 0):
        kinds = defaultdict[tuple[object, ...], list[int]](list)
        for rank, each in calls.items():
            kinds[each.collective, *((each.bytes, each.dtype) if each.collective in SYMMETRIC else ())].append(rank)
        if len(kinds) > 1 and group not in reported:
            reported.add(group)
            most = max(kinds.values(), key=len)
            others = sorted(calls.keys() - most) if 2 * len(most) > len(calls) else sorted(calls)
            yield Hang("mismatch", tuple(others), group, calls[most[0]])


def _waits_in_order(
    opened: Mapping[int, Sequence[RecordedOperation]], stuck: Mapping[int, Sequence[RecordedOperation]]
) -> Iterator[BlockedRanks]:
    """Yield who waits for whom if a GPU runs one collective after the other, as ranks enqueued them.

    So it does the messages of a pair of ranks, but for those of one batch, which have one number.
    """
    launched = {(each.group, each.sequence, rank) for rank, operations in opened.items() for each in operations}
    together = defaultdict[tuple[Group, int | None], list[RecordedOperation]](list)
    for first, *_ in stuck.values():
        if first.peer is None:
            together[first.group, first.sequence].append(first)
    for (group, sequence), operations in together.items():
        ranks = {each.rank for each in operations}
        later = tuple(rank for rank in group.ranks if rank not in ranks and (group, sequence, rank) in launched)
        if later:
            yield BlockedRanks(group, tuple(sorted(ranks)), later, operations[0], behind=True)
    pairs = defaultdict[tuple[Group, int, int], list[RecordedOperation]](list)
    for each in (each for operations in opened.values() for each in operations):
        if each.peer is not None:
            pairs[each.group, each.rank, each.peer].append(each)
    for (group, rank, peer), own in pairs.items():
        others = pairs.get((group, peer, rank), [])
        at_once = {each.collective for each in others if each.sequence == others[0].sequence}
        if others and own[0] in stuck.get(rank, ()) and MESSAGES.get(own[0].collective) not in at_once:
            yield BlockedRanks(group, (rank,), (peer,), own[0], behind=True)


def _blame(waits: Sequence[BlockedRanks], blamed: set[int], recorded: set[int]) -> Iterator[Hang]:
    """Yield a hang for each operation that a rank lacks, one a rank, with the ranks that lack it."""
    together = defaultdict[tuple[BlockedRanks, bool], list[int]](list)
    awaiting = _awaiting(waits)
    for rank in sorted(blamed):
        together[min(awaiting[rank], key=_order), rank in recorded].append(rank)
    for (wait, is_recorded), ranks in together.items():
        reason: Reason = "unrecorded" if not is_recorded else "behind" if wait.behind else "not joined"
        yield Hang(reason, tuple(ranks), wait.group, wait.operation, tuple(_chain(waits, ranks)))


def _awaiting(waits: Sequence[BlockedRanks]) -> Mapping[int, list[BlockedRanks]]:
    awaiting = defaultdict[int, list[BlockedRanks]](list)
    for wait in waits:
        for rank in wait.awaited:
            awaiting[rank].append(wait)
    return awaiting


def _order(wait: BlockedRanks) -> tuple[bool, bool, int]:
    """Order waits by what they tell of those waited for: a GPU that is behind, a collective, the first operation."""
    return not wait.behind, wait.operation.peer is not None, wait.operation.enqueued_ns or 0


def _chain(waits: Sequence[BlockedRanks], ranks: Iterable[int]) -> Iterator[BlockedRanks]:
    """Yield those who wait for ranks, then those who wait for these, and so on; of each rank the first wait."""
    awaiting = _awaiting(waits)
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
