"""The picture over time: the grid of ranks and rounds, the arrows of messages, and a label where it hides least."""

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
from hpccoll.render.pictures.svg import Box, Curve, LineStyle, Point, SvgShape, Text, bounds_of, straight
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
    """The coordinates of ranks and rounds: rank 0 at x = 0, the start at y = 0."""

    layout: Layout  # of the ranks
    rounds: int  # the number of rounds
    across: float  # pixels from rank to rank
    down: float  # pixels from round to round

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Grid":
        """Return a grid with room for the messages of ``traces``."""
        layout, rounds = traces[0].schedule.layout, max(trace.rounds for trace in traces)
        across = 54.0 if layout.ranks <= 9 else 44.0 if layout.ranks <= 18 else max(9.0, 800.0 / layout.ranks)
        down = 58.0 if rounds <= 8 else 48.0 if rounds <= 14 else min(40.0, max(12.0, 1600 / rounds))
        messages = [(number, m) for number, trace in enumerate(traces) for m in trace.messages if not m.copies]
        received = Counter((number, m.lands, m.target) for number, m in messages)
        sent = Counter((number, m.departs, m.source) for number, m in messages)
        widest_fan = max([*received.values(), *sent.values()], default=0)
        return cls(layout, rounds, across, down + min(100.0, 10.0 * max(0, widest_fan - 2)))

    @property
    def edges(self) -> tuple[float, float]:
        """The left and the right end of the diagram, in pixels."""
        return -self.across / 2, (self.layout.ranks - 0.5) * self.across

    @property
    def radius(self) -> float:
        """The radius of a rank, in pixels."""
        return min(13.0, self.across * 0.36)

    def point(self, me: int, round_: int) -> Point:
        """Return the point of rank ``me`` after ``round_`` rounds."""
        return Point(me * self.across, round_ * self.down)


def rank_heads(grid: Grid) -> list[SvgShape]:
    """Return the ranks in a row, above their lines; without room for circles only some numbers."""
    heads = {me: Point(me * grid.across, _HEADS) for me in range(grid.layout.ranks)}
    if grid.radius < 8:
        every = ceil(17 / grid.across)
        return [Text(at, str(me), size=9, colour=MUTED) for me, at in heads.items() if me % every == 0]
    return [shape for me, at in heads.items() for shape in rank_shapes(me, at, grid.layout, grid.radius)]


def node_headings(grid: Grid) -> Iterator[SvgShape]:
    """Yield the number of its node, or rack, above each run of ranks in one node or rack."""
    tier, nodes = groups(grid.layout)
    if nodes:
        yield Text(Point(grid.edges[0] - 8, _HEADS - 30), tier, size=11, anchor="end", colour=MUTED)
    for number, members in nodes.items():
        for run in runs(members):
            left, right = run[0] * grid.across - grid.radius, run[-1] * grid.across + grid.radius
            yield Box(Point(left, _HEADS - 21), Point(right, _HEADS - 18), fill=_RANK_LINE.colour, radius=1.5)
            yield Text(Point((left + right) / 2, _HEADS - 30), str(number), size=11, colour=MUTED)


def background(grid: Grid) -> Iterator[SvgShape]:
    """Yield the bands of the rounds, their numbers, and the lines of the ranks."""
    left, right = grid.edges
    for number in range(grid.rounds):
        top, bottom = number * grid.down, (number + 1) * grid.down
        if number % 2 == 0:
            yield Box(Point(left, top), Point(right, bottom), fill=_BAND, radius=0)
        if grid.down > 20 or number % 10 == 9:
            at = Point(left - 8, (top + bottom) / 2)
            yield Text(at, str(number + 1), size=11, anchor="end", colour=MUTED)
    yield Text(Point(left - 8, _HEADS), "round", size=11, anchor="end", colour=MUTED)
    for me in range(grid.layout.ranks):
        start, end = grid.point(me, 0).moved(0, -16), grid.point(me, grid.rounds).moved(0, 6)
        yield straight(start, end, _RANK_LINE, head=False)


def spacetime(traces: Sequence[Trace], grid: Grid, style: Style) -> list[SvgShape]:
    """Return the diagram over time of all slices, one over the other."""
    drawn = [arrow for number, trace in enumerate(traces) for arrow in arrows(trace, number, grid, style)]
    pieces = [piece for arrow in drawn for piece in arrow.pieces]
    return [*background(grid), *pieces, *rank_heads(grid), *node_headings(grid), *labels(drawn, grid)]


@dataclass(frozen=True, slots=True)
class Arrow:
    """The drawing of a message: one curve, or two if it leaves on one side and enters on the other."""

    message: Message
    pieces: tuple[Curve, ...]
    label: str


def arrows(trace: Trace, number: int, grid: Grid, style: Style) -> Iterator[Arrow]:
    """Yield an arrow for each message of slice ``number``."""
    laps, labelled = _laps(trace), _needs_labels(trace)
    late, early = _staggered(trace.departing, "source", grid), _staggered(trace.landing, "target", grid)
    width = 1.6 if len(trace.messages) <= 4 * grid.layout.ranks * trace.rounds and grid.across > 30 else 0.7
    for m in trace.messages:
        start, end = grid.point(m.source, m.departs), grid.point(m.target, m.lands + 1)
        if m.copies:
            yield Arrow(m, (_loop(start, end, grid, style.line_style(m, number, width=1.2)),), "")
            continue
        lap = laps.get(m, 0) * grid.layout.ranks * grid.across
        uncut = straight(start.moved(0, late[m]), end.moved(lap, -early[m]), style.line_style(m, number, width))
        yield Arrow(m, _cut_at_the_edge(uncut, lap, grid), _label(m, trace.schedule.units) if labelled else "")


def _staggered(rounds: Iterable[Sequence[Message]], end: str, grid: Grid) -> dict[Message, float]:
    """Return the distance in pixels of each message from the first of its fan, which meets at an ``end`` in a round.

    Messages to distant ranks depart first and land last, so that the arrows of a fan do not cross.
    """
    distances: dict[Message, float] = {}
    for messages in rounds:
        fans = defaultdict(list)
        for m in sorted((m for m in messages if not m.copies), key=lambda m: -abs(m.source - m.target)):
            fans[getattr(m, end)].append(m)
        for fan in fans.values():
            distances |= {m: i * min(9.0, 0.45 * grid.down / len(fan)) for i, m in enumerate(fan)}
    return distances


def _loop(start: Point, end: Point, grid: Grid, line_style: LineStyle) -> Curve:
    middle, high = start.towards(end, 0.5), min(13.0, grid.down / 4)
    bend = middle.moved(min(30.0, grid.across * 0.7), 0)
    return Curve(middle.moved(0, -high), bend, middle.moved(0, high), line_style)


def _cut_at_the_edge(uncut: Curve, lap: float, grid: Grid) -> tuple[Curve, ...]:
    """Return the arrow, just short of the lines of both ranks; one with a lap is on a cylinder that is cut open.

    The cut is between the last rank and rank 0, and the arrow has two pieces.
    """
    ends = 1.5 / dist(uncut.start, uncut.end)
    if not lap:
        return (straight(uncut.start.towards(uncut.end, ends), uncut.end.towards(uncut.start, ends), uncut.line_style),)
    fraction = (grid.edges[lap > 0] - uncut.start.x) / (uncut.end.x - uncut.start.x)
    leaves = replace(uncut.between(ends, fraction), head=False)
    return leaves, uncut.between(fraction, 1 - ends).moved(-lap, 0)


def _laps(trace: Trace) -> dict[Message, int]:
    """Return the messages that are drawn across the edge of the diagram, to the right (1) or left (-1).

    They belong to a rotation, in which every rank sends over the same distance, and that direction is the shorter.
    """
    p = trace.schedule.layout.workers
    directions: dict[Message, int] = {}
    if p <= 2 or trace.schedule.layout.aggregators:
        return directions
    for departing in trace.departing:
        complete = Counter((m.target - m.source) % p for m in departing)
        for m in departing:
            distance = (m.target - m.source) % p
            offset = distance if distance <= p / 2 else distance - p
            if not m.copies and complete[distance] >= p and 2 * distance != p and offset != m.target - m.source:
                directions[m] = 1 if offset > 0 else -1
    return directions


def _needs_labels(trace: Trace) -> bool:
    units = trace.schedule.units
    carried = {(m.sent.buffer, m.sent.units) for m in trace.messages if not m.copies}
    few = trace.schedule.layout.ranks <= _MAX_LABELLED and len(trace.messages) <= 64 * trace.rounds
    return few and (len(carried) > 1 or any(len(part) < units for _, part in carried))


def _label(m: Message, units: int) -> str:
    if m.sent.buffer == "dst" and len(m.sent.units) == units > 1:
        return "all"
    text = spans(sorted(m.sent.units), ",").replace("..", "\N{EN DASH}")
    if m.sent.buffer != "dst":
        text = f"{m.sent.buffer} {text}"
    return text if len(text) <= _LONGEST_LABEL else ""


def labels(arrows: Sequence[Arrow], grid: Grid) -> list[SvgShape]:
    """Return the labels for which there is room, each on a background of its own."""
    rounds: dict[int, list[Arrow]] = defaultdict(list)
    for arrow in arrows:
        rounds[arrow.message.lands].append(arrow)
    placed: list[Text] = []
    for others in rounds.values():
        if any(arrow.label for arrow in others):
            pieces = [(number, piece) for number, arrow in enumerate(others) for piece in arrow.pieces]
            owner = np.array([number for number, _ in pieces])
            points = np.array([[piece.at(i / _SAMPLES) for i in range(_SAMPLES + 1)] for _, piece in pieces])
            for number, arrow in enumerate(others):
                if arrow.label and (label := _best(arrow, points[owner != number], placed, grid)):
                    placed.append(label)
    return [*(Box(*text.corners, fill=PAPER, radius=3) for text in placed), *placed]


def _best(arrow: Arrow, others: NDArray[np.float64], placed: Sequence[Text], grid: Grid) -> Text | None:
    """Return the label where it hides least of other arrows and of the ranks' lines, None if it overlaps another.

    The ``others`` are points along other arrows, [arrow, point, (x, y)].
    """
    heights = [point.y for piece in arrow.pieces for point in (piece.start, piece.end)]
    near = [bounds_of([text]) for text in placed if min(heights) - 20 < text.at.y < max(heights) + 20]
    left, right = grid.edges
    best, least = None, _TOO_MUCH
    for later, fraction in enumerate(_FRACTIONS):
        if least <= later * _LATER:
            break  # no later position can be better
        for piece in arrow.pieces:
            text = Text(piece.at(fraction), arrow.label, size=10, colour=piece.line_style.colour, weight=600)
            bounds = bounds_of([text])
            if bounds.left < left or bounds.right > right or any(bounds.meets(other) for other in near):
                continue
            hidden = (others >= (bounds.left, bounds.top)) & (others <= (bounds.right, bounds.bottom))
            lines = floor(bounds.right / grid.across) - ceil(bounds.left / grid.across) + 1
            cost = _LATER * later + int(hidden.all(axis=2).sum()) + _LINE * lines
            if cost < least:
                best, least = text, cost
    return best
