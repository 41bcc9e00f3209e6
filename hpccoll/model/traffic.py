"""The traffic of a schedule: its messages, with the steps that they connect, as arrays.

An exact simulation needs the steps of every rank, hence all messages; ``Traffic`` holds them. A
simulation of all ranks at once needs one wave of messages after another: if all steps of a schedule
are of all ranks, waves are made while they are consumed, and a ring of 16,384 ranks never exists as
a whole.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.memory import collector_paused
from hpccoll.schedule import NONE, Copy, Cut, Layout, MatchedStep, Messages, Part, Schedule, match
from hpccoll.schedule.step import Range

KEPT_MESSAGES = 1_000_000
"""The most messages of a schedule that are kept: about 60 bytes each."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool]


@dataclass(frozen=True, slots=True)
class MessageArrays:
    """Messages between different ranks, as arrays over them."""

    source: Ints  # the sender of each message
    target: Ints  # its receiver
    reduces: Bools  # whether the receiver folds it
    # what the messages carry, group by group: their indices, and the part at their senders
    parts: tuple[tuple[Ints, Part], ...]

    def nbytes(self, cut: Cut, lane: int) -> Ints:
        """Return the bytes of each message in a lane."""
        if len(self.parts) == 1:
            indices, part = self.parts[0]
            if len(indices) == len(self.source):
                return cut.lengths(lane, part, self.source) * cut.itemsize
        sizes = np.zeros(len(self.source), np.int64)
        for indices, part in self.parts:
            sizes[indices] = cut.lengths(lane, part, self.source[indices])
        return sizes * cut.itemsize


@dataclass(frozen=True, slots=True)
class Wave(MessageArrays):
    """Messages between ranks that have all begun the steps which these messages connect."""

    ended: Ints  # the ranks whose steps end with this wave

    def in_lane(self, cut: Cut, lane: int) -> "LaneWave":
        """Return the wave with the bytes that its messages have in a lane."""
        return LaneWave.of(
            self.source, self.target, self.reduces, self.nbytes(cut, lane), self.ended
        )


@dataclass(frozen=True, slots=True, eq=False)
class LaneWave:
    """A wave of a lane: its messages that are not empty, as arrays over them. Equal waves of a run are one object."""

    source: Ints  # the sender of each message
    # its receiver; of another block, by a whole block more than the rank that stands for it
    target: Ints
    reduces: Bools  # whether the receiver folds it
    nbytes: Ints
    ended: Ints  # the ranks whose steps end with this wave

    @classmethod
    def of(
        cls, source: Ints, target: Ints, reduces: Bools, nbytes: Ints, ended: Ints
    ) -> "LaneWave":
        """Return the wave of those messages that are not empty."""
        if nbytes.all():
            return cls(source, target, reduces, nbytes, ended)
        some = np.flatnonzero(nbytes)
        return cls(source[some], target[some], reduces[some], nbytes[some], ended)


class WaveRun(NamedTuple):
    """Waves that repeat one after another."""

    waves: tuple[LaneWave, ...]
    repeats: int


class Waves(Protocol):
    """The waves of an operation: see ``equal_waves``."""

    layout: Layout  # the layout of all ranks
    cut: Cut  # the positions of the units
    block: int  # how many ranks, the first ones, stand for all

    def of(self, lane: int) -> Iterable[WaveRun]:
        """Return the runs of a lane."""


@dataclass(frozen=True, slots=True)
class Traffic(MessageArrays):
    """All messages of one slice."""

    send_step: Ints  # the number of the sender's step
    receive_step: Ints  # the number of the receiver's step
    ended: tuple[Ints, ...]  # the ranks whose steps end in each step of the matcher

    @classmethod
    def of(cls, schedule: Schedule, most: float = inf) -> "Traffic":
        """Return the traffic of a schedule.

        Raises:
            TooManyMessagesError: if it has more than ``most`` messages.
        """
        with collector_paused():
            return cls._paired(schedule, most)

    @classmethod
    def _paired(cls, schedule: Schedule, most: float) -> "Traffic":
        now = np.zeros(schedule.layout.ranks, np.int64)
        away: dict[Messages, tuple[Ints, Ints]] = {}
        columns: list[tuple[Ints, ...]] = [(now[:0],) * 5]
        parts = []
        ended = []
        count = 0
        for matched in match(schedule):
            for m in matched.sent:
                between = np.flatnonzero(m.source != m.target)
                away[m] = between, now[m.source[between]]
            folding = _ranks_with_local_folds(matched)
            for m in matched.landed:
                between, send_step = away.pop(m)
                source, target = m.source[between], m.target[between]
                reduces = np.full(len(between), m.operand is not None)
                if len(folding):
                    reduces |= np.isin(target, folding)
                columns.append((source, target, send_step, now[target], reduces))
                parts.append((np.arange(count, count + len(between)), _at(m.sent, between)))
                count += len(between)
            if count > most:
                raise TooManyMessagesError
            ended.append(matched.ended)
            now[matched.ended] += 1
        source, target, send_step, receive_step, reduces = map(
            np.concatenate, zip(*columns, strict=True)
        )
        return cls(
            source,
            target,
            reduces.astype(bool),
            tuple(_joined(parts)),
            send_step,
            receive_step,
            tuple(ended),
        )

    def waves(self) -> Iterator[Wave]:
        """Yield the messages in waves: each as soon as the step of its sender or of its receiver ends."""
        ending = self._ending_steps()
        order = np.argsort(ending, kind="stable")
        bounds = np.searchsorted(ending[order], np.arange(len(self.ended) + 1))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        groups = []  # the messages of each part, in the order of the waves
        for indices, part in self.parts:
            places = place[indices]
            by_place = np.argsort(places, kind="stable")
            groups.append((places[by_place], _at(part, by_place)))
        for number, ended in enumerate(self.ended):
            begin, end = bounds[number], bounds[number + 1]
            chosen = order[begin:end]
            parts = []
            for places, part in groups:
                first, last = np.searchsorted(places, (begin, end))
                if first < last:
                    parts.append((places[first:last] - begin, _at(part, slice(first, last))))
            yield Wave(
                self.source[chosen], self.target[chosen], self.reduces[chosen], tuple(parts), ended
            )

    def _ending_steps(self) -> Ints:
        """Return the step of the matcher in which the step of the sender or of the receiver of each message ends."""
        ranks = int(max((ended.max() for ended in self.ended if len(ended)), default=-1)) + 1
        steps = np.zeros(ranks, np.int64)
        for ended in self.ended:
            steps[ended] += 1
        first = steps.cumsum() - steps
        matched_step_of = np.zeros(steps.sum(), np.int64)  # of the end of each step of each rank
        steps[:] = 0
        for number, ended in enumerate(self.ended):
            matched_step_of[first[ended] + steps[ended]] = number
            steps[ended] += 1
        sent = matched_step_of[first[self.source] + self.send_step]
        received = matched_step_of[first[self.target] + self.receive_step]
        earlier: Ints = np.minimum(sent, received)
        return earlier


def _ranks_with_local_folds(matched: MatchedStep) -> Ints:
    """Return the ranks that fold parts of their own in a step, each with what it only received.

    The time of such a fold is that of one more reduced arrival: what arrives is as large.
    """
    ranks = [matched.ended[:0]]
    for m in matched.landed:
        if m.operand is not None and m.source is m.target:
            ranks.append(m.target)
    return np.concatenate(ranks)


class TooManyMessagesError(ValueError):
    """A schedule with too many messages to keep them all."""


def has_more_messages(schedule: Schedule, most: int) -> bool:
    """Return whether a regular schedule has more messages; False if only its traffic can say."""
    if schedule.regularity is None:
        return False
    ranks = schedule.layout.ranks
    messages = 0
    for step in schedule.steps(0):
        if any(not isinstance(action, Copy) and action.peer != NONE for action in step.actions):
            messages += ranks
            if messages > most:
                return True
    return False


@lru_cache(maxsize=32)
def kept_traffic(schedule: Schedule) -> Traffic | None:
    """Return the traffic of a schedule, made once for all sizes and machines; None if it has too many messages."""
    try:
        return Traffic.of(schedule, KEPT_MESSAGES)
    except TooManyMessagesError:
        return None


class NotAlignedError(ValueError):
    """A schedule some of whose messages are sent in one step of all ranks and received in another."""


def streamed_waves(schedule: Schedule) -> Iterator[Wave]:
    """Yield the waves of a schedule while its steps are generated.

    Raises:
        NotAlignedError: if a message is not received in the step in which it is sent, or steps are
            not of all ranks.
    """
    everyone = np.arange(schedule.layout.ranks)
    for matched in match(schedule):
        if matched.sent is not matched.landed:
            raise NotAlignedError
        kept = [m for m in matched.sent if m.source is not m.target]  # the others are copies
        counts = [len(m.source) for m in kept]
        ends = np.cumsum([0, *counts])
        parts = []
        for m, (first, last) in zip(kept, pairwise(ends), strict=True):
            indices = everyone
            if not last - first == len(everyone) == ends[-1]:
                indices = np.arange(first, last)
            parts.append((indices, m.sent))
        if len(kept) == 1:
            source, target = kept[0].source, kept[0].target
        else:
            none = matched.ended[:0]
            source = np.concatenate([none, *(m.source for m in kept)])
            target = np.concatenate([none, *(m.target for m in kept)])
        are_folded = [m.operand is not None for m in kept]
        reduces = np.repeat(are_folded, np.diff(ends)).astype(bool)
        folding = _ranks_with_local_folds(matched)
        if len(folding):
            reduces |= np.isin(target, folding)
        yield Wave(source, target, reduces, tuple(parts), matched.ended)


def waves(schedule: Schedule) -> Iterator[Wave]:
    """Yield the waves of a schedule: those of its traffic if that is kept, else as they are generated if possible."""
    done = 0
    try:
        if traffic := kept_traffic(schedule):
            yield from traffic.waves()
            return
        for wave in streamed_waves(schedule):
            yield wave
            done += 1
    except NotAlignedError:
        yield from islice(Traffic.of(schedule).waves(), done, None)


def _at(part: Part, indices: Ints | slice) -> Part:
    ranges = (Range(np.asarray(r.first)[indices], np.asarray(r.last)[indices]) for r in part.ranges)
    return Part(part.buffer, tuple(ranges))


def _joined(parts: Sequence[tuple[Ints, Part]]) -> Iterator[tuple[Ints, Part]]:
    """Yield the parts of one buffer and number of ranges as one, because a tree has a part for every message."""
    alike: dict[tuple[str, int], list[tuple[Ints, Part]]] = defaultdict(list)
    for indices, part in parts:
        alike[part.buffer, len(part.ranges)].append((indices, part))
    for (buffer, count), group in alike.items():
        ranges = []
        for number in range(count):
            firsts = np.concatenate([part.ranges[number].first for _, part in group])
            lasts = np.concatenate([part.ranges[number].last for _, part in group])
            ranges.append(Range(firsts, lasts))
        indices_of_all = np.concatenate([indices for indices, _ in group])
        yield indices_of_all, Part(buffer, tuple(ranges))
