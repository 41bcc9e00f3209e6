"""The graph of a whole schedule: which ranks exchange messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hpccoll.render.colours import MUTED
from hpccoll.render.pictures.edge_routes import route
from hpccoll.render.pictures.message_graph import Graph
from hpccoll.render.pictures.rank_positions import RADIUS, Frame, RankPositions, rank_positions, rank_shapes
from hpccoll.render.pictures.style import Style
from hpccoll.render.pictures.svg import Box, LineStyle, Point, Shape, Text
from hpccoll.schedule.walk import Trace

_PLAIN = "#64748b"
_SHADES = {1: ("#f5f7fa", "#d5dbe3"), 2: ("#fbfaff", "#d9d2ee")}
_LANES = 20.0
"""The distance between the lines of two slices between two ranks, in pixels."""

_MAX_HEADS = 40
"""If more pairs than these all exchange messages both ways, lines have no heads, which would hide the ranks."""


def message_graphs(traces: Sequence[Trace], style: Style, root: int | None) -> list[list[Shape]]:
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


def _network(positions: RankPositions, traces: Mapping[int, Trace], style: Style) -> Iterator[Shape]:
    for frame in sorted(positions.frames, key=lambda frame: -frame.depth):
        yield from _frame(frame, positions)
    for number, trace in traces.items():
        lane = _LANES * ((len(traces) - 1) / 2 - number) if len(traces) > 1 else 0.0
        yield from _edges(positions, trace, number, lane, style)
    for me, at in positions.at.items():
        yield from rank_shapes(me, at, style.layout, positions.radius(me))


def _frame(frame: Frame, positions: RankPositions) -> list[Shape]:
    xs, ys = zip(*(positions.at[me] for me in frame.ranks), strict=True)
    under_switches = positions.kind == "switches"
    out = RADIUS + 10 * frame.depth
    foot, head = (20 * frame.depth, 0) if under_switches else (0, 20 + 20 * frame.depth)
    low, high = Point(min(xs) - out, min(ys) - out - head), Point(max(xs) + out, max(ys) + out + foot)
    fill, stroke = _SHADES[frame.depth]
    at = Point((low.x + high.x) / 2, high.y - 11 if under_switches else low.y + 11)
    return [Box(low, high, fill, stroke, radius=9), Text(at, frame.label, size=11, colour=MUTED)]


def _edges(positions: RankPositions, trace: Trace, number: int, lane: float, style: Style) -> Iterator[Shape]:
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
