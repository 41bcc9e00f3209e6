"""Verdicts of ``gpu.py``, and where they go: a page for people, and one JSON record a line next to it."""

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

REACHED, MISSED, WRONG, RECORDED, NOT_RUN, BEYOND = (
    "reached",
    "missed",
    "WRONG",
    "recorded",
    "not run",
    "beyond",
)
PART, SKIPPED = "part", "skipped"
"""What a verdict can be. ``WRONG`` is a wrong result; ``BEYOND`` is what this number of GPUs cannot
show; ``PART`` is the begin of a part; ``SKIPPED`` is what earlier calls have reached."""

CODES = {WRONG: 3, MISSED: 1, NOT_RUN: 1}
"""The exit code of a call that has such a verdict, the largest wins; 0 for all others."""


@dataclass(frozen=True)
class Verdict:
    """One line of the page."""

    what: str  # what was tried
    status: str  # one of the words above
    got: float | str = ""  # the number that came out, in the unit that ``what`` names, or words
    asked: str = ""  # what is asked of it

    @property
    def row(self) -> str:
        """The row of the page."""
        got = self.got if isinstance(self.got, str) else f"{self.got:.3g}"
        cells = (
            " ".join(cell.split()).replace("|", "/")
            for cell in (self.what, got, self.asked, self.status)
        )
        return f"| {' | '.join(cells)} |"


def recorded(what: str, got: float | str) -> Verdict:
    return Verdict(what, RECORDED, got)


def bound(what: str, got: float | str, asked: str, reached: object) -> Verdict:
    """Return a verdict on a number; one that is missed is no wrong result."""
    return Verdict(what, REACHED if reached else MISSED, got, asked)


def right(what: str, wrong: int, got: str | None = None) -> Verdict:
    """Return a verdict on results of which ``wrong`` are wrong."""
    return Verdict(
        what, WRONG if wrong else REACHED, f"{wrong} wrong" if got is None else got, "0 wrong"
    )


def holds(what: str, true: object, got: str = "") -> Verdict:
    """Return a verdict on a statement, which is a wrong result where it is not true."""
    return Verdict(what, REACHED if true else WRONG, got or ("yes" if true else "no"), "yes")


def not_run(what: str, reason: str) -> Verdict:
    return Verdict(what, NOT_RUN, reason)


class Page:
    """The page of one kind of GPU, to which each call adds a section, and the records of all its calls.

    Every verdict is on the disk before the next one is made, so that a killed call leaves what it
    had.

    Args:
        out: the directory of both files.
        title: the heading of a new page.
        about: the conditions of this call.
    """

    def __init__(self, out: Path, title: str, about: str) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._page, self._records = out / "README.md", out / "verdicts.jsonl"
        self._call = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        self.code = 0
        if not self._page.exists():
            self.say(
                f"# {title}\n\nFrom `python tests/benchmarks/gpu.py`: each section is one call of it.\n"
            )
        self.say(
            f"## {self._call} UTC\n\n{about}\n\n| what | got | asked | |\n| --- | --: | --- | --- |"
        )

    def say(self, words: str) -> None:
        """Add words to the page, and print them."""
        _append(self._page, words)
        print(words, flush=True)

    def add(self, part: str, verdict: Verdict) -> None:
        """Add a verdict of a part."""
        _append(self._records, json.dumps({"call": self._call, "part": part, **asdict(verdict)}))
        self.say(verdict.row)
        self.code = max(self.code, CODES.get(verdict.status, 0))


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())
