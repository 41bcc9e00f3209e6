"""Lines of logs that show a known defect, or the condition of one, and lines of a crash.

Long logs have millions of lines, and hardly any shows a defect: the patterns are tried only on
lines that have one of the texts that they require.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from hpccoll.evidence.defect_table import known_defects
from hpccoll.evidence.log_message import LogMessage

CRASH = "crash"
"""What the lines of a crash are called, among the ids of defects."""

_CRASH = re.compile(
    r"SIG(?:SEGV|ABRT|BUS)\b|egmentation fault|signal (?:11|6|7)\b|core dumped|free\(\): |malloc\(\): "
    r"|Assertion .* failed"
)

_REMEMBERED_LINES = 1 << 11
"""Ranks log the same lines, which are tried once."""

_GROUP = re.compile(r"\((?:[^()\\]|\\.)*\)|\[[^]]*\]")
_NOT_PLAIN = re.compile(r".[?*+]|\\.|[^\w :']")
"""What an alternative of a pattern has besides plain text; quantifiers with the character before them."""


def required_texts(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the longest plain text of each alternative of a pattern: a match has one of them."""
    plain = _GROUP.sub("\n", pattern.pattern.replace(r"\(", "\n").replace(r"\)", "\n"))
    for alternative in plain.split("|"):
        yield max(_NOT_PLAIN.sub("\n", alternative).split("\n"), key=len)


@cache
def _table() -> tuple[Sequence[tuple[str, re.Pattern[str]]], Sequence[str]]:
    """Return the patterns, each with the id of its row, and the texts that they require: a match has one of them."""
    patterns = [(CRASH, _CRASH)]
    for defect in known_defects():
        for pattern in (defect.log, defect.needs.line):
            if pattern is not None and not defect.silent:
                patterns.append((defect.id, pattern))
    texts: dict[str, None] = {}
    for _, pattern in patterns:
        texts |= dict.fromkeys(required_texts(pattern))
    return patterns, list(texts)


def defects_of_line(line: str) -> Sequence[str]:
    """Return the ids of the rows whose patterns match a line; ``CRASH`` for a line of a crash."""
    _, texts = _table()
    for text in texts:
        if text in line:
            return _matching(line)
    return ()


@lru_cache(_REMEMBERED_LINES)
def _matching(line: str) -> Sequence[str]:
    patterns, _ = _table()
    return [name for name, pattern in patterns if pattern.search(line)]


def raw_line(message: LogMessage) -> str:
    """Return a message of NCCL as its line has it behind the process; of other programs the text alone."""
    if message.origin == "nccl" and message.place:
        return f"{message.place} NCCL {message.level} {message.text}"
    return message.text
