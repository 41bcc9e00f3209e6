"""The library that counts the collectives of a program, and the files that its ranks write."""

from dataclasses import dataclass, field
from pathlib import Path

from hpccoll.common.errors import UnusableError
from hpccoll.executor.build import COUNTING_FOLDER, COUNTING_LIBRARY, REBUILD, source_hash

DIRECTORY_VARIABLE = "HPCCOLL_COUNT"
"""The directory to which the ranks of a counted program write."""

BARRIER_VARIABLE = "HPCCOLL_COUNT_BARRIER"
"""1: ranks wait for one another before each blocking collective, so that waiting and transfer are apart."""

BARRIER_FILE = "barrier"
"""The same for all ranks as a file in the directory: launchers do not pass every variable on to all nodes."""

FIRST_LINE, LAST_LINE = "hpccoll-count\t1", "end_of_file"
SUFFIX = ".count"
NUMBERS = ("rank", "size", "began_unix_ns", "ran_ns", "cost_ps", "writing_ns")
"""The facts of a rank that are numbers."""

MOST_RANKS = 1 << 24
"""More ranks than any machine runs: a larger number is damage."""

MOST = (1 << 63) - 1
"""The largest number that the counters hold."""

UNKNOWN = "?"
"""What stands for the ranks of a communicator if they are unknown."""

SEPARATORS = (" ", ":")
"""What separates the libraries of LD_PRELOAD, so that no path has it."""


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
        UnusableError: if it is not built, was built from other sources, or has a path that LD_PRELOAD
            cannot name.
    """
    if not COUNTING_LIBRARY.exists():
        raise UnusableError("count", f"{COUNTING_LIBRARY} is not built; do: {REBUILD}")
    if source_hash(COUNTING_FOLDER).encode() not in COUNTING_LIBRARY.read_bytes():
        raise UnusableError(
            "count", f"{COUNTING_LIBRARY} was built from other sources; do: {REBUILD}"
        )
    if any(separator in str(COUNTING_LIBRARY) for separator in SEPARATORS):
        raise UnusableError(
            "count",
            f"LD_PRELOAD cannot name {COUNTING_LIBRARY}: spaces and colons separate its libraries; "
            "do: install hpccoll in a path without them",
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
        if not values:
            raise ValueError(f"a line has no value: {kind[:40]!r}")
        if kind == "group":
            rank.groups.append(_group(values))
        elif kind == "calls":
            rank.calls.append(_calls(values))
        elif kind == "left_out":
            rank.left_out = _number("left_out", values[0])
        else:
            rank.facts[kind] = values[0]
    _check(rank)
    return rank


def _check(rank: RankFile) -> None:
    """Raise ValueError if a fact is missing or impossible, or calls are on a communicator that is not listed."""
    for fact in NUMBERS:
        least = -1 if fact == "rank" else 0
        most = MOST_RANKS if fact in ("rank", "size") else MOST
        _check_range(fact, rank.number(fact), least, most)
    listed = {group.number for group in rank.groups}
    for calls in rank.calls:
        if calls.group not in listed:
            raise ValueError(f"its calls are on communicator {calls.group}, which it does not list")


def _check_range(name: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, which is not between {least} and {most}")


def _number(name: str, text: str, most: int = MOST) -> int:
    """Return a number from 0 to the most; ValueError if it is another one or none."""
    number = int(text)
    _check_range(name, number, 0, most)
    return number


def _group(values: list[str]) -> GroupLine:
    if len(values) != 8:
        raise ValueError(f"a group has {len(values)} values instead of 8")
    number = int(values[0])
    size = _number("size", values[2], MOST_RANKS)
    blocks = _number("blocks", values[3], MOST_RANKS)
    is_inter = values[4] == "1"
    communicators = _number("communicators", values[5])
    members = values[7]
    if members != UNKNOWN:
        _check_members(members, blocks)
    return GroupLine(number, values[1], size, blocks, is_inter, communicators, values[6], members)


def _check_members(runs: str, ranks: int) -> None:
    """Raise ValueError if a text is not runs of first:count:stride of as many ranks."""
    total = 0
    for run in runs.split(","):
        numbers = run.split(":")
        if len(numbers) != 3:
            raise ValueError(f"{run!r} is not first:count:stride")
        first, count, stride = map(int, numbers)
        _check_range("the first rank of a run", first, -MOST_RANKS, MOST_RANKS)
        _check_range("the ranks of a run", count, 1, MOST_RANKS)
        _check_range("the stride of a run", stride, -MOST_RANKS, MOST_RANKS)
        total += count
    if total != ranks:
        raise ValueError(f"a group of {ranks} ranks lists {total}")


def _calls(values: list[str]) -> CallsLine:
    if len(values) != 12:
        raise ValueError(f"calls have {len(values)} values instead of 12")
    numbers = [_number("a counter", value) for value in values[6:]]
    if not numbers[0]:
        raise ValueError("a line lists no call")
    return CallsLine(
        values[0], values[1], int(values[2]), values[3], values[4], values[5] == "1", *numbers
    )
