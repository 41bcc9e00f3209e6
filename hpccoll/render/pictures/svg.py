"""Shapes of a picture, in pixels, x to the right and y downwards, panels of them, and the SVG document of all."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import dist
from typing import Any, NamedTuple, Self
from xml.sax.saxutils import escape, quoteattr

from hpccoll.render.colours import FONT, INK, PAPER

CHARACTER = 0.6
"""The width of a character in font sizes: wider than most are, for the fonts of other machines."""

_GAP, _MARGIN = 44.0, 20.0


class Point(NamedTuple):
    """A point of a picture."""

    x: float
    y: float

    def towards(self, target: "Point", fraction: float) -> "Point":
        """Return the point at ``fraction`` of the distance to ``target``."""
        return Point(
            self.x + (target.x - self.x) * fraction, self.y + (target.y - self.y) * fraction
        )

    def moved(self, dx: float, dy: float) -> "Point":
        return Point(self.x + dx, self.y + dy)


class Bounds(NamedTuple):
    """The rectangle that shapes cover."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, bounds: "Bounds") -> bool:
        """Return whether the two have more than an edge in common."""
        across = self.left < bounds.right and bounds.left < self.right
        return across and self.top < bounds.bottom and bounds.top < self.bottom


@dataclass(frozen=True, slots=True)
class SvgShape(ABC):
    """A shape, whose fields of type Point are its only coordinates."""

    @property
    @abstractmethod
    def corners(self) -> Sequence[Point]:
        """Points whose bounds are those of the shape."""

    @abstractmethod
    def svg(self) -> str:
        """Return the SVG element of the shape."""

    def moved(self, dx: float, dy: float) -> Self:
        moved_points: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Point):
                moved_points[field.name] = value.moved(dx, dy)
        return replace(self, **moved_points)


@dataclass(frozen=True, slots=True)
class Text(SvgShape):
    """One line of text, centred on ``at.y``; ``anchor`` is the point of it at ``at.x``: its start, middle or end."""

    at: Point
    text: str
    size: float = 12
    anchor: str = "middle"
    colour: str = INK
    weight: int = 400

    @property
    def corners(self) -> tuple[Point, Point]:
        width, half = CHARACTER * self.size * len(self.text), 0.55 * self.size
        # the share of the text before ``at``
        before = {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        left = self.at.moved(-width * before, -half)
        return left, left.moved(width, 2 * half)

    def svg(self) -> str:
        baseline = self.at.y + 0.35 * self.size
        weight = None if self.weight == 400 else self.weight
        return element(
            "text",
            self.text,
            x=self.at.x,
            y=baseline,
            font_size=self.size,
            text_anchor=self.anchor,
            fill=self.colour,
            font_weight=weight,
        )


@dataclass(frozen=True, slots=True)
class Dot(SvgShape):
    """A circle."""

    at: Point
    radius: float
    fill: str = PAPER

    @property
    def corners(self) -> tuple[Point, Point]:
        out = self.radius + 0.75
        return self.at.moved(-out, -out), self.at.moved(out, out)

    def svg(self) -> str:
        return element(
            "circle",
            cx=self.at.x,
            cy=self.at.y,
            r=self.radius,
            fill=self.fill,
            stroke=INK,
            stroke_width=1.5,
        )


@dataclass(frozen=True, slots=True)
class Box(SvgShape):
    """A rectangle with round corners."""

    low: Point
    high: Point
    fill: str
    stroke: str = "none"
    width: float = 1.0
    radius: float = 4.0

    @property
    def corners(self) -> tuple[Point, Point]:
        out = self.width / 2
        return self.low.moved(-out, -out), self.high.moved(out, out)

    def svg(self) -> str:
        width, height = self.high.x - self.low.x, self.high.y - self.low.y
        stroke = None if self.stroke == "none" else self.stroke
        return element(
            "rect",
            x=self.low.x,
            y=self.low.y,
            width=width,
            height=height,
            rx=self.radius,
            fill=self.fill,
            stroke=stroke,
            stroke_width=self.width if stroke else None,
        )


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The colour, dashes and width of a line, and whether its head is hollow."""

    colour: str
    dashed: bool = False
    hollow: bool = False
    width: float = 1.6


@dataclass(frozen=True, slots=True)
class Curve(SvgShape):
    """A line from ``start`` to ``end``, drawn towards ``bend``, with a head at the end or at both."""

    start: Point
    bend: Point
    end: Point
    line_style: LineStyle
    head: bool = True
    tail: bool = False

    @property
    def corners(self) -> list[Point]:
        corners = []
        for point in (self.start, self.at(0.5), self.end):
            corners += [point.moved(-4, -4), point.moved(4, 4)]
        return corners

    def at(self, fraction: float) -> Point:
        """Return the point that is ``fraction`` of the way along (a quadratic Bezier curve)."""
        to_bend = self.start.towards(self.bend, fraction)
        from_bend = self.bend.towards(self.end, fraction)
        return to_bend.towards(from_bend, fraction)

    def between(self, first: float, last: float) -> "Curve":
        """Return the piece from ``first`` to ``last`` of the way along."""
        to_bend = self.start.towards(self.bend, first)
        from_bend = self.bend.towards(self.end, first)
        bend = to_bend.towards(from_bend, last)
        return replace(self, start=self.at(first), bend=bend, end=self.at(last))

    def short_of(self, before: float, after: float) -> "Curve":
        """Return the piece that begins ``before`` pixels from the start and ends ``after`` pixels from the end."""
        fractions = [i / 64 for i in range(65)]
        away_from_start = (t for t in fractions if dist(self.at(t), self.start) >= before)
        away_from_end = (t for t in reversed(fractions) if dist(self.at(t), self.end) >= after)
        first, last = next(away_from_start, 0.0), next(away_from_end, 1.0)
        return self.between(first, last) if first < last else self

    def svg(self) -> str:
        line = self.line_style
        path = element(
            "path",
            d=f"M{_path(self.start)} Q{_path(self.bend, self.end)}",
            fill="none",
            stroke=line.colour,
            stroke_width=line.width,
            stroke_dasharray="5 3" if line.dashed else None,
        )
        if self.head:
            path += _head(self.bend, self.end, line)
        if self.tail:
            path += _head(self.bend, self.start, line)
        return path


def _head(behind: Point, tip: Point, line: LineStyle) -> str:
    """Return the triangle at the tip of a line that comes from ``behind``."""
    length, half = 4.0 + 2.5 * line.width, 1.2 + 1.4 * line.width
    away = dist(behind, tip) or 1.0
    x = (tip.x - behind.x) / away
    y = (tip.y - behind.y) / away
    base = tip.moved(-x * length, -y * length)
    left, right = base.moved(-y * half, x * half), base.moved(y * half, -x * half)
    outline = " L".join(map(_path, (tip, left, right)))
    fill = PAPER if line.hollow else line.colour
    return element(
        "path",
        d=f"M{outline} Z",
        fill=fill,
        stroke=line.colour,
        stroke_width="1.2",
        stroke_linejoin="round",
    )


def _path(*points: Point) -> str:
    return " ".join(f"{pixels(point.x)} {pixels(point.y)}" for point in points)


def element(name: str, text: str = "", **attributes: float | str | None) -> str:
    """Return an SVG element with the attributes that are not None, numbers in pixels."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = value if isinstance(value, str) else pixels(value)
            words.append(f'{key.replace("_", "-")}="{shown}"')
    start = " ".join(words)
    return f"<{start}>{escape(text)}</{name}>" if text else f"<{start}/>"


def straight(start: Point, end: Point, line: LineStyle, *, head: bool = True) -> Curve:
    """Return a straight line."""
    return Curve(start, start.towards(end, 0.5), end, line, head=head)


def pixels(number: float) -> str:
    """Return a number of pixels as short as a tenth of one allows."""
    return f"{number:.1f}".removesuffix(".0")


def bounds_of(shapes: Iterable[SvgShape]) -> Bounds:
    """Return the smallest rectangle that contains all ``shapes``."""
    corners = [corner for shape in shapes for corner in shape.corners]
    xs, ys = zip(*corners, strict=True)
    return Bounds(min(xs), min(ys), max(xs), max(ys))


def stacked(panels: Iterable[Sequence[SvgShape]], top: float, gap: float = 26.0) -> list[SvgShape]:
    """Return panels one under the other, in line on the left, from ``top`` down."""
    placed: list[SvgShape] = []
    for panel in panels:
        left, highest, _, bottom = bounds_of(panel)
        placed += [shape.moved(-left, top - highest) for shape in panel]
        top += bottom - highest + gap
    return placed


def place_side_by_side(panels: Sequence[tuple[str, Sequence[SvgShape]]]) -> list[SvgShape]:
    """Return panels in a row, each under its title, without changing heights."""
    top = min(bounds_of(panel).top for _, panel in panels)
    placed: list[SvgShape] = []
    x = 0.0
    for heading, panel in panels:
        left = bounds_of(panel).left
        title = Text(Point(left, top - 26), heading, size=13, anchor="start", weight=600)
        shapes = [shape.moved(x - left, 0) for shape in (title, *panel)]
        placed += shapes
        x = bounds_of(shapes).right + _GAP
    return placed


def svg_document(shapes: Sequence[SvgShape], title: str, description: str) -> str:
    """Return ``shapes`` as an SVG document on a white background; screen readers say its title and description."""
    bounds = bounds_of(shapes)
    left, top = bounds.left - _MARGIN, bounds.top - _MARGIN
    x, y = pixels(left), pixels(top)
    width = pixels(bounds.right + _MARGIN - left)
    height = pixels(bounds.bottom + _MARGIN - top)
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{x} {y} {width} {height}" role="img" aria-label={quoteattr(title)} font-family="{FONT}">'
    )
    lines = [
        start,
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description)}</desc>",
        element("rect", x=x, y=y, width=width, height=height, fill=PAPER),
    ]
    lines += [shape.svg() for shape in shapes]
    return "\n".join([*lines, "</svg>\n"])
