"""The page: panels side by side under titles, and the SVG document that holds them."""

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from hpccoll.draw.shapes import PAPER, Bounds, Mark, Text, pixels

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
_GAP = 44.0
_MARGIN = 20.0


def bounds_of(marks: Iterable[Mark]) -> Bounds:
    """Return the rectangle that holds all ``marks``."""
    lefts, tops, rights, bottoms = zip(*(mark.bounds for mark in marks), strict=True)
    return Bounds(min(lefts), min(tops), max(rights), max(bottoms))


def moved(marks: Iterable[Mark], dx: float, dy: float) -> list[Mark]:
    """Return ``marks`` elsewhere."""
    return [mark.moved(dx, dy) for mark in marks]


def stacked(panels: Iterable[Sequence[Mark]], top: float, gap: float = 26.0) -> list[Mark]:
    """Return panels one under the other, in line on the left, from ``top`` down."""
    placed: list[Mark] = []
    y = top
    for panel in panels:
        left, highest, _, bottom = bounds_of(panel)
        placed += moved(panel, -left, y - highest)
        y += bottom - highest + gap
    return placed


def side_by_side(panels: Iterable[tuple[str, Sequence[Mark]]]) -> list[Mark]:
    """Return panels in a row, each under its title; what is at one height stays so."""
    panels = list(panels)
    top = min(bounds_of(panel).top for _, panel in panels)
    placed: list[Mark] = []
    x = 0.0
    for words, panel in panels:
        left = bounds_of(panel).left
        title = Text(left, top - 26, words, size=13, anchor="start", weight=600)
        marks = moved([title, *panel], x - left, 0)
        placed += marks
        x = bounds_of(marks).right + _GAP
    return placed


def document(marks: Iterable[Mark], title: str, description: str) -> str:
    """Return ``marks`` as an SVG document on white ground.

    Args:
        marks: all there is to see.
        title: what it shows, for those who do not see it.
        description: more of that.
    """
    marks = list(marks)
    left, top, right, bottom = bounds_of(marks)
    corner = f'x="{pixels(left - _MARGIN)}" y="{pixels(top - _MARGIN)}"'
    width, height = pixels(right - left + 2 * _MARGIN), pixels(bottom - top + 2 * _MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{pixels(left - _MARGIN)} {pixels(top - _MARGIN)} {width} {height}" '
        f'role="img" aria-label={quoteattr(title)} font-family="{FONT}">'
    )
    words = f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>"
    ground = f'<rect {corner} width="{width}" height="{height}" fill="{PAPER}"/>'
    return "\n".join((head, words, ground, *(mark.svg() for mark in marks), "</svg>\n"))
