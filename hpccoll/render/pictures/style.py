"""The style of a picture: the colours of slices or of distances, the marks of reduced arrivals, the shapes of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.render.colours import INK, PALETTE
from hpccoll.render.pictures.svg import Box, Dot, LineStyle, Point, SvgShape, Text
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Message, Trace

RADIUS = 14.0
"""The radius of a rank, in pixels."""

_MIN_NAMED_RADIUS = 8.0
"""The smallest radius, in pixels, of a rank that has room for its number."""

FOLDS, REPLACES = PALETTE[:2]
_TIERS = {
    1: (PALETTE[0], "inside a node"),
    2: (PALETTE[1], "between nodes"),
    3: (PALETTE[5], "between racks"),
}
_SLICES = (PALETTE[0], *PALETTE[3:1:-1], *PALETTE[4:7])


@dataclass(frozen=True, slots=True)
class Style:
    """The colours of a picture."""

    layout: Layout  # the layout of the ranks
    # ``slice`` if there are several, else ``tier`` if messages cross different tiers, else
    # ``arrival``
    by: str
    classes: tuple[tuple[str, str], ...]  # the colours of slices or tiers, each with its meaning

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Style":
        layout = traces[0].schedule.layout
        if len(traces) > 1:
            slices = (
                (_SLICES[number % len(_SLICES)], f"slice {number + 1}")
                for number in range(len(traces))
            )
            return cls(layout, "slice", tuple(slices))
        tiers = sorted({_tier(layout, m) for m in traces[0].messages if not m.copies})
        if len(tiers) > 1:
            return cls(layout, "tier", tuple(_TIERS[tier] for tier in tiers))
        return cls(layout, "arrival", ())

    def colour(self, m: Message, number: int) -> str:
        """Return the colour of a message of slice ``number``."""
        if self.by == "slice":
            return self.classes[number][0]
        if self.by == "tier" and not m.copies:
            return _TIERS[_tier(self.layout, m)][0]
        return FOLDS if m.folds else REPLACES

    def line_style(self, m: Message, number: int, width: float) -> LineStyle:
        """Return the style of the arrow of a message of slice ``number``."""
        dashed = not m.folds and self.by != "arrival"
        return LineStyle(self.colour(m, number), dashed=dashed, hollow=not m.folds, width=width)


def _tier(layout: Layout, m: Message) -> int:
    return int(layout.tier(np.array([m.source]), np.array([m.target]))[0])


def rank_shapes(me: int, at: Point, layout: Layout, radius: float = RADIUS) -> list[SvgShape]:
    """Return the shapes of a rank: a circle for a worker, a square for an aggregator."""
    if radius < _MIN_NAMED_RADIUS:
        return [Dot(at, radius, fill=INK)]
    scale = 0.92 if me < 100 else 0.75
    number = Text(at, str(me), size=min(12.0, radius * scale), weight=600)
    if me < layout.workers:
        return [Dot(at, radius), number]
    side = radius * 0.95
    square = Box(
        at.moved(-side, -side), at.moved(side, side), fill="#fdf3d7", stroke=INK, width=1.5
    )
    return [square, number]
