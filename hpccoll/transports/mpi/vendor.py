"""The MPI library's own collectives, called as applications call them."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.transports.transport_interface import Array, CompiledPlan, HostBuffers, Operation, address

LibraryCall: TypeAlias = Callable[[], object]

TypedBuffer: TypeAlias = tuple[Array | MPI.buffer, MPI.Datatype]
"""A buffer and the datatype of its elements."""

MPI_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "avg": MPI.SUM}


class MpiVendorTransport(HostBuffers):
    """The collectives of an MPI library, at its default settings."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self.comm = comm

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        return MpiVendorPlan(self.comm, operation, src, dst)


def result_span(operation: Operation, me: int) -> slice:
    """Return the elements of dst in which MPI leaves the result of rank ``me``.

    They are those of a schedule, except in place for a reduce-scatter: MPI writes its result to the beginning of the
    buffer on every rank (MPI 5.0, section 6.10.1).
    """
    span = operation.span("dst", operation.call.target(me, operation.api_cut.units), me)
    if operation.in_place and operation.collective.name == "reduce_scatter":
        return slice(0, span.stop - span.start)
    return span


def memory_of(array: Array) -> Array | MPI.buffer:
    """Return a NumPy array as it is, and the memory of a CuPy array, which mpi4py would look up in each call."""
    return array if type(array) is np.ndarray else MPI.buffer.fromaddress(address(array), array.nbytes)


class _CallArguments:
    """The arguments of a call at this worker.

    Args:
        comm: the communicator of the workers.
        operation: the operation.
        src: the source buffer of this rank, unused in place.
        dst: the destination buffer of this rank.
    """

    def __init__(self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array) -> None:
        self.comm, self.operation = comm, operation
        self.root, self.peer = operation.call.root, operation.call.peer or 0
        self.at_root = comm.rank == self.root
        self.datatype = MPI.Datatype.fromcode(operation.dtype.char)  # mpi4py would look it up in each call
        self.op = MPI_OPS[operation.reduction.name]
        self.dst = dst
        self.contribution = operation.contribution(src, dst, comm.rank)
        self.result = dst[result_span(operation, comm.rank)]

    def typed_buffer(self, buffer: Array) -> TypedBuffer:
        return memory_of(buffer), self.datatype

    @property
    def source(self) -> TypedBuffer:
        return self.typed_buffer(self.contribution)

    @property
    def target(self) -> TypedBuffer:
        return self.typed_buffer(self.result)

    @property
    def source_or_in_place(self) -> TypedBuffer | MPI.InPlaceType:
        return MPI.IN_PLACE if self.operation.in_place else self.source

    def blocks(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the elements that this rank sends to each rank, and receives from each rank."""
        unequal = self.operation.call.blocks(self.operation.count)
        if unequal is None:
            raise ValueError(f"{self.operation.collective.name} has equal blocks")
        return unequal[self.comm.rank], unequal[:, self.comm.rank]


def _all_reduce(a: _CallArguments) -> LibraryCall:
    return partial(a.comm.Allreduce, a.source_or_in_place, a.target, a.op)


def _reduce_scatter(a: _CallArguments) -> LibraryCall:
    if a.operation.in_place:
        return partial(a.comm.Reduce_scatter_block, MPI.IN_PLACE, a.typed_buffer(a.dst), a.op)
    return partial(a.comm.Reduce_scatter_block, a.source, a.target, a.op)


def _all_gather(a: _CallArguments) -> LibraryCall:
    return partial(a.comm.Allgather, a.source_or_in_place, a.target)


def _broadcast(a: _CallArguments) -> LibraryCall:
    return partial(a.comm.Bcast, a.target, a.root)


def _reduce(a: _CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Reduce, a.source_or_in_place, a.target, a.op, a.root)
    return partial(a.comm.Reduce, a.source, None, a.op, a.root)


def _gather(a: _CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Gather, a.source_or_in_place, a.target, a.root)
    return partial(a.comm.Gather, a.source, None, a.root)


def _scatter(a: _CallArguments) -> LibraryCall:
    if a.at_root:
        return partial(a.comm.Scatter, a.source, MPI.IN_PLACE if a.operation.in_place else a.target, a.root)
    return partial(a.comm.Scatter, None, a.target, a.root)


def _all_to_all(a: _CallArguments) -> LibraryCall:
    return partial(a.comm.Alltoall, a.source_or_in_place, a.target)


def _all_to_all_v(a: _CallArguments) -> LibraryCall:
    sent, received = ((counts, counts.cumsum() - counts) for counts in a.blocks())
    source, target = memory_of(a.contribution), memory_of(a.dst)
    return partial(a.comm.Alltoallv, (source, sent, a.datatype), (target, received, a.datatype))


def _barrier(a: _CallArguments) -> LibraryCall:
    return a.comm.Barrier


def _send_recv(a: _CallArguments) -> LibraryCall:
    send, receive = partial(a.comm.Send, a.source), partial(a.comm.Recv, a.target)

    def ping() -> None:
        send(a.peer)
        receive(a.peer)

    def pong() -> None:
        receive(a.root)
        send(a.root)

    return {a.root: ping, a.peer: pong}.get(a.comm.rank, _no_op)


def _bidirectional(a: _CallArguments) -> LibraryCall:
    other = {a.root: a.peer, a.peer: a.root}.get(a.comm.rank)
    if other is None:
        return _no_op
    return partial(a.comm.Sendrecv, a.source, other, recvbuf=a.target, source=other)


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
    "bidirectional": _bidirectional,
}
"""The call of each collective; point-to-point patterns use the calls of an MPI program."""


class MpiVendorPlan:
    """One call of the library among the workers; an average is the library's sum, divided by this plan."""

    def __init__(self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array) -> None:
        workers = operation.layout.workers
        self._operation, self.result = operation, dst[:0]
        self._call: LibraryCall = _no_op
        self._workers: MPI.Intracomm | None = None  # our own communicator if there are aggregators
        if operation.layout.aggregators:
            self._workers = cast("MPI.Intracomm", comm.Split(0 if comm.rank < workers else MPI.UNDEFINED, comm.rank))
        if comm.rank < workers:
            arguments = _CallArguments(self._workers or comm, operation, src, dst)
            self._call = CALLS[operation.collective.name](arguments)
            self.result = arguments.result

    def run(self) -> None:
        self._call()
        if self._operation.reduction.averages:
            self._operation.reduction.scale(self.result, self._operation.layout.workers)

    def progress(self) -> str:
        return f"inside the library's {self._operation.collective.name}"

    def close(self) -> None:
        if self._workers:
            self._workers.Free()
            self._workers = None
