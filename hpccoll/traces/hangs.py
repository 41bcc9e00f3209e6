"""Who waits for whom in a job that hangs, and which ranks are waited for and wait for no other rank.

A rank has an open operation of a group if it has enqueued more than it has completed. It waits for each rank of the
group that has not enqueued the operation, and for each one that has, but completed fewer: its GPU is behind. A message
waits for its partner, unless that has as many open ones of the other direction; in groups with messages, counts say
nothing about collectives. Where only launches are counted (NCCL's RAS, gloo), a rank waits for those that launched
fewer. If a job was recorded several times, only what did not change since the time before is stuck.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from hpccoll.store.waiting import SYNCHRONISING
from hpccoll.traces.records import ANY, MESSAGES, Group, Progress, RecordedJob, RecordedOperation, by_call

Wait = TypeVar("Wait")
"""A wait, or its number."""

Reason: TypeAlias = Literal[
    "not created", "not joined", "behind", "failed", "circle", "mismatch", "unrecorded", "launched", "older"
]
"""Why the job hangs: ranks did not complete a communicator that they began; ranks did not enqueue an operation; they
did, but do not complete what others completed; their processes report an error or do not answer; ranks wait for one
another, or call different operations at the same time; nothing is recorded of them; all ranks launched all
operations, so that the GPU or the network is stuck; or nothing can be said of them, because their files are older."""
SYMMETRIC = ("all_reduce", "all_gather", "reduce_scatter")
"""The collectives in which each rank names the same bytes."""


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
    status: str = ""  # of processes that failed
    called: tuple[tuple[tuple[int, ...], RecordedOperation], ...] = ()  # of a mismatch: ranks, and what they called
    unseen: int = 0  # the number of ranks of a communicator that was not created, of which nothing is recorded

    @property
    def is_absence(self) -> bool:
        """Whether ranks are awaited, recorded or not, and not the GPU or the network alone."""
        return self.reason not in ("launched", "older")

    def may_be_late(self, job: RecordedJob) -> bool:
        """Whether the ranks may only be late: if the job was still running, and its files are of one time."""
        is_order = self.reason == "circle" and all(wait.behind for wait in self.waits)  # of what ranks have launched
        return job.polls == 1 and self.reason in ("not created", "not joined", "behind", "circle") and not is_order


def find_hangs(job: RecordedJob) -> list[Hang]:
    """Return why a job hangs; empty if no rank waits, as far as the files say."""
    failed = defaultdict[str, list[int]](list)
    for each in job.ranks:
        if each.status:
            failed[each.status] += [each.rank] * (each.rank >= 0)
    found = [Hang("failed", tuple(ranks), status=status) for status, ranks in failed.items()]
    found += _not_created(job)
    recorded, counted = {each.rank for each in job.progress}, {(each.rank, each.group) for each in job.progress}
    if older := _older_files(job):
        found.append(Hang("older", tuple(sorted(older))))
        job = _without_ranks(job, older)
    opened, waits = _opened(job), [*_waits(job)]
    if job.before:  # what changed since then is not stuck
        then = {(rank, each.call) for rank, operations in _opened(job.before).items() for each in operations}
        lasting = {rank: [each for each in of if (rank, each.call) in then] for rank, of in opened.items()}
        opened = {rank: operations for rank, operations in lasting.items() if operations}
        waits = [*_lasting(_waits(job.before), waits)]
    waits += _waits_for_unrecorded(opened, counted)
    found += _mismatches(opened)
    if waits:
        blamed = {rank for wait in waits for rank in wait.awaited} - {rank for wait in waits for rank in wait.ranks}
        busy = {each.rank for each in job.progress if each.completed is not None and each.enqueued > each.completed}
        known = blamed & recorded
        return [*found, *_blame(waits, (known - busy or known) | blamed - recorded, counted), *_circles(waits, blamed)]
    if opened and not found:
        circles = [*_circles([*_waits_in_order(opened)], set())]
        first = min((operations[0] for operations in opened.values()), key=_when)
        found += circles or [Hang("launched", (), first.group, first)]
    return found


def _not_created(job: RecordedJob) -> Iterator[Hang]:
    """Yield a hang for each communicator that ranks began and did not complete."""
    incomplete, recorded = defaultdict[Group, set[int]](set), defaultdict[Group, set[int]](set)
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
    completed = defaultdict[Group, int](int)  # the last synchronising collective that some rank has completed
    for each in job.operations:
        if each.state == "completed" and each.collective in SYNCHRONISING and each.sequence is not None:
            completed[each.group] = max(completed[each.group], each.sequence)
    return {
        each.rank
        for each in job.progress
        if each.completed is not None and each.collective == ANY and each.enqueued < completed[each.group]
    }


def _without_ranks(job: RecordedJob, ranks: set[int]) -> RecordedJob:
    """Return a job without what some ranks recorded."""
    operations = [each for each in job.operations if each.rank not in ranks]
    progress = [each for each in job.progress if each.rank not in ranks]
    return replace(job, operations=operations, progress=progress)


def _when(operation: RecordedOperation) -> tuple[int, int]:
    """Order operations by when they were enqueued: the earliest one stands for those of all ranks."""
    return operation.enqueued_ns or 0, operation.rank


def _opened(job: RecordedJob) -> dict[int, list[RecordedOperation]]:
    """Return the operations that a rank has enqueued and not completed, in their order."""
    ended = {(each.rank, each.group) for each in job.progress if each.completed is not None}
    found = (each for each in job.operations if each.state != "completed" and (each.rank, each.group) in ended)
    opened = defaultdict[int, list[RecordedOperation]](list)
    for each in sorted(found, key=_when):
        opened[each.rank].append(each)
    return opened


def _lasting(before: Iterable[BlockedRanks], now: Iterable[BlockedRanks]) -> Iterator[BlockedRanks]:
    """Yield what ranks wait for now, and waited for at the time before."""
    waited, lacked = defaultdict[object, set[int]](set), defaultdict[object, set[int]](set)
    for wait in before:
        waited[wait.operation.call, wait.behind].update(wait.ranks)
        lacked[wait.operation.call, wait.behind].update(wait.awaited)
    for wait in now:
        ranks = tuple(rank for rank in wait.ranks if rank in waited[wait.operation.call, wait.behind])
        awaited = tuple(rank for rank in wait.awaited if rank in lacked[wait.operation.call, wait.behind])
        if ranks and awaited:
            yield replace(wait, ranks=ranks, awaited=awaited)


def _waits(job: RecordedJob) -> Iterator[BlockedRanks]:
    messages = {each.group for each in job.operations if each.peer is not None}
    messages |= {each.group for each in job.progress if (each.completed or 0) > each.enqueued}  # of a message, before
    yield from _waits_by_count(job, messages)
    yield from _waits_of_messages(job, messages)


def _waits_by_count(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    counts = defaultdict[tuple[Group, str], dict[int, Progress]](dict)
    for each in job.progress:
        counts[each.group, each.collective][each.rank] = each
    recorded = {key: min(calls.values(), key=_when) for key, calls in by_call(job.operations).items()}
    for (group, collective), called in counts.items():
        if group not in messages:
            none = {rank: each for rank, each in counts.get((group, ANY), {}).items() if not each.enqueued}
            of_rank = none | called  # who called nothing called none of this type
            for ranks, late, number, behind in _late_ranks(of_rank):
                counted = RecordedOperation(ranks[0], group, collective, number, state="enqueued")
                yield BlockedRanks(group, ranks, late, recorded.get((group, number), counted), behind)


def _late_ranks(of_rank: Mapping[int, Progress]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int, bool]]:
    """Yield ranks that wait, those that lack an operation, its number, and whether they have enqueued it."""
    waiting = defaultdict[int, list[int]](list)  # by the operation that they wait for
    for rank, each in sorted(of_rank.items()):
        if each.completed is None or each.enqueued > each.completed:
            waiting[each.enqueued if each.completed is None else each.completed + 1].append(rank)
    for needed, ranks in waiting.items():
        lacking = defaultdict[tuple[int, bool], list[int]](list)
        for rank, each in sorted(of_rank.items()):
            if each.completed is not None and each.completed < min(needed - 1, each.enqueued):
                lacking[each.completed + 1, True].append(rank)
            elif each.enqueued < needed:
                lacking[each.enqueued + 1, False].append(rank)
        for (number, behind), late in lacking.items():
            yield tuple(ranks), tuple(late), number, behind


def _waits_of_messages(job: RecordedJob, messages: set[Group]) -> Iterator[BlockedRanks]:
    recorded, opened = {each.rank for each in job.progress}, _opened(job)
    every = [each for operations in opened.values() for each in operations if each.group in messages]
    several = Counter((each.group, each.collective, each.rank, each.peer) for each in every)
    firsts = {(each.group, each.collective, each.rank, each.peer): each for each in reversed(every)}
    for (group, collective, rank, peer), first in firsts.items():
        count = several[group, collective, rank, peer]
        if peer in recorded and peer is not None and count > several[group, MESSAGES.get(collective, ""), peer, rank]:
            yield BlockedRanks(group, (rank,), (peer,), first)
    completed = by_call(each for each in job.operations if each.state == "completed")
    full = {each.rank for each in job.operations if each.state == "completed"}  # other dumps have open ones only
    last = {(each.rank, each.group): each.enqueued for each in job.progress}
    for (group, sequence), operations in by_call(every).items():
        waiting = tuple(sorted(operations))
        first = min(operations.values(), key=_when)
        others = recorded.intersection(group.ranks) - operations.keys()
        done = others & completed.get((group, sequence), {}).keys()
        done |= {
            rank for rank in others - full if last.get((rank, group)) == sequence
        }  # it was the last one, and ended
        if absent := tuple(sorted(others - done)):
            yield BlockedRanks(group, waiting, absent, first)
        elif done := done & opened.keys():
            yield BlockedRanks(group, tuple(sorted(done)), waiting, first, behind=True)


def _waits_for_unrecorded(
    opened: Mapping[int, Sequence[RecordedOperation]], counted: set[tuple[int, Group]]
) -> Iterator[BlockedRanks]:
    """Yield who waits in a group of which a rank has no file: it may be that one that is missing."""
    waiting = defaultdict[Group, list[RecordedOperation]](list)
    for operations in opened.values():
        for group, first in {each.group: each for each in reversed(operations) if each.group.of_job}.items():
            waiting[group].append(first)
    for group, firsts in waiting.items():
        unrecorded = {rank for rank in group.ranks if (rank, group) not in counted}
        awaiting = [each for each in firsts if each.peer is None or each.peer in unrecorded]
        if unrecorded and awaiting:
            awaited = unrecorded if any(each.peer is None for each in awaiting) else {each.peer for each in awaiting}
            ranks, first = tuple(sorted(each.rank for each in awaiting)), min(awaiting, key=_when)
            yield BlockedRanks(group, ranks, tuple(sorted(rank for rank in awaited if rank is not None)), first)


def _mismatches(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[Hang]:
    """Yield the first operation of each group that ranks call with another name, size or type than most."""
    calls_of, reported = by_call(each for of in opened.values() for each in of), set[Group]()
    for (group, _), calls in sorted(calls_of.items(), key=lambda item: item[0][1] or 0):
        kinds = defaultdict[tuple[object, ...], list[int]](list)
        for rank, each in calls.items():
            kinds[each.collective, *((each.bytes, each.dtype) if each.collective in SYMMETRIC else ())].append(rank)
        if len(kinds) > 1 and group not in reported:
            reported.add(group)
            most = max(kinds.values(), key=len)
            others = sorted(calls.keys() - most) if 2 * len(most) > len(calls) else sorted(calls)
            called = tuple((tuple(ranks), calls[ranks[0]]) for ranks in sorted(kinds.values(), key=len))
            yield Hang("mismatch", tuple(others), group, calls[most[0]], called=called)


def _waits_in_order(opened: Mapping[int, Sequence[RecordedOperation]]) -> Iterator[BlockedRanks]:
    """Yield who waits for whom if a GPU runs one collective after the other, as ranks enqueued them.

    So it does the messages of a pair of ranks, but for those of one batch, which have one number.
    """
    launched = by_call(each for operations in opened.values() for each in operations)
    for (group, sequence), operations in by_call(first for first, *_ in opened.values()).items():
        if later := tuple(sorted(launched[group, sequence].keys() - operations.keys())):
            yield BlockedRanks(group, tuple(sorted(operations)), later, next(iter(operations.values())), behind=True)
    pairs = defaultdict[tuple[Group, int, int], list[RecordedOperation]](list)
    for each in (each for operations in opened.values() for each in operations):
        if each.peer is not None:
            pairs[each.group, each.rank, each.peer].append(each)
    for (group, rank, peer), own in pairs.items():
        others = pairs.get((group, peer, rank), [])
        at_once = {each.collective for each in others if each.sequence == others[0].sequence}
        if others and MESSAGES.get(own[0].collective) not in at_once:
            yield BlockedRanks(group, (rank,), (peer,), own[0], behind=True)


def _blame(waits: Sequence[BlockedRanks], blamed: set[int], counted: set[tuple[int, Group]]) -> Iterator[Hang]:
    """Yield a hang for each operation that a rank lacks, one a rank, with the ranks that lack it."""
    together = defaultdict[tuple[int, bool], list[int]](list)  # by the number of the wait: its ranks may be thousands
    awaiting = _by_rank((rank, number) for number, wait in enumerate(waits) for rank in wait.awaited)
    for rank in sorted(blamed):
        number = min(awaiting[rank], key=lambda number: _order(waits[number]))
        together[number, (rank, waits[number].group) in counted].append(rank)
    for (number, is_recorded), ranks in together.items():
        wait = waits[number]
        reason: Reason = "unrecorded" if not is_recorded else "behind" if wait.behind else "not joined"
        yield Hang(reason, tuple(ranks), wait.group, wait.operation, tuple(_chain(waits, ranks)))


def _by_rank(waits: Iterable[tuple[int, Wait]]) -> Mapping[int, list[Wait]]:
    of_rank = defaultdict[int, list[Wait]](list)
    for rank, wait in waits:
        of_rank[rank].append(wait)
    return of_rank


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
        for wait in sorted(following, key=lambda one: (one.ranks[0], -len(one.ranks))):
            if new := {*wait.ranks} - reached:
                reached |= new
                nearest |= new
                yield wait


def _circles(waits: Sequence[BlockedRanks], blamed: set[int]) -> Iterator[Hang]:
    """Yield the circles of ranks that wait for one another and, directly or not, for no rank that is to blame."""
    of_rank = _by_rank((rank, wait) for wait in waits for rank in wait.ranks)
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
