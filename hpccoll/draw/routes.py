"""How the line between two ranks goes: straight, along the circle of all ranks, or round others that are in its way."""

import numpy as np

from hpccoll.draw.layout import RADIUS, Places
from hpccoll.draw.shapes import INK, Curve, Look, Point

_BENDS = (0.0, 26.0, -26.0, 40.0, -40.0, 56.0, -56.0, 76.0, -76.0, 100.0, -100.0)
_INWARDS = (0.0, -10.0, -20.0, -30.0)
"""Tried in turn, in pixels: how far outwards from the middle of the way the line is drawn; on a circle there is room
inside."""

_MANY = 24
"""Ranks above which lines are not led round others."""

_LINE = Look(INK)


def route(places: Places, a: int, b: int, lane: float) -> Curve:
    """Return the line from the centre of rank ``a`` to that of ``b``.

    Args:
        places: of the ranks.
        a: where it starts.
        b: where it ends.
        lane: how far aside its slice is drawn, in pixels: on a ring outwards, else to the left from the lower rank.
    """
    start, end = places.at[a], places.at[b]
    if places.kind == "ring":
        return _curve(start, end, _clockwise(start, end) * (_arc(places, start, end) + lane))
    lane *= 1 if a < b else -1
    if len(places.at) > _MANY:
        return _curve(start, end, lane)
    others = np.array([at for me, at in places.at.items() if me not in (a, b)]).reshape(-1, 2)
    outwards, bends = _outwards(places, start, end), _INWARDS if places.kind == "circle" else _BENDS
    curves = [_curve(start, end, outwards * bend + lane) for bend in bends]
    return next((curve for curve in curves if _passes(curve, others)), curves[0])


def _curve(start: Point, end: Point, bend: float) -> Curve:
    """Return the line that is drawn ``bend`` pixels to the left of the middle of its way, seen from the start."""
    middle = start.towards(end, 0.5)
    x, y = end.x - start.x, end.y - start.y
    away = float(np.hypot(x, y)) or 1.0
    return Curve(start, Point(middle.x + y / away * bend, middle.y - x / away * bend), end, _LINE)


def _clockwise(start: Point, end: Point) -> int:
    """Return 1 for a way clockwise round the middle, on whose left is the outside, else -1."""
    return 1 if start.x * end.y - start.y * end.x > 0 else -1


def _arc(places: Places, start: Point, end: Point) -> float:
    """Return the bend with which a line between neighbours lies on the circle of all ranks."""
    radius = max(np.hypot(*at) for at in places.at.values())
    half = np.hypot(end.x - start.x, end.y - start.y) / 2
    return float(2 * (radius - np.sqrt(max(0.0, radius**2 - half**2))))


def _outwards(places: Places, start: Point, end: Point) -> int:
    """Return 1 where the left of the way is further from the middle of all ranks, else -1."""
    middle = np.mean([*places.at.values()], axis=0)
    left, right = (np.hypot(*(np.array(_curve(start, end, bend).bend) - middle)) for bend in (1.0, -1.0))
    return 1 if left > right else -1


def _passes(curve: Curve, others: np.ndarray) -> bool:
    """Return whether the line keeps clear of ``others``, the centres of ranks."""
    points = np.array([curve.at(part) for part in np.linspace(0.05, 0.95, 25)])
    return bool((np.linalg.norm(points[:, None] - others[None], axis=2) > RADIUS + 4).all())
