"""Match: pair every send with its receive over all ranks, once; the other interpreters walk the result.

The k-th send from a to b in a step meets the k-th receive at b from a in a step, in listed order, as MPI pairs messages
of one tag. Steps need not have the same number on both sides: a rank's step starts when its last one has ended, and
ends when every message of it has a partner that has started. Where an algorithm does not branch on the rank, one step
describes the whole cluster and is paired at once; from the first step that cannot be, ranks are followed one by one.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.registry import Schedule
from hpccoll.schedule.words import NONE, Copy, Index, Part, Range, Receive, Reduce, Send, Step

Ranks: TypeAlias = NDArray[np.int64]


class ScheduleError(ValueError):
    """A schedule that is not one: says at which rank and step, and what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages of one kind: message i goes from rank ``source[i]`` to rank ``target[i]``.

    The ends of the parts' ranges are arrays over the messages. ``own`` is what a reduction folds the arrival with, None
    where the arrival replaces. A copy is a message from a rank to itself.
    """

    source: Ranks
    target: Ranks
    sent: Part
    landed: Part
    own: Part | None


@dataclass(frozen=True, slots=True)
class Round:
    """One logical time: messages whose sender has started its step, and messages whose receiver ends its step.

    A message is read when it is sent and folded when it lands, which may be rounds later; ``landed`` is in the order in
    which arrivals are folded.
    """

    sent: tuple[Messages, ...]
    landed: tuple[Messages, ...]


def match(schedule: Schedule) -> Iterator[Round]:
    """Yield the rounds of a schedule.

    Raises:
        ScheduleError: for a message without a partner, partners of different length, units outside the buffer, a
            message to oneself, or ranks that wait for each other for ever.
    """
    everyone = np.arange(schedule.layout.ranks, dtype=np.int64)
    steps = schedule.steps(everyone)
    aligned = 0
    while True:
        try:
            step = next(steps)
        except StopIteration:
            return
        except (TypeError, ValueError):  # it branches on the rank; a true error comes again, rank by rank
            break
        messages = _pair_aligned(schedule, step, everyone)
        if messages is None:
            break
        yield Round(messages, messages)
        aligned += 1
    yield from _pair_one_by_one(schedule, aligned)


def _spread(index: Index, at: Ranks) -> Ranks:
    """Return ``index``, an int or an array over all ranks, at the ranks ``at``."""
    return np.full(len(at), index, np.int64) if np.ndim(index) == 0 else np.asarray(index, np.int64)[at]


def _spread_part(part: Part, at: Ranks) -> Part:
    return Part(part.buffer, tuple(Range(_spread(r.first, at), _spread(r.last, at)) for r in part.ranges))


def _pair(schedule: Schedule, source: Ranks, target: Ranks, sent: Part, arrival: Receive | Reduce | Copy) -> Messages:
    """Return the messages, after checking what any message must obey."""
    landed = arrival.target if isinstance(arrival, Copy) else arrival.part
    own = arrival.own if isinstance(arrival, Reduce) else None
    messages = Messages(
        source,
        target,
        _spread_part(sent, source),
        _spread_part(landed, target),
        None if own is None else _spread_part(own, target),
    )
    lengths = [
        sum((np.asarray(r.last) - np.asarray(r.first) for r in part.ranges), start=np.zeros(len(source), np.int64))
        for part in (messages.sent, messages.landed, messages.own or messages.landed)
    ]
    if (lengths[0] != lengths[1]).any() or (lengths[1] != lengths[2]).any():
        at = int(np.flatnonzero((lengths[0] != lengths[1]) | (lengths[1] != lengths[2]))[0])
        raise ScheduleError(
            f"rank {source[at]} sends {lengths[0][at]} units where rank {target[at]} expects {lengths[1][at]}"
        )
    for part, at_rank in ((messages.sent, source), (messages.landed, target), (messages.own or messages.landed, target)):
        for r in part.ranges:
            top = schedule.units if part.buffer != "tmp" else np.iinfo(np.int64).max
            wrong = (np.asarray(r.first) < 0) | (np.asarray(r.last) > top) | (np.asarray(r.first) > np.asarray(r.last))
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                raise ScheduleError(
                    f"rank {at_rank[at]} names {part.buffer}[{np.asarray(r.first)[at]}:{np.asarray(r.last)[at]}] "
                    f"of {schedule.units} units"
                )
    return messages


def _pair_aligned(schedule: Schedule, step: Step, everyone: Ranks) -> tuple[Messages, ...] | None:
    """Pair the j-th send of a step of all ranks with its j-th receive; None where they are not partners."""
    sends = [action for action in step.actions if isinstance(action, Send)]
    arrivals = [action for action in step.actions if isinstance(action, (Receive, Reduce))]
    if len(sends) != len(arrivals):
        return None
    partner = dict(zip(map(id, arrivals), sends, strict=True))
    paired = []
    for action in step.actions:
        if isinstance(action, Send):
            continue
        if isinstance(action, Copy):
            paired.append(_pair(schedule, everyone, everyone, action.source, action))
            continue
        send = partner[id(action)]
        to, from_ = _spread(send.peer, everyone), _spread(action.peer, everyone)
        source = everyone[to != NONE]
        target = to[source]
        if (target < 0).any() or (target >= len(everyone)).any() or (source == target).any():
            return None  # one by one finds the words for it
        if len(source) != np.count_nonzero(from_ != NONE) or (from_[target] != source).any():
            return None
        paired.append(_pair(schedule, source, target, send.part, action))
    return tuple(paired)


@dataclass(slots=True)
class _Program:
    """The steps of one rank, how far it is, and for each step the messages in it and the ranks it waits for."""

    steps: list[Step]
    at: int
    sent: list[list[Messages]]
    landed: list[list[Messages]]
    partners: list[list[tuple[int, int]]]


def _pair_one_by_one(schedule: Schedule, skip: int) -> Iterator[Round]:
    ranks = range(schedule.layout.ranks)
    programs = []
    for me in ranks:
        steps = list(islice(schedule.steps(me), skip, None))
        programs.append(_Program(steps, 0, *([[] for _ in steps] for _ in range(3))))
    _pair_all(schedule, programs, skip)
    fresh = list(ranks)
    while any(program.at < len(program.steps) for program in programs):
        sent = [m for me in fresh if programs[me].at < len(programs[me].steps) for m in programs[me].sent[programs[me].at]]
        fresh = [
            me
            for me, program in enumerate(programs)
            if program.at < len(program.steps)
            and all(programs[peer].at >= step for peer, step in program.partners[program.at])
        ]
        if not fresh:
            raise ScheduleError(_deadlock(programs, skip))
        landed = [m for me in fresh for m in programs[me].landed[programs[me].at]]
        yield Round(tuple(sent), tuple(landed))
        for me in fresh:
            programs[me].at += 1


def _pair_all(schedule: Schedule, programs: list[_Program], skip: int) -> None:
    """Fill in the messages and partners of every step."""
    sends: dict[tuple[int, int, int], list[tuple[int, Part]]] = defaultdict(list)
    arrivals: dict[tuple[int, int, int], list[tuple[int, int, Receive | Reduce]]] = defaultdict(list)
    for me, program in enumerate(programs):
        for number, step in enumerate(program.steps):
            ordinal: dict[tuple[type, int], int] = defaultdict(int)
            for action in step.actions:
                if isinstance(action, Copy):
                    itself = np.array([me])
                    messages = _pair(schedule, itself, itself, action.source, action)
                    program.sent[number].append(messages)
                    program.landed[number].append(messages)
                    continue
                peer = int(action.peer)
                if peer == NONE:
                    continue
                if peer == me or not 0 <= peer < len(programs):
                    raise ScheduleError(f"rank {me}, step {number + skip}: {peer} is no peer")
                kind = Send if isinstance(action, Send) else Receive
                k = ordinal[kind, peer]
                ordinal[kind, peer] += 1
                if isinstance(action, Send):
                    sends[me, peer, k].append((number, action.part))
                else:
                    program.landed[number].append(_PENDING)
                    arrivals[peer, me, k].append((number, len(program.landed[number]) - 1, action))
    for key in sends.keys() | arrivals.keys():
        source, target, k = key
        if len(sends[key]) != len(arrivals[key]):
            raise ScheduleError(
                f"rank {source} sends {len(sends[key])} messages to rank {target} which receives {len(arrivals[key])}"
                + (f" (message {k} of a step)" if k else "")
            )
        for (sent_in, part), (landed_in, place, arrival) in zip(sends[key], arrivals[key], strict=True):
            messages = _pair(schedule, np.array([source]), np.array([target]), part, arrival)
            programs[source].sent[sent_in].append(messages)
            programs[target].landed[landed_in][place] = messages
            programs[source].partners[sent_in].append((target, landed_in))
            programs[target].partners[landed_in].append((source, sent_in))


_PENDING = Messages(np.array([]), np.array([]), Part("dst", ()), Part("dst", ()), None)
"""Keeps the place of an arrival in the listed order until its sender is known."""


def _deadlock(programs: list[_Program], skip: int) -> str:
    waits = [
        f"rank {me} in step {program.at + skip} waits for rank {peer} to reach step {step + skip}"
        for me, program in enumerate(programs)
        if program.at < len(program.steps)
        for peer, step in program.partners[program.at]
        if programs[peer].at < step
    ]
    return "deadlock: " + "; ".join(waits)
