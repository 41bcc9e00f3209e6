"""Shapes: the elements of a picture, in pixels, x to the right and y downwards, with their bounds and their SVG."""

from dataclasses import dataclass, replace
from math import hypot
from typing import NamedTuple, TypeAlias
from xml.sax.saxutils import escape

from hpccoll.render.colours import INK, PAPER

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
        weight = f' font-weight="{self.weight}"' if self.weight != 400 else ""
        return (
            f'<text x="{pixels(self.x)}" y="{pixels(self.y + 0.35 * self.size)}" font-size="{pixels(self.size)}" '
            f'text-anchor="{self.anchor}" fill="{self.colour}"{weight}>{escape(self.text)}</text>'
        )


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
        return (
            f'<circle cx="{pixels(self.at.x)}" cy="{pixels(self.at.y)}" r="{pixels(self.radius)}" fill="{self.fill}" '
            f'stroke="{self.stroke}" stroke-width="{pixels(self.width)}"/>'
        )


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
        size = f'width="{pixels(self.right - self.left)}" height="{pixels(self.bottom - self.top)}"'
        edge = "" if self.stroke == "none" else f' stroke="{self.stroke}" stroke-width="{pixels(self.width)}"'
        corner = f'x="{pixels(self.left)}" y="{pixels(self.top)}"'
        return f'<rect {corner} {size} rx="{pixels(self.radius)}" fill="{self.fill}"{edge}/>'


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
        first = f"{pixels(self.start.x)} {pixels(self.start.y)}"
        others = f"{pixels(self.bend.x)} {pixels(self.bend.y)} {pixels(self.end.x)} {pixels(self.end.y)}"
        dashes = ' stroke-dasharray="5 3"' if self.line_style.dashed else ""
        line = f'fill="none" stroke="{self.line_style.colour}" stroke-width="{pixels(self.line_style.width)}"'
        heads = (_head(self.bend, self.end, self.line_style) if self.head else "") + (
            _head(self.bend, self.start, self.line_style) if self.tail else ""
        )
        return f'<path d="M{first} Q{others}" {line}{dashes}/>{heads}'


def _distance(one: Point, other: Point) -> float:
    return hypot(one.x - other.x, one.y - other.y)


def _head(behind: Point, tip: Point, line: LineStyle) -> str:
    """Return a triangle at ``tip`` that points away from ``behind``."""
    length, half = 4.0 + 2.5 * line.width, 1.2 + 1.4 * line.width
    away = _distance(behind, tip) or 1.0
    x, y = (tip.x - behind.x) / away, (tip.y - behind.y) / away
    base = Point(tip.x - x * length, tip.y - y * length)
    corners = (tip, Point(base.x - y * half, base.y + x * half), Point(base.x + y * half, base.y - x * half))
    path = " L".join(f"{pixels(corner.x)} {pixels(corner.y)}" for corner in corners)
    fill = PAPER if line.hollow else line.colour
    return f'<path d="M{path} Z" fill="{fill}" stroke="{line.colour}" stroke-width="1.2" stroke-linejoin="round"/>'


Shape: TypeAlias = Text | Dot | Box | Curve


def straight(start: Point, end: Point, line: LineStyle, *, head: bool = True) -> Curve:
    """Return a straight line."""
    return Curve(start, start.towards(end, 0.5), end, line, head=head)


def pixels(number: float) -> str:
    """Return a number of pixels as short as a tenth of one allows."""
    return f"{number:.1f}".removesuffix(".0")
