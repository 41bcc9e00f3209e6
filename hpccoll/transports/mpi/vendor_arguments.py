"""The arguments of the MPI library's own collectives, as they follow from an operation and its buffers."""

from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.transport_interface import address

TypedBuffer: TypeAlias = tuple[Array | MPI.buffer, MPI.Datatype]
"""A buffer and the datatype of its elements."""

MPI_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "avg": MPI.SUM}


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


class CallArguments:
    """The arguments of a call at this worker.

    Args:
        comm: the communicator of the workers.
        operation: the operation.
        src: the source buffer of this rank, unused in place.
        dst: the destination buffer of this rank.
    """

    def __init__(self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array) -> None:
        self.comm, self.operation = comm, operation
        self.root, self.partner = operation.call.root, operation.call.partner(comm.rank)
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
