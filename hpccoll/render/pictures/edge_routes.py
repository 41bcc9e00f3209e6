"""Routes of lines between two ranks: straight, along the circle of all ranks, or around other ranks."""

import numpy as np

from hpccoll.render.colours import INK
from hpccoll.render.pictures.rank_positions import RADIUS, RankPositions
from hpccoll.render.pictures.svg import Curve, LineStyle, Point

_BENDS = (0.0, 26.0, -26.0, 40.0, -40.0, 56.0, -56.0, 76.0, -76.0, 100.0, -100.0)
_INWARDS = (0.0, -10.0, -20.0, -30.0)
"""Offsets in pixels of the middle of a line, outwards, tried in turn; inside a circle there is room."""

_MANY = 24
"""The most ranks for which lines are drawn around other ranks."""

_LINE = LineStyle(INK)


def route(positions: RankPositions, a: int, b: int, lane: float) -> Curve:
    """Return the line from the centre of rank ``a`` to that of ``b``.

    Args:
        positions: the positions of the ranks.
        a: the rank at the start.
        b: the rank at the end.
        lane: the offset of its slice in pixels: outwards on a ring, else to the left seen from the lower rank.
    """
    start, end = positions.at[a], positions.at[b]
    if positions.kind == "ring":
        return _curve(start, end, _clockwise(start, end) * (_arc(positions, start, end) + lane))
    lane *= 1 if a < b else -1
    if len(positions.at) > _MANY:
        return _curve(start, end, lane)
    others = np.array([at for me, at in positions.at.items() if me not in (a, b)]).reshape(-1, 2)
    outwards, bends = _outwards(positions, start, end), _INWARDS if positions.kind == "circle" else _BENDS
    curves = [_curve(start, end, outwards * bend + lane) for bend in bends]
    return next((curve for curve in curves if _passes(curve, others)), curves[0])


def _curve(start: Point, end: Point, bend: float) -> Curve:
    """Return the line whose middle is ``bend`` pixels to the left, seen from the start."""
    middle = start.towards(end, 0.5)
    x, y = end.x - start.x, end.y - start.y
    away = float(np.hypot(x, y)) or 1.0
    return Curve(start, Point(middle.x + y / away * bend, middle.y - x / away * bend), end, _LINE)


def _clockwise(start: Point, end: Point) -> int:
    """Return 1 if the line runs clockwise around the centre, with the outside on its left, else -1."""
    return 1 if start.x * end.y - start.y * end.x > 0 else -1


def _arc(positions: RankPositions, start: Point, end: Point) -> float:
    """Return the bend with which a line between neighbours lies on the circle of all ranks."""
    radius = max(np.hypot(*at) for at in positions.at.values())
    half = np.hypot(end.x - start.x, end.y - start.y) / 2
    return float(2 * (radius - np.sqrt(max(0.0, radius**2 - half**2))))


def _outwards(positions: RankPositions, start: Point, end: Point) -> int:
    """Return 1 if the left of the line is further from the centre of all ranks, else -1."""
    middle = np.mean([*positions.at.values()], axis=0)
    left, right = (np.hypot(*(np.array(_curve(start, end, bend).bend) - middle)) for bend in (1.0, -1.0))
    return 1 if left > right else -1


def _passes(curve: Curve, others: np.ndarray) -> bool:
    """Return whether the line does not touch ``others``, the centres of ranks."""
    points = np.array([curve.at(fraction) for fraction in np.linspace(0.05, 0.95, 25)])
    return bool((np.linalg.norm(points[:, None] - others[None], axis=2) > RADIUS + 4).all())
