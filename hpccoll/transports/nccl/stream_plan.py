"""Plans that queue their work on a stream of a GPU and end on it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpccoll.common.errors import GpuFailedError, StalledError
from hpccoll.schedule.operation import Array

if TYPE_CHECKING:
    from hpccoll.transports.nccl.cupy_device import CudaGraph, CupyDevice, StreamCall


class StreamPlan:
    """A plan whose calls queue work on a device's first stream, or on another one for which the first one waits.

    Args:
        calls: the calls that queue the operation.
        description: the description of the operation in reports on stalled runs.
        buffers: the arrays to keep alive with the plan, because the calls hold only their
            addresses.
        evidence: how it runs, if neither the name of the collective nor the transport says it.
    """

    executor = None

    def __init__(
        self,
        device: "CupyDevice",
        result: Array,
        calls: "Sequence[StreamCall]",
        description: str,
        buffers: Iterable[Array] = (),
        evidence: str | None = None,
    ) -> None:
        self.result = result
        self.evidence = evidence
        self._description = description
        self._buffers = list(buffers)
        self._calls = calls  # a graph of the calls holds only the addresses of their tables
        self._device = device
        self._wait = device.wait
        self._graphs: list[CudaGraph] = []
        self.enqueue: StreamCall = calls[0] if len(calls) == 1 else _call_in_order(calls)
        """Queues the operation and returns. A bound method here would be a cycle that keeps GPU memory allocated."""

    def prepared(self, *, graph: bool) -> "StreamPlan":
        """Run once, which connects ranks and loads kernels, capture the calls if ``graph``, and return the plan.

        All ranks call this together. It overwrites the buffers. If NCCL rejects a call, the plan is
        closed.

        Raises:
            StalledError: if the run does not complete in time, or NCCL reports an error.
        """
        with self._closed_on_error():
            self.run()
            if graph and self._calls:
                self.enqueue = self._captured(self.enqueue)
        return self

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        """Close this plan if a block fails; after a stall destroy its graphs only.

        Kernels of NCCL use the buffers until the communicator is aborted, and that waits until
        graphs are destroyed.
        """
        try:
            yield
        except StalledError:
            self.destroy_graphs()
            raise
        except BaseException:
            self.close()
            raise

    def _captured(self, queue: "StreamCall") -> "StreamCall":
        """Return the call that launches the work of ``queue`` as a graph; all ranks call this together."""
        graph = self._device.capture(queue)
        self._graphs.append(graph)
        graph.launch()  # the first launch uploads the graph
        self._wait()
        return graph.launch

    def repeated(self, count: int, alternates: "Sequence[StreamPlan]" = ()) -> "StreamCall":
        """Return the call that queues the operation ``count`` times; all ranks call this together.

        With ``alternates``, the same operation on other buffers, plans take turns, this one first.

        If the plan is a graph, the call launches one graph of all these operations, and this
        overwrites the buffers. If NCCL rejects that, the plan is closed.
        """
        plans = [self, *alternates]
        queues: list[StreamCall] = []
        calls: list[StreamCall] = []
        for number in range(count):
            plan = plans[number % len(plans)]
            queues.append(plan.enqueue)
            calls += plan._calls  # noqa: SLF001
        if not self._graphs:
            return _call_in_order(queues)
        with self._closed_on_error():
            return self._captured(_call_in_order(calls))

    def run(self) -> None:
        self.enqueue()
        self._wait()

    def idle(self) -> bool:
        """Return whether all queued work has completed; see ``Gpu.idle``."""
        return self._device.gpu.idle()

    def error(self) -> str | None:
        """Return NCCL's asynchronous error, None without an error."""
        return self._device.complaint()

    def progress(self) -> str:
        """Return the description of the operation and NCCL's error; the host cannot see how far the stream is.

        The watchdog calls this in a thread of its own, whose current GPU is the first one: a query
        of the stream would create a context there.
        """
        self._device.gpu.select()
        try:
            if self._device.gpu.idle():
                return "done"
        except GpuFailedError as error:
            return str(error)
        return "; ".join(filter(None, (f"on the stream: {self._description}", self.error())))

    def destroy_graphs(self) -> None:
        """Destroy the graphs, which must precede their communicator; the plan is not run any more."""
        for graph in self._graphs:
            graph.close()
        self._graphs, self.enqueue = [], _call_in_order([])

    def close(self) -> None:
        """Destroy the graphs, and drop the buffers, which no queued work may use any more."""
        self.destroy_graphs()
        self._buffers = []
        self._calls = ()
        self.result = self.result[:0].copy()


def _call_in_order(calls: "Sequence[StreamCall]") -> "StreamCall":

    def each() -> None:
        for call in calls:
            call()

    return each
