"""Transports of GPU memory over MPI: passed to a CUDA-aware library, or staged through pinned host memory."""

from functools import partial
from typing import TYPE_CHECKING

from mpi4py import MPI

from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers, allocate_guarded
from hpccoll.transports.mpi.gpu_folds import division
from hpccoll.transports.mpi.transport import MpiPlan
from hpccoll.transports.mpi.vendor import MpiVendorPlan
from hpccoll.transports.transport_interface import TransportPlan, address

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu


class _GpuTransport(GuardedBuffers):
    def __init__(self, comm: MPI.Intracomm, gpu: "Gpu") -> None:
        super().__init__(gpu.empty)
        self.comm, self.gpu = comm, gpu

    def pinned(self, array: Array) -> Array:
        """Return an uninitialised host array of the length and dtype of ``array``."""
        self.guarded.append(allocate_guarded(self.gpu.pinned, len(array), array.dtype, on_host=True))
        buffer: Array = self.guarded[-1].buffer
        return buffer


def _warmed_up(plan: TransportPlan, gpu: "Gpu") -> TransportPlan:
    """Run ``plan`` once, which compiles kernels, registers memory with MPI and overwrites dst; return the plan."""
    gpu.await_work()  # as runs expect: memory of the pool may still be in use by an earlier plan, maybe of NCCL
    plan.run()
    return plan


class GpuMpiTransport(_GpuTransport):
    """Schedules over messages of GPU memory, for a CUDA-aware library."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        return _warmed_up(MpiPlan(self.comm, operation, src, dst, memory=self.gpu), self.gpu)


class GpuVendorTransport(_GpuTransport):
    """The library's own collectives on GPU memory."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        divide = partial(division, self.gpu, operation)
        plan = MpiVendorPlan(self.comm, operation, src, dst, divide=divide)
        return _warmed_up(_StreamOrderedPlan(plan, self.gpu, scales=operation.reduction.averages), self.gpu)


class _StreamOrderedPlan:
    """A plan of a library that ignores streams; a run waits for the work that it queues itself.

    The stream must be idle before a run, as ``TransportPlan.run`` says: a wait here would be timed, and the benchmarks
    of MPI libraries have none (osu_allreduce -d cuda).
    """

    executor = None

    def __init__(self, plan: TransportPlan, gpu: "Gpu", *, scales: bool) -> None:
        self.result, self.progress, self.close = plan.result, plan.progress, plan.close
        self._run, self._await_division, self._scales = plan.run, gpu.synchronize, scales  # of this GPU alone

    def run(self) -> None:
        self._run()
        if self._scales:  # the division of an average is queued on the stream
            self._await_division()


class StagedMpiTransport(_GpuTransport):
    """Schedules over messages of host memory, between copies of the contribution to the host and of the result back."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        lanes = map(operation.lane_schedule, range(len(operation.slices)))
        moves = any(step.actions for lane in lanes for step in lane.steps(self.comm.rank))
        return StagedPlan(self, operation, (src, dst), MpiPlan, moves=moves)


class StagedVendorTransport(_GpuTransport):
    """The library's own collectives on host memory, between the same copies."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        moves = not operation.collective.token  # a barrier has no buffers
        return StagedPlan(self, operation, (src, dst), MpiVendorPlan, moves=moves)


class StagedPlan:
    """A plan on host buffers, between copies from and to src and dst on the GPU, if this rank moves data at all."""

    executor = None

    def __init__(
        self, transport: _GpuTransport, operation: Operation, device: tuple[Array, Array],
        kind: type[MpiPlan | MpiVendorPlan], *, moves: bool,
    ) -> None:  # fmt: skip
        host = transport.pinned(device[0]), transport.pinned(device[1])
        plan = kind(transport.comm, operation, *host)
        begin = (address(plan.result) - address(host[1])) // operation.dtype.itemsize if len(plan.result) else 0
        self.result = device[1][begin : begin + len(plan.result)]
        on_device, on_host = (operation.contribution(*buffers, transport.comm.rank) for buffers in (device, host))
        self._to_host, self._to_device = (
            [transport.gpu.copy(target, source)] if moves and len(source) else []
            for target, source in ((on_host, on_device), (self.result, plan.result))
        )
        self._plan, self._await_copies, self._stage = plan, transport.gpu.synchronize, ""  # of this GPU alone

    def run(self) -> None:
        self._stage = "copying to the host"
        for copy, arguments in self._to_host:
            copy(*arguments)
        if self._to_host:
            self._await_copies()
        self._stage = ""
        self._plan.run()
        self._stage = "copying from the host"
        for copy, arguments in self._to_device:
            copy(*arguments)
        if self._to_device:
            self._await_copies()
        self._stage = ""

    def progress(self) -> str:
        return self._stage or self._plan.progress()

    def close(self) -> None:
        self._plan.close()
