"""A schedule in GOAL, read: its messages are paired, and its critical path is counted.

GOAL says how many bytes go where and what waits for what, and nothing of what the bytes are: such a schedule can be
matched, and not proven. A send ends when it starts, as LogGOPSim's small messages do.

What is read is what LogGOPSim's txt2bin.re reads, and blanks and comments wherever they stand. A text is refused where
the time decides which message is received: of any sender, of any tag, or of two with one tag that are in no order.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import read_text
from hpccoll.common.limits import RANKS
from hpccoll.common.units import format_count, format_size

GOAL_BYTES = 1 << 25
"""The maximum size of a text: it is read in fifteen seconds."""
ANY_TAG = (1 << 32) - 1
"""What txt2bin makes of tag -1."""
_NO_GOAL = "it begins neither with num_ranks, as a schedule in GOAL, nor with {, as a plan of MSCCL++"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|(?P<open>\Z))", re.DOTALL)
"""A comment; one without an end goes on to that of the text, so that no letter is read twice."""
_ITEM = re.compile(
    r"""(?ax)\s*(?:
    num_ranks\s+(?P<ranks>\d{1,9})\b
    | rank\s+(?P<rank>\d{1,9})\s*\{
    | (?P<end>\})
    | (?P<later>[a-zA-Z]\w*)\s+(?P<order>i?requires)\s+(?P<earlier>[a-zA-Z]\w*)\s*$
    | (?:(?!(?:num_ranks|rank|calc|send|recv)\b)(?P<label>[a-zA-Z]\w*)\s*:\s*)?
      (?:(?P<calc>calc)\s+(?P<cost>\d{1,18})
        | (?:(?P<send>send)|recv)\s+(?P<bytes>\d{1,18})\s*b\s*(?(send)to|from)\s*(?P<peer>(?(send)|-?)\d{1,9})
          (?:\s*tag\s*(?P<tag>-?\d{1,18}))?)
      (?:\s*cpu\s*\d{1,9})?(?(calc)|(?:\s*nic\s*\d{1,9})?)\s*$
    | (?P<other>\S.*))"""
)


class GoalOperation(NamedTuple):
    """A line of GOAL that does something."""

    rank: int
    line: int
    text: str
    kind: str  # calc, send or recv
    cost: int  # of a calc, in the simulator's unit of time
    nbytes: int
    peer: int
    tag: int


class GoalSchedule(NamedTuple):
    """A schedule whose messages are paired.

    Event 2 k is the start of the k-th operation, and 2 k + 1 its end. An event follows others of its rank, and the end
    of a receive the start of the send of its message.
    """

    ranks: int
    operations: list[GoalOperation]
    before: list[list[int]]  # by event, those that it follows
    order: list[int]  # the events, each after those that it follows

    @property
    def sends(self) -> list[GoalOperation]:
        """Its messages, each as its send."""
        return [each for each in self.operations if each.kind == "send"]


def read_goal(path: Path) -> GoalSchedule:
    """Read a schedule in GOAL, and pair its messages: the k-th send of a tag between two ranks is the k-th receive.

    Raises:
        UnusableError: if the file is no GOAL, if messages have one end only or two lengths or are in no order, or if
            operations wait for one another in a circle.
    """
    ranks, operations, before = _parse(path, read_text(path, "FILE", GOAL_BYTES))
    _pair(path, operations, before)
    return GoalSchedule(ranks, operations, before, _ordered(path, operations, before))


def _items(path: Path, text: str) -> Iterator[tuple[str, int, re.Match[str]]]:
    """Yield the place, the line and the words of each item."""

    def blank(comment: re.Match[str]) -> str:
        return comment[0] if comment["open"] is not None else "\n" * comment[0].count("\n")

    for number, line in enumerate(_COMMENT.sub(blank, text).split("\n"), 1):
        if "/*" in line:
            raise UnusableError(f"{path}, line {number}", "a comment has no end")
        for item in _ITEM.finditer(line.strip()):
            yield f"{path}, line {number}", number, item


def _parse(path: Path, text: str) -> tuple[int, list[GoalOperation], list[list[int]]]:
    """Return the number of ranks, all operations, and by event those of the same rank that it follows."""
    ranks, rank, operations, before = 0, 0, list[GoalOperation](), list[list[int]]()
    labels: dict[str, int] | None = None  # of the rank whose bracket is open
    for where, line, item in _items(path, text):
        if labels is not None and item["end"]:
            rank, labels = rank + 1, None
        elif labels is not None and item["order"]:
            for label in (item["later"], item["earlier"]):
                if label not in labels:
                    raise UnusableError(where, f"there is no operation {label} in this rank before this line")
            before[2 * labels[item["later"]]].append(2 * labels[item["earlier"]] + (item["order"] == "requires"))
        elif labels is not None:
            labels.setdefault(item["label"], len(operations))
            before.extend([[], [len(before)]])
            operations.append(_operation(where, item, rank, line, ranks))
        elif ranks:
            _check_rank(where, item, rank, ranks)
            labels = {}
        elif item["ranks"]:
            ranks = RANKS.read(f"{where}: num_ranks", item["ranks"])
        else:
            raise UnusableError(where, _NO_GOAL)
    if labels is not None or rank < ranks or not ranks:
        missing = "its last rank has no closing bracket" if labels is not None else f"rank {rank} is missing"
        raise UnusableError(str(path), missing if ranks else _NO_GOAL)
    return ranks, operations, before


def _check_rank(where: str, item: re.Match[str], rank: int, ranks: int) -> None:
    """Check that an item begins a rank."""
    if not item["rank"]:
        raise UnusableError(where, f"{format_value(item[0].strip())} is not 'rank N {{'")
    _check_peer(where, int(item["rank"]), ranks)
    if int(item["rank"]) != rank:
        raise UnusableError(where, f"rank {item['rank']} is not the next one: each stands once, in order")


def _operation(where: str, item: re.Match[str], rank: int, line: int, ranks: int) -> GoalOperation:
    """Return the operation of an item."""
    kind, words = "calc" if item["cost"] else "send" if item["send"] else "recv", item[0].strip()
    if not item["cost"] and not item["bytes"]:
        raise UnusableError(where, f"{format_value(words)} is not send, recv, calc, requires, irequires or '}}'")
    cost, nbytes, peer, tag = (int(each or 0) for each in item.group("cost", "bytes", "peer", "tag"))
    _check_peer(where, peer, ranks)
    if not 0 <= tag < ANY_TAG:
        raise UnusableError(where, f"a receive of any tag is not matched, and other tags are below {ANY_TAG}")
    return GoalOperation(rank, line, words, kind, cost, nbytes, peer, tag)


def _check_peer(where: str, rank: int, ranks: int) -> None:
    if not 0 <= rank < ranks:
        reason = (
            "a receive from any rank is not matched"
            if rank == -1
            else f"rank {rank} is not one of ranks 0 to {ranks - 1}"
        )
        raise UnusableError(where, reason)


def _pair(path: Path, operations: Sequence[GoalOperation], before: list[list[int]]) -> None:
    """Let receives follow their sends; raise for messages without a partner, of two lengths or in no order."""
    ends: defaultdict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for number, each in enumerate(operations):
        if each.kind != "calc":
            receives = each.kind == "recv"
            pair = (each.peer, each.rank) if receives else (each.rank, each.peer)
            ends[*pair, each.tag][receives].append(number)
    _sort(path, operations, before, [numbers for both in ends.values() for numbers in both if len(numbers) > 1])
    for (sender, receiver, tag), (sent, received) in ends.items():
        if len(sent) != len(received):
            count = format_count(len(sent), "message")
            why = f"rank {sender} sends {count} of tag {tag} to rank {receiver}, which receives {len(received)}"
            raise UnusableError(str(path), why)
        for one, other in zip(sent, received, strict=True):
            send, receive = operations[one], operations[other]
            before[2 * other + 1].append(2 * one)
            if send.nbytes != receive.nbytes:
                why = f"line {send.line} sends {send.nbytes} bytes, and line {receive.line} receives {receive.nbytes}"
                raise UnusableError(str(path), why)


def _sort(
    path: Path, operations: Sequence[GoalOperation], before: Sequence[Sequence[int]], several: Sequence[list[int]]
) -> None:
    """Sort operations of one rank, peer and tag as they require one another; raise if they do not."""
    order = _ordered(path, operations, before) if several else []
    place = {event: place for place, event in enumerate(order)}
    chain, ends = dict[int, int](), dict[int, int]()  # chains of requirements: of most texts they are long
    for number in (event // 2 for event in order if not event % 2):
        earlier = (ends.pop(event // 2) for event in before[2 * number] if event // 2 in ends)
        chain[number] = ends[number] = next(earlier, number)
    for numbers in several:
        numbers.sort(key=lambda number: place[2 * number])
        for one, other in pairwise(numbers):
            if chain[one] != chain[other] and not _follows(before, place, 2 * other, 2 * one):
                lines = f"line {operations[one].line} and line {operations[other].line}"
                reason = "have one peer and one tag, and neither requires the other: time decides which is the first"
                raise UnusableError(str(path), f"{lines} {reason}")


def _follows(before: Sequence[Sequence[int]], place: Mapping[int, int], later: int, earlier: int) -> bool:
    """Return whether an event follows another, by itself or through others."""
    seen, left = {later}, [later]
    while left and earlier not in seen:
        new = {event for event in before[left.pop()] if place[event] >= place[earlier]} - seen
        seen |= new
        left.extend(new)
    return earlier in seen


def _ordered(path: Path, operations: Sequence[GoalOperation], before: Sequence[Sequence[int]]) -> list[int]:
    """Return the events, each after those that it follows; raise if there is a circle."""
    try:
        return [*TopologicalSorter(dict(enumerate(before))).static_order()]
    except CycleError as error:
        stuck = operations[min(error.args[1]) // 2]
        reason = f"'{stuck.text}' never ends: operations wait for one another in a circle"
        raise UnusableError(f"{path}, rank {stuck.rank}, line {stuck.line}", reason) from None


class CriticalPath(NamedTuple):
    """The longest chains of messages, each of which starts when the one before it has arrived."""

    messages: int  # the most messages of a chain
    nbytes: int  # the most bytes of a chain


def critical_path(schedule: GoalSchedule) -> CriticalPath:
    """Return the longest chains of a schedule."""
    messages, nbytes = [0] * len(schedule.before), [0] * len(schedule.before)
    for event in schedule.order:
        for earlier in schedule.before[event]:
            arrives = event % 2 and earlier != event - 1  # only a message ends another operation than its own
            arrived = schedule.operations[event // 2].nbytes if arrives else 0
            messages[event] = max(messages[event], messages[earlier] + bool(arrives))
            nbytes[event] = max(nbytes[event], nbytes[earlier] + arrived)
    return CriticalPath(max(messages, default=0), max(nbytes, default=0))


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
