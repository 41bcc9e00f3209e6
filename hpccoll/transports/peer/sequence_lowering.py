"""What both protocols of the peer kernel share: the sequence of a rank's lanes, lowered step by step to a program."""

from collections.abc import Iterator, Mapping, Sequence

from hpccoll.schedule import Copy, CopyReduce, Part, RecvReduce, Step
from hpccoll.schedule.step import Action
from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.shared_lowering import Lowering, Span, align_pieces


class SequenceLowering:
    """The program of the lanes of a sequence, which run one after another.

    Args:
        lowering: that of the rank.
        number: the number of the sequence.
        lanes: its lanes.
        incoming: by peer, where each message that it sends lies, in order.

    Attributes:
        scratch: the name of the sequence's scratch.
        scratch_length: its elements, once the program has been made.
    """

    def __init__(
        self,
        lowering: Lowering,
        number: int,
        lanes: range,
        incoming: Mapping[int, Iterator[list[Span]]],
    ) -> None:
        self.lowering = lowering
        self.number = number
        self.lanes = lanes
        self.scratch = f"scratch {number}"
        self.scratch_length = 0
        self._incoming = incoming
        self._step_number = 0  # counted over the lanes

    def _lower_step(self, lane: int, step: Step) -> None:
        """Append the instructions of a step."""
        raise NotImplementedError

    def _append_folds(self, folds: Sequence[Fold]) -> None:
        """Append folds to do in order."""
        raise NotImplementedError

    def _lower_lanes(self) -> None:
        workers = self.lowering.operation.layout.workers
        for lane in self.lanes:
            for step in self.lowering.steps(lane):
                self._lower_step(lane, step)
                self._step_number += 1
            averaged = self.lowering.averaged(lane)
            self._append_folds([Fold(span, (span,), workers) for span in averaged])

    def _folds_of(self, lane: int, step: Step, number: int, source: Sequence[Span]) -> list[Fold]:
        """Return the folds that put what action ``number`` receives or copies from ``source`` to its place."""
        action = step.actions[number]
        spans = self.lowering.spans
        if isinstance(action, RecvReduce | CopyReduce):
            operand = spans(lane, action.operand)
            pieces = align_pieces(spans(lane, _target(action)), operand, source)
            return [Fold(out, (own, arrived)) for out, own, arrived in pieces]
        return copied(spans(lane, _target(action)), source)

    def _copies(self, lane: int, action: Copy, source: Sequence[Span]) -> list[Fold]:
        return copied(self.lowering.spans(lane, action.target), source)

    def _allocate_scratch(self, source: Sequence[Span], used: int) -> tuple[Span, int]:
        """Return a span of scratch after ``used``, aligned like the source for vector accesses, and its end."""
        grain = self.lowering.operation.cut.grain
        start = used + (source[0].start - used) % grain
        stop = start + total_length(source)
        self.scratch_length = max(self.scratch_length, stop)
        return Span(self.scratch, start, stop), stop


def total_length(part: Sequence[Span]) -> int:
    """Return the elements of a part."""
    return sum(map(len, part))


def copied(target: Sequence[Span], source: Sequence[Span]) -> list[Fold]:
    """Return the copies of ``source`` to ``target``."""
    return [Fold(out, (span,)) for out, span in align_pieces(target, source)]


def _target(action: Action) -> Part:
    """Return the part that an action writes."""
    if isinstance(action, Copy):
        return action.target
    return action.part
