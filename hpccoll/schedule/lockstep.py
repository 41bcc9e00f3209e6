"""Lockstep: all ranks in one process on NumPy arrays, without MPI. Tests compare transports with it."""

from typing import TYPE_CHECKING

import numpy as np

from hpccoll.schedule.step import Part
from hpccoll.schedule.walk import Message, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpccoll.schedule.operation import Array, Operation


def run_lockstep(operation: "Operation", src: "Sequence[Array]", dst: "Sequence[Array]") -> None:
    """Run ``operation`` once on the buffers of all ranks.

    ``src`` and ``dst`` have the buffer of each rank, ``operation.elements`` long; src is unused in
    place.
    """
    for lane in range(operation.lanes):
        trace = operation.traces[lane % len(operation.slices)]
        walk(trace, _Elements(operation, lane, src, dst))
    workers = operation.layout.workers
    for me in range(workers):
        operation.reduction.scale(operation.result(dst[me], me), workers)


class _Elements:
    """The buffers of all ranks, accessed by the parts of one lane."""

    def __init__(
        self, operation: "Operation", lane: int, src: "Sequence[Array]", dst: "Sequence[Array]"
    ) -> None:
        self.operation = operation
        self.lane = lane
        tmp: list[Array] = [np.empty(0, operation.dtype) for _ in dst]
        self.buffers = {"src": list(src), "dst": list(dst), "tmp": tmp}

    def _read(self, me: int, part: Part) -> "Array":
        spans = self.operation.cut.spans(self.lane, me, part)
        if not spans:
            return self.buffers["dst"][me][:0]
        buffer = self.buffers[part.buffer][me]
        return np.concatenate([buffer[start:stop] for start, stop in spans])

    def read(self, message: Message) -> "Array":
        return self._read(message.source, message.sent)

    def land(self, message: Message, arrival: "Array") -> None:
        me = message.target
        buffers = self.buffers[message.landed.buffer]
        if message.operand is not None:
            arrival = self.operation.reduction.fold(self._read(me, message.operand), arrival)
        spans = self.operation.cut.spans(self.lane, me, message.landed)
        length = max((stop for _, stop in spans), default=0)
        if message.landed.buffer == "tmp" and length > len(buffers[me]):
            buffers[me] = np.resize(buffers[me], length)
        done = 0
        for start, stop in spans:
            count = stop - start
            buffers[me][start:stop] = arrival[done : done + count]
            done += count
