"""NCCL: a schedule as groups of ncclSend and ncclRecv with one launch of folds behind each, on one stream.

All is queued at once and the host waits for the end alone; a CUDA graph queues it in one call. Nothing of a run is made
in it: what each call is given is laid out when the plan is compiled.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.transports.guarded_memory import GuardedBuffers, allocate_guarded
from hpccoll.transports.nccl.compile import NcclCompiler, Stage
from hpccoll.transports.nccl.stream import Call, CapturedGraph, NcclStream
from hpccoll.transports.operation import Array, Operation, check_agreement

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.nccl.communicators import Library


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
        self, device: NcclStream, result: Array, calls: Sequence[Call], what: str, buffers: Iterable[Array] = ()
    ) -> None:
        self.result, self._what, self._buffers = result, what, [*buffers]
        self._calls: Sequence[Call] = (
            calls  # kept beside a graph of them, which knows the tables of folds by their addresses alone
        )
        self._device, self._wait = device, device.wait
        self._graph: CapturedGraph | None = None
        self.enqueue: Call = calls[0] if len(calls) == 1 else _in_turn(calls)
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

    def where(self) -> str:
        """Return what the stream is at, as the host does not see which call of it, and what NCCL says."""
        if self._device.idle():
            return "done"
        return "; ".join(filter(None, (f"on the stream: {self._what}", self.error())))

    def close(self) -> None:
        """Destroy the graph, before anyone destroys the communicator that it names, and let go of the buffers."""
        if self._graph:
            self._graph.close()
        self._graph, self._buffers, self._calls, self.result = None, [], (), self.result[:0].copy()
        self.enqueue = _in_turn([])


def _in_turn(calls: Sequence[Call]) -> Call:
    """Return the call that makes all ``calls``."""

    def each() -> None:
        for call in calls:
            call()

    return each


def compiled(device: NcclStream, compiler: NcclCompiler, stages: Sequence[Stage], src: Array, dst: Array) -> StreamPlan:
    """Return the plan of a rank for its buffers."""
    operation = compiler.operation
    buffers = {name: device.empty(count, operation.dtype) for name, count in compiler.room.items()}
    buffers |= {"src": src, "dst": dst}
    folds = iter(device.folds(operation, buffers, [wave for stage in stages for wave in stage.waves]))
    calls: list[Call] = []
    for stage in stages:
        calls += [device.group(buffers, stage.messages)] if stage.messages else []
        calls += [next(folds) for _ in stage.waves]
    peers = sorted({message.peer for stage in stages for message in stage.messages})
    groups = sum(bool(stage.messages) for stage in stages)
    named = ", ".join(f"rank {peer}" for peer in peers) or "nobody"
    what = f"{groups} groups of messages with {named}, {len(calls) - groups} launches of folds"
    return StreamPlan(device, operation.result(dst, compiler.me), calls, what, buffers.values())


class OverNccl(GuardedBuffers):
    """What schedules and NCCL's own calls have in common.

    Args:
        comm: of the ranks.
        gpu: of this rank, with the stream on which all is queued.
        graph: whether plans are replayed as CUDA graphs.
        library: that makes communicators; None is CuPy's.
    """

    def __init__(
        self, comm: "MPI.Intracomm", gpu: "Gpu", *, graph: bool = False, library: "Library | None" = None
    ) -> None:
        super().__init__()
        self.comm, self.gpu, self.graph, self.library = comm, gpu, graph, library

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer: Array = self.keep(allocate_guarded(self.gpu.empty, count, dtype))
        return buffer


class Nccl(OverNccl):
    """Schedules over the point-to-point calls of NCCL."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        """Compile ``operation``, on all ranks together.

        Raises:
            PlanMismatchError: where the ranks do not agree on what they send each other.
        """
        from hpccoll.transports.nccl.communicators import world
        from hpccoll.transports.nccl.cupy_device import CupyDevice

        compiler = NcclCompiler(self.comm.rank, operation)
        theirs = self.comm.alltoall(compiler.proposals())
        check_agreement(self.comm.allgather(compiler.strange(theirs)))
        device = CupyDevice(self.gpu, world(self.comm, self.library).communicator)
        plan = compiled(device, compiler, compiler.stages(theirs), src, dst)
        return plan.prepared(graph=self.graph)
