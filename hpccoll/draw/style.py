"""What a picture says in colour: the slice of a message, or how far it goes, and whether its arrival is reduced."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.draw.shapes import Look
from hpccoll.draw.trace import Message, Story
from hpccoll.schedule import Layout

FOLDS = "#2b7bba"
REPLACES = "#d9662b"
PLAIN = "#64748b"
_TIERS = {1: ("#2b7bba", "inside a node"), 2: ("#d9662b", "between nodes"), 3: ("#7a5cc4", "between racks")}
_SLICES = ("#2b7bba", "#b04a96", "#2f9467", "#a9811a", "#7a5cc4", "#c8443f")


@dataclass(frozen=True, slots=True)
class Looks:
    """The colours of a picture.

    Args:
        layout: says how far a message goes.
        by: ``slice`` where there are several, else ``tier`` where messages go further than others, else ``arrival``.
        tiers: those that messages use, as indices of TIERS.
        slices: how many there are.
    """

    layout: Layout
    by: str
    tiers: tuple[int, ...]
    slices: int

    @classmethod
    def of(cls, stories: Sequence[Story]) -> "Looks":
        layout = stories[0].schedule.layout
        tiers = tuple(sorted({_tier(layout, m) for story in stories for m in story.messages if not m.copies}))
        by = "slice" if len(stories) > 1 else "tier" if len(tiers) > 1 else "arrival"
        return cls(layout, by, tiers, len(stories))

    def colour(self, m: Message, number: int) -> str:
        """Return the colour of a message of slice ``number``."""
        if self.by == "slice":
            return _SLICES[number % len(_SLICES)]
        return _TIERS[_tier(self.layout, m)][0] if self.by == "tier" else FOLDS if m.folds else REPLACES

    def look(self, m: Message, number: int, width: float = 1.6) -> Look:
        """Return how the arrow of a message of slice ``number`` looks."""
        return Look(
            self.colour(m, number), dashed=not m.folds and self.by != "arrival", hollow=not m.folds, width=width
        )

    def edge(self, m: Message, number: int) -> str:
        """Return the colour of the line between two ranks that stands for all their messages."""
        return PLAIN if self.by == "arrival" else self.colour(m, number)

    @property
    def classes(self) -> list[tuple[str, str]]:
        """What else a colour means, each with its words."""
        if self.by == "slice":
            return [(_SLICES[number % len(_SLICES)], f"slice {number + 1}") for number in range(self.slices)]
        return [_TIERS[tier] for tier in self.tiers] if self.by == "tier" else []


def _tier(layout: Layout, m: Message) -> int:
    """Return how far a message between two ranks goes, as an index of TIERS."""
    return int(layout.tier(np.array([m.source]), np.array([m.target]))[0])
