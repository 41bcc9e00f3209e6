"""The arrows of messages in the picture over time."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import hypot

from hpccoll.draw.background import Grid
from hpccoll.draw.buffer_state import spans
from hpccoll.draw.shapes import Curve, Look, Point, straight
from hpccoll.draw.style import Looks
from hpccoll.draw.trace import Message, Story

_LONGEST_LABEL = 8
_MOST_LABELLED = 18
"""Ranks, above which there is no room for labels."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message as it is drawn: one curve, or two where it leaves on one side and comes in on the other."""

    message: Message
    pieces: tuple[Curve, ...]
    label: str


def arrows(story: Story, number: int, grid: Grid, looks: Looks) -> Iterator[Arrow]:
    """Yield an arrow for each message of slice ``number``."""
    turning = _turning(story)
    labelled = _worth_labels(story)
    late, early = _fans(story, grid)
    width = 1.6 if len(story.messages) <= 4 * grid.layout.ranks * story.rounds and grid.across > 30 else 0.7
    for m in story.messages:
        look = looks.look(m, number, width)
        start, end = grid.point(m.source, m.departs), grid.point(m.target, m.lands + 1)
        start, end = Point(start.x, start.y + late.get(m, 0.0)), Point(end.x, end.y - early.get(m, 0.0))
        if m.copies:
            pieces: tuple[Curve, ...] = (_loop(start, end, grid, looks.look(m, number, width=1.2)),)
        elif (laps := turning.get(m, 0)) and grid.layout.aggregators == 0:
            pieces = _round_the_back(start, end, laps * grid.layout.ranks * grid.across, grid, look)
        else:
            pieces = (_between(start, end, look),)
        yield Arrow(m, pieces, _label(m, story.schedule.units) if labelled and not m.copies else "")


def _fans(story: Story, grid: Grid) -> tuple[dict[Message, float], dict[Message, float]]:
    """Return how many pixels after its round's start a message departs, and before its end it lands.

    What a rank sends or hears in one round is fanned out: what goes far departs first and lands last, so that the
    arrows of a fan do not cross.
    """
    sent: dict[tuple[int, int], list[Message]] = defaultdict(list)
    heard: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for m in sorted((m for m in story.messages if not m.copies), key=lambda m: -abs(m.source - m.target)):
        sent[m.departs, m.source].append(m)
        heard[m.lands, m.target].append(m)
    return _staggered(sent.values(), grid), _staggered(heard.values(), grid)


def _staggered(fans: Iterable[Sequence[Message]], grid: Grid) -> dict[Message, float]:
    """Return how many pixels after the first of its fan each message is."""
    return {m: i * min(9.0, 0.45 * grid.down / len(fan)) for fan in fans for i, m in enumerate(fan)}


def _between(start: Point, end: Point, look: Look) -> Curve:
    """Return an arrow that ends just short of the lines of both ranks."""
    length = hypot(end.x - start.x, end.y - start.y)
    return straight(start.towards(end, 1.5 / length), end.towards(start, 1.5 / length), look)


def _loop(start: Point, end: Point, grid: Grid, look: Look) -> Curve:
    """Return the arc of a copy, which leaves its rank's line and comes back to it."""
    middle = (start.y + end.y) / 2
    high = min(13.0, grid.down / 4)
    x = start.x
    return Curve(
        Point(x, middle - high), Point(x + min(30.0, grid.across * 0.7), middle), Point(x, middle + high), look
    )


def _turning(story: Story) -> dict[Message, int]:
    """Return the messages that are drawn round the back of the diagram, and whether to the right (1) or left (-1).

    They are those of a rotation, in which every rank sends to the one equally far on, where that way is the shorter.
    """
    p = story.schedule.layout.workers
    found = {}
    for number in range(story.rounds):
        departing = [m for m in story.departing(number) if not m.copies]
        complete = Counter((m.target - m.source) % p for m in departing)
        for m in departing:
            ahead = (m.target - m.source) % p
            way = ahead if ahead <= p / 2 else ahead - p
            if p > 2 and complete[ahead] >= p and 2 * ahead != p and way != m.target - m.source:
                found[m] = 1 if way > 0 else -1
    return found


def _round_the_back(start: Point, end: Point, lap: float, grid: Grid, look: Look) -> tuple[Curve, Curve]:
    """Return both pieces of an arrow on a cylinder that is cut open between the last rank and rank 0."""
    whole = straight(start, Point(end.x + lap, end.y), look)
    edge = (grid.layout.ranks - 0.5) * grid.across if lap > 0 else -grid.across / 2
    part = (edge - start.x) / (whole.end.x - start.x)
    ends = 1.5 / hypot(whole.end.x - start.x, whole.end.y - start.y)
    leaves, comes = whole.between(ends, part), whole.between(part, 1 - ends).moved(-lap, 0)
    return Curve(leaves.start, leaves.bend, leaves.end, look, head=False), comes


def _worth_labels(story: Story) -> bool:
    """Return whether messages differ in what they carry, and are few enough to say it."""
    carried = {(m.sent.buffer, m.sent.units) for m in story.messages if not m.copies}
    few = story.schedule.layout.ranks <= _MOST_LABELLED and len(story.messages) <= 64 * max(1, story.rounds)
    return few and (len(carried) > 1 or (len(carried) == 1 and story.schedule.units > 1 and _part_of_all(story)))


def _part_of_all(story: Story) -> bool:
    return any(len(m.sent.units) < story.schedule.units for m in story.messages)


def _label(m: Message, units: int) -> str:
    """Return which units a message carries, or nothing where it takes too many words."""
    if m.sent.buffer == "dst" and len(m.sent.units) == units > 1:
        return "all"
    words = spans(sorted(m.sent.units), ",").replace("..", "\N{EN DASH}")
    if m.sent.buffer != "dst":
        words = f"{m.sent.buffer} {words}"
    return words if len(words) <= _LONGEST_LABEL else ""
