"""The page: panels side by side under titles, and the SVG document that holds them."""

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from hpccoll.render.colours import FONT, PAPER
from hpccoll.render.pictures.svg_shapes import Bounds, Shape, Text, pixels

_GAP = 44.0
_MARGIN = 20.0


def bounds_of(shapes: Iterable[Shape]) -> Bounds:
    """Return the smallest rectangle that contains all ``shapes``."""
    lefts, tops, rights, bottoms = zip(*(shape.bounds for shape in shapes), strict=True)
    return Bounds(min(lefts), min(tops), max(rights), max(bottoms))


def moved(shapes: Iterable[Shape], dx: float, dy: float) -> list[Shape]:
    """Return ``shapes`` moved by ``dx`` and ``dy``."""
    return [shape.moved(dx, dy) for shape in shapes]


def stacked(panels: Iterable[Sequence[Shape]], top: float, gap: float = 26.0) -> list[Shape]:
    """Return panels one under the other, in line on the left, from ``top`` down."""
    placed: list[Shape] = []
    y = top
    for panel in panels:
        left, highest, _, bottom = bounds_of(panel)
        placed += moved(panel, -left, y - highest)
        y += bottom - highest + gap
    return placed


def side_by_side(panels: Iterable[tuple[str, Sequence[Shape]]]) -> list[Shape]:
    """Return panels in a row, each under its title, without changing heights."""
    panels = list(panels)
    top = min(bounds_of(panel).top for _, panel in panels)
    placed: list[Shape] = []
    x = 0.0
    for heading, panel in panels:
        left = bounds_of(panel).left
        title = Text(left, top - 26, heading, size=13, anchor="start", weight=600)
        shapes = moved([title, *panel], x - left, 0)
        placed += shapes
        x = bounds_of(shapes).right + _GAP
    return placed


def svg_document(shapes: Iterable[Shape], title: str, description: str) -> str:
    """Return ``shapes`` as an SVG document on a white background.

    Args:
        shapes: the shapes of the picture.
        title: the label for screen readers.
        description: the longer description for screen readers.
    """
    shapes = list(shapes)
    left, top, right, bottom = bounds_of(shapes)
    corner = f'x="{pixels(left - _MARGIN)}" y="{pixels(top - _MARGIN)}"'
    width, height = pixels(right - left + 2 * _MARGIN), pixels(bottom - top + 2 * _MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{pixels(left - _MARGIN)} {pixels(top - _MARGIN)} {width} {height}" '
        f'role="img" aria-label={quoteattr(title)} font-family="{FONT}">'
    )
    labels = f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>"
    background = f'<rect {corner} width="{width}" height="{height}" fill="{PAPER}"/>'
    return "\n".join((head, labels, background, *(shape.svg() for shape in shapes), "</svg>\n"))
