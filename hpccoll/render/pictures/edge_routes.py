"""Routes of lines between two ranks: straight, along the circle of all ranks, or around other ranks."""

from math import dist, hypot, sqrt

import numpy as np

from hpccoll.render.pictures.rank_positions import RADIUS, RankPositions
from hpccoll.render.pictures.svg import Curve, LineStyle, Point

_BENDS = (0.0, 26.0, -26.0, 40.0, -40.0, 56.0, -56.0, 76.0, -76.0, 100.0, -100.0)
_INWARDS = (0.0, -10.0, -20.0, -30.0)
"""Offsets in pixels of the middle of a line, outwards, tried in turn; inside a circle there is room."""

_MANY = 24
"""The most ranks for which lines are drawn around other ranks."""


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
