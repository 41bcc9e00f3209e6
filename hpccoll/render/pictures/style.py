"""The style of a picture: the colours of slices or of distances, and the marks of reduced arrivals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.render.colours import PALETTE
from hpccoll.render.pictures.svg import LineStyle
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Message, Trace

FOLDS, REPLACES = PALETTE[:2]
PLAIN = "#64748b"
_TIERS = {1: (PALETTE[0], "inside a node"), 2: (PALETTE[1], "between nodes"), 3: (PALETTE[5], "between racks")}
_SLICES = (PALETTE[0], *PALETTE[3:1:-1], *PALETTE[4:7])


@dataclass(frozen=True, slots=True)
class Style:
    """The colours of a picture.

    Args:
        layout: the layout of the ranks.
        by: ``slice`` if there are several, else ``tier`` if messages cross different tiers, else ``arrival``.
        tiers: the tiers that messages cross, as indices of TIERS.
        slices: the number of slices.
    """

    layout: Layout
    by: str
    tiers: tuple[int, ...]
    slices: int

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> "Style":
        layout = traces[0].schedule.layout
        tiers = tuple(sorted({_tier(layout, m) for trace in traces for m in trace.messages if not m.copies}))
        by = "slice" if len(traces) > 1 else "tier" if len(tiers) > 1 else "arrival"
        return cls(layout, by, tiers, len(traces))

    def colour(self, m: Message, number: int) -> str:
        """Return the colour of a message of slice ``number``."""
        if self.by == "slice":
            return _SLICES[number % len(_SLICES)]
        return _TIERS[_tier(self.layout, m)][0] if self.by == "tier" else FOLDS if m.folds else REPLACES

    def line_style(self, m: Message, number: int, width: float = 1.6) -> LineStyle:
        """Return the style of the arrow of a message of slice ``number``."""
        return LineStyle(
            self.colour(m, number), dashed=not m.folds and self.by != "arrival", hollow=not m.folds, width=width
        )

    def edge(self, m: Message, number: int) -> str:
        """Return the colour of the line between two ranks that stands for all their messages."""
        return PLAIN if self.by == "arrival" else self.colour(m, number)

    @property
    def classes(self) -> list[tuple[str, str]]:
        """The colours of slices or tiers, each with its meaning."""
        if self.by == "slice":
            return [(_SLICES[number % len(_SLICES)], f"slice {number + 1}") for number in range(self.slices)]
        return [_TIERS[tier] for tier in self.tiers] if self.by == "tier" else []


def _tier(layout: Layout, m: Message) -> int:
    """Return the tier that a message crosses, as an index of TIERS."""
    return int(layout.tier(np.array([m.source]), np.array([m.target]))[0])
