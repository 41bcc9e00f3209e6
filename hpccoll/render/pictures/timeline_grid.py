"""The background of the pictures over time: the grid of ranks and rounds, with the heads of its columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hpccoll.render.colours import MUTED
from hpccoll.render.pictures.buffer_state import runs
from hpccoll.render.pictures.message_graph import groups
from hpccoll.render.pictures.rank_positions import rank_shapes
from hpccoll.render.pictures.svg import Box, LineStyle, Point, SvgShape, Text, straight
from hpccoll.schedule import Layout
from hpccoll.schedule.walk import Trace

_HEADS = -34.0
"""The height of the ranks, above the start."""

_BAND = "#f7f9fb"
_RANK = LineStyle("#c3cbd6", width=1.2)


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
            yield Box(Point(left, _HEADS - 21), Point(right, _HEADS - 18), fill=_RANK.colour, radius=1.5)
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
        yield straight(start, end, _RANK, head=False)
