"""The trace of a schedule: its messages one by one, with the rounds in which each departs and lands."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.schedule import Messages, Part, Schedule, match

Units = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TracedPart:
    """Units of a buffer at one rank, in the order in which they lie in a message."""

    buffer: str
    units: Units


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message, or a copy from a rank to itself; messages compare by identity, as two may be alike.

    Args:
        source: the rank that sends.
        target: the rank that receives.
        sent: what is read at the source when the message departs.
        landed: what is written at the target when it lands.
        operand: what the arrival is folded with; None if it replaces.
        departs: the round at whose start it departs, from 0.
        lands: the round at whose end it lands.
    """

    source: int
    target: int
    sent: TracedPart
    landed: TracedPart
    operand: TracedPart | None
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
class Trace:
    """The messages of a schedule.

    Args:
        schedule: the traced schedule.
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


def trace_schedule(schedule: Schedule) -> Trace:
    """Return the trace of ``schedule`` without rounds in which nothing moves and without messages of no units.

    Raises:
        ScheduleError: if its messages do not match.
    """
    departed: dict[Messages, int] = {}
    landed: list[tuple[Messages, int, int]] = []
    for number, round_ in enumerate(match(schedule)):
        departed |= dict.fromkeys(round_.sent, number)
        landed += [(m, i, number) for m in round_.landed for i in range(len(m.target))]
    messages = [_message(m, i, departed[m], number) for m, i, number in landed]
    messages = [m for m in messages if m.sent.units]
    busy = sorted({n for m in messages for n in (m.departs, m.lands)})
    new = {number: i for i, number in enumerate(busy)}
    return Trace(schedule, tuple(replace(m, departs=new[m.departs], lands=new[m.lands]) for m in messages), len(new))


def _message(m: Messages, i: int, departs: int, lands: int) -> Message:
    operand = None if m.operand is None else _traced_part(m.operand, i)
    source, target = int(m.source[i]), int(m.target[i])
    return Message(source, target, _traced_part(m.sent, i), _traced_part(m.landed, i), operand, departs, lands)


def _traced_part(part: Part, i: int) -> TracedPart:
    return TracedPart(part.buffer, tuple(_units(part, i)))


def _units(part: Part, i: int) -> Iterator[int]:
    for r in part.ranges:
        yield from range(int(np.asarray(r.first)[i]), int(np.asarray(r.last)[i]))
