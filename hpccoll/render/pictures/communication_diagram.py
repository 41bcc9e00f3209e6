"""The graph of a whole schedule: where the ranks are, and lines between those that exchange messages.

Ranks are on a circle, in trees, under switches or in nodes; lines pass other ranks by.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, cos, dist, hypot, pi, sin, sqrt

import numpy as np

from hpccoll.render.colours import MUTED
from hpccoll.render.pictures.message_graph import Graph, Tree, groups, levels
from hpccoll.render.pictures.style import RADIUS, Style, rank_shapes
from hpccoll.render.pictures.svg import Box, Curve, LineStyle, Point, SvgShape, Text
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Trace

_DISTANCE = 2 * RADIUS + 18
_ACROSS, _DOWN = 78.0, 66.0
"""Pixels between the columns and rows of nodes and of a torus."""

_MAX_NAMED = 24
"""The most ranks of a circle that have room for their numbers."""

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


@dataclass(frozen=True, slots=True)
class Frame:
    """A node or a rack: a box behind some ranks."""

    label: str
    ranks: tuple[int, ...]
    depth: int  # 1 for a box around ranks, 2 for a box around boxes


@dataclass(frozen=True, slots=True)
class RankPositions:
    """The positions of the ranks."""

    kind: str  # ``circle``, ``ring``, ``tree``, ``torus``, ``switches`` or ``nodes``
    at: Mapping[int, Point]  # the centre of each rank
    frames: tuple[Frame, ...] = ()  # the nodes and racks

    def radius(self, me: int) -> float:
        """Return the radius of rank ``me``: on a large circle most ranks are dots without a number."""
        on_circle = self.kind in {"ring", "circle"}
        every = ceil(len(self.at) / _MAX_NAMED) if on_circle else 1
        if every == 1:
            return RADIUS
        meets_the_first = me + every > len(self.at)
        return 3.0 if me % every or meets_the_first else 11.0


def rank_positions(graph: Graph, layout: Layout, root: int | None = None) -> RankPositions:
    """Return the positions of the ranks, chosen by the graph of their messages; ``root`` is that of the call."""
    rows = levels(graph, layout)
    frames = _frames(layout)
    if rows:
        return RankPositions("switches", _rows(rows, graph, layout), frames)
    if frames:
        return RankPositions("nodes", _columns(layout), frames)
    trees = graph.trees(root)
    if trees:
        return RankPositions("tree", _levels(trees))
    columns = graph.torus()
    if columns:
        return RankPositions("torus", _torus(columns))
    order = graph.cycle()
    if order:
        return RankPositions("ring", _circle(order))
    return RankPositions("circle", _circle(range(layout.ranks)))


def _torus(columns: Sequence[Sequence[int]]) -> dict[int, Point]:
    at: dict[int, Point] = {}
    for x, column in enumerate(columns):
        at |= {me: Point(_ACROSS * x, _DOWN * y) for y, me in enumerate(column)}
    return at


def _circle(order: Sequence[int]) -> dict[int, Point]:
    ranks = len(order)
    named = min(ranks, _MAX_NAMED)
    length = named * (_DISTANCE + 8) + (ranks - named) * 12.0
    radius = 0.0 if ranks == 1 else max(88.0, length / (2 * pi))
    at: dict[int, Point] = {}
    for position, me in enumerate(order):
        angle = 2 * pi * position / ranks
        at[me] = Point(radius * sin(angle), -radius * cos(angle))
    return at


def _levels(trees: Sequence[Tree]) -> dict[int, Point]:
    """Place trees next to each other, roots on top, every rank above the middle of those below it.

    Levels are so far apart that the widest line passes above the ranks next to its end.
    """
    at: dict[int, Point] = {}
    leaves, widest = 0, 0.0

    def put(tree: Tree, level: int) -> float:
        nonlocal leaves, widest
        me, children = tree
        xs = [put(child, level + 1) for child in children]
        if not xs:
            leaves += 1
        x = (xs[0] + xs[-1]) / 2 if xs else (leaves - 1) * _DISTANCE
        widest = max([widest, *(abs(x - below) for below in xs)])
        at[me] = Point(x, float(level))
        return x

    for tree in trees:
        put(tree, 0)
    least = 62.0 if max(point.y for point in at.values()) < 6 else 48.0
    down = min(150.0, max(least, 0.45 * widest))
    return {me: Point(point.x, point.y * down) for me, point in at.items()}


def _rows(rows: Sequence[Sequence[int]], graph: Graph, layout: Layout) -> dict[int, Point]:
    """Place workers in a row, node by node, and each aggregator above the middle of those it serves."""
    rack = {me: number for number, members in enumerate(layout.groups("rack")) for me in members}
    _, nodes = groups(layout)
    at: dict[int, Point] = {}
    for number, members in enumerate(nodes.values() or [rows[0]]):
        for me in members:
            gaps = 16.0 * number + 26.0 * rack[me]
            at[me] = Point(len(at) * _DISTANCE + gaps, 0.0)
    up = min(150.0, max(86.0, 0.3 * _DISTANCE * len(rows[0])))
    for level, row in enumerate(rows[1:], start=1):
        wishes = {me: _middle_of_neighbours(me, graph, at) for me in row}
        right = float("-inf")
        for me in sorted(row, key=wishes.__getitem__):
            right = max(wishes[me], right + _DISTANCE + 12)
            at[me] = Point(right, -up * level)
    return at


def _middle_of_neighbours(me: int, graph: Graph, at: Mapping[int, Point]) -> float:
    """Return the mean x of the neighbours of a rank that are placed already; 0 without any."""
    xs = [at[peer].x for peer in graph.neighbours[me] if peer in at]
    return sum(xs) / len(xs) if xs else 0.0


def _columns(layout: Layout) -> dict[int, Point]:
    """Place every node as a column, so that ranks of one number on their nodes are side by side; idle ranks last."""
    at: dict[int, Point] = {}
    x, rack = -_ACROSS, layout.rack[0]
    _, nodes = groups(layout)
    for members in nodes.values():
        rack_of_node = layout.rack[members[0]]
        x += _ACROSS if rack_of_node == rack else _ACROSS + 18
        rack = rack_of_node
        at |= {me: Point(x, _DOWN * row) for row, me in enumerate(members)}
    for position, me in enumerate(range(layout.workers, layout.ranks)):
        at[me] = Point(x + _ACROSS + _DISTANCE * position, 0.0)
    return at


def _frames(layout: Layout) -> tuple[Frame, ...]:
    """Return a box for each node that holds several workers or has a neighbour, and for each rack if there are more."""
    tier, members = groups(layout)
    frames = [Frame(f"{tier} {number}", tuple(ranks), 1) for number, ranks in members.items()]
    if tier == "node" and layout.racks > 1:
        racks = sorted((layout.rack[ranks[0]], tuple(ranks)) for ranks in layout.groups("rack"))
        frames += [Frame(f"rack {rack}", ranks, 2) for rack, ranks in racks]
    return tuple(frames)


def message_graphs(traces: Sequence[Trace], style: Style, root: int | None) -> list[list[SvgShape]]:
    """Return one graph of all slices, or one for each slice if each is a tree and all together are not."""
    layout = traces[0].schedule.layout
    combined = rank_positions(Graph.of(traces), layout, root)
    separate = [rank_positions(Graph.of([trace]), layout, root) for trace in traces]
    are_trees = all(positions.kind == "tree" for positions in separate)
    if combined.kind != "circle" or not are_trees:
        return [list(_network(combined, dict(enumerate(traces)), style))]
    graphs = []
    for number, (positions, trace) in enumerate(zip(separate, traces, strict=True)):
        graphs.append(list(_network(positions, {number: trace}, style)))
    return graphs


def _network(
    positions: RankPositions, traces: Mapping[int, Trace], style: Style
) -> Iterator[SvgShape]:
    for frame in sorted(positions.frames, key=lambda frame: -frame.depth):
        yield from _frame(frame, positions)
    for number, trace in traces.items():
        lane = _LANES * ((len(traces) - 1) / 2 - number) if len(traces) > 1 else 0.0
        yield from _edges(positions, trace, number, lane, style)
    for me, at in positions.at.items():
        yield from rank_shapes(me, at, style.layout, positions.radius(me))


def _frame(frame: Frame, positions: RankPositions) -> list[SvgShape]:
    xs, ys = zip(*(positions.at[me] for me in frame.ranks), strict=True)
    out = RADIUS + 10 * frame.depth
    left, right = min(xs) - out, max(xs) + out
    top, bottom = min(ys) - out, max(ys) + out
    # the label is below the ranks, because switches are above them
    if positions.kind == "switches":
        bottom += 20 * frame.depth
        label_height = bottom - 11
    else:
        top -= 20 + 20 * frame.depth
        label_height = top + 11
    fill, stroke = _SHADES[frame.depth]
    box = Box(Point(left, top), Point(right, bottom), fill, stroke, radius=9)
    return [box, Text(Point((left + right) / 2, label_height), frame.label, size=11, colour=MUTED)]


def _edges(
    positions: RankPositions, trace: Trace, number: int, lane: float, style: Style
) -> Iterator[SvgShape]:
    """Yield a line for each pair of ranks that exchange messages in a slice, with a head at each end that receives."""
    first = Graph.of([trace]).first
    width = _line_width(len(first))
    is_one_way = any((b, a) not in first for a, b in first)
    heads = is_one_way or len(first) <= _MAX_HEADS
    for (a, b), m in sorted(first.items()):
        both_ways = (b, a) in first
        if a > b and both_ways:
            continue  # one line serves both directions
        colour = _PLAIN if style.by == "arrival" else style.colour(m, number)
        curve = route(positions, a, b, lane, LineStyle(colour, width=width))
        headed = replace(curve, head=heads, tail=heads and both_ways)
        yield headed.short_of(positions.radius(a) + 2, positions.radius(b) + 2)


def _line_width(lines: int) -> float:
    if lines <= 64:
        return 1.7
    return 1.0 if lines <= 512 else 0.5


def route(positions: RankPositions, a: int, b: int, lane: float, line_style: LineStyle) -> Curve:
    """Return the line from the centre of rank ``a`` to that of ``b``.

    ``lane`` is the offset of its slice in pixels: outwards on a ring, else to the left seen from
    the lower rank.
    """
    start, end = positions.at[a], positions.at[b]
    middle = start.towards(end, 0.5)
    away = dist(start, end) or 1.0
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
    other_centres = np.array([at for me, at in positions.at.items() if me not in (a, b)]).reshape(
        -1, 2
    )
    centre = Point(*np.mean(list(positions.at.values()), axis=0))
    outside = 1 if dist(bent(1.0).bend, centre) > dist(bent(-1.0).bend, centre) else -1
    bends = _INWARDS if positions.kind == "circle" else _BENDS
    for bend in bends:
        curve = bent(outside * bend + lane)
        if _passes(curve, other_centres):
            return curve
    return bent(outside * bends[0] + lane)


def _sagitta(positions: RankPositions, chord: float) -> float:
    """Return the bend with which a line between neighbours lies on the circle of all ranks."""
    radius = max(hypot(*at) for at in positions.at.values())
    to_chord = sqrt(max(0.0, radius**2 - (chord / 2) ** 2))
    return 2 * (radius - to_chord)


def _passes(curve: Curve, centres: np.ndarray) -> bool:
    """Return whether a line has some pixels between it and other ranks, whose centres are [rank, (x, y)]."""
    points = np.array([curve.at(fraction) for fraction in np.linspace(0.05, 0.95, 25)])
    distances = np.linalg.norm(points[:, None] - centres[None], axis=2)
    return bool((distances > RADIUS + 4).all())
