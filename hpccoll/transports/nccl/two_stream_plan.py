"""Folds beside transfers: the stages of a plan on two streams, one for messages and one for folds.

Both streams run in order. A fold waits for the last group before it, which received what it reads.
A group waits for the last fold before it that touches the same elements, unless the stream of
messages has waited for that one or a later one already. In the end the stream of messages waits for
the last fold, so that its end is that of the operation.

A ring whose messages have two groups of each logical time, one for each channel:

    messages   0a   0b   1a   1b   2a   2b  ...
    folds           0a   0b   1a   1b   2a  ...

Group 1a sends what fold 0a has written, while fold 0b runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from hpccoll.transports.nccl.lowering import NcclMessage, Stage


@dataclass(frozen=True, slots=True)
class FoldWaits:
    """The folds for which the stream of messages waits."""

    before: dict[int, int]  # by the number of a stage, the stage whose folds its messages wait for
    # the stage whose folds end last, None if the stream of messages has waited for it already
    last: int | None

    @property
    def awaited(self) -> set[int]:
        """The stages for whose folds the stream of messages waits."""
        stages = set(self.before.values())
        if self.last is not None:
            stages.add(self.last)
        return stages


NO_WAITS = FoldWaits({}, None)
"""Plans on one stream have no waits."""


def fold_waits(stages: Sequence[Stage]) -> FoldWaits:
    """Return where the stream of messages has to wait for the stream of folds."""
    before: dict[int, int] = {}
    pending: list[int] = []  # the stages with folds for which no group has waited
    for number, stage in enumerate(stages):
        conflicting = [
            at for at, folded in enumerate(pending) if _conflict(stages[folded], stage.messages)
        ]
        if conflicting:
            before[number] = pending[conflicting[-1]]
            pending = pending[conflicting[-1] + 1 :]
        if stage.waves:
            pending.append(number)
    return FoldWaits(before, pending[-1] if pending else None)


def _conflict(folded: Stage, messages: Sequence[NcclMessage]) -> bool:
    """Return whether messages touch what the folds of a stage write, or receive what these read."""
    for fold in chain.from_iterable(folded.waves):
        for message in messages:
            if message.span.overlaps(fold.out):
                return True
            if not message.sends and any(map(message.span.overlaps, fold.inputs)):
                return True
    return False
