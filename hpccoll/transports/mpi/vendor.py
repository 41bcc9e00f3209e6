"""The MPI library's own collectives, called as applications call them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.executor.compiled_executor import CompiledExecutor, ExecutorOptions
from hpccoll.executor.lowered_step import LocalScale, LoweredStep
from hpccoll.executor.structures import Records
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.mpi.library_calls import CallArguments, LibraryCall
from hpccoll.transports.transport_interface import TransportPlan, aligned_empty


class MpiVendorTransport(GuardedBuffers):
    """The collectives of an MPI library, at its default settings; without ``options`` mpi4py makes the calls."""

    def __init__(self, comm: MPI.Intracomm, options: ExecutorOptions | None = None) -> None:
        super().__init__(aligned_empty)
        self.comm = comm
        self.options = options

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        return MpiVendorPlan(self.comm, operation, src, dst, self.options)


class MpiVendorPlan:
    """One call of the library among the workers; an average is the library's sum, divided by this plan.

    Args:
        options: how the compiled executor makes the call; None for mpi4py.
        divide: returns the call that divides the result by the number of workers; None to divide in
            host memory.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        operation: Operation,
        src: Array,
        dst: Array,
        options: ExecutorOptions | None = None,
        divide: Callable[[Array], Callable[[], object]] | None = None,
    ) -> None:
        workers = operation.layout.workers
        self._operation = operation
        self.result = dst[:0]
        self._calls: list[LibraryCall] = []
        self._workers: MPI.Intracomm | None = None  # our own communicator if there are aggregators
        self.executor: CompiledExecutor | None = None
        if operation.layout.aggregators:
            color = 0 if comm.rank < workers else MPI.UNDEFINED
            self._workers = cast("MPI.Intracomm", comm.Split(color, comm.rank))
        if comm.rank < workers:
            self._arguments = CallArguments(self._workers or comm, operation, src, dst)
            self._calls = self._arguments.calls()
            self.result = self._arguments.result
        averages = comm.rank < workers and operation.reduction.averages
        self._scale: Callable[[], object] | None = None
        if averages:
            in_host_memory = partial(operation.reduction.scale, self.result, workers)
            self._scale = divide(self.result) if divide else in_host_memory
        if options:
            sequences = []
            if averages:
                sequences.append(
                    [LoweredStep(after=[LocalScale(operation.reduction, self.result, workers)])]
                )
            self.executor = CompiledExecutor(
                comm, options, sequences, 1, calls=self._agreed_calls(comm)
            )
        self.run: Callable[[], None] = self.executor.run if self.executor else self._run_of_mpi4py()

    def _agreed_calls(self, comm: MPI.Intracomm) -> Sequence[Records]:
        """Return the calls of the compiled executor.

        Raises:
            UnusableError: on all ranks, if a count of one of them is too large for the library.
        """
        failure: UnusableError | None = None
        calls: Sequence[Records] = ()
        try:
            calls = [call.in_c() for call in self._calls]
        except UnusableError as error:
            failure = error
        for failure_of_rank in comm.allgather(failure):
            if failure_of_rank:
                self.close()
                raise failure_of_rank
        return calls

    def nonblocking(self) -> "NonblockingCall":
        """Return the call in its nonblocking form, ``MPI_Iallreduce`` for ``MPI_Allreduce``; the buffers are the same.

        Raises:
            UnusableError: if there is none, or the call has more than one step, as a ping-pong has.
        """
        if len(self._calls) > 1:
            raise UnusableError(
                "algorithm native", "a call of more than one step has no nonblocking form"
            )
        call = self._calls[0].nonblocking() if self._calls else None
        return NonblockingCall(call, self._scale)

    def _run_of_mpi4py(self) -> Callable[[], None]:
        calls = [call.in_python() for call in self._calls]
        scale = self._scale
        if len(calls) == 1 and not scale:  # without a function around it, whose call would be timed
            return calls[0]

        def run() -> None:
            for call in calls:
                call()
            if scale:
                scale()

        return run

    def progress(self) -> str:
        return f"inside the library's {self._operation.collective.name}"

    def close(self) -> None:
        if self._workers:
            self._workers.Free()
            self._workers = None


class NonblockingCall:
    """A call of the library, if this rank has one, that returns at once, progresses when tested, and then finishes."""

    def __init__(
        self, call: Callable[[], MPI.Request] | None, finish: Callable[[], object] | None
    ) -> None:
        self._call = call
        self._finish = finish
        self._request = MPI.REQUEST_NULL

    def start(self) -> None:
        """Make the call."""
        self._request = self._call() if self._call else MPI.REQUEST_NULL

    def advance(self) -> bool:
        """Let the library progress; return whether the call has ended."""
        if not self._request.Test():
            return False
        if self._finish:
            self._finish()
        return True
