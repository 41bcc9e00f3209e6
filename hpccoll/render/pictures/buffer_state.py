"""The state of the buffers after each round: the contributions that have reached each rank, as letters.

Of a reduction one unit is followed: a cell names the ranks whose contributions are folded in it. If blocks only
move, a cell names the blocks that a rank has anywhere, and blocks that end at no rank are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_lowercase

from hpccoll.common.errors import BadInputError
from hpccoll.render.pictures.schedule_view import ScheduleView
from hpccoll.schedule import Part
from hpccoll.schedule.collective import Contribution
from hpccoll.schedule.walk import Message, Trace, walk

Cells = dict[tuple[str, int], frozenset[Contribution]]
"""What is folded in each unit, by (buffer, unit), of one rank."""

Symbols = frozenset[int]
ALL_SIGN = "*"
_SPELT = 8
"""The most characters in which symbols are spelt out one by one, even if there is more room."""


@dataclass(frozen=True, slots=True)
class BufferState:
    """The contributions that each rank holds after each round.

    Args:
        what: the meaning of a cell, as text.
        rows: what each rank holds, at the start and after each round, as symbols from 0 up, [round + 1][rank].
        all_symbols: all symbols that a rank can hold.
        expected: what each rank must hold at the end.
        letters: whether symbols are written as letters (ranks, if there are enough letters) or as numbers.
        unit: the unit that is followed, None for all.
    """

    what: str
    rows: tuple[tuple[Symbols, ...], ...]
    all_symbols: Symbols
    expected: tuple[Symbols, ...]
    letters: bool
    unit: int | None

    def cell_text(self, symbols: Symbols, width: int) -> str:
        """Return ``symbols`` as text of at most ``width`` characters, shortened if necessary."""
        names = [self._name(symbol) for symbol in sorted(symbols)]
        separator = "" if self.letters else ","
        plain = separator.join(names)
        if len(plain) <= min(width, _SPELT):
            return plain
        if symbols == self.all_symbols:
            return ALL_SIGN
        shorter = separator.join(self._run(run) for run in runs(sorted(symbols)))
        return next((text for text in (shorter, f"#{len(symbols)}") if len(text) <= width), "+")

    def title(self, width: int) -> str:
        """Return what cells of ``width`` characters mean, and their signs: ``whose unit 0 is folded in (* all)``."""
        first_letters = {self.cell_text(symbols, width)[:1] for row in self.rows for symbols in row}
        signs = [meaning for sign, meaning in ((ALL_SIGN, "* all"), ("#", "#3 three of them")) if sign in first_letters]
        return self.what + (f" ({', '.join(signs)})" if signs else "")

    def _name(self, symbol: int) -> str:
        return ascii_lowercase[symbol] if self.letters else str(symbol)

    def _run(self, run: Sequence[int]) -> str:
        first, last = self._name(run[0]), self._name(run[-1])
        return first if len(run) == 1 else f"{first}-{last}"


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending ``numbers`` as runs of consecutive ones."""
    grouped = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in grouped]


def spans(numbers: Iterable[int], separator: str = ", ") -> str:
    """Return ascending ``numbers`` as people write them: ``0, 2..5``."""
    return separator.join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs(numbers))


def buffer_state(view: ScheduleView, trace: Trace, unit: int | None = None) -> BufferState:
    """Return the state of the buffers in a slice of ``view``.

    Args:
        view: the view of the schedule.
        trace: the trace of the slice.
        unit: the unit to follow; by default unit 0 of a reduction, and all blocks if blocks only move.

    Raises:
        BadInputError: if there is no such unit.
    """
    if unit is not None and not 0 <= unit < trace.schedule.units:
        raise BadInputError("--unit", unit, f"a unit from 0 to {trace.schedule.units - 1}")
    if view.collective.reduces:
        return _folded(view, trace, unit or 0)
    return _blocks(view, trace, unit)


def _folded(view: ScheduleView, trace: Trace, unit: int) -> BufferState:
    """Return the ranks whose contributions are folded in ``unit``."""
    what, everyone = f"whose unit {unit} is folded in", frozenset(range(view.layout.workers))
    expected = _expected(view, trace)

    def to_symbols(contributions: Iterable[Contribution]) -> Symbols:
        return frozenset(origin for origin, _ in contributions)

    rows = _walk(view, trace, lambda cells: to_symbols(cells.get(("dst", unit), ())))
    ends = tuple(to_symbols(wanted.get(unit, ())) for wanted in expected)
    return BufferState(what, rows, everyone, ends, _lettered(view), unit)


def _blocks(view: ScheduleView, trace: Trace, unit: int | None) -> BufferState:
    """Return the blocks that ranks have: by origin, by unit if all have one origin, else by origin for one unit."""
    ends = [frozenset().union(*wanted.values()) for wanted in _expected(view, trace)]
    wanted = frozenset().union(*ends)
    origins, units = {origin for origin, _ in wanted}, {block for _, block in wanted}
    if unit is None and len(wanted) > max(len(origins), len(units)):
        unit = 0
    wanted = frozenset(symbol for symbol in wanted if unit in (None, symbol[1]))
    by_unit = len({origin for origin, _ in wanted}) == 1 < len(wanted)

    def to_symbols(contributions: frozenset[Contribution]) -> Symbols:
        return frozenset(block if by_unit else origin for origin, block in contributions & wanted)

    rows = _walk(view, trace, lambda cells: to_symbols(_anywhere(cells)))
    if by_unit and all(contributions in (frozenset(), to_symbols(wanted)) for row in rows for contributions in row):
        by_unit = False  # all units go together: whose they are says more
        rows = _walk(view, trace, lambda cells: to_symbols(_anywhere(cells)))
    all_symbols, expected = to_symbols(wanted), tuple(map(to_symbols, ends))
    if by_unit:
        return BufferState("which units each rank has", rows, all_symbols, expected, letters=False, unit=None)
    what = "whose block each rank has" if unit is None else f"whose unit {unit} each rank has"
    return BufferState(what, rows, all_symbols, expected, _lettered(view), unit)


def _lettered(view: ScheduleView) -> bool:
    return view.layout.workers <= len(ascii_lowercase)


def _expected(view: ScheduleView, trace: Trace) -> list[dict[int, set[Contribution]]]:
    """Return the contributions that each rank must end with in each unit."""
    return [view.expected(me, trace.schedule.units) for me in range(view.layout.ranks)]


def _anywhere(cells: Cells) -> frozenset[Contribution]:
    """Return all contributions that a rank has outside src, which is never written."""
    return frozenset().union(*(contributions for (buffer, _), contributions in cells.items() if buffer != "src"))


def _walk(view: ScheduleView, trace: Trace, to_symbols: Callable[[Cells], Symbols]) -> tuple[tuple[Symbols, ...], ...]:
    """Return the symbols of every rank, which ``to_symbols`` makes of its cells, at the start and after each round."""
    memory = _Memory(view, trace)
    rows = [tuple(map(to_symbols, memory.ranks))]
    walk(trace, memory, lambda: rows.append(tuple(map(to_symbols, memory.ranks))))
    return tuple(rows)


class _Memory:
    """The cells of all ranks, which messages change."""

    def __init__(self, view: ScheduleView, trace: Trace) -> None:
        # A schedule is written in place, where dst begins with what src has, unless it reads src itself.
        buffers = ("src",) if any(m.sent.buffer == "src" for m in trace.messages) else ("src", "dst")
        everyone = range(view.layout.ranks)
        units = [view.source_units(me, trace.schedule.units) for me in everyone]
        self.ranks: list[Cells] = [
            {(buffer, unit): frozenset({(me, unit)}) for buffer in buffers for unit in units[me]} for me in everyone
        ]

    def read(self, m: Message) -> list[frozenset[Contribution]]:
        return _contributions(self.ranks[m.source], m.sent)

    def land(self, m: Message, arrival: list[frozenset[Contribution]]) -> None:
        cells = self.ranks[m.target]
        if m.operand is not None:
            operand = _contributions(cells, m.operand)
            arrival = [mine | its for mine, its in zip(operand, arrival, strict=True)]
        cells |= zip(((m.landed.buffer, unit) for unit in m.landed.units), arrival, strict=True)


def _contributions(cells: Cells, part: Part) -> list[frozenset[Contribution]]:
    return [cells.get((part.buffer, unit), frozenset()) for unit in part.units]
