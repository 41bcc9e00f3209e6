"""The library that counts the collectives of a program, and the files that its ranks write."""

from dataclasses import dataclass, field
from pathlib import Path

from hpccoll.common.errors import UnusableError
from hpccoll.executor.build import COUNTING_FOLDER, COUNTING_LIBRARY, REBUILD, source_hash

DIRECTORY_VARIABLE = "HPCCOLL_COUNT"
"""The directory to which the ranks of a counted program write."""

BARRIER_VARIABLE = "HPCCOLL_COUNT_BARRIER"
"""1: ranks wait for one another before each blocking collective, so that waiting and transfer are apart."""

FIRST_LINE, LAST_LINE = "hpccoll-count\t1", "end_of_file"
SUFFIX = ".count"
NUMBERS = ("rank", "size", "began_unix_ns", "ran_ns", "cost_ps", "writing_ns")
"""The facts of a rank that are numbers."""

UNKNOWN = "?"
"""What stands for the ranks of a communicator if they are unknown."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """Communicators of the same ranks, created alike, as one rank knows them."""

    number: int
    created_by: str  # the function, such as MPI_Comm_split
    size: int  # ranks of the own group
    blocks: (
        int  # ranks that exchange with this one: of an intercommunicator those of the other group
    )
    is_inter: bool
    communicators: int
    ranks_hash: str
    ranks: str  # in MPI_COMM_WORLD, as runs of first:count:stride; UNKNOWN


@dataclass(frozen=True, slots=True)
class CallsLine:
    """The calls of one kind and size class of one rank."""

    collective: str  # such as Allreduce
    variant: str  # blocking, nonblocking, persistent
    group: int
    dtype: str  # MPI's name, "derived" or "none"
    operation: str  # MPI's name, "user" or "none"
    in_place: bool
    calls: int
    bytes: int  # S, summed over the calls
    ns: int
    wait_ns: int
    least_bytes: int
    most_bytes: int


@dataclass(slots=True)
class RankFile:
    """What one rank counted."""

    path: Path
    facts: dict[str, str]
    groups: list[GroupLine] = field(default_factory=list)
    calls: list[CallsLine] = field(default_factory=list)
    left_out: int = 0  # calls for which the table had no place

    def number(self, fact: str) -> int:
        """Return a fact that is a number; ValueError if it is missing."""
        if fact not in self.facts:
            raise ValueError(f"it does not say {fact}")
        return int(self.facts[fact])


def counting_library() -> Path:
    """Return the library that LD_PRELOAD brings into a program.

    Raises:
        UnusableError: if it is not built, or was built from other sources.
    """
    if not COUNTING_LIBRARY.exists():
        raise UnusableError("count", f"{COUNTING_LIBRARY} is not built; do: {REBUILD}")
    if source_hash(COUNTING_FOLDER).encode() not in COUNTING_LIBRARY.read_bytes():
        raise UnusableError(
            "count", f"{COUNTING_LIBRARY} was built from other sources; do: {REBUILD}"
        )
    return COUNTING_LIBRARY


def read_rank_file(path: Path) -> RankFile:
    """Read what one rank counted.

    Raises:
        ValueError: if the file is not one, is cut short, or contradicts itself.
        OSError: if it cannot be read.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0] != FIRST_LINE:
        raise ValueError("it is not a file of the counting library")
    if lines[-1] != LAST_LINE:
        raise ValueError("it is cut short")
    rank = RankFile(path, {})
    for line in lines[1:-1]:
        kind, *values = line.split("\t")
        if kind == "group":
            rank.groups.append(_group(values))
        elif kind == "calls":
            rank.calls.append(_calls(values))
        elif kind == "left_out":
            rank.left_out = int(values[0])
        else:
            rank.facts[kind] = values[0]
    _check(rank)
    return rank


def _check(rank: RankFile) -> None:
    """Raise ValueError if a fact is missing, or calls are on a communicator that is not listed."""
    for fact in NUMBERS:
        rank.number(fact)
    listed = {group.number for group in rank.groups}
    for calls in rank.calls:
        if calls.group not in listed:
            raise ValueError(f"its calls are on communicator {calls.group}, which it does not list")


def _group(values: list[str]) -> GroupLine:
    if len(values) != 8:
        raise ValueError(f"a group has {len(values)} values instead of 8")
    number = int(values[0])
    sizes = int(values[2]), int(values[3])
    is_inter = values[4] == "1"
    communicators = int(values[5])
    return GroupLine(number, values[1], *sizes, is_inter, communicators, *values[6:])


def _calls(values: list[str]) -> CallsLine:
    if len(values) != 12:
        raise ValueError(f"calls have {len(values)} values instead of 12")
    numbers = [int(value) for value in values[6:]]
    return CallsLine(
        values[0], values[1], int(values[2]), values[3], values[4], values[5] == "1", *numbers
    )
