"""What plans over NCCL need of a GPU, by CuPy: its streams, one for messages and one for folds, and a communicator."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.nccl.fold import Fold, fold_launches
from hpccoll.transports.nccl.nccl_errors import NCCL_EXCEPTIONS, nccl_error_text
from hpccoll.transports.stream_wait import CONNECTING, Connecting

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.nccl.lowering import NcclMessage

StreamCall: TypeAlias = Callable[[], object]
NamedBuffers: TypeAlias = Mapping[str, Array]

NCCL_UINT8 = 1
"""ncclUint8: messages are sent as bytes."""


class CupyDevice:
    """The current GPU and a communicator of NCCL, with how its first operations are waited for."""

    def __init__(self, gpu: "Gpu", communicator: Any, connecting: Connecting = CONNECTING) -> None:
        self.gpu = gpu
        self.communicator = communicator
        self.connecting = connecting

    def wait(self) -> None:
        """Wait for a first operation, which is all work that is queued on the first stream.

        Raises:
            StalledError: if it does not complete in time, or NCCL reports an error.
            GpuFailedError: if the GPU fails.
        """
        self.connecting.wait(self.gpu.idle, self.complaint)

    def complaint(self) -> str | None:
        """Return NCCL's asynchronous error as a sentence; None without an error."""
        error = self.error()
        return None if error is None else f"NCCL reports: {error}"

    def error(self) -> str | None:
        """Return NCCL's asynchronous error, on this rank or another; None without an error."""
        try:
            self.communicator.check_async_error()
        except NCCL_EXCEPTIONS as error:
            return nccl_error_text(error)
        return None

    def group_call(self, buffers: NamedBuffers, messages: "Sequence[NcclMessage]") -> StreamCall:
        """Return the call that queues ``messages`` as one group; messages between two ranks match in order."""
        stream = self.gpu.stream.ptr
        calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        for message in messages:
            call = self.communicator.send if message.sends else self.communicator.recv
            address, nbytes = self._bytes(buffers, message)
            calls.append((call, (address, nbytes, NCCL_UINT8, message.peer, stream)))
        return group_calls(calls)

    def _bytes(self, buffers: NamedBuffers, message: "NcclMessage") -> tuple[int, int]:
        """Return the address and the bytes of a message."""
        buffer = buffers[message.span.buffer]
        itemsize = buffer.dtype.itemsize
        return self.gpu.address(buffer) + message.span.start * itemsize, len(
            message.span
        ) * itemsize

    def fold_calls(
        self,
        operation: Operation,
        buffers: NamedBuffers,
        waves: Sequence[Sequence[Fold]],
        *,
        own_stream: bool = False,
    ) -> list[StreamCall]:
        """Return one call for each wave, which queues it in one kernel launch on the first stream or that of folds."""
        gpu = self.gpu.for_folds if own_stream else self.gpu
        return fold_launches(gpu, operation.dtype.name, operation.reduction.name, buffers, waves)

    def folds_after_messages(self) -> tuple[StreamCall, StreamCall]:
        """Return two calls: one records what the first stream has queued, and the stream of folds waits for that."""
        return self._in_order(self.gpu, self.gpu.for_folds)

    def messages_after_folds(self) -> tuple[StreamCall, StreamCall]:
        """Return two calls: one records what the stream of folds has queued, and the first stream waits for that."""
        return self._in_order(self.gpu.for_folds, self.gpu)

    @staticmethod
    def _in_order(first: "Gpu", then: "Gpu") -> tuple[StreamCall, StreamCall]:
        event = first.event(timing=False)
        return partial(event.record, first.stream), partial(then.stream.wait_event, event)

    def capture(self, queue: StreamCall) -> "CudaGraph":
        """Return the work that ``queue`` queues as a graph, without executing it."""
        stream = self.gpu.stream
        stream.begin_capture()  # `with` would change the current stream of the process
        try:
            queue()
        except BaseException:
            with suppress(RuntimeError):  # the capture failed
                stream.end_capture()
            raise
        return CudaGraph(stream.end_capture(), stream)


class CudaGraph:
    """The captured work of a stream, which ``launch`` queues on it."""

    def __init__(self, graph: Any, stream: Any) -> None:
        self._graph, self._stream = graph, stream

    def launch(self) -> None:
        self._graph.launch(self._stream)

    def close(self) -> None:
        """Destroy the graph; CuPy does so with the last reference."""
        self._graph = None


def group_calls(calls: Sequence[tuple[Callable[..., object], tuple[object, ...]]]) -> StreamCall:
    """Return the function that makes all ``calls`` of NCCL in one group; a single call needs no group."""
    if len(calls) == 1:
        ((call, arguments),) = calls
        return partial(call, *arguments)
    from cupy.cuda import nccl

    start = nccl.groupStart
    end = nccl.groupEnd

    def group() -> None:
        start()
        try:
            for call, arguments in calls:
                call(*arguments)
        finally:
            end()  # otherwise later calls of this thread would join the group

    return group
