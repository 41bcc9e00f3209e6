"""What every sentence is made of: typed findings with their text, lists in words, and tables of text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from hpccoll.common.units import format_count

Severity: TypeAlias = Literal["critical", "warning", "absent", "info"]
"""critical: results may be useless, or a sweep cannot run; warning: results are weaker, or something is restricted;
absent: something is missing that some cases need; info: a fact."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement about results, logs or a machine, with the sentence that says it."""

    kind: str  # the name of the statement, for programs and tests
    severity: Severity
    text: str  # the sentence
    title: str = ""  # what the sentence is about; empty if it says that itself
    remedy: str = ""  # what it means and what to do; empty if nothing
    values: Mapping[str, Any] = field(default_factory=dict)  # names, and figures in SI units: seconds, bytes, ratios

    def __str__(self) -> str:
        return f"{self.title}: {self.text}" if self.title else self.text


SEVERITY_WORDS: Mapping[Severity, str] = {"critical": "WRONG", "warning": "warn", "absent": "none", "info": "ok"}
"""The words of severities in lines of text."""


def finding_line(finding: Finding) -> str:
    """Return a finding as a line that begins with its severity and ends with its remedy."""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{SEVERITY_WORDS[finding.severity]:>5}  {finding}{remedy}"


def _finding(severity: Severity, kind: str, text: str, title: str = "", remedy: str = "", **values: Any) -> Finding:
    return Finding(kind, severity, text, title, remedy, values)


info, warning, absent, critical = (
    partial(_finding, "info"), partial(_finding, "warning"), partial(_finding, "absent"), partial(_finding, "critical"),
)  # fmt: skip
"""Functions that return a finding of their severity."""


def join_words(words: Iterable[object], conjunction: str = "and") -> str:
    """Return words as a list: ``a``, ``a and b``, ``a, b and c``; empty without any."""
    *first, last = [*map(str, words)] or [""]
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def first_few(words: Iterable[str], most: int, noun: str) -> list[str]:
    """Return the first words, and the number of the others: ``["a", "b", "2 more jobs"]``; one more is named, too."""
    every = list(words)
    if len(every) <= most + 1:  # "1 more job" is as long as its name
        return every
    return [*every[:most], format_count(len(every) - most, f"more {noun}")]


def in_brackets(*parts: str) -> str:
    """Return the parts that are not empty in brackets, after a blank; empty without any."""
    words = ", ".join(filter(None, parts))
    return f" ({words})" if words else ""


def table_lines(head: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "  ") -> Iterator[str]:
    """Yield a table of text: a line of headings, then one for each row; columns are aligned to the right.

    The first column is aligned to the left if it begins with words.
    """
    cells = [[*head], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = "<" if len(cells) > 1 and cells[1][0][:1].isalpha() else ">"
    for first, *others in cells:
        aligned = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield (indent + "  ".join([f"{first:{left}{widths[0]}}", *aligned])).rstrip()
