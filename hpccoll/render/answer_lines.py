"""An answer: what it is about, and for each range of sizes a line that begins with how strong the evidence is.

Pages and terminals show the same lines. What a reader looks for, choices and factors, stands
between backticks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpccoll.analysis.strength import STRENGTHS, Evidence, Strength
from hpccoll.common.text import join_ends, join_words
from hpccoll.common.units import format_factor
from hpccoll.schedule.collective import NATIVE

WITHIN_NOISE = "within the noise"
"""How every sentence says that a difference may be chance."""

NO_TABLE: tuple[Sequence[str], Sequence[Sequence[str]]] = ((), ())


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A line of an answer, in words."""

    strength: Strength | None  # None of a sentence that compares nothing
    text: str  # ``use `ring`: `1.96x` as fast as native``
    sizes: str = ""  # the range, with both ends: ``90 KiB to 4 MiB``; empty for what has no sizes
    # what the strength follows from: counts of sizes, the ends of rounds, what is missing
    basis: str = ""
    # the headings and rows of a table of its sizes
    figures: tuple[Sequence[str], Sequence[Sequence[str]]] = NO_TABLE
    # what a table of choices has for sizes without advice: ``ring to 4 KiB, then star``
    entry: str = ""
    is_tie: bool = False  # whether choices were compared, and none is shown to be faster

    @property
    def badge(self) -> str | None:
        """The word before the sentence: the strength, or ``tie``."""
        return "tie" if self.is_tie else self.strength


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


def terminal_lines(answers: Iterable[Answer], *, with_entries: bool = False) -> Iterator[str]:
    """Yield the answers as text: a line with the title, then the lines below it, in columns.

    A sentence that compares nothing follows its title in one line. ``with_entries``, it also says
    what a table of choices has where nothing is advised.
    """
    for answer in answers:
        ranges = [line for line in answer.lines if line.strength]
        width = max((len(line.sizes) for line in ranges), default=0)
        for line in answer.lines:
            if not line.strength:
                yield f"{answer.title}: {_plain(line)}"
        if ranges:
            yield answer.title
        for line in ranges:
            sizes = f"{line.sizes:<{width}}  " if width else ""
            entry = f"; the table has {line.entry}" if with_entries and line.entry else ""
            yield f"  {line.badge:<{_WIDTH}}  {sizes}{_plain(line)}{entry}"


def _plain(line: AnswerLine) -> str:
    return line.text.replace("`", "")


def as_fast_as_native(factor: float) -> str:
    """Return how fast something is: ``1.96x as fast as native``; all sentences have factors in this form."""
    return f"`{format_factor(factor)}` as fast as {NATIVE}"


def basis_of(evidence: Evidence, *sentences: str) -> str:
    """Return what the strength of evidence follows from: ``Clear at 5 of 6 sizes; 1.62x to 2.02x by round; ...``."""
    parts: list[str] = []
    if evidence.clear:
        parts.append(f"clear at {of_sizes(evidence.clear, evidence.compared)}")
    parts += sentences
    gain = evidence.gain
    if gain and gain.low and gain.high:
        parts.append(f"{join_ends((format_factor(gain.low), format_factor(gain.high)))} by round")
    if evidence.missing:
        parts.append(f"to be {evidence.next_strength} it lacks {join_words(evidence.missing)}")
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}."


def untold(evidence: Evidence, names: Sequence[str]) -> str:
    """Return why the fastest choice is unknown; empty if it is known, or if choices differ by noise."""
    if evidence.strength != "none" or (evidence.has_intervals and evidence.rounds):
        return ""
    fastest = "faster" if len(names) < 3 else "fastest"
    cannot = f"which of {join_words(names)} is {fastest} cannot be told"
    if not evidence.has_intervals:
        return f"{cannot} without {evidence.missing[0]}"
    sizes = " at every size" if evidence.compared > 1 else ""
    return f"{cannot}: no launch measured them together{sizes}"


def of_sizes(count: int, sizes: int) -> str:
    """Return how many of the sizes: ``all 8 sizes``, ``3 of 8 sizes``, ``its only size``."""
    if sizes == 1:
        return "its only size"
    if count == sizes == 2:
        return "both sizes"
    return f"all {sizes} sizes" if count == sizes else f"{count} of {sizes} sizes"
