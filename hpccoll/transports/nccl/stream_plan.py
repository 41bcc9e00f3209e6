"""What plans over NCCL ask of a GPU: calls that queue work on one stream."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from hpccoll.transports.nccl.compile import NcclMessage
from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.operation import Array, Operation

StreamCall: TypeAlias = Callable[[], object]
NamedBuffers: TypeAlias = Mapping[str, Array]


class CapturedGraph(Protocol):
    """Calls that were captured: ``launch`` queues all of them at once."""

    def launch(self) -> None: ...

    def close(self) -> None: ...


class NcclStream(Protocol):
    """What a plan asks of a GPU and of NCCL: calls that queue work on one stream."""

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return a buffer in its memory."""

    def group_call(self, buffers: NamedBuffers, messages: Sequence[NcclMessage]) -> StreamCall:
        """Return the call that queues ``messages``, which go on together; those between two ranks meet in order."""

    def fold_calls(
        self, operation: Operation, buffers: NamedBuffers, waves: Sequence[Sequence[Fold]]
    ) -> list[StreamCall]:
        """Return the call that queues each wave, in one launch."""

    def wait(self) -> None:
        """Wait until all that is queued has ended."""

    def idle(self) -> bool:
        """Return whether all that is queued has ended."""

    def error(self) -> str | None:
        """Return what NCCL says has gone wrong, at this rank or another, while this one waits."""

    def capture(self, queue: StreamCall) -> CapturedGraph:
        """Return what ``queue`` queues, without doing it."""


class StreamPlan:
    """A plan whose calls are queued on a device's stream.

    Args:
        device: the GPU.
        result: where the result lies.
        calls: that queue the operation.
        what: it is, for a person who wonders why it does not end.
        buffers: that the calls know by their addresses alone: they stay as long as the plan.
    """

    def __init__(
        self, device: NcclStream, result: Array, calls: Sequence[StreamCall], what: str, buffers: Iterable[Array] = ()
    ) -> None:
        self.result, self._what, self._buffers = result, what, [*buffers]
        self._calls: Sequence[StreamCall] = (
            calls  # kept beside a graph of them, which knows the tables of folds by their addresses alone
        )
        self._device, self._wait = device, device.wait
        self._graph: CapturedGraph | None = None
        self.enqueue: StreamCall = calls[0] if len(calls) == 1 else _call_in_order(calls)
        """Queue the operation and return at once. No method: a plan that holds itself would hold memory of the GPU."""

    def prepared(self, *, graph: bool) -> "StreamPlan":
        """Run once, so that connections are made and kernels loaded, and capture the calls if they are to be a graph.

        On all ranks together; the buffers are overwritten. Where NCCL refuses the calls, the plan is closed.
        """
        try:
            self._prepare(graph=graph)
        except BaseException:
            self.close()
            raise
        return self

    def _prepare(self, *, graph: bool) -> None:
        self.run()
        if graph:
            self._graph = self._device.capture(self.enqueue)
            self.enqueue = self._graph.launch
            self.run()  # the first launch takes it to the GPU

    def run(self) -> None:
        self.enqueue()
        self._wait()

    def idle(self) -> bool:
        """Return whether all that was queued has ended."""
        return self._device.idle()

    def error(self) -> str | None:
        """Return what NCCL says has gone wrong."""
        said = self._device.error()
        return said and f"NCCL says: {said}"

    def progress(self) -> str:
        """Return what the stream is at, as the host does not see which call of it, and what NCCL says."""
        if self._device.idle():
            return "done"
        return "; ".join(filter(None, (f"on the stream: {self._what}", self.error())))

    def close(self) -> None:
        """Destroy the graph, before anyone destroys the communicator that it names, and let go of the buffers."""
        if self._graph:
            self._graph.close()
        self._graph, self._buffers, self._calls, self.result = None, [], (), self.result[:0].copy()
        self.enqueue = _call_in_order([])


def _call_in_order(calls: Sequence[StreamCall]) -> StreamCall:
    """Return the call that makes all ``calls``."""

    def each() -> None:
        for call in calls:
            call()

    return each
