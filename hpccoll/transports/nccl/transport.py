"""Schedules over NCCL: groups of ncclSend and ncclRecv, each followed by launches of the fold kernel.

With several channels, the folds of a reduction are on a stream of their own (two_stream_plan.py).
The host queues the whole operation and then waits for its end; a CUDA graph queues it in one call.
All arguments of the calls are prepared when the plan is made.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpccoll.common.errors import StalledError
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.nccl.communicators import NcclWorld, nccl_world
from hpccoll.transports.nccl.cupy_device import CupyDevice, NamedBuffers, StreamCall
from hpccoll.transports.nccl.lowering import NcclLowering, Stage
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.nccl.two_stream_plan import NO_WAITS, fold_waits
from hpccoll.transports.stream_wait import CONNECTING, Connecting
from hpccoll.transports.transport_interface import check_agreement

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.nccl.communicator_config import NcclBuffers
    from hpccoll.transports.nccl.communicators import NcclLibrary


def stream_plan_of(
    device: CupyDevice, lowering: NcclLowering, stages: Sequence[Stage], buffers: NamedBuffers
) -> StreamPlan:
    """Return the plan of a rank."""
    operation = lowering.operation
    own_stream = lowering.phases > 1  # whether folds have a stream of their own
    waves = [wave for stage in stages for wave in stage.waves]
    folds = iter(device.fold_calls(operation, buffers, waves, own_stream=own_stream))
    waits = fold_waits(stages) if own_stream else NO_WAITS
    # makes the stream of messages wait for the folds of a stage
    wait_for: dict[int, StreamCall] = {}
    calls: list[StreamCall] = []
    for number, stage in enumerate(stages):
        if number in waits.before:
            calls.append(wait_for[waits.before[number]])
        if stage.messages:
            calls.append(device.group_call(buffers, stage.messages))
        if stage.waves:
            if own_stream:
                calls += device.folds_after_messages()
            calls += [next(folds) for _ in stage.waves]
        if number in waits.awaited:
            record, wait_for[number] = device.messages_after_folds()
            calls.append(record)
    if waits.last is not None:
        calls.append(wait_for[waits.last])
    peers = sorted({message.peer for stage in stages for message in stage.messages})
    groups = sum(bool(stage.messages) for stage in stages)
    named = ", ".join(f"rank {peer}" for peer in peers) or "no rank"
    description = f"{groups} groups of messages with {named}, {len(waves)} launches of folds"
    result = operation.result(buffers["dst"], lowering.me)
    return StreamPlan(device, result, calls, description, buffers.values())


class NcclTransportBase(GuardedBuffers):
    """The base of the transports over NCCL.

    Args:
        graph: whether plans are replayed as CUDA graphs.
        library: the binding of NCCL that creates communicators; None for CuPy's.
        buffers: the allocator of NCCL memory, which may register buffers; None for CuPy's memory.
        connecting: how the first operation of each plan is waited for.
    """

    def __init__(
        self,
        comm: "MPI.Intracomm",
        gpu: "Gpu",
        *,
        graph: bool = False,
        library: "NcclLibrary | None" = None,
        buffers: "NcclBuffers | None" = None,
        connecting: Connecting = CONNECTING,
    ) -> None:
        # NCCL's memory is aligned to more than a page and registered from its first byte: there is
        # no front margin.
        super().__init__(buffers.empty if buffers else gpu.empty, front=not buffers)
        self.comm = comm
        self.gpu = gpu
        self.graph = graph
        self.library = library
        self.buffers = buffers
        self.connecting = connecting

    def plan(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        """Return the plan of ``operation`` after its first run; all ranks call this together.

        If NCCL rejects a call, the transport is closed. After a stall it is not: kernels of NCCL
        use the buffers until the communicator is aborted, which also deregisters them.

        Raises:
            PlanMismatchError: if the ranks disagree on the messages between them.
            BadInputError: if NCCL's call does not support in place, or NCCL cannot create windows
                on these GPUs.
            StalledError: if the first run does not complete in time, or NCCL reports an error.
        """
        try:
            plan = self._lower(operation, src, dst)
            self.connecting.begin()
            return plan.prepared(graph=self.graph)
        except StalledError:
            raise
        except BaseException:
            self.close()
            raise

    def further_plan(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        """Return another plan of an operation of ``plan``, on other parts of its buffers, which is not run yet.

        All ranks call this together. The plan is not a graph, and registers nothing.
        """
        buffers, self.buffers = self.buffers, None
        try:
            return self._lower(operation, src, dst)
        finally:
            self.buffers = buffers

    def _world(self) -> NcclWorld:
        """Return the NCCL communicators of the ranks, which the first call creates."""
        return nccl_world(self.comm, self.gpu, self.library, self.connecting)

    def _device(self, world: NcclWorld) -> CupyDevice:
        return CupyDevice(self.gpu, world.communicator, self.connecting)

    def _lower(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        raise NotImplementedError

    def close(self) -> None:
        """Deregister the buffers, and drop them."""
        super().close()
        if self.buffers:
            self.buffers.close()


class NcclTransport(NcclTransportBase):
    """Schedules over the point-to-point calls of NCCL."""

    def _lower(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        lowering = NcclLowering(self.comm.rank, operation)
        received = self.comm.alltoall(lowering.proposals())
        check_agreement(self.comm.allgather(lowering.mismatched_peers(received)))
        world = self._world()
        scratch = {
            name: self.allocate(count, operation.dtype) for name, count in lowering.lengths.items()
        }
        buffers = {"src": src, "dst": dst, **scratch}
        if self.buffers:  # arrivals that are folded are received into scratch
            self.buffers.register(world.communicator, self.comm.size, buffers.values())
        return stream_plan_of(self._device(world), lowering, lowering.stages(received), buffers)
