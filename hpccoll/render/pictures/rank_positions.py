"""The layout of a graph: the positions of the ranks on a circle, in trees, under switches or in nodes; their shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, pi, sin

from hpccoll.render.colours import INK
from hpccoll.render.pictures.message_graph import Graph, Tree, groups, levels
from hpccoll.render.pictures.svg import Box, Dot, Point, SvgShape, Text
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
    """The positions of the ranks."""

    kind: str  # ``circle``, ``ring``, ``tree``, ``torus``, ``switches`` or ``nodes``
    at: Mapping[int, Point]  # the centre of each rank
    frames: tuple[Frame, ...] = ()  # the nodes and racks

    def radius(self, me: int) -> float:
        """Return the radius of rank ``me``: on a large circle most ranks are dots without a number."""
        every = ceil(len(self.at) / _MAX_NAMED) if self.kind in {"ring", "circle"} else 1
        if every == 1:
            return RADIUS
        return 3.0 if me % every or me + every > len(self.at) else 11.0  # the last would touch the first


def rank_positions(graph: Graph, layout: Layout, root: int | None = None) -> RankPositions:
    """Return the positions of the ranks, chosen by the graph of their messages; ``root`` is that of the call."""
    if rows := levels(graph, layout):
        return RankPositions("switches", _rows(rows, graph, layout), _frames(layout))
    if frames := _frames(layout):
        return RankPositions("nodes", _columns(layout), frames)
    if trees := graph.trees(root):
        return RankPositions("tree", _levels(trees))
    if columns := graph.torus():
        at = {me: Point(_ACROSS * x, _DOWN * y) for x, column in enumerate(columns) for y, me in enumerate(column)}
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
    """Place trees next to each other, roots on top, every rank above the middle of those below it.

    Levels are so far apart that the widest line passes above the ranks next to its end.
    """
    at: dict[int, Point] = {}
    leaves, widest = 0, 0.0

    def put(tree: Tree, level: int) -> float:
        nonlocal leaves, widest
        xs = [put(child, level + 1) for child in tree.below]
        if not xs:
            leaves += 1
        x = (xs[0] + xs[-1]) / 2 if xs else (leaves - 1) * _DISTANCE
        widest = max([widest, *(abs(x - below) for below in xs)])
        at[tree.rank] = Point(x, float(level))
        return x

    for tree in trees:
        put(tree, 0)
    least = 62.0 if max(point.y for point in at.values()) < 6 else 48.0
    down = min(150.0, max(least, 0.45 * widest))
    return {me: Point(point.x, point.y * down) for me, point in at.items()}


def _rows(rows: Sequence[Sequence[int]], graph: Graph, layout: Layout) -> dict[int, Point]:
    """Place workers in a row, node by node, and each aggregator above the middle of those it serves."""
    _, nodes = groups(layout)
    in_row = [(me, number) for number, home in enumerate(nodes.values() or [rows[0]]) for me in home]
    rack = {me: number for number, members in enumerate(layout.groups("rack")) for me in members}
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


def _columns(layout: Layout) -> dict[int, Point]:
    """Place every node as a column, so that ranks of one number on their nodes are side by side; idle ranks last."""
    at: dict[int, Point] = {}
    x, rack = -_ACROSS, layout.rack[0]
    for home in groups(layout)[1].values():
        x += _ACROSS if layout.rack[home[0]] == rack else _ACROSS + 18
        rack = layout.rack[home[0]]
        at |= {me: Point(x, _DOWN * row) for row, me in enumerate(home)}
    idle = enumerate(range(layout.workers, layout.ranks))
    return at | {me: Point(x + _ACROSS + _DISTANCE * i, 0.0) for i, me in idle}


def _frames(layout: Layout) -> tuple[Frame, ...]:
    """Return a box for each node that holds several workers or has a neighbour, and for each rack if there are more."""
    tier, members = groups(layout)
    frames = [Frame(f"{tier} {number}", tuple(ranks), 1) for number, ranks in members.items()]
    if tier == "node" and layout.racks > 1:
        racks = sorted((layout.rack[ranks[0]], tuple(ranks)) for ranks in layout.groups("rack"))
        frames += [Frame(f"rack {rack}", ranks, 2) for rack, ranks in racks]
    return tuple(frames)


def rank_shapes(me: int, at: Point, layout: Layout, radius: float = RADIUS) -> list[SvgShape]:
    """Return the shapes of a rank: a circle for a worker, a square for an aggregator."""
    if radius < _MIN_NAMED_RADIUS:
        return [Dot(at, radius, fill=INK)]
    number = Text(at, str(me), size=min(12.0, radius * (0.92 if me < 100 else 0.75)), weight=600)
    if me < layout.workers:
        return [Dot(at, radius), number]
    side = radius * 0.95
    return [Box(at.moved(-side, -side), at.moved(side, side), fill="#fdf3d7", stroke=INK, width=1.5), number]
