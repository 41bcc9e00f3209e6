"""What plans over NCCL ask of a GPU: calls that queue work on one stream."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from hpccoll.transports.nccl.compile import NcclMessage
from hpccoll.transports.nccl.fold import Move
from hpccoll.transports.operation import Array, Operation

Call: TypeAlias = Callable[[], object]
Buffers: TypeAlias = Mapping[str, Array]


class CapturedGraph(Protocol):
    """Calls that were captured: ``launch`` queues all of them at once."""

    def launch(self) -> None: ...

    def close(self) -> None: ...


class NcclStream(Protocol):
    """What a plan asks of a GPU and of NCCL: calls that queue work on one stream."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer in its memory."""

    def group(self, buffers: Buffers, messages: Sequence[NcclMessage]) -> Call:
        """Return the call that queues ``messages``, which go on together; those between two ranks meet in order."""

    def folds(self, operation: Operation, buffers: Buffers, waves: Sequence[Sequence[Move]]) -> list[Call]:
        """Return the call that queues each wave, in one launch."""

    def wait(self) -> None:
        """Wait until all that is queued has ended."""

    def idle(self) -> bool:
        """Return whether all that is queued has ended."""

    def error(self) -> str | None:
        """Return what NCCL says has gone wrong, at this rank or another, while this one waits."""

    def capture(self, queue: Call) -> CapturedGraph:
        """Return what ``queue`` queues, without doing it."""
