"""What every sentence is made of: typed findings with their text, lists in words, and tables of text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from hpccoll.common.units import format_count

Entry = TypeVar("Entry")

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
    # names, and figures in SI units: seconds, bytes, ratios
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.title:
            return self.text
        return f"{self.title}: {self.text}"

    @property
    def with_remedy(self) -> str:
        """The whole finding: its title, its text and its remedy."""
        return " ".join(filter(None, (str(self), self.remedy)))


class FindingJson(TypedDict):
    """A finding as JSON has it; further keys are its values, in SI units, which its kind decides."""

    kind: str
    severity: Severity
    text: str


SEVERITY_WORDS: Mapping[Severity, str] = {
    "critical": "WRONG",
    "warning": "warn",
    "absent": "none",
    "info": "ok",
}
"""The words of severities in lines of text."""


def finding_line(finding: Finding, words: Mapping[Severity, str] = SEVERITY_WORDS) -> str:
    """Return a finding as a line that begins with its severity and ends with its remedy."""
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{words[finding.severity]:>5}  {finding}{remedy}"


def _finding(
    severity: Severity, kind: str, text: str, title: str = "", remedy: str = "", **values: Any
) -> Finding:
    return Finding(kind, severity, text, title, remedy, values)


info, warning, absent, critical = (
    partial(_finding, severity) for severity in ("info", "warning", "absent", "critical")
)
"""Functions that return a finding of their severity."""


def join_words(words: Iterable[object], conjunction: str = "and") -> str:
    """Return words as a list: ``a``, ``a and b``, ``a, b and c``; empty without any."""
    *first, last = list(map(str, words)) or [""]
    if not first:
        return last
    return f"{', '.join(first)} {conjunction} {last}"


def join_ends(words: Iterable[object]) -> str:
    """Return the first and the last of words: ``a to c``; an only one, or two that are alike, as one."""
    several = list(map(str, words))
    return " to ".join(dict.fromkeys((*several[:1], *several[-1:])))


def first_few(words: Iterable[str], most: int, noun: str) -> list[str]:
    """Return the first words, and the number of the others: ``["a", "b", "2 more jobs"]``; one more is named, too."""
    every = list(words)
    if len(every) <= most + 1:  # "1 more job" is as long as its name
        return every
    return [*every[:most], format_count(len(every) - most, f"more {noun}")]


def rack_text(name: str) -> str:
    """Return the name of a rack as a part of a sentence: ``rack b``, but ``rack3``."""
    return name if "rack" in name.lower() else f"rack {name}"


def in_brackets(*parts: str) -> str:
    """Return the parts that are not empty in brackets, after a blank; empty without any."""
    words = ", ".join(filter(None, parts))
    return f" ({words})" if words else ""


Columns: TypeAlias = Sequence[tuple[str, Callable[[Entry], object]]]
"""The columns of a table: the heading, and what returns the cell of an entry."""


def table_of(
    columns: Columns[Entry], entries: Iterable[Entry]
) -> tuple[list[str], list[list[str]]]:
    """Return the headings of a table and the text of its cells, a row for each entry."""
    return [heading for heading, _ in columns], [
        [str(cell(entry)) for _, cell in columns] for entry in entries
    ]


def filled_columns(
    head: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of a table without columns that are empty."""
    used = [number for number in range(len(head)) if any(cells[number] for cells in rows)]
    return [head[number] for number in used], [[cells[number] for number in used] for cells in rows]


def table_lines(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, indent: str = "  "
) -> Iterator[str]:
    """Yield a table of text: a line of headings, then one for each row.

    A column is aligned to the left if its first cell begins with a letter, else to the right.
    """
    cells = [list(head)]
    for row in rows:
        cells.append([str(cell) for cell in row])
    layouts = []
    for column in zip(*cells, strict=True):
        width = max(map(len, column))
        first_cell = next(filter(None, column[1:]), "")
        side = "<" if first_cell[:1].isalpha() else ">"
        layouts.append(f"{side}{width}")
    for line in cells:
        aligned = [format(cell, layout) for cell, layout in zip(line, layouts, strict=True)]
        yield (indent + "  ".join(aligned)).rstrip()


def titled_lines(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines below their title, indented; nothing without any."""
    for number, line in enumerate(lines):
        if number == 0:
            yield f"{title}:"
        yield f"  {line}"


def tables_within(
    width: int,
    labels: tuple[str, Sequence[object]],
    columns: Sequence[tuple[str, Sequence[object]]],
) -> Iterator[str]:
    """Yield a table of columns, each with its heading, as several below each other where it is wider than ``width``.

    The labels, with their heading, are the first column of each. A column that is too wide alone
    has a table alone.
    """
    head, cells = labels
    part: list[tuple[str, Sequence[object]]] = []

    def lines(columns: Sequence[tuple[str, Sequence[object]]]) -> list[str]:
        rows = zip(cells, *(column_cells for _, column_cells in columns), strict=True)
        return list(table_lines((head, *(name for name, _ in columns)), rows))

    for column in columns:
        if part and max(map(len, lines([*part, column]))) > width:
            yield from lines(part)
            part = []
        part.append(column)
    yield from lines(part)
