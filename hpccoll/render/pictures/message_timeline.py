"""The picture over time: the grid of ranks and steps, the arrows of messages, and a label where it hides least."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, dist, floor

import numpy as np
from numpy.typing import NDArray

from hpccoll.render.colours import MUTED, PAPER
from hpccoll.render.pictures.buffer_state import runs, spans
from hpccoll.render.pictures.message_graph import groups
from hpccoll.render.pictures.style import Style, rank_shapes
from hpccoll.render.pictures.svg import (
    Bounds,
    Box,
    Curve,
    LineStyle,
    Point,
    SvgShape,
    Text,
    bounds_of,
    straight,
)
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Message, Trace

_HEADS = -34.0
"""The height of the ranks, above the start."""

_BAND = "#f7f9fb"
_RANK_LINE = LineStyle("#c3cbd6", width=1.2)

_FRACTIONS = (0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8, 0.14, 0.86)
"""Positions of a label along its arrow, the best first."""

_SAMPLES = 24
"""The number of points on an arrow at which its overlap with labels is tested."""

_LATER, _LINE = 0.1, 0.7
"""The cost of a later position, and of hiding the line of a rank; hiding a point of another arrow costs 1."""

_TOO_MUCH = 3.5
"""The cost from which a label is omitted."""

_LONGEST_LABEL = 8
_MAX_LABELLED = 18
"""The most ranks that leave room for labels."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The coordinates of ranks and steps: rank 0 at x = 0, the start at y = 0."""

    layout: Layout  # of the ranks
    steps: int  # the number of steps
    across: float  # pixels from rank to rank
    down: float  # pixels from step to step

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Grid":
        """Return a grid with room for the messages of ``traces``."""
        layout = traces[0].schedule.layout
        steps = max(trace.steps for trace in traces)
        extra = min(100.0, 10.0 * max(0, _widest_fan(traces) - 2))
        return cls(layout, steps, _pixels_of_rank(layout.ranks), _pixels_of_step(steps) + extra)

    @property
    def edges(self) -> tuple[float, float]:
        """The left and the right end of the diagram, in pixels."""
        right = (self.layout.ranks - 0.5) * self.across
        return -self.across / 2, right

    @property
    def radius(self) -> float:
        """The radius of a rank, in pixels."""
        return min(13.0, self.across * 0.36)

    def point(self, me: int, steps: int) -> Point:
        """Return the point of rank ``me`` after ``steps`` steps."""
        return Point(me * self.across, steps * self.down)


def _pixels_of_rank(ranks: int) -> float:
    if ranks <= 9:
        return 54.0
    if ranks <= 18:
        return 44.0
    return max(9.0, 800.0 / ranks)


def _pixels_of_step(steps: int) -> float:
    if steps <= 8:
        return 58.0
    if steps <= 14:
        return 48.0
    return min(40.0, max(12.0, 1600 / steps))


def _widest_fan(traces: Sequence[Trace]) -> int:
    """Return the most messages of a slice that one rank sends, or receives, in a step."""
    fans: Counter[tuple[int, str, int, int]] = Counter()
    for number, trace in enumerate(traces):
        for m in trace.messages:
            if not m.copies:
                fans[number, "received", m.lands, m.target] += 1
                fans[number, "sent", m.departs, m.source] += 1
    return max(fans.values(), default=0)


def rank_heads(grid: Grid) -> list[SvgShape]:
    """Return the ranks in a row, above their lines; without room for circles only some numbers."""
    every = ceil(17 / grid.across)
    shapes: list[SvgShape] = []
    for me in range(grid.layout.ranks):
        at = Point(me * grid.across, _HEADS)
        if grid.radius >= 8:
            shapes += rank_shapes(me, at, grid.layout, grid.radius)
        elif me % every == 0:
            shapes.append(Text(at, str(me), size=9, colour=MUTED))
    return shapes


def node_headings(grid: Grid) -> Iterator[SvgShape]:
    """Yield the number of its node, or rack, above each run of ranks in one node or rack."""
    tier, nodes = groups(grid.layout)
    number_height = _HEADS - 30
    line_top = _HEADS - 21
    line_bottom = _HEADS - 18
    if nodes:
        yield Text(
            Point(grid.edges[0] - 8, number_height), tier, size=11, anchor="end", colour=MUTED
        )
    for number, members in nodes.items():
        for run in runs(members):
            left = run[0] * grid.across - grid.radius
            right = run[-1] * grid.across + grid.radius
            yield Box(
                Point(left, line_top), Point(right, line_bottom), fill=_RANK_LINE.colour, radius=1.5
            )
            yield Text(Point((left + right) / 2, number_height), str(number), size=11, colour=MUTED)


def background(grid: Grid) -> Iterator[SvgShape]:
    """Yield the bands of the steps, their numbers, and the lines of the ranks."""
    left, right = grid.edges
    for number in range(grid.steps):
        top, bottom = number * grid.down, (number + 1) * grid.down
        if number % 2 == 0:
            yield Box(Point(left, top), Point(right, bottom), fill=_BAND, radius=0)
        if grid.down > 20 or number % 10 == 9:
            at = Point(left - 8, (top + bottom) / 2)
            yield Text(at, str(number + 1), size=11, anchor="end", colour=MUTED)
    yield Text(Point(left - 8, _HEADS), "step", size=11, anchor="end", colour=MUTED)
    for me in range(grid.layout.ranks):
        start = grid.point(me, 0).moved(0, -16)
        end = grid.point(me, grid.steps).moved(0, 6)
        yield straight(start, end, _RANK_LINE, head=False)


def spacetime(traces: Sequence[Trace], grid: Grid, style: Style) -> list[SvgShape]:
    """Return the diagram over time of all slices, one over the other."""
    drawn: list[Arrow] = []
    for number, trace in enumerate(traces):
        drawn += arrows(trace, number, grid, style)
    pieces: list[Curve] = []
    for arrow in drawn:
        pieces += arrow.pieces
    return [
        *background(grid),
        *pieces,
        *rank_heads(grid),
        *node_headings(grid),
        *labels(drawn, grid),
    ]


@dataclass(frozen=True, slots=True)
class Arrow:
    """The drawing of a message: one curve, or two if it leaves on one side and enters on the other."""

    message: Message
    pieces: tuple[Curve, ...]
    label: str


def arrows(trace: Trace, number: int, grid: Grid, style: Style) -> Iterator[Arrow]:
    """Yield an arrow for each message of slice ``number``."""
    laps = _laps(trace)
    labelled = _needs_labels(trace)
    late = _staggered(trace.departing, "source", grid)
    early = _staggered(trace.landing, "target", grid)
    few = len(trace.messages) <= 4 * grid.layout.ranks * trace.steps
    width = 1.6 if few and grid.across > 30 else 0.7
    for m in trace.messages:
        start, end = grid.point(m.source, m.departs), grid.point(m.target, m.lands + 1)
        if m.copies:
            loop = _loop(start, end, grid, style.line_style(m, number, width=1.2))
            yield Arrow(m, (loop,), "")
            continue
        lap = laps.get(m, 0) * grid.layout.ranks * grid.across
        line_style = style.line_style(m, number, width)
        uncut = straight(start.moved(0, late[m]), end.moved(lap, -early[m]), line_style)
        label = _label(m, trace.schedule.units) if labelled else ""
        yield Arrow(m, _cut_at_the_edge(uncut, lap, grid), label)


def _staggered(steps: Iterable[Sequence[Message]], end: str, grid: Grid) -> dict[Message, float]:
    """Return the distance in pixels of each message from the first of its fan, which meets at an ``end`` in a step.

    Messages to distant ranks depart first and land last, so that the arrows of a fan do not cross.
    """
    distances: dict[Message, float] = {}
    for messages in steps:
        fans: dict[int, list[Message]] = defaultdict(list)
        for m in sorted(messages, key=lambda m: -abs(m.source - m.target)):
            if not m.copies:
                fans[getattr(m, end)].append(m)
        for fan in fans.values():
            step = min(9.0, 0.45 * grid.down / len(fan))
            for position, m in enumerate(fan):
                distances[m] = position * step
    return distances


def _loop(start: Point, end: Point, grid: Grid, line_style: LineStyle) -> Curve:
    middle = start.towards(end, 0.5)
    high = min(13.0, grid.down / 4)
    bend = middle.moved(min(30.0, grid.across * 0.7), 0)
    return Curve(middle.moved(0, -high), bend, middle.moved(0, high), line_style)


def _cut_at_the_edge(uncut: Curve, lap: float, grid: Grid) -> tuple[Curve, ...]:
    """Return the arrow, just short of the lines of both ranks; one with a lap is on a cylinder that is cut open.

    The cut is between the last rank and rank 0, and the arrow has two pieces.
    """
    start, end = uncut.start, uncut.end
    margin = 1.5 / dist(start, end)
    if not lap:
        return (straight(start.towards(end, margin), end.towards(start, margin), uncut.line_style),)
    left, right = grid.edges
    edge = right if lap > 0 else left
    fraction = (edge - start.x) / (end.x - start.x)
    leaves = replace(uncut.between(margin, fraction), head=False)
    enters = uncut.between(fraction, 1 - margin).moved(-lap, 0)
    return leaves, enters


def _laps(trace: Trace) -> dict[Message, int]:
    """Return the messages that are drawn across the edge of the diagram, to the right (1) or left (-1).

    They belong to a rotation, in which every rank sends over the same distance, and that direction
    is the shorter.
    """
    p = trace.schedule.layout.workers
    directions: dict[Message, int] = {}
    if p <= 2 or trace.schedule.layout.aggregators:
        return directions
    for departing in trace.departing:
        senders = Counter((m.target - m.source) % p for m in departing)
        for m in departing:
            distance = (m.target - m.source) % p
            offset = distance if distance <= p / 2 else distance - p
            is_rotation = senders[distance] >= p and not m.copies
            if is_rotation and 2 * distance != p and offset != m.target - m.source:
                directions[m] = 1 if offset > 0 else -1
    return directions


def _needs_labels(trace: Trace) -> bool:
    """Return whether messages carry different units, and have room for their names."""
    if trace.schedule.layout.ranks > _MAX_LABELLED or len(trace.messages) > 64 * trace.steps:
        return False
    carried = {(m.sent.buffer, m.sent.units) for m in trace.messages if not m.copies}
    return len(carried) > 1 or any(len(units) < trace.schedule.units for _, units in carried)


def _label(m: Message, units: int) -> str:
    if m.sent.buffer == "dst" and len(m.sent.units) == units > 1:
        return "all"
    text = spans(sorted(m.sent.units), ",").replace("..", "\N{EN DASH}")
    if m.sent.buffer != "dst":
        text = f"{m.sent.buffer} {text}"
    return text if len(text) <= _LONGEST_LABEL else ""


def labels(arrows: Sequence[Arrow], grid: Grid) -> list[SvgShape]:
    """Return the labels for which there is room, each on a background of its own."""
    steps: dict[int, list[Arrow]] = defaultdict(list)
    for arrow in arrows:
        steps[arrow.message.lands].append(arrow)
    placed: list[Text] = []
    for landing in steps.values():
        if any(arrow.label for arrow in landing):
            _place_labels(landing, placed, grid)
    backgrounds = [Box(*text.corners, fill=PAPER, radius=3) for text in placed]
    return [*backgrounds, *placed]


def _place_labels(arrows: Sequence[Arrow], placed: list[Text], grid: Grid) -> None:
    """Append to ``placed`` the labels of the arrows of a step for which there is room."""
    owners = []
    points = []
    for number, arrow in enumerate(arrows):
        for piece in arrow.pieces:
            owners.append(number)
            points.append([piece.at(i / _SAMPLES) for i in range(_SAMPLES + 1)])
    owner, points_of_pieces = np.array(owners), np.array(points)
    for number, arrow in enumerate(arrows):
        if arrow.label:
            label = _best(arrow, points_of_pieces[owner != number], placed, grid)
            if label:
                placed.append(label)


def _best(
    arrow: Arrow, other_arrows: NDArray[np.float64], placed: Sequence[Text], grid: Grid
) -> Text | None:
    """Return the label where it hides least of other arrows and of the ranks' lines, None if it overlaps another.

    The ``other_arrows`` are points along other arrows, [arrow, point, (x, y)].
    """
    heights = []
    for piece in arrow.pieces:
        heights += [piece.start.y, piece.end.y]
    highest = min(heights) - 20
    lowest = max(heights) + 20
    near = [bounds_of([text]) for text in placed if highest < text.at.y < lowest]
    left, right = grid.edges
    best, least = None, _TOO_MUCH
    for later, fraction in enumerate(_FRACTIONS):
        if least <= later * _LATER:
            break  # no later position can be better
        for piece in arrow.pieces:
            text = Text(
                piece.at(fraction), arrow.label, size=10, colour=piece.line_style.colour, weight=600
            )
            bounds = bounds_of([text])
            is_outside = bounds.left < left or bounds.right > right
            if is_outside or any(bounds.meets(label) for label in near):
                continue
            cost = (
                _LATER * later
                + _hidden_points(bounds, other_arrows)
                + _LINE * _hidden_lines(bounds, grid)
            )
            if cost < least:
                best, least = text, cost
    return best


def _hidden_points(bounds: Bounds, points: NDArray[np.float64]) -> int:
    hidden = (points >= (bounds.left, bounds.top)) & (points <= (bounds.right, bounds.bottom))
    return int(hidden.all(axis=2).sum())


def _hidden_lines(bounds: Bounds, grid: Grid) -> int:
    """Return the number of ranks' lines behind a label."""
    return floor(bounds.right / grid.across) - ceil(bounds.left / grid.across) + 1
