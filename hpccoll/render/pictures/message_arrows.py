"""The arrows of messages in the picture over time, and their labels: each where it hides least, without overlaps."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, hypot

import numpy as np
from numpy.typing import NDArray

from hpccoll.render.colours import PAPER
from hpccoll.render.pictures.buffer_state import spans
from hpccoll.render.pictures.style import Style
from hpccoll.render.pictures.svg import Bounds, Box, Curve, LineStyle, Point, Shape, Text, straight
from hpccoll.render.pictures.timeline_grid import Grid
from hpccoll.schedule.walk import Message, Trace

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
class Arrow:
    """The drawing of a message: one curve, or two if it leaves on one side and enters on the other."""

    message: Message
    pieces: tuple[Curve, ...]
    label: str


def arrows(trace: Trace, number: int, grid: Grid, style: Style) -> Iterator[Arrow]:
    """Yield an arrow for each message of slice ``number``."""
    turning = _rotating(trace)
    labelled = _needs_labels(trace)
    late, early = _fans(trace, grid)
    width = 1.6 if len(trace.messages) <= 4 * grid.layout.ranks * trace.rounds and grid.across > 30 else 0.7
    for m in trace.messages:
        line_style = style.line_style(m, number, width)
        start, end = grid.point(m.source, m.departs), grid.point(m.target, m.lands + 1)
        start, end = Point(start.x, start.y + late.get(m, 0.0)), Point(end.x, end.y - early.get(m, 0.0))
        if m.copies:
            pieces: tuple[Curve, ...] = (_loop(start, end, grid, style.line_style(m, number, width=1.2)),)
        elif (laps := turning.get(m, 0)) and grid.layout.aggregators == 0:
            pieces = _across_the_edge(start, end, laps * grid.layout.ranks * grid.across, grid, line_style)
        else:
            pieces = (_between(start, end, line_style),)
        yield Arrow(m, pieces, _label(m, trace.schedule.units) if labelled and not m.copies else "")


def _fans(trace: Trace, grid: Grid) -> tuple[dict[Message, float], dict[Message, float]]:
    """Return the pixels from the start of its round to a departure, and from a landing to the end of its round.

    The messages that a rank sends or receives in one round are fanned out: those to distant ranks depart first and
    land last, so that the arrows of a fan do not cross.
    """
    sent: dict[tuple[int, int], list[Message]] = defaultdict(list)
    received: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for m in sorted((m for m in trace.messages if not m.copies), key=lambda m: -abs(m.source - m.target)):
        sent[m.departs, m.source].append(m)
        received[m.lands, m.target].append(m)
    return _staggered(sent.values(), grid), _staggered(received.values(), grid)


def _staggered(fans: Iterable[Sequence[Message]], grid: Grid) -> dict[Message, float]:
    """Return the distance of each message from the first of its fan, in pixels."""
    return {m: i * min(9.0, 0.45 * grid.down / len(fan)) for fan in fans for i, m in enumerate(fan)}


def _between(start: Point, end: Point, line_style: LineStyle) -> Curve:
    """Return an arrow that ends just short of the lines of both ranks."""
    length = hypot(end.x - start.x, end.y - start.y)
    return straight(start.towards(end, 1.5 / length), end.towards(start, 1.5 / length), line_style)


def _loop(start: Point, end: Point, grid: Grid, line_style: LineStyle) -> Curve:
    """Return the arc of a copy, which leaves its rank's line and comes back to it."""
    middle = (start.y + end.y) / 2
    high = min(13.0, grid.down / 4)
    x = start.x
    return Curve(
        Point(x, middle - high), Point(x + min(30.0, grid.across * 0.7), middle), Point(x, middle + high), line_style
    )


def _rotating(trace: Trace) -> dict[Message, int]:
    """Return the messages that are drawn across the edge of the diagram, to the right (1) or left (-1).

    They belong to a rotation, in which every rank sends over the same distance, and that direction is the shorter.
    """
    p = trace.schedule.layout.workers
    directions = {}
    for number in range(trace.rounds):
        departing = [m for m in trace.departing[number] if not m.copies]
        complete = Counter((m.target - m.source) % p for m in departing)
        for m in departing:
            distance = (m.target - m.source) % p
            offset = distance if distance <= p / 2 else distance - p
            if p > 2 and complete[distance] >= p and 2 * distance != p and offset != m.target - m.source:
                directions[m] = 1 if offset > 0 else -1
    return directions


def _across_the_edge(start: Point, end: Point, lap: float, grid: Grid, line_style: LineStyle) -> tuple[Curve, Curve]:
    """Return both pieces of an arrow on a cylinder that is cut open between the last rank and rank 0."""
    uncut = straight(start, Point(end.x + lap, end.y), line_style)
    edge = (grid.layout.ranks - 0.5) * grid.across if lap > 0 else -grid.across / 2
    fraction = (edge - start.x) / (uncut.end.x - start.x)
    ends = 1.5 / hypot(uncut.end.x - start.x, uncut.end.y - start.y)
    leaves, comes = uncut.between(ends, fraction), uncut.between(fraction, 1 - ends).moved(-lap, 0)
    return Curve(leaves.start, leaves.bend, leaves.end, line_style, head=False), comes


def _needs_labels(trace: Trace) -> bool:
    """Return whether messages carry different units and are few enough for labels."""
    carried = {(m.sent.buffer, m.sent.units) for m in trace.messages if not m.copies}
    few = trace.schedule.layout.ranks <= _MAX_LABELLED and len(trace.messages) <= 64 * max(1, trace.rounds)
    return few and (len(carried) > 1 or (len(carried) == 1 and trace.schedule.units > 1 and _part_of_all(trace)))


def _part_of_all(trace: Trace) -> bool:
    return any(len(m.sent.units) < trace.schedule.units for m in trace.messages)


def _label(m: Message, units: int) -> str:
    """Return the units that a message carries, or nothing if the label would be too long."""
    if m.sent.buffer == "dst" and len(m.sent.units) == units > 1:
        return "all"
    text = spans(sorted(m.sent.units), ",").replace("..", "\N{EN DASH}")
    if m.sent.buffer != "dst":
        text = f"{m.sent.buffer} {text}"
    return text if len(text) <= _LONGEST_LABEL else ""


def labels(arrows: Sequence[Arrow], grid: Grid) -> list[Shape]:
    """Return the labels for which there is room, each on a background of its own."""
    rounds: dict[int, list[Arrow]] = defaultdict(list)
    for arrow in arrows:
        rounds[arrow.message.lands].append(arrow)
    placed: list[Text] = []
    for others in rounds.values():
        if not any(arrow.label for arrow in others):
            continue
        owner = np.array([number for number, arrow in enumerate(others) for _ in arrow.pieces])
        drawn = np.array(
            [[piece.at(i / _SAMPLES) for i in range(_SAMPLES + 1)] for arrow in others for piece in arrow.pieces]
        )
        for number, arrow in enumerate(others):
            if arrow.label and (label := _best(arrow, drawn[owner != number], placed, grid)):
                placed.append(label)
    return [*(Box(*text.bounds, fill=PAPER, radius=3) for text in placed), *placed]


def _best(arrow: Arrow, others: NDArray[np.float64], placed: Sequence[Text], grid: Grid) -> Text | None:
    """Return the label where it hides least of other arrows and of the ranks' lines, None if it overlaps another."""
    heights = [point.y for piece in arrow.pieces for point in (piece.start, piece.end)]
    near = [text.bounds for text in placed if min(heights) - 20 < text.y < max(heights) + 20]
    best, least = None, _TOO_MUCH
    for later, text in _label_positions(arrow, grid):
        if least <= later * _LATER:
            break  # no later position can be better
        bounds = text.bounds
        if any(bounds.meets(other) for other in near):
            continue
        cost = _LATER * later + _hidden(bounds, others) + _LINE * _lines(bounds, grid)
        if cost < least:
            best, least = text, cost
    return best


def _hidden(bounds: Bounds, others: NDArray[np.float64]) -> int:
    """Return how many of ``others``, points along other arrows [arrow, point, (x, y)], a label hides."""
    inside = (others >= (bounds.left, bounds.top)) & (others <= (bounds.right, bounds.bottom))
    return int(inside.all(axis=2).sum())


def _label_positions(arrow: Arrow, grid: Grid) -> Iterator[tuple[int, Text]]:
    """Yield the label at all positions inside the diagram, the best first."""
    left, right = -grid.across / 2, (grid.layout.ranks - 0.5) * grid.across
    for later, fraction in enumerate(_FRACTIONS):
        for piece in arrow.pieces:
            at = piece.at(fraction)
            text = Text(at.x, at.y, arrow.label, size=10, colour=piece.line_style.colour, weight=600)
            if left <= text.bounds.left and text.bounds.right <= right:
                yield later, text


def _lines(bounds: Bounds, grid: Grid) -> int:
    """Return how many ranks' lines pass under a label."""
    return floor(bounds.right / grid.across) - ceil(bounds.left / grid.across) + 1
