"""NCCL: a schedule as groups of ncclSend and ncclRecv with one launch of folds behind each, on one stream.

All is queued at once and the host waits for the end alone; a CUDA graph queues it in one call. Nothing of a run is made
in it: what each call is given is laid out when the plan is compiled.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpccoll.transports.guarded_memory import GuardedBuffers, allocate_guarded
from hpccoll.transports.nccl.compile import NcclCompiler, Stage
from hpccoll.transports.nccl.stream_plan import NcclStream, StreamCall, StreamPlan
from hpccoll.transports.operation import Array, Operation, check_agreement

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.nccl.communicators import NcclLibrary


def compile_plan(
    device: NcclStream, compiler: NcclCompiler, stages: Sequence[Stage], src: Array, dst: Array
) -> StreamPlan:
    """Return the plan of a rank for its buffers."""
    operation = compiler.operation
    buffers = {name: device.empty(count, operation.dtype) for name, count in compiler.room.items()}
    buffers |= {"src": src, "dst": dst}
    folds = iter(device.fold_calls(operation, buffers, [wave for stage in stages for wave in stage.waves]))
    calls: list[StreamCall] = []
    for stage in stages:
        calls += [device.group_call(buffers, stage.messages)] if stage.messages else []
        calls += [next(folds) for _ in stage.waves]
    peers = sorted({message.peer for stage in stages for message in stage.messages})
    groups = sum(bool(stage.messages) for stage in stages)
    named = ", ".join(f"rank {peer}" for peer in peers) or "nobody"
    what = f"{groups} groups of messages with {named}, {len(calls) - groups} launches of folds"
    return StreamPlan(device, operation.result(dst, compiler.me), calls, what, buffers.values())


class NcclTransportBase(GuardedBuffers):
    """What schedules and NCCL's own calls have in common.

    Args:
        comm: of the ranks.
        gpu: of this rank, with the stream on which all is queued.
        graph: whether plans are replayed as CUDA graphs.
        library: that makes communicators; None is CuPy's.
    """

    def __init__(
        self, comm: "MPI.Intracomm", gpu: "Gpu", *, graph: bool = False, library: "NcclLibrary | None" = None
    ) -> None:
        super().__init__()
        self.comm, self.gpu, self.graph, self.library = comm, gpu, graph, library

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer: Array = self.keep(allocate_guarded(self.gpu.empty, count, dtype))
        return buffer


class NcclTransport(NcclTransportBase):
    """Schedules over the point-to-point calls of NCCL."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        """Compile ``operation``, on all ranks together.

        Raises:
            PlanMismatchError: where the ranks do not agree on what they send each other.
        """
        from hpccoll.transports.nccl.communicators import nccl_world
        from hpccoll.transports.nccl.cupy_device import CupyDevice

        compiler = NcclCompiler(self.comm.rank, operation)
        theirs = self.comm.alltoall(compiler.proposals())
        check_agreement(self.comm.allgather(compiler.mismatched_peers(theirs)))
        device = CupyDevice(self.gpu, nccl_world(self.comm, self.library).communicator)
        plan = compile_plan(device, compiler, compiler.stages(theirs), src, dst)
        return plan.prepared(graph=self.graph)
