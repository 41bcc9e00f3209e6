"""A schedule in GOAL, read: its messages are paired, and its critical path is counted.

GOAL says how many bytes go where and what waits for what, and nothing of what the bytes are: such a schedule can be
matched, and not proven. A send ends when it starts, as LogGOPSim's small messages do.

The grammar is that of LogGOPSim's txt2bin.re. What accepts a message of any sender or any tag is refused, because which
one it receives depends on the time.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import read_text
from hpccoll.common.limits import RANKS
from hpccoll.common.units import format_count, format_size

GOAL_BYTES = 1 << 25
"""The maximum size of a text: it is read in ten seconds."""
MAX_FAULTS = 3
"""The most faults that the message of a wrong schedule has."""

_NO_GOAL = "it does not begin with num_ranks, as GOAL does"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?P<end>\*/|\Z)", re.DOTALL)
"""A comment; one without an end goes on to that of the text, so that no letter is read twice."""
_RANKS = re.compile(r"num_ranks +(\d{1,9})")
_RANK = re.compile(r"rank +(\d{1,9}) *\{")
_LABEL = r"[a-zA-Z]\w*"
_OPERATION = re.compile(
    rf"(?:(?P<label>{_LABEL})\s*:\s*)?(?:calc\s+(?P<cost>\d{{1,18}})|(?P<kind>send|recv)\s+(?P<bytes>\d{{1,18}})b\s+"
    r"(?:to|from)\s+(?P<peer>-?\d{1,9})(?:\s+tag\s+(?P<tag>-?\d{1,18}))?)(?:\s+(?:cpu|nic)\s+\d{1,9})*"
)
_ORDER = re.compile(rf"(?P<label>{_LABEL})\s+(?P<start>i?)requires\s+(?P<other>{_LABEL})")


@dataclass(slots=True, eq=False)
class GoalOperation:
    """A line of GOAL that does something."""

    rank: int
    line: int
    text: str
    kind: str = "calc"  # or send, or recv
    cost: int = 0  # of a calc, in the simulator's unit of time
    nbytes: int = 0
    peer: int = -1
    tag: int = 0
    after_end: list["GoalOperation"] = field(default_factory=list, repr=False)  # those whose end it requires
    after_start: list["GoalOperation"] = field(default_factory=list, repr=False)  # those whose start it requires
    message: "GoalOperation | None" = field(default=None, repr=False)  # the send that a receive waits for


class GoalSchedule(NamedTuple):
    """A schedule whose messages are paired."""

    ranks: int
    operations: Sequence[GoalOperation]

    @property
    def sends(self) -> list[GoalOperation]:
        """Its messages, each as its send."""
        return [each for each in self.operations if each.kind == "send"]


def read_goal(path: Path) -> GoalSchedule:
    """Read a schedule in GOAL, and pair its messages: the k-th send of a tag between two ranks is the k-th receive.

    Raises:
        UnusableError: if the file is no GOAL, or if messages have one end only or two lengths, or if operations wait
            for one another in a circle.
    """
    schedule = GoalSchedule(*_parse(path, read_text(path, "FILE", GOAL_BYTES)))
    faults = [*_pair(schedule)]
    if faults:
        more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise UnusableError(str(path), "; ".join(faults[:MAX_FAULTS]) + more)
    return schedule


def _without_comments(path: Path, text: str) -> str:
    """Return a text of as many lines."""

    def line_ends(comment: re.Match[str]) -> str:
        if comment["end"] == "":
            begin = text.count("\n", 0, comment.start()) + 1
            raise UnusableError(f"{path}, line {begin}", "a comment has no end")
        return "\n" * comment[0].count("\n")

    return _COMMENT.sub(line_ends, text)


def _parse(path: Path, text: str) -> tuple[int, list[GoalOperation]]:
    """Return the number of ranks, and all operations, each with what it requires."""
    lines = _without_comments(path, text).splitlines()
    ranks, rank, labels, operations = 0, -1, dict[str, GoalOperation](), list[GoalOperation]()
    orders: list[tuple[re.Match[str], int]] = []
    for number, line in enumerate(map(str.strip, lines), 1):
        where = f"{path}, line {number}"
        if not line:
            continue
        if rank < 0:
            if not ranks and (found := _RANKS.fullmatch(line)):
                ranks = RANKS.read(f"{where}: num_ranks", found[1])
            elif ranks and (found := _RANK.fullmatch(line)):
                rank, labels, orders = int(found[1]), {}, []
                _check_rank(where, rank, ranks)
            else:
                raise UnusableError(where, f"{format_value(line)} is not 'rank N {{'" if ranks else _NO_GOAL)
        elif line == "}":
            _resolve(path, orders, labels)
            rank = -1
        elif found := _ORDER.fullmatch(line):
            orders.append((found, number))
        else:
            operations.append(_operation(where, GoalOperation(rank, number, line), ranks, labels))
    if not ranks or rank >= 0:
        raise UnusableError(str(path), "its last rank has no closing bracket" if ranks else _NO_GOAL)
    return ranks, operations


def _operation(where: str, one: GoalOperation, ranks: int, labels: dict[str, GoalOperation]) -> GoalOperation:
    """Return the operation of a line, and add it to the labels of its rank."""
    found = _OPERATION.fullmatch(one.text)
    if not found:
        raise UnusableError(where, f"{format_value(one.text)} is not send, recv, calc, requires, irequires or '}}'")
    if found["label"]:
        labels[found["label"]] = one
    if not found["kind"]:
        one.cost = int(found["cost"])
        return one
    one.kind, one.nbytes = found["kind"], int(found["bytes"])
    one.peer, one.tag = int(found["peer"]), int(found["tag"] or 0)
    _check_rank(where, one.peer, ranks)
    if one.tag < 0:
        raise UnusableError(where, "a receive of any tag is not matched")
    return one


def _check_rank(where: str, rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        reason = "a receive from any rank is not matched" if rank == -1 else f"rank {rank} is none of the {ranks}"
        raise UnusableError(where, reason)


def _resolve(path: Path, orders: Sequence[tuple[re.Match[str], int]], labels: dict[str, GoalOperation]) -> None:
    for found, number in orders:
        for label in (found["label"], found["other"]):
            if label not in labels:
                raise UnusableError(f"{path}, line {number}", f"there is no operation {label} in this rank")
        before = "after_start" if found["start"] else "after_end"
        getattr(labels[found["label"]], before).append(labels[found["other"]])


def _pair(schedule: GoalSchedule) -> Iterator[str]:
    """Pair the messages, and yield a sentence for each fault."""
    ends: defaultdict[tuple[int, int, int], tuple[list[GoalOperation], list[GoalOperation]]]
    ends = defaultdict(lambda: ([], []))
    for each in schedule.operations:
        if each.kind == "send":
            ends[each.rank, each.peer, each.tag][0].append(each)
        elif each.kind == "recv":
            ends[each.peer, each.rank, each.tag][1].append(each)
    for (sender, receiver, tag), (sends, receives) in ends.items():
        if len(sends) != len(receives):
            yield (
                f"rank {sender} sends {format_count(len(sends), 'message')} of tag {tag} to rank {receiver}, which "
                f"receives {len(receives)}"
            )
        for send, receive in zip(sends, receives, strict=False):
            receive.message = send
            if send.nbytes != receive.nbytes:
                yield f"line {send.line} sends {send.nbytes} bytes, and line {receive.line} receives {receive.nbytes}"


class CriticalPath(NamedTuple):
    """The longest chains of messages, each of which starts when the one before it has arrived."""

    messages: int  # the most messages of a chain
    nbytes: int  # the most bytes of a chain


def critical_path(schedule: GoalSchedule) -> CriticalPath:
    """Return the longest chains of a schedule.

    Raises:
        UnusableError: if operations wait for one another in a circle.
    """
    after, waits = _events(schedule)
    longest = [CriticalPath(0, 0)] * len(waits)
    ready = [event for event, count in enumerate(waits) if not count]
    for event in ready:  # it grows
        messages, nbytes = longest[event]
        for later, message in after[event]:
            arrived = messages + (message is not None), nbytes + (message or 0)
            longest[later] = CriticalPath(*map(max, longest[later], arrived))
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    if len(ready) < len(waits):
        stuck = schedule.operations[next(event for event, count in enumerate(waits) if count) // 2]
        reason = f"'{stuck.text}' never ends: operations wait for one another in a circle"
        raise UnusableError(f"rank {stuck.rank}, line {stuck.line}", reason)
    if not longest:
        return CriticalPath(0, 0)
    return CriticalPath(*(max(each, default=0) for each in zip(*longest, strict=True)))


def _events(schedule: GoalSchedule) -> tuple[list[list[tuple[int, int | None]]], list[int]]:
    """Return which events follow each event, and for how many others each waits.

    Event 2 k is the start of the k-th operation, and 2 k + 1 its end. Between the start of a send and the end of its
    receive are the bytes of a message.
    """
    numbers = {each: number for number, each in enumerate(schedule.operations)}
    after: list[list[tuple[int, int | None]]] = [[] for _ in range(2 * len(numbers))]
    waits = [0] * len(after)

    def order(first: int, later: int, message: int | None = None) -> None:
        after[first].append((later, message))
        waits[later] += 1

    for number, one in enumerate(schedule.operations):
        order(2 * number, 2 * number + 1)
        for other in one.after_end:
            order(2 * numbers[other] + 1, 2 * number)
        for other in one.after_start:
            order(2 * numbers[other], 2 * number)
        if one.message:
            order(2 * numbers[one.message], 2 * number + 1, one.nbytes)
    return after, waits


def goal_lines(path: Path, schedule: GoalSchedule) -> Iterator[str]:
    """Yield what a schedule holds, in words."""
    longest, sends = critical_path(schedule), schedule.sends
    by_rank = Counter(each.rank for each in sends)
    most = max(by_rank.values(), default=0)
    costs = [each.cost for each in schedule.operations if each.kind == "calc" and each.cost]
    total = format_size(sum(each.nbytes for each in sends))
    yield f"{path}: {format_count(schedule.ranks, 'rank')}, {format_count(len(sends), 'message')}, {total} together"
    yield f"  a rank sends at most {format_count(most, 'message')}"
    yield (
        f"  longest chain: {format_count(longest.messages, 'message')}, each of which waits for the one before it; the "
        f"chain with the most bytes has {format_size(longest.nbytes)}"
    )
    if costs:
        yield f"  local operations: {len(costs)}, which take {sum(costs)} units of the simulator's time together"
    yield "matched, not proven: every message has a sender and a receiver; GOAL does not say what the bytes are"
