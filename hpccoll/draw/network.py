"""The picture of who talks to whom over a whole schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hpccoll.draw.graph import Graph
from hpccoll.draw.layout import RADIUS, Frame, Places, place
from hpccoll.draw.routes import route
from hpccoll.draw.shapes import INK, MUTED, Box, Dot, Look, Mark, Point, Text
from hpccoll.draw.style import Looks
from hpccoll.draw.trace import Story
from hpccoll.schedule import Layout

_SHADES = {1: ("#f5f7fa", "#d5dbe3"), 2: ("#fbfaff", "#d9d2ee")}
_LEAST_NAMED = 8.0
"""Ranks that are smaller, in pixels, have no room for their number."""

_LANES = 20.0
"""How far apart the lines of slices between two ranks bend, in pixels."""

_MOST_HEADS = 40
"""Where all pairs talk both ways, and more do than these, lines have no heads: they would cover the ranks."""


def networks(stories: Sequence[Story], looks: Looks, root: int | None) -> list[list[Mark]]:
    """Return one picture of all slices, or one for each where they are trees that only differ together."""
    layout = stories[0].schedule.layout
    together = place(Graph.of(stories), layout, root)
    apart = [place(Graph.of([story]), layout, root) for story in stories]
    if together.kind == "circle" and all(places.kind == "tree" for places in apart):
        return [
            _network(places, {number: story}, layout, looks)
            for number, (places, story) in enumerate(zip(apart, stories, strict=True))
        ]
    return [_network(together, dict(enumerate(stories)), layout, looks)]


def _network(places: Places, stories: Mapping[int, Story], layout: Layout, looks: Looks) -> list[Mark]:
    frames = chain.from_iterable(_frame(frame, places) for frame in sorted(places.frames, key=lambda f: -f.depth))
    edges = _edges(places, stories, looks)
    return [
        *frames,
        *edges,
        *chain.from_iterable(rank(me, at, layout, places.radius(me)) for me, at in places.at.items()),
    ]


def rank(me: int, at: Point, layout: Layout, radius: float = RADIUS) -> list[Mark]:
    """Return the mark of a rank: a circle for a worker, a square for an aggregator."""
    if radius < _LEAST_NAMED:
        return [Dot(at, radius, fill=INK)]
    words = Text(at.x, at.y, str(me), size=min(12.0, radius * (0.92 if me < 100 else 0.75)), weight=600)
    if me < layout.workers:
        return [Dot(at, radius), words]
    side = radius * 0.95
    square = Box(at.x - side, at.y - side, at.x + side, at.y + side, fill="#fdf3d7", stroke=INK, width=1.5)
    return [square, words]


def _frame(frame: Frame, places: Places) -> list[Mark]:
    xs, ys = zip(*(places.at[me] for me in frame.ranks), strict=True)
    out = RADIUS + (10 if frame.depth == 1 else 20)
    low = out + (20 if places.kind == "switches" else 0) * frame.depth
    head = 0 if places.kind == "switches" else 40 + 20 * (frame.depth - 1)
    fill, stroke = _SHADES[frame.depth]
    box = Box(min(xs) - out, min(ys) - out - head, max(xs) + out, max(ys) + low, fill, stroke, radius=9)
    y = box.bottom - 11 if places.kind == "switches" else box.top + 11
    return [box, Text((box.left + box.right) / 2, y, frame.words, size=11, colour=MUTED)]


def _edges(places: Places, stories: Mapping[int, Story], looks: Looks) -> list[Mark]:
    """Return a line for each pair of ranks that talk in each slice, with a head at each end that hears."""
    curves: list[Mark] = []
    for number, story in stories.items():
        lane = _LANES * ((len(stories) - 1) / 2 - number) if len(stories) > 1 else 0.0
        first = Graph.of([story]).first
        width = 1.7 if len(first) <= 64 else 1.0 if len(first) <= 512 else 0.5
        heads = len(first) <= _MOST_HEADS or any((b, a) not in first for a, b in first)
        for (a, b), m in sorted(first.items()):
            back = first.get((b, a))
            if back is not None and a > b:
                continue  # drawn with the other direction
            look = Look(looks.edge(m, number), width=width)
            curve = replace(route(places, a, b, lane), look=look, head=heads, tail=heads and back is not None)
            curves.append(curve.short_of(places.radius(a) + 2, places.radius(b) + 2))
    return curves
