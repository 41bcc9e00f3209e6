"""The graph of a whole schedule: which ranks exchange messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from hpccoll.render.colours import MUTED
from hpccoll.render.pictures.edge_routes import route
from hpccoll.render.pictures.message_graph import Graph
from hpccoll.render.pictures.rank_positions import RADIUS, Frame, RankPositions, rank_positions, rank_shapes
from hpccoll.render.pictures.style import Style
from hpccoll.render.pictures.svg import Box, LineStyle, Shape, Text
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Trace

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
            _network(positions, {number: trace}, layout, style)
            for number, (positions, trace) in enumerate(zip(separate, traces, strict=True))
        ]
    return [_network(combined, dict(enumerate(traces)), layout, style)]


def _network(positions: RankPositions, traces: Mapping[int, Trace], layout: Layout, style: Style) -> list[Shape]:
    frames = chain.from_iterable(_frame(frame, positions) for frame in sorted(positions.frames, key=lambda f: -f.depth))
    edges = _edges(positions, traces, style)
    return [
        *frames,
        *edges,
        *chain.from_iterable(rank_shapes(me, at, layout, positions.radius(me)) for me, at in positions.at.items()),
    ]


def _frame(frame: Frame, positions: RankPositions) -> list[Shape]:
    xs, ys = zip(*(positions.at[me] for me in frame.ranks), strict=True)
    out = RADIUS + (10 if frame.depth == 1 else 20)
    low = out + (20 if positions.kind == "switches" else 0) * frame.depth
    head = 0 if positions.kind == "switches" else 40 + 20 * (frame.depth - 1)
    fill, stroke = _SHADES[frame.depth]
    box = Box(min(xs) - out, min(ys) - out - head, max(xs) + out, max(ys) + low, fill, stroke, radius=9)
    y = box.bottom - 11 if positions.kind == "switches" else box.top + 11
    return [box, Text((box.left + box.right) / 2, y, frame.label, size=11, colour=MUTED)]


def _edges(positions: RankPositions, traces: Mapping[int, Trace], style: Style) -> list[Shape]:
    """Return a line for each pair of ranks that exchange messages in a slice, with a head at each end that receives."""
    curves: list[Shape] = []
    for number, trace in traces.items():
        lane = _LANES * ((len(traces) - 1) / 2 - number) if len(traces) > 1 else 0.0
        first = Graph.of([trace]).first
        width = 1.7 if len(first) <= 64 else 1.0 if len(first) <= 512 else 0.5
        heads = len(first) <= _MAX_HEADS or any((b, a) not in first for a, b in first)
        for (a, b), m in sorted(first.items()):
            back = first.get((b, a))
            if back is not None and a > b:
                continue  # drawn with the other direction
            line_style = LineStyle(style.edge(m, number), width=width)
            curve = replace(
                route(positions, a, b, lane), line_style=line_style, head=heads, tail=heads and back is not None
            )
            curves.append(curve.short_of(positions.radius(a) + 2, positions.radius(b) + 2))
    return curves
