"""The MPI library's own collectives, called as applications call them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.executor.lowered_step import LocalScale, LocalWork, LoweredStep
from hpccoll.executor.plan_arrays import ExecutorOptions, ExecutorPlan
from hpccoll.executor.structures import Records
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.mpi.native_vendor import native_calls
from hpccoll.transports.mpi.vendor_arguments import CallArguments, memory_of
from hpccoll.transports.transport_interface import HostBuffers, TransportPlan

LibraryCall: TypeAlias = Callable[[], object]


class MpiVendorTransport(HostBuffers):
    """The collectives of an MPI library, at its default settings.

    Args:
        comm: the communicator of the ranks.
        options: how the compiled executor makes the calls; None for calls of mpi4py.
    """

    def __init__(self, comm: MPI.Intracomm, options: ExecutorOptions | None = None) -> None:
        super().__init__()
        self.comm, self.options = comm, options

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        return MpiVendorPlan(self.comm, operation, src, dst, self.options)


def _all_reduce(a: CallArguments) -> LibraryCall:
    return partial(a.comm.Allreduce, a.source_or_in_place, a.target, a.op)


def _reduce_scatter(a: CallArguments) -> LibraryCall:
    if a.operation.in_place:
        return partial(a.comm.Reduce_scatter_block, MPI.IN_PLACE, a.typed_buffer(a.dst), a.op)
    return partial(a.comm.Reduce_scatter_block, a.source, a.target, a.op)


def _all_gather(a: CallArguments) -> LibraryCall:
    return partial(a.comm.Allgather, a.source_or_in_place, a.target)


def _broadcast(a: CallArguments) -> LibraryCall:
    return partial(a.comm.Bcast, a.target, a.root)


def _reduce(a: CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Reduce, a.source_or_in_place, a.target, a.op, a.root)
    return partial(a.comm.Reduce, a.source, None, a.op, a.root)


def _gather(a: CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Gather, a.source_or_in_place, a.target, a.root)
    return partial(a.comm.Gather, a.source, None, a.root)


def _scatter(a: CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Scatter, a.source, MPI.IN_PLACE if a.operation.in_place else a.target, a.root)
    return partial(a.comm.Scatter, None, a.target, a.root)


def _all_to_all(a: CallArguments) -> LibraryCall:
    return partial(a.comm.Alltoall, a.source_or_in_place, a.target)


def _all_to_all_v(a: CallArguments) -> LibraryCall:
    sent, received = ((counts, counts.cumsum() - counts) for counts in a.blocks())
    source, target = memory_of(a.contribution), memory_of(a.dst)
    return partial(a.comm.Alltoallv, (source, sent, a.datatype), (target, received, a.datatype))


def _barrier(a: CallArguments) -> LibraryCall:
    return a.comm.Barrier


def _send_recv(a: CallArguments) -> LibraryCall:
    if a.partner is None:
        return _no_op
    send, receive = partial(a.comm.Send, a.source, a.partner), partial(a.comm.Recv, a.target, a.partner)

    def ping() -> None:
        send()
        receive()

    def pong() -> None:
        receive()
        send()

    return ping if a.at_root else pong


def _exchange(a: CallArguments) -> LibraryCall:
    if a.partner is None:
        return _no_op
    return partial(a.comm.Sendrecv, a.source, a.partner, recvbuf=a.target, source=a.partner)


def _no_op() -> None:
    """Do nothing, on a rank that does not take part in a call."""


CALLS = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all_v": _all_to_all_v,
    "barrier": _barrier,
    "send_recv": _send_recv,
    "bidirectional": _exchange,
    "multi_pair": _exchange,
}
"""The call of each collective; point-to-point patterns use the calls of an MPI program."""


class MpiVendorPlan:
    """One call of the library among the workers; an average is the library's sum, divided by this plan.

    Args:
        comm: the communicator of the ranks.
        operation: the operation.
        src: the source buffer of this rank, unused in place.
        dst: the destination buffer of this rank.
        options: how the compiled executor makes the call; None for a call of mpi4py.
    """

    def __init__(
        self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array, options: ExecutorOptions | None = None
    ) -> None:
        workers = operation.layout.workers
        self._operation, self.result = operation, dst[:0]
        self._call: LibraryCall = _no_op
        self._workers: MPI.Intracomm | None = None  # our own communicator if there are aggregators
        self.executor: ExecutorPlan | None = None
        if operation.layout.aggregators:
            self._workers = cast("MPI.Intracomm", comm.Split(0 if comm.rank < workers else MPI.UNDEFINED, comm.rank))
        arguments = CallArguments(self._workers or comm, operation, src, dst) if comm.rank < workers else None
        if arguments:
            self.result = arguments.result
        if options:
            calls, self._arrays = self._agreed_calls(comm, arguments)
            averages = arguments is not None and operation.reduction.averages
            scale: list[LocalWork] = [LocalScale(operation.reduction, self.result, workers)] if averages else []
            self.executor = ExecutorPlan(comm, options, [[LoweredStep(after=scale)]] if scale else [], 1, calls=calls)
        elif arguments:
            self._call = CALLS[operation.collective.name](arguments)
        self._arguments = arguments
        self.run: Callable[[], None] = self.executor.run if self.executor else self._run_in_python

    def _agreed_calls(
        self, comm: MPI.Intracomm, arguments: CallArguments | None
    ) -> tuple[Sequence[Records], list[Array]]:
        """Return the calls of the compiled executor, and the arrays that they use.

        Raises:
            UnusableError: on all ranks, if a count of one of them is too large for the library.
        """
        failure: UnusableError | None = None
        calls: tuple[Sequence[Records], list[Array]] = (), []
        try:
            calls = native_calls(arguments) if arguments else calls
        except UnusableError as error:
            failure = error
        for each in filter(None, comm.allgather(failure)):
            self.close()
            raise each
        return calls

    def nonblocking(self) -> "NonblockingCall":
        """Return the call in its nonblocking form, ``MPI_Iallreduce`` for ``MPI_Allreduce``; the buffers are the same.

        Raises:
            UnusableError: if the call has several steps, as a ping-pong has.
        """
        workers = self._operation.layout.workers
        scale = partial(self._operation.reduction.scale, self.result, workers)
        call = CALLS[self._operation.collective.name](self._arguments) if self._arguments else None
        return NonblockingCall(call, scale if self._operation.reduction.averages else _no_op)

    def _run_in_python(self) -> None:
        self._call()
        if self._operation.reduction.averages:
            self._operation.reduction.scale(self.result, self._operation.layout.workers)

    def progress(self) -> str:
        return f"inside the library's {self._operation.collective.name}"

    def close(self) -> None:
        if self._workers:
            self._workers.Free()
            self._workers = None


class NonblockingCall:
    """A call of the library that returns at once, and progresses when it is tested.

    Args:
        call: the blocking call, a method of the communicator with its arguments; None on a rank without one.
        finish: what follows when it has ended.

    Raises:
        UnusableError: if the library has no nonblocking form of the call, or the call has several steps.
    """

    def __init__(self, call: LibraryCall | None, finish: Callable[[], None]) -> None:
        self._call: LibraryCall | None = None
        self._finish, self._request = finish, MPI.REQUEST_NULL
        if isinstance(call, partial):
            name = f"I{call.func.__name__.lower()}"
            method = getattr(call.func.__self__, name, None)  # type: ignore[attr-defined]  # a method of a communicator
            if method is None:
                raise UnusableError("algorithm native", f"MPI has no {name}")
            self._call = partial(method, *call.args, **call.keywords)
        elif call is not None:
            raise UnusableError("algorithm native", "a call of several steps has no nonblocking form")

    def start(self) -> None:
        """Make the call."""
        self._request = cast("MPI.Request", self._call()) if self._call else MPI.REQUEST_NULL

    def advance(self) -> bool:
        """Let the library progress; return whether the call has ended."""
        if not self._request.Test():
            return False
        self._finish()
        return True
