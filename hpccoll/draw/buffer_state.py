"""Who holds what after each round: the contributions that have come to each rank, as letters.

Of a reduction one unit is followed: a cell names the ranks whose contributions are folded in it. Where blocks only
move, a cell names the blocks that a rank has anywhere, and blocks that no one is promised are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_lowercase

from hpccoll.draw.trace import Message, Story
from hpccoll.draw.view import Subject
from hpccoll.errors import BadInputError
from hpccoll.schedule.collective import Contribution

Cells = dict[tuple[str, int], frozenset[Contribution]]
"""What is folded in each unit, by (buffer, unit), of one rank."""

Marks = frozenset[int]
EVERYTHING = "*"
_SPELT = 8
"""The most characters in which marks are spelt out one by one, even where there is more room."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """Who holds what.

    Args:
        what: in words, what a cell says.
        rows: what each rank holds, at the start and after each round, as marks from 0 up, [round + 1][rank].
        everything: all marks that a rank could hold.
        promised: what each rank is to hold in the end.
        letters: whether marks have letters, which ranks do as far as letters go; else they are numbers.
        unit: the unit that is followed, None where all are.
    """

    what: str
    rows: tuple[tuple[Marks, ...], ...]
    everything: Marks
    promised: tuple[Marks, ...]
    letters: bool
    unit: int | None

    def words(self, held: Marks, room: int) -> str:
        """Return ``held`` in at most ``room`` characters, as much of it as they can say."""
        names = [self._name(mark) for mark in sorted(held)]
        apart = "" if self.letters else ","
        plain = apart.join(names)
        if len(plain) <= min(room, _SPELT):
            return plain
        if held == self.everything:
            return EVERYTHING
        shorter = apart.join(self._run(run) for run in runs(sorted(held)))
        return next((words for words in (shorter, f"#{len(held)}") if len(words) <= room), "+")

    def title(self, room: int) -> str:
        """Return what cells of so much room say, with what their signs mean: ``whose unit 0 is folded in (* all)``."""
        words = {self.words(held, room)[:1] for row in self.rows for held in row}
        signs = [meaning for sign, meaning in ((EVERYTHING, "* all"), ("#", "#3 three of them")) if sign in words]
        return self.what + (f" ({', '.join(signs)})" if signs else "")

    def _name(self, mark: int) -> str:
        return ascii_lowercase[mark] if self.letters else str(mark)

    def _run(self, run: Sequence[int]) -> str:
        first, last = self._name(run[0]), self._name(run[-1])
        return first if len(run) == 1 else f"{first}-{last}"


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending ``numbers`` as runs of consecutive ones."""
    grouped = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in grouped]


def spans(numbers: Iterable[int], apart: str = ", ") -> str:
    """Return ascending ``numbers`` as people write them: ``0, 2..5``."""
    return apart.join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs(numbers))


def follow(subject: Subject, story: Story, unit: int | None = None) -> Holdings:
    """Return who holds what in a slice of ``subject``.

    Args:
        subject: that is shown.
        story: of the slice.
        unit: that is followed; unless given, unit 0 of a reduction, and all blocks where they only move.

    Raises:
        BadInputError: where there is no such unit.
    """
    if unit is not None and not 0 <= unit < story.schedule.units:
        raise BadInputError("--unit", unit, f"a unit from 0 to {story.schedule.units - 1}")
    if subject.collective.reduces:
        return _folded(subject, story, unit or 0)
    return _blocks(subject, story, unit)


def _folded(subject: Subject, story: Story, unit: int) -> Holdings:
    """Return the ranks whose contributions are folded in ``unit``."""
    what, everyone = f"whose unit {unit} is folded in", frozenset(range(subject.layout.workers))
    promised = _promised(subject, story)

    def seen(held: Iterable[Contribution]) -> Marks:
        return frozenset(origin for origin, _ in held)

    rows = _walk(subject, story, lambda cells: seen(_held(cells, "dst", unit)))
    ends = tuple(seen(wanted.get(unit, ())) for wanted in promised)
    return Holdings(what, rows, everyone, ends, _lettered(subject), unit)


def _blocks(subject: Subject, story: Story, unit: int | None) -> Holdings:
    """Return the blocks that ranks have: by origin, by unit where all have one origin, else by origin for one unit."""
    ends = [frozenset().union(*wanted.values()) for wanted in _promised(subject, story)]
    wanted = frozenset().union(*ends)
    origins, units = {origin for origin, _ in wanted}, {block for _, block in wanted}
    if unit is None and len(wanted) > max(len(origins), len(units)):
        unit = 0
    wanted = frozenset(mark for mark in wanted if unit in (None, mark[1]))
    by_unit = len({origin for origin, _ in wanted}) == 1 < len(wanted)

    def seen(held: frozenset[Contribution]) -> Marks:
        return frozenset(block if by_unit else origin for origin, block in held & wanted)

    rows = _walk(subject, story, lambda cells: seen(_anywhere(cells)))
    if by_unit and all(held in (frozenset(), seen(wanted)) for row in rows for held in row):
        by_unit = False  # all units go together: whose they are says more
        rows = _walk(subject, story, lambda cells: seen(_anywhere(cells)))
    everything, promised = seen(wanted), tuple(map(seen, ends))
    if by_unit:
        return Holdings("which units each rank has", rows, everything, promised, letters=False, unit=None)
    what = "whose block each rank has" if unit is None else f"whose unit {unit} each rank has"
    return Holdings(what, rows, everything, promised, _lettered(subject), unit)


def _lettered(subject: Subject) -> bool:
    return subject.layout.workers <= len(ascii_lowercase)


def _promised(subject: Subject, story: Story) -> list[dict[int, set[Contribution]]]:
    """Return what each rank is promised in each unit."""
    return [subject.promised(me, story.schedule.units) for me in range(subject.layout.ranks)]


def _anywhere(cells: Cells) -> frozenset[Contribution]:
    """Return all that a rank has beside what it has in src, which is never written."""
    return frozenset().union(*(held for (buffer, _), held in cells.items() if buffer != "src"))


def _walk(subject: Subject, story: Story, seen: Callable[[Cells], Marks]) -> tuple[tuple[Marks, ...], ...]:
    """Return what is ``seen`` of the units of every rank, at the start and after each round."""
    units = story.schedule.units
    # A schedule is written in place, where dst begins with what src has, unless it reads src itself.
    buffers = ("src",) if any(m.sent.buffer == "src" for m in story.messages) else ("src", "dst")
    ranks = [_start(me, subject.contributed(me, units), buffers) for me in range(subject.layout.ranks)]
    rows = [tuple(map(seen, ranks))]
    staged: dict[Message, list[frozenset[Contribution]]] = {}
    for number in range(story.rounds):
        for m in story.departing(number):
            staged[m] = [_held(ranks[m.source], m.sent.buffer, unit) for unit in m.sent.units]
        for m in story.landing(number):
            _land(ranks[m.target], m, staged.pop(m))
        rows.append(tuple(map(seen, ranks)))
    return tuple(rows)


def _start(me: int, contributed: range, buffers: Iterable[str]) -> Cells:
    return {(buffer, unit): frozenset({(me, unit)}) for buffer in buffers for unit in contributed}


def _held(cells: Cells, buffer: str, unit: int) -> frozenset[Contribution]:
    return cells.get((buffer, unit), frozenset())


def _land(cells: Cells, m: Message, arrival: list[frozenset[Contribution]]) -> None:
    if m.operand is not None:
        operand = [_held(cells, m.operand.buffer, unit) for unit in m.operand.units]
        arrival = [mine | its for mine, its in zip(operand, arrival, strict=True)]
    cells |= {(m.landed.buffer, unit): held for unit, held in zip(m.landed.units, arrival, strict=True)}
