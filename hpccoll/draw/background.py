"""The ground of the pictures over time: where ranks and rounds are, and what stands at their heads."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hpccoll.draw.buffer_state import runs
from hpccoll.draw.graph import groups
from hpccoll.draw.network import rank
from hpccoll.draw.shapes import MUTED, Box, Look, Mark, Point, Text, straight
from hpccoll.draw.trace import Story
from hpccoll.schedule import Layout

_HEADS = -34.0
"""Where the ranks stand, over the start."""

_BAND = "#f7f9fb"
_RANK = Look("#c3cbd6", width=1.2)


@dataclass(frozen=True, slots=True)
class Grid:
    """Where ranks and rounds are: rank 0 at x = 0, the start at y = 0.

    Args:
        layout: of the ranks.
        rounds: how many there are.
        across: pixels from rank to rank.
        down: pixels from round to round.
    """

    layout: Layout
    rounds: int
    across: float
    down: float

    @classmethod
    def of(cls, stories: Sequence[Story]) -> "Grid":
        """Return a grid with room for what happens in ``stories``."""
        layout, rounds = stories[0].schedule.layout, max(story.rounds for story in stories)
        across = 54.0 if layout.ranks <= 9 else 44.0 if layout.ranks <= 18 else max(9.0, 800.0 / layout.ranks)
        down = 58.0 if rounds <= 8 else 48.0 if rounds <= 14 else min(40.0, max(12.0, 1600 / rounds))
        return cls(layout, rounds, across, down + min(100.0, 10.0 * max(0, _widest_fan(stories) - 2)))

    @property
    def radius(self) -> float:
        """Of a rank."""
        return min(13.0, self.across * 0.36)

    def named(self, number: int) -> bool:
        """Return whether rank ``number`` is named: all are where there is room."""
        every = ceil(17 / self.across)
        return number % every == 0

    def point(self, me: int, round_: int) -> Point:
        """Return where rank ``me`` is after ``moment`` rounds."""
        return Point(me * self.across, round_ * self.down)


def _widest_fan(stories: Sequence[Story]) -> int:
    """Return the most messages that a rank hears or sends in one round."""
    messages = [(number, m) for number, story in enumerate(stories) for m in story.messages if not m.copies]
    heard = Counter((number, m.lands, m.target) for number, m in messages)
    sent = Counter((number, m.departs, m.source) for number, m in messages)
    return max([*heard.values(), *sent.values()], default=0)


def heads(grid: Grid) -> list[Mark]:
    """Return the ranks in a row, over their lines."""
    radius = grid.radius
    places = ((me, Point(me * grid.across, _HEADS)) for me in range(grid.layout.ranks))
    if radius < 8:
        return [Text(at.x, at.y, str(me), size=9, colour=MUTED) for me, at in places if grid.named(me)]
    return [mark for me, at in places for mark in rank(me, at, grid.layout, radius)]


def homes(grid: Grid) -> Iterator[Mark]:
    """Yield the number of its node, or rack, over each rank that has a neighbour there."""
    homes = groups(grid.layout) or []
    places = grid.layout.node if grid.layout.nodes < grid.layout.workers else grid.layout.rack
    if homes:
        what = "node" if places is grid.layout.node else "rack"
        yield Text(-grid.across / 2 - 8, _HEADS - 30, what, size=11, anchor="end", colour=MUTED)
    for home in homes:
        for run in runs(home):
            left, right = run[0] * grid.across - grid.radius, run[-1] * grid.across + grid.radius
            yield Box(left, _HEADS - 21, right, _HEADS - 18, fill=_RANK.colour, radius=1.5)
            yield Text((left + right) / 2, _HEADS - 30, str(places[home[0]]), size=11, colour=MUTED)


def ground(grid: Grid) -> Iterator[Mark]:
    """Yield the bands of the rounds, their numbers, and the lines of the ranks."""
    left, right = -grid.across / 2, (grid.layout.ranks - 0.5) * grid.across
    for number in range(grid.rounds):
        top, bottom = number * grid.down, (number + 1) * grid.down
        if number % 2 == 0:
            yield Box(left, top, right, bottom, fill=_BAND, radius=0)
        if grid.down > 20 or number % 10 == 9:
            yield Text(left - 8, (top + bottom) / 2, str(number + 1), size=11, anchor="end", colour=MUTED)
    yield Text(left - 8, _HEADS, "round", size=11, anchor="end", colour=MUTED)
    for me in range(grid.layout.ranks):
        start, end = grid.point(me, 0), grid.point(me, grid.rounds)
        yield straight(Point(start.x, start.y - 16), Point(end.x, end.y + 6), _RANK, head=False)
