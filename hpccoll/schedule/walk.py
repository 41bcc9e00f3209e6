"""The messages of a schedule one by one, and the walk over them in the order in which buffers are read and written.

What a message carries is up to the memory that is walked: contributions (prove), elements
(lockstep), or the letters of a picture.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol, TypeVar

import numpy as np

from hpccoll.schedule.match import Messages, match
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Buffer, Part

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One message, or a copy from a rank to itself; messages compare by identity, as two may be alike.

    The parts have a range for each unit, so that parts of the same units are equal.
    """

    source: int  # the rank that sends
    target: int  # the rank that receives
    sent: Part  # what is read at the source when the message departs
    landed: Part  # what is written at the target when it lands
    operand: Part | None  # what the arrival is folded with; None if it replaces
    departs: int  # the step at whose start it departs, from 0
    lands: int  # the step at whose end it lands

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
    """The messages of a schedule."""

    schedule: Schedule  # the traced schedule
    departing: tuple[list[Message], ...]  # the messages that depart in each step
    # the messages that land in each step, in the order in which they are folded
    landing: tuple[list[Message], ...]

    @property
    def steps(self) -> int:
        """The number of steps in which something departs or lands."""
        return len(self.landing)

    @property
    def messages(self) -> list[Message]:
        """All messages in the order in which they land."""
        return list(chain.from_iterable(self.landing))


def trace_schedule(schedule: Schedule, ranks: int | None = None, steps: int | None = None) -> Trace:
    """Return the trace of ``schedule`` without messages of no units, and without steps in which nothing moves.

    Args:
        schedule: the schedule.
        ranks: the number of ranks, from 0 on, that are traced: only messages that they send or
            receive [all].
        steps: the number of steps of the matcher, from the first one on, that are traced [all].

    Raises:
        ScheduleError: if its messages do not match.
    """
    departed: dict[Messages, int] = {}
    moving: set[int] = set()
    traced = []
    for number, matched in enumerate(islice(match(schedule), steps)):
        departed |= dict.fromkeys(matched.sent, number)
        for m in matched.landed:
            length = np.sum([np.subtract(r.last, r.first) for r in m.sent.ranges], axis=0)
            if np.any(length):
                moving |= {departed[m], number}
            if ranks is not None:
                length = np.where(np.minimum(m.source, m.target) < ranks, length, 0)
            traced += [(m, int(i), departed[m], number) for i in np.flatnonzero(length)]
    busy = sorted(moving)
    renumbered = {number: i for i, number in enumerate(busy)}
    trace = Trace(schedule, tuple([] for _ in busy), tuple([] for _ in busy))
    for m, i, departs, lands in traced:
        message = _message(m, i, renumbered[departs], renumbered[lands])
        trace.departing[message.departs].append(message)
        trace.landing[message.lands].append(message)
    return trace


def _message(m: Messages, i: int, departs: int, lands: int) -> Message:
    """Return message ``i``."""
    return Message(
        source=int(m.source[i]),
        target=int(m.target[i]),
        sent=_single(m.sent, i),
        landed=_single(m.landed, i),
        operand=None if m.operand is None else _single(m.operand, i),
        departs=departs,
        lands=lands,
    )


def _single(part: Part, i: int) -> Part:
    """Return the part of message ``i``, with a range for each unit."""
    units: list[int] = []
    for r in part.ranges:
        first = int(np.asarray(r.first)[i])
        last = int(np.asarray(r.last)[i])
        units.extend(range(first, last))
    return Buffer(part.buffer).units(units)


class Memory(Protocol[Payload]):
    """The buffers of all ranks."""

    def read(self, message: Message) -> Payload:
        """Return what a message carries: what its source has when it departs."""

    def land(self, message: Message, arrival: Payload) -> None:
        """Write an arrival at the target, folded with the operand if there is one."""


def walk(
    trace: Trace, memory: Memory[Payload], after_step: Callable[[], None] = lambda: None
) -> None:
    """Move all messages of a trace through a memory.

    ``memory`` is that of all ranks; ``after_step`` is called after each step.
    """
    carried: dict[Message, Payload] = {}
    for departing, landing in zip(trace.departing, trace.landing, strict=True):
        for message in departing:
            carried[message] = memory.read(message)
        for message in landing:
            memory.land(message, carried.pop(message))
        after_step()
