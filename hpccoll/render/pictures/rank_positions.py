"""The layout of a graph: the positions of the ranks on a circle, in trees, under switches or in nodes; their shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, cos, pi, sin

from hpccoll.render.colours import INK
from hpccoll.render.pictures.message_graph import Graph, Tree, groups, levels
from hpccoll.render.pictures.svg import Box, Dot, Point, Shape, Text
from hpccoll.schedule import Layout

RADIUS = 14.0
"""The radius of a rank, in pixels."""

_MIN_NAMED_RADIUS = 8.0
"""The smallest radius, in pixels, of a rank that has room for its number."""

_DISTANCE = 2 * RADIUS + 18
_ACROSS, _DOWN = 78.0, 66.0
"""Pixels between the columns and rows of nodes and of a torus."""

_MAX_NAMED = 24
"""The most ranks of a circle that have room for their numbers."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A node or a rack: a box behind some ranks."""

    label: str
    ranks: tuple[int, ...]
    depth: int  # 1 for a box around ranks, 2 for a box around boxes


@dataclass(frozen=True, slots=True)
class RankPositions:
    """The positions of the ranks.

    Args:
        kind: ``circle``, ``ring``, ``tree``, ``torus``, ``switches`` or ``nodes``.
        at: the centre of each rank.
        frames: the nodes and racks.
    """

    kind: str
    at: Mapping[int, Point]
    frames: tuple[Frame, ...] = field(default=())

    def radius(self, me: int) -> float:
        """Return the radius of rank ``me``: on a large circle most ranks are dots without a number."""
        every = ceil(len(self.at) / _MAX_NAMED) if self.kind in {"ring", "circle"} else 1
        if every == 1:
            return RADIUS
        return 3.0 if me % every or me + every > len(self.at) else 11.0  # the last would touch the first


def rank_positions(graph: Graph, layout: Layout, root: int | None = None) -> RankPositions:
    """Return the positions of the ranks of ``layout``, chosen by the graph of their messages.

    Args:
        graph: the graph of the messages.
        layout: the layout of the ranks.
        root: the root of the call, if it has one.
    """
    if rows := levels(graph, layout):
        return RankPositions("switches", _rows(rows, graph, layout), _frames(layout))
    if nodes := groups(layout):
        return RankPositions("nodes", _columns(nodes, layout), _frames(layout))
    if trees := graph.trees(root):
        return RankPositions("tree", _levels(trees))
    if rows := graph.torus():
        at = {me: Point(_ACROSS * x, _DOWN * y) for x, row in enumerate(rows) for y, me in enumerate(row)}
        return RankPositions("torus", at)
    order = graph.cycle()
    return RankPositions("ring" if order else "circle", _circle(order or range(layout.ranks)))


def _circle(order: Sequence[int]) -> dict[int, Point]:
    """Place the ranks clockwise, the first one on top."""
    named = min(len(order), _MAX_NAMED)
    length = named * (_DISTANCE + 8) + (len(order) - named) * 12.0
    radius = 0.0 if len(order) == 1 else max(88.0, length / (2 * pi))
    angles = [2 * pi * i / len(order) for i in range(len(order))]
    return {me: Point(radius * sin(angle), -radius * cos(angle)) for me, angle in zip(order, angles, strict=True)}


def _levels(trees: Sequence[Tree]) -> dict[int, Point]:
    """Place trees next to each other, roots on top, every rank above the middle of those below it."""
    at: dict[int, Point] = {}
    leaves = 0

    def put(tree: Tree, level: int) -> float:
        nonlocal leaves
        xs = [put(child, level + 1) for child in tree.below]
        if not xs:
            leaves += 1
        x = (xs[0] + xs[-1]) / 2 if xs else (leaves - 1) * _DISTANCE
        at[tree.rank] = Point(x, float(level))
        return x

    for tree in trees:
        put(tree, 0)
    down = _drop(trees, at)
    return {me: Point(point.x, point.y * down) for me, point in at.items()}


def _drop(trees: Sequence[Tree], at: Mapping[int, Point]) -> float:
    """Return the distance between levels, with which the widest line passes above the ranks next to its end."""

    def widest(tree: Tree) -> float:
        return max((max(abs(at[tree.rank].x - at[child.rank].x), widest(child)) for child in tree.below), default=0.0)

    least = 62.0 if max(tree.depth for tree in trees) <= 6 else 48.0
    return min(150.0, max(least, 0.45 * max(map(widest, trees))))


def _rows(rows: Sequence[Sequence[int]], graph: Graph, layout: Layout) -> dict[int, Point]:
    """Place workers in a row, node by node, and each aggregator above the middle of those it serves."""
    nodes = groups(layout) or [[*rows[0]]]
    in_row = [(me, number) for number, home in enumerate(nodes) for me in home]
    racks = layout.groups("rack")
    rack = {me: number for number, members in enumerate(racks) for me in members}
    at = {me: Point(i * _DISTANCE + 16.0 * number + 26.0 * rack[me], 0.0) for i, (me, number) in enumerate(in_row)}
    up = min(150.0, max(86.0, 0.3 * _DISTANCE * len(rows[0])))
    for level, row in enumerate(rows[1:], start=1):
        below = {me: [at[peer].x for peer in graph.neighbours[me] if peer in at] for me in row}
        wish = {me: sum(xs) / len(xs) if xs else 0.0 for me, xs in below.items()}
        right = float("-inf")
        for me in sorted(row, key=lambda me: wish[me]):
            right = max(wish[me], right + _DISTANCE + 12)
            at[me] = Point(right, -up * level)
    return at


def _columns(nodes: Sequence[Sequence[int]], layout: Layout) -> dict[int, Point]:
    """Place every node as a column, so that ranks of one number on their nodes are side by side; idle ranks last."""
    at: dict[int, Point] = {}
    x = 0.0
    for i, home in enumerate(nodes):
        if i:
            other_rack = layout.rack[home[0]] != layout.rack[nodes[i - 1][0]]
            x += _ACROSS + 18 if other_rack else _ACROSS
        at |= {me: Point(x, _DOWN * row) for row, me in enumerate(home)}
    return at | {
        me: Point(x + _ACROSS + _DISTANCE * i, 0.0) for i, me in enumerate(range(layout.workers, layout.ranks))
    }


def _frames(layout: Layout) -> tuple[Frame, ...]:
    """Return a box for each node that holds several workers or has a neighbour, and for each rack if there are more."""
    frames = []
    nodes = groups(layout) or []
    by_node = len({layout.node[me] for me in range(layout.workers)}) < layout.workers
    for home in nodes:
        number = (layout.node if by_node else layout.rack)[home[0]]
        frames.append(Frame(f"{'node' if by_node else 'rack'} {number}", tuple(home), 1))
    racks = sorted(set(layout.rack[: layout.workers]))
    if by_node and len(racks) > 1:
        for rack in racks:
            members = tuple(me for me in range(layout.workers) if layout.rack[me] == rack)
            frames.append(Frame(f"rack {rack}", members, 2))
    return tuple(frames)


def rank_shapes(me: int, at: Point, layout: Layout, radius: float = RADIUS) -> list[Shape]:
    """Return the shapes of a rank: a circle for a worker, a square for an aggregator."""
    if radius < _MIN_NAMED_RADIUS:
        return [Dot(at, radius, fill=INK)]
    number = Text(at.x, at.y, str(me), size=min(12.0, radius * (0.92 if me < 100 else 0.75)), weight=600)
    if me < layout.workers:
        return [Dot(at, radius), number]
    side = radius * 0.95
    square = Box(at.x - side, at.y - side, at.x + side, at.y + side, fill="#fdf3d7", stroke=INK, width=1.5)
    return [square, number]
