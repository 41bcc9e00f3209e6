"""The MPI library's own collectives as data: functions and the roles of their arguments, called by mpi4py or in C."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.common.errors import UnusableError
from hpccoll.executor.mpi_functions import MAX_COUNT, call_record, handle, status_array
from hpccoll.executor.structures import Records
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.transport_interface import address

MPI_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "avg": MPI.SUM}

TAG = 0

Memory: TypeAlias = Array | MPI.InPlaceType | None
"""A buffer, the buffer of the result, or none on a rank where the argument means nothing."""


def result_span(operation: Operation, me: int) -> slice:
    """Return the elements of dst in which MPI leaves the result of rank ``me``.

    They are those of a schedule, except in place for a reduce-scatter: MPI writes its result to the
    beginning of the buffer on every rank (MPI 5.0, section 6.10.1).
    """
    span = operation.span("dst", operation.call.target(me, operation.api_cut.units), me)
    if operation.in_place and operation.collective.name == "reduce_scatter":
        return slice(0, span.stop - span.start)
    return span


class Argument(NamedTuple):
    """An argument of a function of MPI, such as a buffer with its count and datatype."""

    python: tuple[object, ...]  # what mpi4py's method takes for it
    c: tuple[int, ...]  # what the function in C takes: integers, addresses and handles
    largest: int = 0  # the largest count or displacement in it


class LibraryCall(NamedTuple):
    """A blocking call."""

    comm: MPI.Intracomm  # the communicator
    name: str  # the name of the function without ``MPI_``
    arguments: tuple[Argument, ...]  # its arguments before the communicator
    # the address of the status, the last argument of a function that receives; None for others
    status: int | None = None

    def in_python(self) -> Callable[[], None]:
        """Return the call of mpi4py."""
        return self._method(self.name)

    def in_c(self) -> Records:
        """Return the call of the compiled executor.

        Raises:
            UnusableError: if a count exceeds 2^31 - 1 and the library has no function for such
                counts.
        """
        values = [value for argument in self.arguments for value in argument.c]
        values.append(handle(self.comm))
        if self.status is not None:
            values.append(self.status)
        large = any(argument.largest > MAX_COUNT for argument in self.arguments)
        return call_record(f"MPI_{self.name}", *values, large=large)

    def nonblocking(self) -> Callable[[], MPI.Request]:
        """Return mpi4py's call that returns at once: ``Iallreduce`` for ``Allreduce``.

        Raises:
            UnusableError: if MPI has none.
        """
        name = f"I{self.name.lower()}"
        if not hasattr(self.comm, name):
            raise UnusableError("algorithm native", f"MPI has no {name}")
        return self._method(name)

    def _method(self, name: str) -> Callable[[], Any]:
        values = [value for argument in self.arguments for value in argument.python]
        return partial(getattr(self.comm, name), *values)


class CallArguments:
    """The arguments of the calls of an operation at this worker; it keeps alive what they point to."""

    def __init__(self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array) -> None:
        self.comm = comm
        self.operation = operation
        self.workers = comm.size
        self.partner = operation.call.partner(comm.rank)
        self.at_root = comm.rank == operation.call.root
        self.dst = dst
        self.contribution = operation.contribution(src, dst, comm.rank)
        self.result = dst[result_span(operation, comm.rank)]
        self.in_place: Memory = MPI.IN_PLACE if operation.in_place else None
        self.source: Memory = self.contribution if self.in_place is None else self.in_place
        # What a rank gives to the root, and the root's result, which means nothing elsewhere.
        self.to_root: Memory = self.source if self.at_root else self.contribution
        self.at_root_only: Memory = self.result if self.at_root else None
        # mpi4py would look it up in each call
        self._datatype = MPI.Datatype.fromcode(operation.dtype.char)
        op = MPI_OPS[operation.reduction.name]
        self.op = Argument((op,), (handle(op),))
        self.root = _number(operation.call.root)
        self.tag = _number(TAG)
        self._status = status_array(1)
        self._blocks = self._unequal_blocks()

    def calls(self) -> list[LibraryCall]:
        """Return the calls of the operation; none on a rank that takes no part."""
        return CALLS[self.operation.collective.name](self)

    def call(self, name: str, *arguments: Argument, receives: bool = False) -> LibraryCall:
        return LibraryCall(self.comm, name, arguments, address(self._status) if receives else None)

    def memory(self, buffer: Memory) -> Argument:
        """Return a buffer whose count is that of another argument."""
        if buffer is None:
            return Argument((None,), (0,))
        if isinstance(buffer, MPI.InPlaceType):
            return Argument((buffer,), (int(buffer),))
        start = address(buffer) if len(buffer) else 0
        return Argument(((_mpi_buffer(buffer), self._datatype),), (start,))

    def counted(self, buffer: Memory, count: int | None = None) -> Argument:
        """Return a buffer, its count of elements in C [its length], and its datatype."""
        memory = self.memory(buffer)
        if count is None:
            count = len(cast("Array", buffer))
        return Argument(memory.python, (*memory.c, count, handle(self._datatype)), count)

    def blocks(self, array: Array, *, sends: bool) -> Argument:
        """Return a buffer with the counts and displacements of its unequal blocks."""
        counts, displacements = self._blocks[:2] if sends else self._blocks[2:]
        python = _mpi_buffer(array), (counts, displacements), self._datatype
        c = *self.memory(array).c, address(counts), address(displacements), handle(self._datatype)
        largest = max(int(counts.max()), int(displacements.max()))
        return Argument((python,), c, largest)

    def _unequal_blocks(self) -> list[NDArray[np.integer]]:
        """Return the counts and displacements sent and those received, if the blocks of the operation are unequal."""
        sizes = self.operation.call.blocks(self.operation.count)
        if sizes is None:
            return []
        me = self.comm.rank
        sent = sizes[me]
        received = sizes[:, me]
        arrays = [sent, sent.cumsum() - sent, received, received.cumsum() - received]
        largest = max(int(array.max()) for array in arrays)
        dtype = np.int64 if largest > MAX_COUNT else np.int32
        return [np.ascontiguousarray(array, dtype) for array in arrays]


def _number(value: int) -> Argument:
    return Argument((value,), (value,))


def _mpi_buffer(array: Array) -> Array | MPI.buffer:
    """Return a NumPy array as it is, and the memory of a CuPy array, which mpi4py would look up in each call."""
    if type(array) is np.ndarray:
        return array
    return MPI.buffer.fromaddress(address(array), array.nbytes)


def _ping_pong(
    a: CallArguments, sent: Argument, received: Argument, partner: Argument
) -> list[LibraryCall]:
    send = a.call("Send", sent, partner, a.tag)
    receive = a.call("Recv", received, partner, a.tag, receives=True)
    return [send, receive] if a.at_root else [receive, send]


def _exchange(
    a: CallArguments, sent: Argument, received: Argument, partner: Argument
) -> list[LibraryCall]:
    return [a.call("Sendrecv", sent, partner, a.tag, received, partner, a.tag, receives=True)]


def _between_partners(
    calls: Callable[[CallArguments, Argument, Argument, Argument], list[LibraryCall]],
) -> Callable[[CallArguments], list[LibraryCall]]:
    """Return the calls of ranks that have a partner; the others have none."""

    def calls_of_rank(a: CallArguments) -> list[LibraryCall]:
        if a.partner is None:
            return []
        return calls(a, a.counted(a.contribution), a.counted(a.result), _number(a.partner))

    return calls_of_rank


CALLS: dict[str, Callable[[CallArguments], list[LibraryCall]]] = {
    "all_reduce": lambda a: [a.call("Allreduce", a.memory(a.source), a.counted(a.result), a.op)],
    "reduce_scatter": lambda a: [
        a.call(
            "Reduce_scatter_block",
            a.memory(a.source),
            a.counted(a.dst if a.operation.in_place else a.result, len(a.result)),
            a.op,
        )
    ],
    "all_gather": lambda a: [
        a.call(
            "Allgather",
            a.counted(a.source, len(a.contribution)),
            a.counted(a.result, len(a.result) // a.workers),
        )
    ],
    "broadcast": lambda a: [a.call("Bcast", a.counted(a.result), a.root)],
    "reduce": lambda a: [
        a.call(
            "Reduce",
            a.memory(a.to_root),
            a.counted(a.at_root_only, len(a.contribution)),
            a.op,
            a.root,
        )
    ],
    "gather": lambda a: [
        a.call(
            "Gather",
            a.counted(a.to_root, len(a.contribution)),
            a.counted(a.at_root_only, len(a.result) // a.workers),
            a.root,
        )
    ],
    "scatter": lambda a: [
        a.call(
            "Scatter",
            a.counted(a.contribution if a.at_root else None, len(a.contribution) // a.workers),
            a.counted(
                a.result if a.in_place is None or not a.at_root else a.in_place, len(a.result)
            ),
            a.root,
        )
    ],
    "all_to_all": lambda a: [
        a.call(
            "Alltoall",
            a.counted(a.source, len(a.contribution) // a.workers),
            a.counted(a.result, len(a.result) // a.workers),
        )
    ],
    "all_to_all_v": lambda a: [
        a.call("Alltoallv", a.blocks(a.contribution, sends=True), a.blocks(a.dst, sends=False))
    ],
    "barrier": lambda a: [a.call("Barrier")],
    "send_recv": _between_partners(_ping_pong),
    "bidirectional": _between_partners(_exchange),
    "multi_pair": _between_partners(_exchange),
}
"""The calls of each collective; point-to-point patterns use the calls of an MPI program."""
