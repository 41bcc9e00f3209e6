"""The MPI library's own collectives as calls of native code, with the arguments that mpi4py would pass."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from mpi4py import MPI

from hpccoll.executor.mpi_functions import MAX_COUNT, call_record, handle, status_array
from hpccoll.executor.structures import Records
from hpccoll.schedule.operation import Array
from hpccoll.transports.mpi.vendor_arguments import CallArguments
from hpccoll.transports.transport_interface import address

NativeCall: TypeAlias = tuple[str, tuple[int, ...], int]
"""The name of a function, its arguments, and the largest of its counts."""

NO_BUFFER = 0

TAG = 0


class NativeArguments:
    """The arguments of a call at this worker, as integers.

    Args:
        of: the arguments.
    """

    def __init__(self, of: CallArguments) -> None:
        self.operation, self.rank = of.operation, of.comm.rank
        self.root, self.partner, self.at_root = of.root, of.partner, of.at_root
        self.comm, self.datatype, self.op = handle(of.comm), handle(of.datatype), handle(of.op)
        self.workers = of.comm.size
        self.contribution, self.result = (_address(array) for array in (of.contribution, of.result))
        self.dst = _address(of.dst)
        self.sent, self.received, self.whole = len(of.contribution), len(of.result), len(of.dst)
        self.source_or_in_place = int(MPI.IN_PLACE) if of.operation.in_place else self.contribution
        self.status = status_array(1)
        self._blocks = of.blocks

    @property
    def received_block(self) -> int:
        """The elements that this rank receives from each rank."""
        return self.received // self.workers

    @property
    def sent_block(self) -> int:
        """The elements that this rank sends to each rank."""
        return self.sent // self.workers

    def blocks(self) -> list[Array]:
        """Return counts and displacements sent, and counts and displacements received, in elements."""
        both = [(counts, counts.cumsum() - counts) for counts in self._blocks()]
        wide = max(int(array.max()) for pair in both for array in pair) > MAX_COUNT
        return [np.ascontiguousarray(array, np.int64 if wide else np.int32) for pair in both for array in pair]


def _address(array: Array) -> int:
    return address(array) if len(array) else NO_BUFFER


def _all_reduce(a: NativeArguments) -> list[NativeCall]:
    return [("MPI_Allreduce", (a.source_or_in_place, a.result, a.received, a.datatype, a.op, a.comm), a.received)]


def _reduce_scatter(a: NativeArguments) -> list[NativeCall]:
    buffer, count = (a.dst, a.whole // a.workers) if a.operation.in_place else (a.result, a.received)
    return [("MPI_Reduce_scatter_block", (a.source_or_in_place, buffer, count, a.datatype, a.op, a.comm), count)]


def _all_gather(a: NativeArguments) -> list[NativeCall]:
    source = a.source_or_in_place, a.sent, a.datatype
    return [("MPI_Allgather", (*source, a.result, a.received_block, a.datatype, a.comm), a.sent)]


def _broadcast(a: NativeArguments) -> list[NativeCall]:
    return [("MPI_Bcast", (a.result, a.received, a.datatype, a.root, a.comm), a.received)]


def _reduce(a: NativeArguments) -> list[NativeCall]:
    source, target = (a.source_or_in_place, a.result) if a.at_root else (a.contribution, NO_BUFFER)
    return [("MPI_Reduce", (source, target, a.sent, a.datatype, a.op, a.root, a.comm), a.sent)]


def _gather(a: NativeArguments) -> list[NativeCall]:
    source = a.source_or_in_place if a.at_root else a.contribution
    target = (a.result, a.received_block) if a.at_root else (NO_BUFFER, 0)
    return [("MPI_Gather", (source, a.sent, a.datatype, *target, a.datatype, a.root, a.comm), a.sent)]


def _scatter(a: NativeArguments) -> list[NativeCall]:
    source = (a.contribution, a.sent_block) if a.at_root else (NO_BUFFER, 0)
    target = int(MPI.IN_PLACE) if a.at_root and a.operation.in_place else a.result
    return [("MPI_Scatter", (*source, a.datatype, target, a.received, a.datatype, a.root, a.comm), a.received)]


def _all_to_all(a: NativeArguments) -> list[NativeCall]:
    source = a.source_or_in_place, a.sent_block, a.datatype
    return [("MPI_Alltoall", (*source, a.result, a.received_block, a.datatype, a.comm), a.received_block)]


def _barrier(a: NativeArguments) -> list[NativeCall]:
    return [("MPI_Barrier", (a.comm,), 0)]


def _send_recv(a: NativeArguments) -> list[NativeCall]:
    if a.partner is None:
        return []
    send = "MPI_Send", (a.contribution, a.sent, a.datatype, a.partner, TAG, a.comm), a.sent
    status = address(a.status)
    receive = "MPI_Recv", (a.result, a.received, a.datatype, a.partner, TAG, a.comm, status), a.received
    return [send, receive] if a.at_root else [receive, send]


def _exchange(a: NativeArguments) -> list[NativeCall]:
    if a.partner is None:
        return []
    source = a.contribution, a.sent, a.datatype, a.partner, TAG
    target = a.result, a.received, a.datatype, a.partner, TAG
    return [("MPI_Sendrecv", (*source, *target, a.comm, address(a.status)), a.received)]


NATIVE_CALLS: dict[str, Callable[[NativeArguments], list[NativeCall]]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
    "send_recv": _send_recv,
    "bidirectional": _exchange,
    "multi_pair": _exchange,
}
"""The calls of each collective whose blocks are equal."""


def native_calls(of: CallArguments) -> tuple[Sequence[Records], list[Array]]:
    """Return the calls of a collective at this worker, and the arrays that they use besides the buffers.

    Args:
        of: the arguments of the call.

    Raises:
        UnusableError: if a count exceeds 2^31 - 1 and the library has no function for such counts.
    """
    a, name = NativeArguments(of), of.operation.collective.name
    if name == "all_to_all_v":
        blocks = a.blocks()
        sent, received = (tuple(map(address, pair)) for pair in (blocks[:2], blocks[2:]))
        arguments = a.contribution, *sent, a.datatype, a.dst, *received, a.datatype, a.comm
        large = blocks[0].dtype == np.int64
        return [call_record("MPI_Alltoallv", *arguments, large=large)], blocks
    calls = NATIVE_CALLS[name](a)
    return [call_record(name, *arguments, large=count > MAX_COUNT) for name, arguments, count in calls], [a.status]
