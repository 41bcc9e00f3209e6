"""The whole picture of a subject: who talks to whom, what happens when, and who holds what."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from hpccoll.draw.background import Grid
from hpccoll.draw.buffer_state import follow
from hpccoll.draw.cells import cell_room, cells, cells_grid
from hpccoll.draw.network import networks
from hpccoll.draw.page import bounds_of, document, side_by_side, stacked
from hpccoll.draw.shapes import CHARACTER, INK, MUTED, Bounds, Look, Mark, Point, Text, straight
from hpccoll.draw.spacetime import spacetime
from hpccoll.draw.style import FOLDS, REPLACES, Looks
from hpccoll.draw.trace import Story, tell
from hpccoll.draw.view import Subject
from hpccoll.draw.words import cost_words, layout_words
from hpccoll.errors import BadInputError, file_error

ENDINGS = (".svg", ".png")
_CLASS = 3.0
"""The width of a line that only shows a colour."""

_SCALE = 2
"""Pixels of a PNG for one of the SVG."""


def picture(subject: Subject, unit: int | None = None) -> str:
    """Return ``subject`` drawn, as the text of an SVG file.

    Args:
        subject: that is shown.
        unit: that the cells follow; chosen unless given.

    Raises:
        BadInputError: where there is no such unit.
    """
    stories = [tell(schedule) for schedule in subject.slices]
    looks = Looks.of(stories)
    grid = Grid.of(stories)
    holdings = follow(subject, stories[0], unit)
    first = "slice 1: " if len(stories) > 1 else ""
    time = spacetime(stories, grid, looks)
    graph = stacked([*networks(stories, looks, subject.root), *_legend(stories, looks)], top=bounds_of(time).top)
    drawn = side_by_side(
        [
            ("who talks to whom", graph),
            ("what happens in each round", time),
            (first + holdings.title(cell_room(grid)), cells(holdings, cells_grid(holdings, grid))),
        ]
    )
    title = f"{subject.title}, {layout_words(subject.layout)}"
    heading = list(_heading(title, [subject.sentence, f"Cost: {cost_words(subject)}."], bounds_of(drawn)))
    return document([*heading, *drawn], title, f"{subject.sentence} Cost: {cost_words(subject)}.".strip())


def _heading(title: str, lines: Sequence[str], below: Bounds) -> Iterator[Mark]:
    """Yield the title and what is said under it, above the panels and no wider than they are, if that can be."""
    size, small = 18.0, 12.5
    room = max(420.0, below.right - below.left)
    titles = wrap(title, int(room / size / CHARACTER))
    said = [part for line in lines for part in wrap(line, int(room / small / CHARACTER))]
    y = below.top - 22 - 18 * len(said) - 26 * len(titles)
    for line in titles:
        y += 26
        yield Text(below.left, y - 12, line, size=size, anchor="start", weight=700)
    for line in said:
        y += 18
        yield Text(below.left, y - 8, line, size=small, anchor="start", colour=MUTED)


def _legend(stories: Sequence[Story], looks: Looks) -> list[list[Mark]]:
    """Return what the lines mean, if there are any."""
    rows: list[Mark] = []
    for number, (look, words) in enumerate(_entries(stories, looks)):
        y = 21.0 * number
        rows += [
            straight(Point(0, y), Point(32, y), look, head=look.width < _CLASS),
            Text(42, y, words, size=12, anchor="start", colour=INK),
        ]
    return [rows] if rows else []


def _entries(stories: Sequence[Story], looks: Looks) -> Iterator[tuple[Look, str]]:
    """Yield the looks that there are, each with its meaning."""
    messages = [m for story in stories for m in story.messages]
    for colour, words in looks.classes:
        yield Look(colour, width=_CLASS), words
    by_arrival = looks.by == "arrival"
    if any(m.folds for m in messages):
        yield Look(FOLDS if by_arrival else MUTED), "the arrival is reduced"
    if any(not m.folds and not m.copies for m in messages):
        yield Look(REPLACES if by_arrival else MUTED, dashed=not by_arrival, hollow=True), "the arrival replaces"
    if any(m.copies for m in messages):
        yield Look(REPLACES, hollow=True, width=1.2), "a loop is a copy"


def draw(subject: Subject, path: Path, unit: int | None = None) -> None:
    """Draw ``subject`` into a file, as SVG or PNG by its ending.

    Args:
        subject: that is shown.
        path: of the file.
        unit: that the cells follow; chosen unless given.

    Raises:
        BadInputError: for another ending, a file that cannot be written, or where there is no such unit.
    """
    if path.suffix not in ENDINGS:
        raise BadInputError("--out", str(path), f"a file that ends in {' or '.join(ENDINGS)}")
    svg = picture(subject, unit)
    if path.suffix == ".svg":
        content = svg.encode()
    else:
        import vl_convert

        content = vl_convert.svg_to_png(svg, scale=_SCALE)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise file_error("--out", path, error, "written") from None
