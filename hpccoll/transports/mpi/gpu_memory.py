"""GPU memory over MPI: handed to a library that is CUDA-aware, or staged through pinned memory of the host."""

from typing import Protocol

import numpy as np
from mpi4py import MPI

from hpccoll.transports.guarded_memory import GuardedBuffers, allocate_guarded
from hpccoll.transports.mpi.persistent import MpiPlan
from hpccoll.transports.mpi.step import DeferredCall, QueuedMemory
from hpccoll.transports.mpi.vendor import MpiVendorPlan
from hpccoll.transports.operation import Array, CompiledPlan, Operation, address


class GpuMemory(QueuedMemory, Protocol):
    """What these transports need of a GPU."""

    def pinned(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array of the host, for copies from and to the GPU."""

    def copy(self, target: Array, source: Array) -> DeferredCall:
        """Return the call that queues a copy from or to the GPU."""

    def synchronize(self) -> None:
        """Return when all that was queued is done."""


class _GpuTransport(GuardedBuffers):
    """Buffers on a GPU.

    Args:
        comm: of the ranks.
        gpu: of this one.
    """

    def __init__(self, comm: MPI.Intracomm, gpu: GpuMemory) -> None:
        super().__init__()
        self.comm, self.gpu = comm, gpu

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer: Array = self.keep(allocate_guarded(self.gpu.empty, count, dtype))
        return buffer

    def pinned(self, array: Array) -> Array:
        """Return an array of the host, of whatever content, that ``array`` is to be copied to and from."""
        buffer: Array = self.keep(allocate_guarded(self.gpu.pinned, len(array), array.dtype, on_host=True))
        return buffer


def _warmed_up(plan: CompiledPlan) -> CompiledPlan:
    """Run it once, on whatever lies in dst: kernels are compiled, and MPI learns of the memory, at the first time."""
    plan.run()
    return plan


class GpuMpiTransport(_GpuTransport):
    """Schedules over messages of GPU memory, which the library must take: it is CUDA-aware."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        return _warmed_up(MpiPlan(self.comm, operation, src, dst, memory=self.gpu))


class GpuVendorTransport(_GpuTransport):
    """The library's own collectives on GPU memory."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        plan = MpiVendorPlan(self.comm, operation, src, dst)
        return _warmed_up(_StreamOrderedPlan(plan, self.gpu, scales=operation.reduction.averages))


class _StreamOrderedPlan:
    """A plan that knows of no stream: it starts when all that was queued is done, and ends when what it queues is."""

    def __init__(self, plan: CompiledPlan, gpu: GpuMemory, *, scales: bool) -> None:
        self.result, self.progress, self.close = plan.result, plan.progress, plan.close
        self._run, self._synchronize, self._scales = plan.run, gpu.synchronize, scales

    def run(self) -> None:
        self._synchronize()
        self._run()
        if self._scales:  # an average, on the stream
            self._synchronize()


class StagedMpiTransport(_GpuTransport):
    """Schedules over messages of the host, which the contribution is copied to first, and the result from last."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        host = self.pinned(src), self.pinned(dst)
        lanes = map(operation.lane_schedule, range(len(operation.schedules)))
        moves = any(step.actions for lane in lanes for step in lane.steps(self.comm.rank))
        return StagedPlan(MpiPlan(self.comm, operation, *host), self, operation, (src, dst), host, moves=moves)


class StagedVendorTransport(_GpuTransport):
    """The library's own collectives, staged likewise."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        host = self.pinned(src), self.pinned(dst)
        moves = not operation.collective.token  # a barrier has no buffers
        return StagedPlan(MpiVendorPlan(self.comm, operation, *host), self, operation, (src, dst), host, moves=moves)


class StagedPlan:
    """A plan on host buffers, between copies from and to the GPU.

    Args:
        plan: of the host.
        way: has the ranks and the GPU.
        operation: that the plan does.
        device: src and dst on the GPU.
        host: the same on the host, which the plan is for.
        moves: whether this rank does anything: an empty schedule leaves all as it is, and copies nothing.
    """

    def __init__(
        self,
        plan: CompiledPlan,
        way: _GpuTransport,
        operation: Operation,
        device: tuple[Array, Array],
        host: tuple[Array, Array],
        *,
        moves: bool = True,
    ) -> None:
        begin = (address(plan.result) - address(host[1])) // operation.dtype.itemsize if len(plan.result) else 0
        self.result = device[1][begin : begin + len(plan.result)]
        contributed, contribution = (operation.contribution(*buffers, way.comm.rank) for buffers in (device, host))
        down, up = (contribution, contributed), (self.result, plan.result)
        self._down, self._up = (
            [way.gpu.copy(target, source)] if moves and len(source) else [] for target, source in (down, up)
        )
        self._plan, self._synchronize, self._stage = plan, way.gpu.synchronize, ""

    def run(self) -> None:
        self._stage = "copying to the host"
        for copy, arguments in self._down:
            copy(*arguments)
        self._synchronize()
        self._stage = ""
        self._plan.run()
        self._stage = "copying from the host"
        for copy, arguments in self._up:
            copy(*arguments)
        self._synchronize()
        self._stage = ""

    def progress(self) -> str:
        return self._stage or self._plan.progress()

    def close(self) -> None:
        self._plan.close()
