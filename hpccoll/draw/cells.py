"""The picture of who holds what: a cell for each rank after each round, the darker the more it holds."""

from collections.abc import Iterator

from hpccoll.draw.background import Grid, heads
from hpccoll.draw.buffer_state import Holdings
from hpccoll.draw.shapes import CHARACTER, FAINT, INK, PAPER, Box, Mark, Text

_PALE, _DARK, _FULL = (232, 241, 249), (120, 176, 220), "#1f6aa5"
_SIZE = 10.5


def cell_room(grid: Grid) -> int:
    """Return how many characters a cell may have."""
    return 8 if grid.layout.ranks <= 9 else 6


def cells_grid(holdings: Holdings, time: Grid) -> Grid:
    """Return the grid of the cells: rounds as in the diagram of time, columns as wide as their words."""
    longest = max(len(holdings.words(held, cell_room(time))) for row in holdings.rows for held in row)
    across = max(30.0, longest * CHARACTER * _SIZE + 14) if time.layout.ranks <= 18 else max(8.0, time.across * 0.8)
    return Grid(time.layout, time.rounds, across, time.down)


def cells(holdings: Holdings, grid: Grid) -> list[Mark]:
    """Return the cells and the ranks above them; what a round has changed has a dark edge."""
    return [*heads(grid), *_cells(holdings, grid)]


def _cells(holdings: Holdings, grid: Grid) -> Iterator[Mark]:
    half, tall = grid.across / 2 - 1.5, min(14.0, 0.29 * grid.down)
    for round_, row in enumerate(holdings.rows):
        for me, held in enumerate(row):
            at = grid.point(me, round_)
            changed = round_ > 0 and held != holdings.rows[round_ - 1][me]
            complete = bool(held) and (held == holdings.everything or held == holdings.promised[me])
            fill = _FULL if complete else _shade(len(held) / max(1, len(holdings.everything)))
            edge = INK if changed else "none" if held else FAINT
            yield Box(
                at.x - half,
                at.y - tall,
                at.x + half,
                at.y + tall,
                fill,
                edge,
                width=min(1.2, grid.across / 25),
                radius=3,
            )
            words = holdings.words(held, cell_room(grid))
            if grid.across >= 30 and words:
                yield Text(at.x, at.y, words, size=_SIZE, colour=PAPER if complete else INK)


def _shade(share: float) -> str:
    """Return the colour of a cell that holds ``share`` of everything."""
    mixed = (round(pale + (dark - pale) * share) for pale, dark in zip(_PALE, _DARK, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed) if share else PAPER
