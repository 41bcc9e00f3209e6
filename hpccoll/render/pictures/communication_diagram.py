"""The graph of a whole schedule: which ranks exchange messages, with lines that pass other ranks by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import dist, hypot, sqrt

import numpy as np

from hpccoll.render.colours import MUTED
from hpccoll.render.pictures.message_graph import Graph
from hpccoll.render.pictures.rank_positions import RADIUS, Frame, RankPositions, rank_positions, rank_shapes
from hpccoll.render.pictures.style import Style
from hpccoll.render.pictures.svg import Box, Curve, LineStyle, Point, SvgShape, Text
from hpccoll.schedule.walk import Trace

_PLAIN = "#64748b"
_SHADES = {1: ("#f5f7fa", "#d5dbe3"), 2: ("#fbfaff", "#d9d2ee")}
_LANES = 20.0
"""The distance between the lines of two slices between two ranks, in pixels."""

_MAX_HEADS = 40
"""If more pairs than these all exchange messages both ways, lines have no heads, which would hide the ranks."""

_BENDS = (0.0, 26.0, -26.0, 40.0, -40.0, 56.0, -56.0, 76.0, -76.0, 100.0, -100.0)
_INWARDS = (0.0, -10.0, -20.0, -30.0)
"""Offsets in pixels of the middle of a line, outwards, tried in turn; inside a circle there is room."""

_MANY = 24
"""The most ranks for which lines are drawn around other ranks."""


def message_graphs(traces: Sequence[Trace], style: Style, root: int | None) -> list[list[SvgShape]]:
    """Return one graph of all slices, or one for each slice if each is a tree and all together are not."""
    layout = traces[0].schedule.layout
    combined = rank_positions(Graph.of(traces), layout, root)
    separate = [rank_positions(Graph.of([trace]), layout, root) for trace in traces]
    if combined.kind == "circle" and all(positions.kind == "tree" for positions in separate):
        return [
            [*_network(positions, {number: trace}, style)]
            for number, (positions, trace) in enumerate(zip(separate, traces, strict=True))
        ]
    return [[*_network(combined, dict(enumerate(traces)), style)]]


def _network(positions: RankPositions, traces: Mapping[int, Trace], style: Style) -> Iterator[SvgShape]:
    for frame in sorted(positions.frames, key=lambda frame: -frame.depth):
        yield from _frame(frame, positions)
    for number, trace in traces.items():
        lane = _LANES * ((len(traces) - 1) / 2 - number) if len(traces) > 1 else 0.0
        yield from _edges(positions, trace, number, lane, style)
    for me, at in positions.at.items():
        yield from rank_shapes(me, at, style.layout, positions.radius(me))


def _frame(frame: Frame, positions: RankPositions) -> list[SvgShape]:
    xs, ys = zip(*(positions.at[me] for me in frame.ranks), strict=True)
    under_switches = positions.kind == "switches"
    out = RADIUS + 10 * frame.depth
    foot, head = (20 * frame.depth, 0) if under_switches else (0, 20 + 20 * frame.depth)
    low, high = Point(min(xs) - out, min(ys) - out - head), Point(max(xs) + out, max(ys) + out + foot)
    fill, stroke = _SHADES[frame.depth]
    at = Point((low.x + high.x) / 2, high.y - 11 if under_switches else low.y + 11)
    return [Box(low, high, fill, stroke, radius=9), Text(at, frame.label, size=11, colour=MUTED)]


def _edges(positions: RankPositions, trace: Trace, number: int, lane: float, style: Style) -> Iterator[SvgShape]:
    """Yield a line for each pair of ranks that exchange messages in a slice, with a head at each end that receives."""
    first = Graph.of([trace]).first
    width = 1.7 if len(first) <= 64 else 1.0 if len(first) <= 512 else 0.5
    heads = len(first) <= _MAX_HEADS or any((b, a) not in first for a, b in first)
    for (a, b), m in sorted(first.items()):
        both_ways = (b, a) in first
        if a < b or not both_ways:
            colour = _PLAIN if style.by == "arrival" else style.colour(m, number)
            curve = route(positions, a, b, lane, LineStyle(colour, width=width))
            headed = replace(curve, head=heads, tail=heads and both_ways)
            yield headed.short_of(positions.radius(a) + 2, positions.radius(b) + 2)


def route(positions: RankPositions, a: int, b: int, lane: float, line_style: LineStyle) -> Curve:
    """Return the line from the centre of rank ``a`` to that of ``b``.

    ``lane`` is the offset of its slice in pixels: outwards on a ring, else to the left seen from the lower rank.
    """
    start, end = positions.at[a], positions.at[b]
    middle, away = start.towards(end, 0.5), dist(start, end) or 1.0
    left = Point((end.y - start.y) / away, -(end.x - start.x) / away)

    def bent(bend: float) -> Curve:
        """Return the line whose middle is ``bend`` pixels to the left, seen from the start."""
        return Curve(start, middle.moved(left.x * bend, left.y * bend), end, line_style)

    if positions.kind == "ring":
        clockwise = start.x * end.y - start.y * end.x > 0  # the outside is on the left
        outwards = _sagitta(positions, away) + lane
        return bent(outwards if clockwise else -outwards)
    lane *= 1 if a < b else -1
    if len(positions.at) > _MANY:
        return bent(lane)
    others = np.array([at for me, at in positions.at.items() if me not in (a, b)]).reshape(-1, 2)
    centre = Point(*np.mean([*positions.at.values()], axis=0))
    outside = 1 if dist(bent(1.0).bend, centre) > dist(bent(-1.0).bend, centre) else -1
    curves = [bent(outside * bend + lane) for bend in (_INWARDS if positions.kind == "circle" else _BENDS)]
    return next((curve for curve in curves if _passes(curve, others)), curves[0])


def _sagitta(positions: RankPositions, chord: float) -> float:
    """Return the bend with which a line between neighbours lies on the circle of all ranks."""
    radius = max(hypot(*at) for at in positions.at.values())
    return 2 * (radius - sqrt(max(0.0, radius**2 - (chord / 2) ** 2)))


def _passes(curve: Curve, others: np.ndarray) -> bool:
    """Return whether the line does not touch ``others``, the centres of ranks."""
    points = np.array([curve.at(fraction) for fraction in np.linspace(0.05, 0.95, 25)])
    return bool((np.linalg.norm(points[:, None] - others[None], axis=2) > RADIUS + 4).all())
