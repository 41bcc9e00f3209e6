"""Transports of GPU memory over MPI: passed to a CUDA-aware library, or staged through pinned host memory."""

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from mpi4py import MPI

from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers, allocate_guarded
from hpccoll.transports.mpi.gpu_folds import division
from hpccoll.transports.mpi.transport import MpiPlan
from hpccoll.transports.mpi.vendor import MpiVendorPlan
from hpccoll.transports.transport_interface import TransportPlan, address

if TYPE_CHECKING:
    from hpccoll.executor.lowered_step import DeferredCall
    from hpccoll.transports.gpu import Gpu


class _GpuTransport(GuardedBuffers):
    def __init__(self, comm: MPI.Intracomm, gpu: "Gpu") -> None:
        super().__init__(gpu.empty)
        self.comm, self.gpu = comm, gpu

    def pinned(self, array: Array) -> Array:
        """Return an uninitialised host array of the length and dtype of ``array``."""
        guarded = allocate_guarded(self.gpu.pinned, len(array), array.dtype, on_host=True)
        self.guarded.append(guarded)
        buffer: Array = guarded.buffer
        return buffer


def _warmed_up(plan: TransportPlan, gpu: "Gpu") -> TransportPlan:
    """Run ``plan`` once, which compiles kernels, registers memory with MPI and overwrites dst; return the plan."""
    # as runs expect: memory of the pool may still be in use by an earlier plan, maybe of NCCL
    gpu.await_work()
    plan.run()
    return plan


class GpuMpiTransport(_GpuTransport):
    """Schedules over messages of GPU memory, for a CUDA-aware library."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        plan = MpiPlan(self.comm, operation, src, dst, memory=self.gpu)
        return _warmed_up(plan, self.gpu)


class GpuVendorTransport(_GpuTransport):
    """The library's own collectives on GPU memory."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        divide = partial(division, self.gpu, operation)
        calls = MpiVendorPlan(self.comm, operation, src, dst, divide=divide)
        plan = _StreamOrderedPlan(calls, self.gpu, scales=operation.reduction.averages)
        return _warmed_up(plan, self.gpu)


class _StreamOrderedPlan:
    """A plan of a library that ignores streams; a run waits for the work that it queues itself.

    The stream must be idle before a run, as ``TransportPlan.run`` says: a wait here would be timed,
    and the benchmarks of MPI libraries have none (osu_allreduce -d cuda).
    """

    executor = None

    def __init__(self, plan: TransportPlan, gpu: "Gpu", *, scales: bool) -> None:
        self.result = plan.result
        self.progress = plan.progress
        self.close = plan.close
        self._run = plan.run
        self._await_division = gpu.synchronize  # of this GPU alone
        self._scales = scales

    def run(self) -> None:
        self._run()
        if self._scales:  # the division of an average is queued on the stream
            self._await_division()


class StagedMpiTransport(_GpuTransport):
    """Schedules over messages of host memory, between copies of the contribution to the host and of the result back."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        schedules = map(operation.lane_schedule, range(len(operation.slices)))
        steps = chain.from_iterable(schedule.steps(self.comm.rank) for schedule in schedules)
        moves = any(step.actions for step in steps)
        return StagedPlan(self, operation, src, dst, MpiPlan, moves=moves)


class StagedVendorTransport(_GpuTransport):
    """The library's own collectives on host memory, between the same copies."""

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        moves = not operation.collective.token  # a barrier has no buffers
        return StagedPlan(self, operation, src, dst, MpiVendorPlan, moves=moves)


class StagedPlan:
    """A plan on host buffers, between copies from and to src and dst on the GPU, if this rank moves data at all."""

    executor = None

    def __init__(
        self,
        transport: _GpuTransport,
        operation: Operation,
        src: Array,
        dst: Array,
        kind: type[MpiPlan | MpiVendorPlan],
        *,
        moves: bool,
    ) -> None:
        host_src = transport.pinned(src)
        host_dst = transport.pinned(dst)
        plan = kind(transport.comm, operation, host_src, host_dst)
        begin = 0
        if len(plan.result):
            begin = (address(plan.result) - address(host_dst)) // operation.dtype.itemsize
        self.result = dst[begin : begin + len(plan.result)]
        me = transport.comm.rank
        contribution = operation.contribution(src, dst, me)
        self._to_host: list[DeferredCall] = []
        if moves and len(contribution):
            self._to_host.append(
                transport.gpu.copy(operation.contribution(host_src, host_dst, me), contribution)
            )
        self._to_device: list[DeferredCall] = []
        if moves and len(plan.result):
            self._to_device.append(transport.gpu.copy(self.result, plan.result))
        self._plan = plan
        self._await_copies = transport.gpu.synchronize  # of this GPU alone
        self._stage = ""

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
