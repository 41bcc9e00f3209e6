"""The prefixes that launchers, container runtimes and collectors of logs put before the lines of a program.

A prefix is not recognised by its form, because there are many: Open MPI's ``--tag-output`` and
``--timestamp-output``, ``srun -l``, Hydra's ``-prepend-rank``,
``kubectl logs --prefix --timestamps``, stern, docker compose, ``ts``, journald, torchrun, Ray, ...
It is the text before the first words of a line that the program is known to print, its anchor.
Times in it differ from line to line, and blanks pad it; the rest names the process that wrote the
line.
"""

import html
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|\ufeff"
)
"""Escape sequences of terminals (ECMA-48), such as colours, and the byte order mark."""

_CLOCK = (
    r"(?:(?:\d{4}[-/.]\d\d[-/.]\d\d|(?:[A-Z][a-z]{2},? +)?[A-Z][a-z]{2} +\d{1,2}|(?:[A-Z][a-z]{2},? +)?\d{1,2} "
    r"[A-Z][a-z]{2} \d{4}|\d\d[-/.]\d\d[-/.]\d{4})(?:T|,? +))?"
    r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?(?: ?[AP]M)?(?:Z| ?[+-]\d\d:?\d\d| [A-Z]{3,4}(?= \d{4}))?"
)
_SECONDS = r"(?<![\w.])(?:\d+\.\d+|1\d{9}(?:\d{3}){0,3})(?![\w.])"
"""Seconds since a start, or since 1970 also in milli-, micro- or nanoseconds."""
_YEAR = r" \d{4}"
_TIME = re.compile(f"(?P<clock>{_CLOCK})(?P<year>{_YEAR})?|{_SECONDS}")
_FIRST_TIME = re.compile(rf"\W*{_CLOCK}")

_TIME_OF_DAY = re.compile(
    r"(?:(?<![\w:.-])|(?<=\dT))(?P<hours>\d\d?):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?: ?(?P<half>[AP])M)?(?![\d:])|(?<![\w.])(?P<epoch>1\d{9}\.\d{1,9})(?![\w.])"
)
"""A time of day, or seconds since 1970, which in logs have a fraction."""

MAX_PREFIXES = 64
"""The maximum number of prefixes that are remembered: each line without an anchor is compared with all of them."""

_JSON_KEYS = ("log", "message", "msg", "@message", "textPayload", "line", "MESSAGE")
"""The keys of a line in exports of logs as JSON: of Docker, CloudWatch, Google Cloud, Loki, journald."""


def exported_text(line: str) -> str:
    """Return the text of a line that was exported as a JSON object or a member of one, or copied from a web page."""
    exported = line.strip().rstrip(",")
    with suppress(ValueError, RecursionError):
        if exported.startswith(("{", '"')):
            if exported[0] != "{":
                exported = f"{{{exported}}}"
            return _text_of(json.loads(exported)) or line
    if "&gt;" in line:
        return html.unescape(line)
    return line


def _text_of(exported: Mapping[str, Any]) -> str | None:
    """Return the text of an exported line; None without one."""
    texts = (exported[key] for key in _JSON_KEYS if isinstance(exported.get(key), str))
    nested = (_text_of(value) for value in exported.values() if isinstance(value, dict))
    return next(texts, None) or next(filter(None, nested), None)


def time_of_day_s(text: str) -> float | None:
    """Return the last time in a text as seconds since midnight, of its own time zone; None without one."""
    times = list(_TIME_OF_DAY.finditer(text))
    if not times:
        return None
    time = times[-1]
    if time["epoch"]:
        return float(time["epoch"]) % 86400
    hours = int(time["hours"])
    if time["half"]:
        hours = hours % 12 + (12 if time["half"] == "P" else 0)
    return (
        hours * 3600
        + int(time["minutes"]) * 60
        + float(f"{time['seconds']}.{time['fraction'] or 0}")
    )


class PrefixReader:
    """A reader of lines that remembers the prefixes before an anchor, and removes them from other lines too."""

    def __init__(self, anchor: re.Pattern[str]) -> None:
        self._anchor = anchor
        self._known: dict[str, tuple[str, re.Pattern[str]]] = {}  # the longest first

    def split(self, line: str) -> tuple[str, str]:
        """Return the writer of a line and its text.

        The writer is the prefix without times; empty if no known prefix begins the line. The text
        has no escape sequences; one that a collector of logs repeats after ``|`` comes once.
        """
        text = _CONTROLS.sub("", line)
        first = match.end() if (match := _FIRST_TIME.match(text)) else 0
        if anchor := self._anchor.search(text[first:]):
            end = first + anchor.start()
            return self._remember(text[:end]), _without_repetition(text[end:])
        for writer, prefix in self._known.values():
            if match := prefix.match(text):
                return writer, _without_repetition(text[match.end() :])
        return "", text

    def _remember(self, prefix: str) -> str:
        """Add a prefix to the known ones, and return its writer."""
        pattern = ""
        writer = list[str]()
        begin = 0
        for time in (*_TIME.finditer(prefix), None):
            end = time.start() if time else None
            words = prefix[begin:end].split()
            writer += words
            pattern += r"\s+".join(map(re.escape, words))
            if time:
                form = _SECONDS
                if time["clock"]:
                    form = _CLOCK
                    # a year only if there is one here: a number may follow the prefix
                    if time["year"]:
                        form += _YEAR
                pattern += rf"\s*(?:{form})\s*"
                begin = time.end()
        if pattern and prefix[-1].isspace():
            pattern += r"(?:\s+|$)"
        if pattern and pattern not in self._known and len(self._known) < MAX_PREFIXES:
            self._known[pattern] = " ".join(writer), re.compile(rf"\s*{pattern}")
            self._known = dict(sorted(self._known.items(), key=lambda item: -len(item[0])))
        return " ".join(writer)


def _without_repetition(text: str) -> str:
    """Return a text once that stands twice in its line, with ``|`` between."""
    words = text.rstrip()
    once = words[: (len(words) - 3) // 2]
    if words != f"{once} | {once}":
        return text
    return once + text[len(words) :]
