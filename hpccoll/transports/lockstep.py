"""The reference executor: all ranks in one process on NumPy arrays, without MPI. Tests compare transports with it."""

from collections.abc import Sequence

import numpy as np

from hpccoll.schedule import Messages, Part, match
from hpccoll.schedule.step import Range
from hpccoll.transports.transport_interface import Array, Operation


def run_lockstep(operation: Operation, src: Sequence[Array], dst: Sequence[Array]) -> None:
    """Run ``operation`` once on the buffers of all ranks.

    Args:
        operation: the operation to run.
        src: the source buffer of each rank, ``operation.elements("src", rank)`` long; unused in place.
        dst: the destination buffer of each rank, ``operation.elements("dst", rank)`` long.
    """
    slices = [list(match(operation.lane_schedule(number))) for number in range(len(operation.schedules))]
    for lane in range(operation.lanes):
        staged: dict[Messages, list[Array]] = {}
        memory = _Memory(operation, lane, src, dst)
        for round_ in slices[lane % len(slices)]:
            for m in round_.sent:
                staged[m] = [memory.read(m.sent, me, i) for i, me in enumerate(m.source)]
            for m in round_.landed:
                for i, (me, arrival) in enumerate(zip(m.target, staged.pop(m), strict=True)):
                    operand = None if m.operand is None else memory.read(m.operand, me, i)
                    folded = arrival if operand is None else operation.reduction.fold(operand, arrival)
                    memory.write(m.landed, me, i, folded)
    for me in range(operation.layout.workers):
        operation.reduction.scale(operation.result(dst[me], me), operation.layout.workers)


class _Memory:
    """The buffers of all ranks, accessed by the parts of one lane."""

    def __init__(self, operation: Operation, lane: int, src: Sequence[Array], dst: Sequence[Array]) -> None:
        self.cut, self.lane, self.dtype = operation.cut, lane, operation.dtype
        self.buffers = {"src": list(src), "dst": list(dst), "tmp": [np.empty(0, self.dtype) for _ in dst]}

    def _spans(self, part: Part, me: int, i: int) -> list[tuple[int, int]]:
        ranges = tuple(Range(np.asarray(r.first)[i], np.asarray(r.last)[i]) for r in part.ranges)
        return self.cut.spans(self.lane, me, Part(part.buffer, ranges))

    def read(self, part: Part, me: int, i: int) -> Array:
        pieces = [self.buffers[part.buffer][me][a:b] for a, b in self._spans(part, me, i)]
        return np.concatenate(pieces) if pieces else np.empty(0, self.dtype)

    def write(self, part: Part, me: int, i: int, values: Array) -> None:
        spans = self._spans(part, me, i)
        length = max((b for _, b in spans), default=0)
        if part.buffer == "tmp" and length > len(self.buffers["tmp"][me]):
            self.buffers["tmp"][me] = np.resize(self.buffers["tmp"][me], length)
        done = 0
        for a, b in spans:
            self.buffers[part.buffer][me][a:b] = values[done : done + b - a]
            done += b - a
