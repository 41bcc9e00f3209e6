"""An answer: what it is about, and for each range of sizes a line that begins with how strong the evidence is.

Pages and terminals show the same lines. What a reader looks for, choices and factors, stands between backticks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpccoll.analysis.strength import STRENGTHS, Evidence, Strength
from hpccoll.common.text import join_ends, join_words
from hpccoll.common.units import format_factor

NO_TABLE: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A line of an answer, in words."""

    strength: Strength | None  # None of a sentence that compares nothing
    text: str  # ``use `ring`: `1.96x` as fast as MPICH's own``
    sizes: str = ""  # the range, with both ends: ``90 KiB to 4 MiB``; empty for what has no sizes
    basis: str = ""  # what the strength follows from: counts of sizes, the ends of rounds, what is missing
    figures: tuple[Sequence[str], Sequence[Sequence[str]]] = NO_TABLE  # the headings and rows of a table of its sizes
    entry: str = ""  # what a table of choices has for sizes without advice: ``ring to 4 KiB, then star``


@dataclass(frozen=True, slots=True)
class Answer:
    """The lines of one setting, by ascending sizes."""

    subject: str  # the collective or model
    where: str  # the setting among those of its subject: ``2 ranks, in place``; may be empty
    lines: tuple[AnswerLine, ...]
    oversubscribed: bool = False  # whether there were more ranks than cores

    @property
    def title(self) -> str:
        return f"{self.subject} on {self.where}" if self.where else self.subject


_WIDTH = max(map(len, STRENGTHS))


def terminal_lines(answers: Iterable[Answer], *, of_table: bool = False) -> Iterator[str]:
    """Yield the answers as text: a line with the title, then the lines below it, in columns.

    A sentence that compares nothing follows its title in one line. Those ``of_table`` also say what a table of choices
    has where nothing is advised.
    """
    for answer in answers:
        ranges = [line for line in answer.lines if line.strength]
        sizes = max((len(line.sizes) for line in ranges), default=0)
        yield from (f"{answer.title}: {_plain(line)}" for line in answer.lines if not line.strength)
        if ranges:
            yield answer.title
        for line in ranges:
            entry = f"; the table has {line.entry}" if of_table and line.entry else ""
            yield f"  {line.strength:<{_WIDTH}}  {f'{line.sizes:<{sizes}}  ' if sizes else ''}{_plain(line, entry)}"


def _plain(line: AnswerLine, entry: str = "") -> str:
    return f"{line.text}{entry}".replace("`", "")


def as_fast_as(factor: float, what: str) -> str:
    """Return how fast something is: ``1.96x as fast as MPICH's own``; all sentences have factors in this form."""
    return f"`{format_factor(factor)}` as fast as {what}"


def basis_of(evidence: Evidence, *more: str) -> str:
    """Return what the strength of evidence follows from: ``Clear at 5 of 6 sizes; 1.62x to 2.02x by round; ...``."""
    gain = evidence.gain
    parts = (
        f"clear at {of_sizes(evidence.clear, evidence.compared)}" if evidence.clear else "",
        *more,
        f"{join_ends(map(format_factor, (gain.low, gain.high)))} by round" if gain and gain.low and gain.high else "",
        f"to be {evidence.next_strength} it lacks {join_words(evidence.missing)}" if evidence.missing else "",
    )
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}."


def of_sizes(count: int, sizes: int) -> str:
    """Return how many of the sizes: ``all 8 sizes``, ``3 of 8 sizes``, ``its size``."""
    if sizes == 1:
        return "its only size"
    return (
        "both sizes" if count == sizes == 2 else f"all {sizes} sizes" if count == sizes else f"{count} of {sizes} sizes"
    )
