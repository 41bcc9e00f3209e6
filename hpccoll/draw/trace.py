"""A schedule told message by message: who sends which units to whom, from which round to which."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.schedule import Messages, Part, Schedule, match

Units = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Units of a buffer at one rank, in the order in which they lie in a message."""

    buffer: str
    units: Units


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message, or a copy from a rank to itself; equal to no other, for two may be alike.

    Args:
        source: the rank that sends.
        target: the rank that receives.
        sent: what is read at the source when the message departs.
        landed: what is written at the target when it lands.
        own: what the arrival is folded with; None where it replaces.
        departs: the round at whose start it departs, from 0.
        lands: the round at whose end it lands.
    """

    source: int
    target: int
    sent: Place
    landed: Place
    operand: Place | None
    departs: int
    lands: int

    @property
    def copies(self) -> bool:
        """Whether it stays at its rank."""
        return self.source == self.target

    @property
    def folds(self) -> bool:
        """Whether the arrival is reduced."""
        return self.operand is not None


@dataclass(frozen=True, slots=True)
class Story:
    """What happens in a schedule.

    Args:
        schedule: that is told.
        messages: in the order in which they land, those of a rank in the order in which they are folded.
        rounds: the number of rounds in which something departs or lands.
    """

    schedule: Schedule
    messages: tuple[Message, ...]
    rounds: int

    def departing(self, number: int) -> list[Message]:
        """Return the messages that depart in round ``number``."""
        return [m for m in self.messages if m.departs == number]

    def landing(self, number: int) -> list[Message]:
        """Return the messages that land in round ``number``, in the order in which they are folded."""
        return [m for m in self.messages if m.lands == number]


def tell(schedule: Schedule) -> Story:
    """Return what happens in ``schedule``; rounds in which nothing moves, and messages of no units, are left out.

    Raises:
        ScheduleError: where the schedule is not one.
    """
    departed: dict[Messages, int] = {}
    landed: list[tuple[Messages, int, int]] = []
    for number, round_ in enumerate(match(schedule)):
        departed |= dict.fromkeys(round_.sent, number)
        landed += [(m, i, number) for m in round_.landed for i in range(len(m.target))]
    told = [_message(m, i, departed[m], number) for m, i, number in landed]
    told = [m for m in told if m.sent.units]
    busy = {number: place for place, number in enumerate(sorted({n for m in told for n in (m.departs, m.lands)}))}
    return Story(schedule, tuple(replace(m, departs=busy[m.departs], lands=busy[m.lands]) for m in told), len(busy))


def _message(m: Messages, i: int, departs: int, lands: int) -> Message:
    operand = None if m.operand is None else _place(m.operand, i)
    source, target = int(m.source[i]), int(m.target[i])
    return Message(source, target, _place(m.sent, i), _place(m.landed, i), operand, departs, lands)


def _place(part: Part, i: int) -> Place:
    return Place(part.buffer, tuple(_units(part, i)))


def _units(part: Part, i: int) -> Iterator[int]:
    for r in part.ranges:
        yield from range(int(np.asarray(r.first)[i]), int(np.asarray(r.last)[i]))
