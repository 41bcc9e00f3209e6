"""Shapes of a picture, in pixels, x to the right and y downwards, panels of them, and the SVG document of all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import NamedTuple, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from hpccoll.render.colours import FONT, INK, PAPER

CHARACTER = 0.6
"""The width of a character in font sizes: wider than most are, for the fonts of other machines."""


class Point(NamedTuple):
    """A point of a picture."""

    x: float
    y: float

    def towards(self, other: "Point", fraction: float) -> "Point":
        """Return the point at ``fraction`` of the distance to ``other``."""
        return Point(self.x + (other.x - self.x) * fraction, self.y + (other.y - self.y) * fraction)


class Bounds(NamedTuple):
    """The rectangle that a shape covers."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Bounds") -> bool:
        """Return whether the two have more than an edge in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, centred on ``y``; ``anchor`` is the point of it at ``x``: its start, middle or end."""

    x: float
    y: float
    text: str
    size: float = 12
    anchor: str = "middle"
    colour: str = INK
    weight: int = 400

    @property
    def bounds(self) -> Bounds:
        width = CHARACTER * self.size * len(self.text)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return Bounds(left, self.y - 0.55 * self.size, left + width, self.y + 0.55 * self.size)

    def moved(self, dx: float, dy: float) -> "Text":
        return replace(self, x=self.x + dx, y=self.y + dy)

    def svg(self) -> str:
        return element(
            "text", self.text, x=self.x, y=self.y + 0.35 * self.size, font_size=self.size, text_anchor=self.anchor,
            fill=self.colour, font_weight=None if self.weight == 400 else self.weight,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dot:
    """A circle."""

    at: Point
    radius: float
    fill: str = PAPER
    stroke: str = INK
    width: float = 1.5

    @property
    def bounds(self) -> Bounds:
        out = self.radius + self.width / 2
        return Bounds(self.at.x - out, self.at.y - out, self.at.x + out, self.at.y + out)

    def moved(self, dx: float, dy: float) -> "Dot":
        return replace(self, at=Point(self.at.x + dx, self.at.y + dy))

    def svg(self) -> str:
        return element(
            "circle", cx=self.at.x, cy=self.at.y, r=self.radius, fill=self.fill, stroke=self.stroke,
            stroke_width=self.width,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with round corners."""

    left: float
    top: float
    right: float
    bottom: float
    fill: str = "none"
    stroke: str = "none"
    width: float = 1.0
    radius: float = 4.0

    @property
    def bounds(self) -> Bounds:
        out = self.width / 2
        return Bounds(self.left - out, self.top - out, self.right + out, self.bottom + out)

    def moved(self, dx: float, dy: float) -> "Box":
        return replace(
            self, left=self.left + dx, top=self.top + dy, right=self.right + dx, bottom=self.bottom + dy
        )  # fmt: skip

    def svg(self) -> str:
        stroke, width = (None, None) if self.stroke == "none" else (self.stroke, self.width)
        return element(
            "rect", x=self.left, y=self.top, width=self.right - self.left, height=self.bottom - self.top,
            rx=self.radius, fill=self.fill, stroke=stroke, stroke_width=width,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The colour, dashes and width of a line, and whether its head is hollow."""

    colour: str
    dashed: bool = False
    hollow: bool = False
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Curve:
    """A line from ``start`` to ``end``, drawn towards ``bend``, with a head at the end or at both."""

    start: Point
    bend: Point
    end: Point
    line_style: LineStyle
    head: bool = True
    tail: bool = False

    @property
    def bounds(self) -> Bounds:
        points = (self.start, self.at(0.5), self.end)
        xs, ys = [point.x for point in points], [point.y for point in points]
        return Bounds(min(xs) - 4, min(ys) - 4, max(xs) + 4, max(ys) + 4)

    def moved(self, dx: float, dy: float) -> "Curve":
        start, bend, end = (Point(point.x + dx, point.y + dy) for point in (self.start, self.bend, self.end))
        return replace(self, start=start, bend=bend, end=end)

    def at(self, fraction: float) -> Point:
        """Return the point that is ``part`` of the way along (a quadratic Bezier curve)."""
        return self.start.towards(self.bend, fraction).towards(self.bend.towards(self.end, fraction), fraction)

    def between(self, first: float, last: float) -> "Curve":
        """Return the piece from ``first`` to ``last`` of the way along."""
        bend = self.start.towards(self.bend, first).towards(self.bend.towards(self.end, first), last)
        return replace(self, start=self.at(first), bend=bend, end=self.at(last))

    def short_of(self, before: float, after: float) -> "Curve":
        """Return the piece that begins ``before`` pixels from the start and ends ``after`` pixels from the end."""
        parts = [i / 64 for i in range(65)]
        first = next((t for t in parts if _distance(self.at(t), self.start) >= before), 0.0)
        last = next((t for t in reversed(parts) if _distance(self.at(t), self.end) >= after), 1.0)
        return self.between(first, last) if first < last else self

    def svg(self) -> str:
        line = self.line_style
        path = element(
            "path", d=f"M{_path(self.start)} Q{_path(self.bend, self.end)}", fill="none", stroke=line.colour,
            stroke_width=line.width, stroke_dasharray="5 3" if line.dashed else None,
        )  # fmt: skip
        head = _head(self.bend, self.end, line) if self.head else ""
        return path + head + (_head(self.bend, self.start, line) if self.tail else "")


def _distance(one: Point, other: Point) -> float:
    return hypot(one.x - other.x, one.y - other.y)


def _head(behind: Point, tip: Point, line: LineStyle) -> str:
    """Return a triangle at ``tip`` that points away from ``behind``."""
    length, half = 4.0 + 2.5 * line.width, 1.2 + 1.4 * line.width
    away = _distance(behind, tip) or 1.0
    x, y = (tip.x - behind.x) / away, (tip.y - behind.y) / away
    base = Point(tip.x - x * length, tip.y - y * length)
    corners = (tip, Point(base.x - y * half, base.y + x * half), Point(base.x + y * half, base.y - x * half))
    return element(
        "path", d=f"M{' L'.join(map(_path, corners))} Z", fill=PAPER if line.hollow else line.colour,
        stroke=line.colour, stroke_width="1.2", stroke_linejoin="round",
    )  # fmt: skip


def _path(*points: Point) -> str:
    return " ".join(f"{pixels(point.x)} {pixels(point.y)}" for point in points)


def element(name: str, text: str = "", **attributes: float | str | None) -> str:
    """Return an SVG element with the attributes that are not None, numbers in pixels."""
    shown = {
        key.replace("_", "-"): value if isinstance(value, str) else pixels(value)
        for key, value in attributes.items()
        if value is not None
    }
    start = " ".join([name, *(f'{key}="{value}"' for key, value in shown.items())])
    return f"<{start}>{escape(text)}</{name}>" if text else f"<{start}/>"


Shape: TypeAlias = Text | Dot | Box | Curve


def straight(start: Point, end: Point, line: LineStyle, *, head: bool = True) -> Curve:
    """Return a straight line."""
    return Curve(start, start.towards(end, 0.5), end, line, head=head)


def pixels(number: float) -> str:
    """Return a number of pixels as short as a tenth of one allows."""
    return f"{number:.1f}".removesuffix(".0")


_GAP, _MARGIN = 44.0, 20.0


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
    area = Box(left - _MARGIN, top - _MARGIN, right + _MARGIN, bottom + _MARGIN, fill=PAPER)
    x, y, width, height = map(pixels, (area.left, area.top, area.right - area.left, area.bottom - area.top))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{x} {y} {width} {height}" role="img" aria-label={quoteattr(title)} font-family="{FONT}">'
    )
    labels = f"<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>"
    background = element("rect", x=area.left, y=area.top, width=width, height=height, fill=PAPER)
    return "\n".join((head, labels, background, *(shape.svg() for shape in shapes), "</svg>\n"))
