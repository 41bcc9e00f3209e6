"""The labels of arrows: each where it hides least, without overlaps."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from hpccoll.render.colours import PAPER
from hpccoll.render.pictures.message_arrows import Arrow
from hpccoll.render.pictures.svg_shapes import Bounds, Box, Shape, Text
from hpccoll.render.pictures.timeline_grid import Grid

_FRACTIONS = (0.5, 0.38, 0.62, 0.28, 0.72, 0.2, 0.8, 0.14, 0.86)
"""Positions of a label along its arrow, the best first."""

_SAMPLES = 24
"""The number of points on an arrow at which its overlap with labels is tested."""

_LATER, _LINE = 0.1, 0.7
"""The cost of a later position, and of hiding the line of a rank; hiding a point of another arrow costs 1."""

_TOO_MUCH = 3.5
"""The cost from which a label is omitted."""


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
