"""The traffic of a schedule: its messages with the steps that they connect, as arrays."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule import Cut, Messages, Part, Schedule, match
from hpccoll.schedule.step import Range

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The messages of one slice between different ranks, in the order in which schedules list them.

    Args:
        source: the sender of each message.
        target: its receiver.
        send_step: the number of the sender's step.
        receive_step: the number of the receiver's step.
        reduces: whether the receiver folds it.
        parts: what each group of messages carries: the indices of the messages, and the part at their senders.
        steps: the number of steps of each rank.
    """

    source: Ints
    target: Ints
    send_step: Ints
    receive_step: Ints
    reduces: NDArray[np.bool]
    parts: tuple[tuple[Ints, Part], ...]
    steps: Ints

    @classmethod
    def of(cls, schedule: Schedule) -> "Traffic":
        """Return the traffic of a schedule."""
        now = np.zeros(schedule.layout.ranks, np.int64)
        away: dict[Messages, tuple[Ints, Ints]] = {}
        columns: list[tuple[Ints, ...]] = [(now[:0],) * 5]
        parts, count = [], 0
        for round_ in match(schedule):
            for m in round_.sent:
                between = np.flatnonzero(m.source != m.target)
                away[m] = between, now[m.source[between]]
            for m in round_.landed:
                between, send_step = away.pop(m)
                source, target = m.source[between], m.target[between]
                reduces = np.full(len(between), m.operand is not None, np.int64)
                columns.append((source, target, send_step, now[target], reduces))
                parts.append((np.arange(count, count + len(between)), _at(m.sent, between)))
                count += len(between)
            now[round_.ended] += 1
        source, target, send_step, receive_step, reduces = map(np.concatenate, zip(*columns, strict=True))
        return cls(source, target, send_step, receive_step, reduces.astype(bool), tuple(_joined(parts)), now)

    def nbytes(self, cut: Cut, lane: int) -> Ints:
        """Return the bytes of each message in a lane."""
        sizes = np.zeros(len(self.source), np.int64)
        for indices, part in self.parts:
            sizes[indices] = cut.lengths(lane, part, self.source[indices])
        return sizes * cut.itemsize


def _at(part: Part, indices: Ints) -> Part:
    """Return the part of some of the messages."""
    return Part(
        part.buffer, tuple(Range(np.asarray(r.first)[indices], np.asarray(r.last)[indices]) for r in part.ranges)
    )


def _joined(parts: Sequence[tuple[Ints, Part]]) -> Iterator[tuple[Ints, Part]]:
    """Yield the parts of one buffer and number of ranges as one, because a tree has a part for every message."""
    alike: dict[tuple[str, int], list[tuple[Ints, Part]]] = defaultdict(list)
    for indices, part in parts:
        alike[part.buffer, len(part.ranges)].append((indices, part))
    for (buffer, _), group in alike.items():
        ranges = zip(*(part.ranges for _, part in group), strict=True)
        ends = (Range(*map(np.concatenate, zip(*each, strict=True))) for each in ranges)
        yield np.concatenate([indices for indices, _ in group]), Part(buffer, tuple(ends))
