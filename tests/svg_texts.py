"""The texts of a drawn chart with their boxes, its dashed lines, and the ends of its axes, as its SVG has them."""

import math
import re
from dataclasses import dataclass
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

WIDTHS = {letter: width for width, letters in (
    (0.25, "ijl|'"), (0.3, " .,:;!()ftI-/"), (0.36, "r"), (0.52, "ckszvxyJ"), (0.75, "wCDHNRUGOQ"), (0.87, "mMW%"),
) for letter in letters}  # fmt: skip
"""The widths of letters over the size of their font, a little more than those of Helvetica; of all others 0.6."""

WIDEST, BOLD = 1.09, 1.22
"""What a text takes in DejaVu Sans, the widest of the fonts of charts, over the sum of WIDTHS; the latter if bold."""


def text_width(text, size, *, bold=False):
    """Return the width of a text in pixels, as it is in the widest font.

    Of 639 plain texts of four reports it was 0.99 to 1.06 times what Chromium measured, of 94 bold
    ones 0.94 to 1.10.
    """
    return size * (BOLD if bold else WIDEST) * sum(WIDTHS.get(letter, 0.6) for letter in text)


CORNER = re.compile(r"[ML]([-\d.e]+)[ ,]([-\d.e]+)")
TRANSFORM = re.compile(r"(translate|rotate)\(([^)]*)\)")


@dataclass(frozen=True)
class TextBox:
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other):
        across = min(self.right, other.right) - max(self.left, other.left)
        return across > 1 and min(self.bottom, other.bottom) - max(self.top, other.top) > 1

    def contains(self, point):
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


def text_boxes(svg):
    """Return the boxes of all visible texts."""
    boxes = []
    for element, x, y, upright in _placed(svg):
        if element.tag.endswith("}text"):
            lines = [child.text or "" for child in element if child.tag.endswith("tspan")] or [
                element.text or ""
            ]
            if any(lines) and float(element.get("opacity", 1)) > 0:
                boxes.append(_box(element, lines, x, y, upright=upright))
    return boxes


def dashed_points(svg, dashes):
    """Return the points, a pixel apart, of the lines of so many dashes: ``"5,3"``."""
    found = []
    for element, x, y, _ in _placed(svg):
        if element.get("stroke-dasharray") == dashes and element.tag.endswith("}path"):
            corners = [
                (x + float(a), y + float(b))
                for a, b in re.findall(r"[ML]([-\d.e]+)[ ,]([-\d.e]+)", element.get("d"))
            ]
            for (a, b), (c, d) in pairwise(corners):
                count = max(1, math.ceil(math.hypot(c - a, d - b)))
                found += [
                    (a + (c - a) * i / count, b + (d - b) * i / count) for i in range(count + 1)
                ]
    return found


def _placed(svg):
    """Yield each element with its place, and whether it is upright."""
    yield from _placed_below(ET.fromstring(svg), 0.0, 0.0)  # noqa: S314 - our own file


def _placed_below(element, x, y):
    upright = True
    for kind, numbers in TRANSFORM.findall(element.get("transform", "")):
        values = [float(number) for number in re.split(r"[ ,]+", numbers.strip())]
        if kind == "translate":
            x, y = x + values[0], y + (values[1] if len(values) > 1 else 0)
        else:
            upright = values[0] == 0
    yield element, x, y, upright
    for child in element:
        yield from _placed_below(child, x, y)


def _box(element, lines, x, y, *, upright):
    size = float(element.get("font-size", "11px").removesuffix("px"))
    bold = element.get("font-weight", "normal") != "normal"
    length = max(text_width(line, size, bold=bold) for line in lines)
    shift = {"middle": length / 2, "end": length}.get(element.get("text-anchor", "start"), 0.0)
    text = " / ".join(lines)
    height = size * 1.2 * (len(lines) - 1)
    if upright:
        return TextBox(
            text, x - shift, y - 0.75 * size, x - shift + length, y + 0.2 * size + height
        )
    return TextBox(text, x - 0.75 * size, y - length + shift, x + 0.2 * size + height, y + shift)


def overlaps(svg):
    """Return the pairs of texts that overlap."""
    return [(a.text, b.text) for a, b in combinations(text_boxes(svg), 2) if a.overlaps(b)]


def log_axes(svg):
    """Yield the title, and the least and the largest value, of each logarithmic axis."""
    for title, low, high in re.findall(
        r"axis titled '([^']*)' for a log scale with values from (\S+) to ([^\s\"]+)", svg
    ):
        yield title, *(float(end.replace(",", "").replace("\u2212", "-")) for end in (low, high))
