"""What is read of logs so far, until it becomes a record; and rules that read more."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.log_record import CollectiveLine, LogRecord, ModelledCost, Unavailable


class Call(NamedTuple):
    """What a rank was asked for.

    Args:
        collective: in our word.
        bytes: of its own block where every rank has one.
        dtype: of the elements, by the project's name.
        op: the reduction, None where there is none.
        ranks: of the communicator; None where that part of the line is lost.
    """

    collective: str
    bytes: int
    dtype: str
    op: str | None
    ranks: int | None


class ParserState:
    """Facts in the order in which they are first said; what is said again is no news."""

    def __init__(self) -> None:
        self.library: str | None = None
        self.version: str | None = None
        self.nodes: int | None = None
        self.ranks: int | None = None
        self.collectives: dict[CollectiveLine, None] = {}
        self.unavailable: dict[Unavailable, None] = {}
        self.model: dict[ModelledCost, None] = {}
        self.said: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.paths: Counter[str] = Counter()
        self.plugins: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.communicator: dict[str, str] = {}
        self.calls: defaultdict[str, deque[Call]] = defaultdict(lambda: deque(maxlen=256))
        self.tables: dict[str, Any] = {}
        self.teams: dict[str, int] = {}  # of UCC: their ranks, by their ids

    def say(self, field: str, line: str) -> None:
        """Note a line, or a word, under a field of the record."""
        self.said[field][line] = None

    def add_unavailable(self, feature: str, reason: str, line: str) -> None:
        """Note that something was not done, and why; the same reason once."""
        if not any((known.feature, known.reason) == (feature, reason) for known in self.unavailable):
            self.unavailable[Unavailable(feature=feature, reason=reason, line=line)] = None

    def size(self, ranks: int, nodes: int) -> None:
        """Note a communicator; the largest is what was measured."""
        if ranks > (self.ranks or 0):
            self.ranks, self.nodes = ranks, nodes

    def record(self) -> LogRecord:
        """Return all of it."""
        hops = [path for path in self.paths if path.startswith("NET/") and not path.startswith("NET/Socket")]
        lines: dict[str, Any] = {field: tuple(lines) for field, lines in self.said.items()}
        return LogRecord(
            library=self.library, version=self.version, nodes=self.nodes, ranks=self.ranks,
            collectives=tuple(self.collectives), unavailable=tuple(self.unavailable),
            model=tuple(self.model), plugins=dict(self.plugins),
            gdr=all("GDRDMA" in hop for hop in hops) if hops else None, paths=dict(sorted(self.paths.items())),
            settings=dict(sorted(self.settings.items())), communicator=dict(sorted(self.communicator.items())), **lines,
        )  # fmt: skip


Rule = tuple[re.Pattern[str], Callable[[ParserState, re.Match[str], LogMessage], None]]
"""How a message begins, and what to do with one that does."""


def line_rules(field: str, *shapes: str) -> list[Rule]:
    """Return rules that note every message of these shapes, whole, under a field of the record."""
    return [(re.compile(shape), lambda notes, _, message: notes.say(field, message.text)) for shape in shapes]


def apply_rules(rules: Sequence[Rule], notes: ParserState, message: LogMessage) -> None:
    """Let every rule that fits read ``message``."""
    for shape, take in rules:
        if match := shape.match(message.text):
            take(notes, match, message)
