"""The state of the buffers after each step: the contributions that have reached each rank, as letters.

Of a reduction one unit is followed: a cell names the ranks whose contributions are folded in it. If
blocks only move, a cell names the blocks that a rank has anywhere, and blocks that end at no rank
are left out.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_lowercase

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import CollectiveCall, Part
from hpccoll.schedule.contribution_sets import Contribution
from hpccoll.schedule.walk import Message, Trace, walk

Contributions = frozenset[Contribution]
Cells = dict[tuple[str, int], Contributions]
"""What is folded in each unit, by (buffer, unit), of one rank."""

Symbols = frozenset[int]
ALL_SIGN = "*"
_SPELT = 8
"""The most characters in which symbols are spelt out one by one, even if there is more room."""


@dataclass(frozen=True, slots=True)
class BufferState:
    """The contributions that each rank holds after each step."""

    cell_meaning: str  # the meaning of a cell, as text
    # what each rank holds, at the start and after each step, as symbols from 0 up, [step +
    # 1][rank]
    rows: tuple[tuple[Symbols, ...], ...]
    all_symbols: Symbols  # all symbols that a rank can hold
    expected: tuple[Symbols, ...]  # what each rank must hold at the end
    # whether symbols are written as letters (ranks, if there are enough letters) or as numbers
    letters: bool
    unit: int | None  # the unit that is followed, None for all

    def cell_text(self, symbols: Symbols, width: int) -> str:
        """Return ``symbols`` as text of at most ``width`` characters, shortened if necessary."""
        separator = "" if self.letters else ","
        plain = separator.join(map(self._name, sorted(symbols)))
        if len(plain) <= min(width, _SPELT):
            return plain
        if symbols == self.all_symbols:
            return ALL_SIGN
        shorter = separator.join(self._run_text(run) for run in runs(sorted(symbols)))
        if len(shorter) <= width:
            return shorter
        count = f"#{len(symbols)}"
        return count if len(count) <= width else "+"

    def _run_text(self, run: Sequence[int]) -> str:
        if len(run) == 1:
            return self._name(run[0])
        return f"{self._name(run[0])}-{self._name(run[-1])}"

    def title(self, width: int) -> str:
        """Return what cells of ``width`` characters mean, and their signs: ``whose unit 0 is folded in (* all)``."""
        first_letters = {self.cell_text(symbols, width)[:1] for row in self.rows for symbols in row}
        signs = []
        if ALL_SIGN in first_letters:
            signs.append("* all")
        if "#" in first_letters:
            signs.append("#3 three of them")
        return f"{self.cell_meaning} ({', '.join(signs)})" if signs else self.cell_meaning

    def _name(self, symbol: int) -> str:
        return ascii_lowercase[symbol] if self.letters else str(symbol)


def runs(numbers: Iterable[int]) -> list[list[int]]:
    """Return ascending ``numbers`` as runs of consecutive ones."""
    grouped = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in grouped]


def spans(numbers: Iterable[int], separator: str = ", ") -> str:
    """Return ascending ``numbers`` as people write them: ``0, 2..5``."""
    words = []
    for run in runs(numbers):
        first, last = run[0], run[-1]
        words.append(str(first) if first == last else f"{first}..{last}")
    return separator.join(words)


def buffer_state(call: CollectiveCall, trace: Trace, unit: int | None = None) -> BufferState:
    """Return the state of the buffers in a slice of ``call``; BadInputError if there is no such ``unit`` to follow.

    By default it is unit 0 of a reduction, and of blocks all, or unit 0 if several origins have
    several units.
    """
    layout = trace.schedule.layout
    units = trace.schedule.units
    reduces = call.collective.reduces
    if unit is not None and not 0 <= unit < units:
        raise BadInputError("--unit", unit, f"a unit from 0 to {units - 1}")
    unit_of_result = None
    if reduces:
        unit = unit or 0
        unit_of_result = unit
    ends = [_result(call, me, units, unit_of_result) for me in range(layout.ranks)]
    wanted: Contributions = frozenset().union(*ends)
    origins = {origin for origin, _ in wanted}
    blocks = {block for _, block in wanted}
    if unit is None and len(wanted) > max(len(origins), len(blocks)):
        unit = 0
    if not reduces and unit is not None:
        wanted = frozenset(contribution for contribution in wanted if contribution[1] == unit)

    def held(cells: Cells) -> Contributions:
        if reduces:
            return cells.get(("dst", unit or 0), frozenset())
        written = [contributions for (buffer, _), contributions in cells.items() if buffer != "src"]
        return wanted & frozenset().union(*written)

    memory = _Memory(call, trace)
    history = [list(map(held, memory.ranks))]
    walk(trace, memory, lambda: history.append(list(map(held, memory.ranks))))
    by_unit = not reduces and _shows_units(wanted, history)

    def to_symbols(contributions: Iterable[Contribution]) -> Symbols:
        if by_unit:
            return frozenset(block for _, block in contributions)
        return frozenset(origin for origin, _ in contributions)

    all_symbols = frozenset(range(layout.workers)) if reduces else to_symbols(wanted)
    return BufferState(
        _cell_meaning(unit, reduces=reduces, by_unit=by_unit),
        rows=tuple(tuple(map(to_symbols, row)) for row in history),
        all_symbols=all_symbols,
        expected=tuple(to_symbols(end & wanted) for end in ends),
        letters=not by_unit and layout.workers <= len(ascii_lowercase),
        unit=None if by_unit else unit,
    )


def _result(call: CollectiveCall, me: int, units: int, unit: int | None) -> Contributions:
    """Return what rank ``me`` must hold at the end, in all units, or in one."""
    result: set[Contribution] = set()
    for target in call.target(me, units):
        if unit is None or target == unit:
            result |= call.result(me, target)
    return frozenset(result)


def _shows_units(wanted: Contributions, history: Sequence[Sequence[Contributions]]) -> bool:
    """Return whether cells name units: those of one origin, unless all go together, when whose they are says more."""
    origins = {origin for origin, _ in wanted}
    if len(origins) != 1 or len(wanted) == 1:
        return False
    return any(held and held != wanted for row in history for held in row)


def _cell_meaning(unit: int | None, *, reduces: bool, by_unit: bool) -> str:
    if by_unit:
        return "which units each rank has"
    if reduces:
        return f"whose unit {unit} is folded in"
    if unit is None:
        return "whose block each rank has"
    return f"whose unit {unit} each rank has"


class _Memory:
    """The cells of all ranks, which messages change."""

    def __init__(self, call: CollectiveCall, trace: Trace) -> None:
        # A schedule is written in place, where dst begins with what src has, unless it reads src
        # itself.
        reads_source = any(m.sent.buffer == "src" for m in trace.messages)
        buffers = ("src",) if reads_source else ("src", "dst")
        self.ranks: list[Cells] = []
        for me in range(trace.schedule.layout.ranks):
            cells: Cells = {}
            for buffer, unit in itertools.product(buffers, call.source(me, trace.schedule.units)):
                cells[buffer, unit] = frozenset({(me, unit)})
            self.ranks.append(cells)

    def read(self, m: Message) -> list[Contributions]:
        return _contributions(self.ranks[m.source], m.sent)

    def land(self, m: Message, arrival: list[Contributions]) -> None:
        cells = self.ranks[m.target]
        if m.operand is not None:
            operand = _contributions(cells, m.operand)
            arrival = [mine | its for mine, its in zip(operand, arrival, strict=True)]
        for unit, contributions in zip(m.landed.units, arrival, strict=True):
            cells[m.landed.buffer, unit] = contributions


def _contributions(cells: Cells, part: Part) -> list[Contributions]:
    return [cells.get((part.buffer, unit), frozenset()) for unit in part.units]
