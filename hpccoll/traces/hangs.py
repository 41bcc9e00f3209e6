"""Who waits for whom in a job that hangs, and which ranks are waited for and wait for no other rank.

A rank has an open operation of a group if it has enqueued more than it has completed. It waits for
each rank of the group that has not enqueued the operation, and for each one that has, but completed
fewer: its GPU is behind. A message waits for its partner, unless that has as many open ones of the
other direction; in groups with messages, counts say nothing about collectives. Where only launches
are counted (NCCL's RAS, gloo), a rank waits for those that launched fewer. If a job was recorded
several times, only what did not change since the time before is stuck.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from hpccoll.store.waiting import SYNCHRONISING
from hpccoll.traces.recorded_job import (
    ANY,
    MESSAGES,
    Group,
    Progress,
    RecordedJob,
    RecordedOperation,
    by_call,
)

Wait = TypeVar("Wait")
"""A wait, or its number."""

Reason: TypeAlias = Literal[
    "not created",
    "not joined",
    "behind",
    "failed",
    "circle",
    "mismatch",
    "unrecorded",
    "launched",
    "older",
]
"""Why the job hangs: ranks did not complete a communicator that they began; ranks did not enqueue
an operation; they did, but do not complete what others completed; their processes report an error
or do not answer; ranks wait for one another, or call different operations at the same time; nothing
is recorded of them; all ranks launched all operations, so that the GPU or the network is stuck; or
nothing can be said of them, because their files are older."""
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter")
"""The collectives in which each rank names the same bytes."""


@dataclass(frozen=True, slots=True)
class BlockedRanks:
    """Ranks of a group that wait for the same other ranks."""

    group: Group
    ranks: tuple[int, ...]
    awaited: tuple[int, ...]
    # the first one that the ranks waited for have not enqueued, or not completed
    operation: RecordedOperation
    behind: bool = False  # whether they have enqueued it


@dataclass(frozen=True, slots=True)
class Hang:
    """Why a job hangs: ranks for which others wait, directly or by way of others."""

    reason: Reason
    ranks: tuple[int, ...]  # that are waited for; of a circle in its order; empty if all launched
    group: Group | None = None
    operation: RecordedOperation | None = None
    waits: tuple[BlockedRanks, ...] = ()  # the nearest first
    status: str = ""  # of processes that failed
    # of a mismatch: ranks, and what they called
    called: tuple[tuple[tuple[int, ...], RecordedOperation], ...] = ()
    unseen: int = 0  # the number of ranks without a record, of a communicator that was not created

    @property
    def is_absence(self) -> bool:
        """Whether ranks are awaited, recorded or not, and not the GPU or the network alone."""
        return self.reason not in ("launched", "older")

    def may_be_late(self, job: RecordedJob) -> bool:
        """Whether the ranks may only be late: if the job was still running, and its files are of one time."""
        # of what ranks have launched
        is_order = self.reason == "circle" and all(wait.behind for wait in self.waits)
        return (
            job.polls == 1
            and self.reason in ("not created", "not joined", "behind", "circle")
            and not is_order
        )


def find_hangs(job: RecordedJob) -> list[Hang]:
    """Return why a job hangs; empty if its files show no rank that waits."""
    hangs = [*_failed(job), *_not_created(job)]
    counted = {(progress.rank, progress.group) for progress in job.progress}
    recorded = {progress.rank for progress in job.progress}
    older = _older_files(job)
    if older:
        hangs.append(Hang("older", tuple(sorted(older))))
        job = _without_ranks(job, older)
    opened = _opened(job)
    waits = list(_waits(job))
    if job.before:  # what changed since then is not stuck
        opened = _still_open(job.before, opened)
        waits = list(_lasting(_waits(job.before), waits))
    waits += _waits_for_unrecorded(opened, counted)
    hangs += _mismatches(opened)
    if waits:
        blamed = _only_awaited(waits)
        hangs += _blame(waits, _without_busy(blamed, recorded, job), counted)
        hangs += _circles(waits, blamed)
    elif opened and not hangs:
        first = min((calls[0] for calls in opened.values()), key=_when)
        circles = list(_circles(list(_waits_in_order(opened)), set()))
        hangs += circles or [Hang("launched", (), first.group, first)]
    return hangs


def _failed(job: RecordedJob) -> Iterator[Hang]:
    """Yield a hang for each error that processes report, with their ranks."""
    failed = defaultdict[str, list[int]](list)
    for rank in job.ranks:
        if rank.status:
            ranks = failed[rank.status]
            if rank.rank >= 0:
                ranks.append(rank.rank)
    for status, ranks in failed.items():
        yield Hang("failed", tuple(ranks), status=status)


def _still_open(
    before: RecordedJob, opened: Mapping[int, Sequence[RecordedOperation]]
) -> dict[int, list[RecordedOperation]]:
    """Return the open operations that were open before, too, of the ranks that have any."""
    opened_before = {(rank, call.call) for rank, calls in _opened(before).items() for call in calls}
    still_open = {}
    for rank, calls in opened.items():
        lasting = []
        for call in calls:
            if (rank, call.call) in opened_before:
                lasting.append(call)
        if lasting:
            still_open[rank] = lasting
    return still_open


def _only_awaited(waits: Iterable[BlockedRanks]) -> set[int]:
    """Return the ranks that others wait for, and that wait for no other rank."""
    awaited: set[int] = set()
    waiting: set[int] = set()
    for wait in waits:
        awaited.update(wait.awaited)
        waiting.update(wait.ranks)
    return awaited - waiting


def _without_busy(blamed: set[int], recorded: set[int], job: RecordedJob) -> set[int]:
    """Return the ranks to blame without those with open operations, unless all recorded ones have some."""
    busy = set()
    for progress in job.progress:
        if progress.completed is not None and progress.enqueued > progress.completed:
            busy.add(progress.rank)
    blamed_of_record = blamed & recorded
    idle = blamed_of_record - busy
    return (idle or blamed_of_record) | (blamed - recorded)


def _not_created(job: RecordedJob) -> Iterator[Hang]:
    """Yield a hang for each communicator that ranks began and did not complete."""
    incomplete = defaultdict[Group, set[int]](set)
    recorded = defaultdict[Group, set[int]](set)
    for progress in job.progress:
        recorded[progress.group].add(progress.rank)
        if not progress.is_created:
            incomplete[progress.group].add(progress.rank)
    for group, ranks in incomplete.items():
        unseen = max(0, len(group.ranks) - len(recorded[group]))
        yield Hang("not created", tuple(sorted(ranks)), group, unseen=unseen)


def _older_files(job: RecordedJob) -> set[int]:
    """Return the ranks whose files are older than others: these completed what no rank can without all ranks.

    Where ranks were recorded several times, files are of different times anyway.
    """
    if job.before:
        return set()
    # the last synchronising collective that some rank has completed
    completed = defaultdict[Group, int](int)
    for call in job.operations:
        if (
            call.state == "completed"
            and call.collective in SYNCHRONISING
            and call.sequence is not None
        ):
            completed[call.group] = max(completed[call.group], call.sequence)
    older = set()
    for progress in job.progress:
        counts_all = progress.completed is not None and progress.collective == ANY
        if counts_all and progress.enqueued < completed[progress.group]:
            older.add(progress.rank)
    return older


def _without_ranks(job: RecordedJob, ranks: set[int]) -> RecordedJob:
    """Return a job without what some ranks recorded."""
    operations = []
    for call in job.operations:
        if call.rank not in ranks:
            operations.append(call)
    progress = []
    for counted in job.progress:
        if counted.rank not in ranks:
            progress.append(counted)
    return replace(job, operations=operations, progress=progress)


def _when(operation: RecordedOperation) -> tuple[int, int]:
    """Order operations by when they were enqueued: the earliest one stands for those of all ranks."""
    return operation.enqueued_ns or 0, operation.rank


def _opened(job: RecordedJob) -> dict[int, list[RecordedOperation]]:
    """Return the operations that a rank has enqueued and not completed, in their order."""
    tell_ends = set()
    for progress in job.progress:
        if progress.completed is not None:
            tell_ends.add((progress.rank, progress.group))
    calls = []
    for call in job.operations:
        if call.state != "completed" and (call.rank, call.group) in tell_ends:
            calls.append(call)
    opened = defaultdict[int, list[RecordedOperation]](list)
    for call in sorted(calls, key=_when):
        opened[call.rank].append(call)
    return opened


def _lasting(before: Iterable[BlockedRanks], now: Iterable[BlockedRanks]) -> Iterator[BlockedRanks]:
    """Yield what ranks wait for now, and waited for at the time before."""
    waiting_before = defaultdict[object, set[int]](set)
    awaited_before = defaultdict[object, set[int]](set)
    for wait in before:
        key = wait.operation.call, wait.behind
        waiting_before[key].update(wait.ranks)
        awaited_before[key].update(wait.awaited)
    for wait in now:
        key = wait.operation.call, wait.behind
        ranks = tuple(rank for rank in wait.ranks if rank in waiting_before[key])
        awaited = tuple(rank for rank in wait.awaited if rank in awaited_before[key])
        if ranks and awaited:
            yield replace(wait, ranks=ranks, awaited=awaited)


def _waits(job: RecordedJob) -> Iterator[BlockedRanks]:
    messages = set()
    for call in job.operations:
        if call.peer is not None:
            messages.add(call.group)
    for progress in job.progress:
        if (progress.completed or 0) > progress.enqueued:  # a message was completed before
            messages.add(progress.group)
    yield from _waits_by_count(job, messages)
    yield from _waits_of_messages(job, messages)


def _waits_by_count(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    counts = defaultdict[tuple[Group, str], dict[int, Progress]](dict)
    for progress in job.progress:
        counts[progress.group, progress.collective][progress.rank] = progress
    recorded = {
        key: min(calls.values(), key=_when) for key, calls in by_call(job.operations).items()
    }
    for (group, collective), called in counts.items():
        if group in messages:
            continue
        progress_of_all_types = counts.get((group, ANY), {})
        without_calls = {
            rank: progress
            for rank, progress in progress_of_all_types.items()
            if not progress.enqueued
        }
        by_rank = without_calls | called  # a rank without calls has none of this type
        for ranks, late, number, behind in _late_ranks(by_rank):
            counted = RecordedOperation(ranks[0], group, collective, number, state="enqueued")
            yield BlockedRanks(group, ranks, late, recorded.get((group, number), counted), behind)


def _late_ranks(
    by_rank: Mapping[int, Progress],
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, bool]]:
    """Yield ranks that wait, those that lack an operation, its number, and whether they have enqueued it."""
    waiting = defaultdict[int, list[int]](list)  # by the operation that they wait for
    for rank, progress in sorted(by_rank.items()):
        if progress.completed is None:
            waiting[progress.enqueued].append(rank)
        elif progress.enqueued > progress.completed:
            waiting[progress.completed + 1].append(rank)
    for needed, ranks in waiting.items():
        lacking = defaultdict[tuple[int, bool], list[int]](list)
        for rank, progress in sorted(by_rank.items()):
            if progress.completed is not None and progress.completed < min(
                needed - 1, progress.enqueued
            ):
                lacking[progress.completed + 1, True].append(rank)
            elif progress.enqueued < needed:
                lacking[progress.enqueued + 1, False].append(rank)
        for (number, behind), late in lacking.items():
            yield tuple(ranks), tuple(late), number, behind


def _waits_of_messages(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    """Yield who waits in groups with messages, in which counts say nothing about collectives."""
    recorded = {progress.rank for progress in job.progress}
    opened = _opened(job)
    calls = []
    for calls_of_rank in opened.values():
        for call in calls_of_rank:
            if call.group in messages:
                calls.append(call)
    yield from _waits_for_peers(calls, recorded)
    completed = by_call(call for call in job.operations if call.state == "completed")
    # other dumps have open ones only
    full = {call.rank for call in job.operations if call.state == "completed"}
    last = {(progress.rank, progress.group): progress.enqueued for progress in job.progress}
    for (group, sequence), operations in by_call(calls).items():
        waiting = tuple(sorted(operations))
        first = min(operations.values(), key=_when)
        without_call = recorded.intersection(group.ranks) - operations.keys()
        done = without_call & completed.get((group, sequence), {}).keys()
        for rank in without_call - full:
            if last.get((rank, group)) == sequence:  # it was the last one, and ended
                done.add(rank)
        absent = without_call - done
        still_waiting = done & opened.keys()
        if absent:
            yield BlockedRanks(group, waiting, tuple(sorted(absent)), first)
        elif still_waiting:
            yield BlockedRanks(group, tuple(sorted(still_waiting)), waiting, first, behind=True)


def _waits_for_peers(
    calls: Sequence[RecordedOperation], recorded: set[int]
) -> Iterator[BlockedRanks]:
    """Yield who waits for the partner of a message, which has fewer open ones of the other direction."""
    counts = Counter((call.group, call.collective, call.rank, call.peer) for call in calls)
    firsts = {(call.group, call.collective, call.rank, call.peer): call for call in reversed(calls)}
    for (group, collective, rank, peer), first in firsts.items():
        if peer is None or peer not in recorded:
            continue
        opposite = MESSAGES.get(collective, "")
        if counts[group, collective, rank, peer] > counts[group, opposite, peer, rank]:
            yield BlockedRanks(group, (rank,), (peer,), first)


def _waits_for_unrecorded(
    opened: Mapping[int, Sequence[RecordedOperation]], counted: set[tuple[int, Group]]
) -> Iterator[BlockedRanks]:
    """Yield who waits in a group with a rank without a file: it may be the one that is missing."""
    waiting = defaultdict[Group, list[RecordedOperation]](list)
    for calls in opened.values():
        firsts_of_rank = {call.group: call for call in reversed(calls) if call.group.has_job_ranks}
        for group, first in firsts_of_rank.items():
            waiting[group].append(first)
    for group, firsts in waiting.items():
        unrecorded = {rank for rank in group.ranks if (rank, group) not in counted}
        awaiting = [call for call in firsts if call.peer is None or call.peer in unrecorded]
        if not unrecorded or not awaiting:
            continue
        awaited = set()
        for call in awaiting:
            if call.peer is not None:
                awaited.add(call.peer)
        if any(call.peer is None for call in awaiting):
            awaited = unrecorded
        ranks = tuple(sorted(call.rank for call in awaiting))
        yield BlockedRanks(group, ranks, tuple(sorted(awaited)), min(awaiting, key=_when))


def _mismatches(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[Hang]:
    """Yield the first operation of each group that ranks call with another name, size or type than most."""
    calls_by_number = by_call(call for calls in opened.values() for call in calls)
    reported = set[Group]()
    for (group, _), calls in sorted(calls_by_number.items(), key=lambda item: item[0][1] or 0):
        ranks_of_kind = defaultdict[tuple[object, ...], list[int]](list)
        for rank, call in calls.items():
            ranks_of_kind[_kind_of(call)].append(rank)
        if len(ranks_of_kind) == 1 or group in reported:
            continue
        reported.add(group)
        most = max(ranks_of_kind.values(), key=len)
        suspects = sorted(calls)
        if 2 * len(most) > len(calls):
            suspects = sorted(calls.keys() - most)
        by_size = sorted(ranks_of_kind.values(), key=len)
        called = tuple((tuple(ranks), calls[ranks[0]]) for ranks in by_size)
        yield Hang("mismatch", tuple(suspects), group, calls[most[0]], called=called)


def _kind_of(call: RecordedOperation) -> tuple[object, ...]:
    """Return what all ranks of a group have to call alike."""
    if call.collective in SYMMETRIC:
        return call.collective, call.bytes, call.dtype
    return (call.collective,)


def _waits_in_order(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[BlockedRanks]:
    """Yield who waits for whom if a GPU runs one collective after the other, as ranks enqueued them.

    So it does the messages of a pair of ranks, but for those of one batch, which have one number.
    """
    calls: list[RecordedOperation] = []
    for calls_of_rank in opened.values():
        calls += calls_of_rank
    launched = by_call(calls)
    for (group, sequence), operations in by_call(
        calls_of_rank[0] for calls_of_rank in opened.values()
    ).items():
        later = launched[group, sequence].keys() - operations.keys()
        if later:
            first = next(iter(operations.values()))
            yield BlockedRanks(
                group, tuple(sorted(operations)), tuple(sorted(later)), first, behind=True
            )
    pairs = defaultdict[tuple[Group, int, int], list[RecordedOperation]](list)
    for call in calls:
        if call.peer is not None:
            pairs[call.group, call.rank, call.peer].append(call)
    for (group, rank, peer), own in pairs.items():
        answers = pairs.get((group, peer, rank), [])
        at_once = {call.collective for call in answers if call.sequence == answers[0].sequence}
        if answers and MESSAGES.get(own[0].collective) not in at_once:
            yield BlockedRanks(group, (rank,), (peer,), own[0], behind=True)


def _blame(
    waits: Sequence[BlockedRanks], blamed: set[int], counted: set[tuple[int, Group]]
) -> Iterator[Hang]:
    """Yield a hang for each operation that a rank lacks, one a rank, with the ranks that lack it."""
    # by the number of the wait: its ranks may be thousands
    together = defaultdict[tuple[int, bool], list[int]](list)
    awaiting = _by_rank(
        (rank, number) for number, wait in enumerate(waits) for rank in wait.awaited
    )
    for rank in sorted(blamed):
        number = min(awaiting[rank], key=lambda number: _order(waits[number]))
        together[number, (rank, waits[number].group) in counted].append(rank)
    for (number, is_recorded), ranks in together.items():
        wait = waits[number]
        reason: Reason = "unrecorded"
        if is_recorded:
            reason = "behind" if wait.behind else "not joined"
        yield Hang(reason, tuple(ranks), wait.group, wait.operation, tuple(_chain(waits, ranks)))


def _by_rank(waits: Iterable[tuple[int, Wait]]) -> Mapping[int, list[Wait]]:
    waits_of_rank = defaultdict[int, list[Wait]](list)
    for rank, wait in waits:
        waits_of_rank[rank].append(wait)
    return waits_of_rank


def _order(wait: BlockedRanks) -> tuple[bool, bool, int]:
    """Order waits by what they tell of those waited for: a GPU that is behind, a collective, the first operation."""
    return not wait.behind, wait.operation.peer is not None, wait.operation.enqueued_ns or 0


def _chain(waits: Sequence[BlockedRanks], ranks: Iterable[int]) -> Iterator[BlockedRanks]:
    """Yield those who wait for ranks, then those who wait for these, and so on, each in order; of a rank one wait."""
    awaiting = _by_rank((rank, wait) for wait in waits for rank in wait.awaited)
    nearest = {*ranks}
    reached = {*nearest}
    while nearest:
        following = (wait for rank in sorted(nearest) for wait in awaiting[rank])
        nearest = set()
        for wait in sorted(following, key=lambda wait: (wait.ranks[0], -len(wait.ranks))):
            new = {*wait.ranks} - reached
            if new:
                reached |= new
                nearest |= new
                yield wait


def _circles(waits: Sequence[BlockedRanks], blamed: set[int]) -> Iterator[Hang]:
    """Yield the circles of ranks that wait for one another and, directly or not, for no rank that is to blame."""
    waits_of_rank = _by_rank((rank, wait) for wait in waits for rank in wait.ranks)
    idle = {rank for wait in waits for rank in wait.awaited} - waits_of_rank.keys()
    explained = _waiting_for(waits, idle | blamed)
    while rest := waits_of_rank.keys() - explained:
        path = _circular_path(waits_of_rank, rest)
        circle = tuple(path)
        explained |= {*circle} | _waiting_for(waits, circle)
        first = path[circle[0]]
        yield Hang("circle", circle, first.group, first.operation, tuple(path.values()))


def _waiting_for(waits: Sequence[BlockedRanks], ranks: Iterable[int]) -> set[int]:
    """Return the ranks that wait for some ranks, directly or not."""
    return {rank for wait in _chain(waits, ranks) for rank in wait.ranks}


def _circular_path(
    waits_of_rank: Mapping[int, Sequence[BlockedRanks]], candidates: Collection[int]
) -> dict[int, BlockedRanks]:
    """Return the ranks of a circle with the wait of each for the next; each candidate waits for another one."""
    rank = min(candidates)
    path: dict[int, BlockedRanks] = {}
    while rank not in path:
        path[rank], rank_ahead = _first_wait_within(waits_of_rank[rank], candidates)
        rank = rank_ahead
    ranks = list(path)
    circle = ranks[ranks.index(rank) :]
    return {member: path[member] for member in circle}


def _first_wait_within(
    waits: Iterable[BlockedRanks], candidates: Collection[int]
) -> tuple[BlockedRanks, int]:
    """Return the first wait for a candidate, and the candidate."""
    return next((wait, rank) for wait in waits for rank in wait.awaited if rank in candidates)
