"""One record of a job, whatever wrote it: its operations, how far each rank has come, and what its files cannot say.

Readers fill it, one file of this room a format; what follows from it knows no format. A time is in
nanoseconds of the clock of its host; a size is S, as nccl-tests and ``hpccoll run`` count it: all n
blocks of an all-gather, reduce-scatter or all-to-all.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec

Place: TypeAlias = tuple[str, int, str]
"""Host, rank in the largest communicator, and process: what tells one GPU of a job from all others."""
State: TypeAlias = Literal["enqueued", "completed"]

LONGEST_PID = 9
"""More digits than a process id of Linux has, which is below 2^22."""

ANY = ""
"""The collective of a counter that counts operations of all types."""
MESSAGES = {"send": "receive", "receive": "send"}
"""What the peer calls."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate with one another. Equal on all of its ranks: a process has names of its own, too."""

    name: str  # PyTorch's name, or NCCL's hash of the communicator
    ranks: tuple[int, ...]  # of the job, in its order; of NCCL's files those of the communicator
    description: str = ""  # such as "default_pg" or "dp"
    has_job_ranks: bool = True  # whether ranks are those of the job: NCCL's files know none of them
    size: int = 0  # how many they are, if ranks does not list them all

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[..., "Group"], tuple[object, ...]]:
        """Let the process that gets a group from another one have it once."""
        return _received_group, (
            self.name,
            self.ranks,
            self.description,
            self.has_job_ranks,
            self.size,
        )


_MAX_GROUPS = 1 << 12
_groups: dict[Group, Group] = {}


def unique_group(group: Group) -> Group:
    """Return the same object for equal groups, which all ranks name: it is found without comparing their ranks."""
    if len(_groups) == _MAX_GROUPS:
        _groups.clear()
    return _groups.setdefault(group, group)


def _received_group(*fields: Any) -> Group:
    return unique_group(Group(*fields))


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of the job."""

    # of the job; of NCCL's files that in the largest communicator; below 0 if it is unknown
    rank: int
    host: str | None = None
    status: str | None = None  # what is known besides, such as "the process is gone"
    place: Place | None = None  # of NCCL's files
    pid: int | None = None  # on its host


# millions: made in a third of a dataclass's time
class RecordedOperation(msgspec.Struct, frozen=True, gc=False):
    """A collective or a message, as one rank recorded it."""

    rank: int  # as ``Rank.rank``
    group: Group
    collective: str  # a name of ours, "send", "receive", or the source's where we have none
    sequence: int | None  # of the group; see ``by_type``
    bytes: int | None = None  # S
    bytes_in: int | None = None  # of this rank, where S may be that of another one
    bytes_out: int | None = None
    dtype: str | None = None  # NumPy's name, or "bfloat16", "float8_e4m3fn", "float8_e5m2"
    enqueued_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    duration_s: float | None = None  # of the kernel: waiting is included
    written_ns: int | None = None  # when the recorder wrote it down, some time after its end
    state: State = "completed"
    peer: int | None = None  # of a message, as ``rank``
    by_type: bool = False  # whether sequence counts operations of this type only, as NCCL does
    # whether the blocks of an all-to-all may differ in size: its name does not tell
    may_be_uneven: bool = False
    where: str | None = None  # the line of code that called it, such as "model.py:12 forward"

    @property
    def call(self) -> tuple[Group, str, int | None, int | None]:
        """What tells it from the other operations of its rank."""
        return self.group, self.collective, self.sequence, self.peer


@dataclass(frozen=True, slots=True)
class Progress:
    """How many operations of a group a rank has enqueued, and completed where that is known."""

    rank: int
    group: Group
    enqueued: int
    completed: int | None
    collective: str = ANY  # NCCL counts each type by itself
    # False if the rank began the group's communicator, and did not complete it
    is_created: bool = True


@dataclass(frozen=True, slots=True)
class Computing:
    """Where a rank's device computed, besides communication: for the share of communication that is hidden."""

    rank: int
    spans_ns: Sequence[tuple[int, int]]  # begin and end of each kernel
    window_ns: tuple[int, int]  # what was recorded
    steps: int = 1  # training steps in the window


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What one file, or all files of a job, recorded."""

    source: str  # the format, as people call it
    ranks: Sequence[Rank] = ()
    operations: Sequence[RecordedOperation] = ()
    progress: Sequence[Progress] = ()
    computing: Sequence[Computing] = ()
    taken_ns: int = 0  # when the file was written, or its latest time; 0 if it is unknown
    # after which all ranks of a job that hangs have written their files; 0 if it is unknown
    timeout_ns: int = 0
    # of the process that wrote the file, from which it enqueued operations
    threads: Collection[str] = ()
    # sentences: what the format does not tell, or what this file lacks
    cannot_say: Sequence[str] = ()
    # sentences: in which groups ranks are behind that no file names
    unnamed_behind: Sequence[str] = ()
    polls: int = 1  # how often each rank was recorded, at least
    # if ranks were recorded several times, the job as it was the time before
    before: "RecordedJob | None" = None
    files: Sequence[str] = ()  # the paths of its files, of members below those of their archives
    nccl: str = ""  # the version of NCCL; empty if it is not recorded, or differs between files

    @property
    def path(self) -> str:
        """The path of its file; if it has several, the characters that all begin with, and ``*``."""
        begin = os.path.commonprefix(list(self.files))  # noqa: RUF071 - it may end within a name
        return f"{begin}*" if len(self.files) > 1 else begin

    @property
    def unrecorded(self) -> list[int]:
        """The ranks that its groups name and that no file records."""
        named = set[int]()
        for group in self.groups:
            if group.has_job_ranks:
                named.update(group.ranks)
        named.update(self._ranks_of_largest_communicator())
        return sorted(named - {recorded.rank for recorded in self.ranks})

    def _ranks_of_largest_communicator(self) -> Sequence[int]:
        """Return the ranks of the largest communicator where they are those of the job; else none.

        Files of one process each know the ranks of communicators only. The largest one numbers the
        job if all recorded ranks are in it, under these numbers.
        """
        communicators = [group for group in self.groups if not group.has_job_ranks]
        if not communicators:
            return ()
        largest = max(communicators, key=lambda group: len(group.ranks))
        members = set()
        for operation in self.operations:
            if operation.group == largest:
                members.add(operation.rank)
        members.update(progress.rank for progress in self.progress if progress.group == largest)
        for recorded in self.ranks:
            is_numbered_by_it = recorded.place is not None and recorded.place[1] == recorded.rank
            if not is_numbered_by_it or recorded.rank not in members:
                return ()
        return largest.ranks

    @property
    def called(self) -> set[int]:
        """The ranks that have a recorded or a counted operation."""
        counted = set()
        for progress in self.progress:
            if progress.enqueued:
                counted.add(progress.rank)
        return counted | {operation.rank for operation in self.operations}

    @property
    def is_silent(self) -> bool:
        """Whether its files name ranks, and no operation of any of them."""
        return bool(self.ranks) and not self.called

    @property
    def idle(self) -> list[int]:
        """The ranks without an operation in files that tell how far others have come."""
        if not self.progress:
            return []
        return sorted(
            {recorded.rank for recorded in self.ranks if recorded.rank >= 0} - self.called
        )

    @property
    def moved(self) -> bool:
        """Whether counts and open operations differ from those of the time before."""
        if self.before is None:
            return False
        return _counts_and_open_calls(self) != _counts_and_open_calls(self.before)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of its operations and counts, each once."""
        counted = (progress.group for progress in self.progress)
        # Most operations have the same few objects, whose hashes take longer than their identities.
        groups = list(map(attrgetter("group"), self.operations))
        called = dict(zip(map(id, groups), groups, strict=True))
        return tuple(dict.fromkeys((*counted, *called.values())))


def _counts_and_open_calls(job: RecordedJob) -> set[object]:
    open_calls = set()
    for call in job.operations:
        if call.state != "completed":
            open_calls.add((call.rank, call.call))
    return {*job.progress, *open_calls}


def by_call(
    operations: Iterable[RecordedOperation],
) -> Mapping[tuple[Group, int | None], dict[int, RecordedOperation]]:
    """Return collectives by group and number, of each rank the last one; messages have numbers of their own."""
    calls = defaultdict[tuple[Group, int | None], dict[int, RecordedOperation]](dict)
    for operation in operations:
        if operation.peer is None:
            calls[operation.group, operation.sequence][operation.rank] = operation
    return calls


def pid_of(text: str | None) -> int | None:
    """Return the process id that a file names; None if it is none."""
    if not text or not text.isdecimal() or len(text) > LONGEST_PID:
        return None
    return int(text) or None


def number_ranks(places: Iterable[Place]) -> dict[Place, int]:
    """Return ranks: those in the largest communicator or, where no communicator has all, the order of places."""
    ordered = sorted(set(places))
    ranks = [rank for _, rank, _ in ordered]
    return dict(
        zip(ordered, ranks if len({*ranks}) == len(ranks) else range(len(ranks)), strict=True)
    )


def union_of(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of spans as spans that do not touch, in order."""
    union: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((begin, end))
    return union
