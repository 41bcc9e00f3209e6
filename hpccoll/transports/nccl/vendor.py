"""NCCL's own collectives, called the way its users call them; in place where nccl-tests has them so.

What NCCL has no call for is what its users write: grouped sends and receives, and for a barrier an all-reduce of one
word. An average is a sum and our one scale: ncclAvg multiplies before it adds, which rounds.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hpccoll.errors import BadInputError
from hpccoll.transports.buffer_pieces import Span
from hpccoll.transports.guarded_memory import allocate_guarded
from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.nccl.stream_plan import StreamCall, StreamPlan
from hpccoll.transports.nccl.transport import NcclTransportBase
from hpccoll.transports.operation import Array, Operation, address

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.nccl.communicator_config import NcclBuffers
    from hpccoll.transports.nccl.communicators import NcclLibrary

NCCL_TYPES = {
    "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
"""ncclDataType_t of each element (nccl.h)."""

NCCL_OPS = {"sum": 0, "avg": 0, "prod": 1, "max": 2, "min": 3}
"""ncclRedOp_t of each reduction (nccl.h)."""

GroupCalls: TypeAlias = Callable[[list[tuple[Callable[..., object], tuple[object, ...]]]], StreamCall]


class NcclCallArguments:
    """What a call is made of, at this worker.

    Args:
        communicator: of the workers.
        me: this rank.
        operation: what to do.
        src: this rank's source buffer, not used in place.
        dst: its destination buffer.
        word: an int32 of the plan's own.
        stream: on which it is queued, as NCCL takes it.
        group: makes several calls one.
    """

    def __init__(
        self, communicator: Any, me: int, operation: Operation, src: Array, dst: Array, word: Array, stream: int,
        group: GroupCalls,
    ) -> None:  # fmt: skip
        self.nccl, self.me, self.operation, self.dst = communicator, me, operation, dst
        self.word, self.stream, self.group = word, stream, group
        self.root, self.peer = operation.call.root, operation.call.peer or 0
        self.type, self.op = NCCL_TYPES[operation.dtype.name], NCCL_OPS[operation.reduction.name]
        self.contribution, self.result = operation.contribution(src, dst, me), operation.result(dst, me)
        self.source, self.target = address(self.contribution), address(self.result)
        self.workers = range(operation.layout.workers)

    def send(self, buffer: Array, peer: int) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.nccl.send, (address(buffer), len(buffer), self.type, peer, self.stream)

    def receive(self, buffer: Array, peer: int) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.nccl.recv, (address(buffer), len(buffer), self.type, peer, self.stream)

    def block(self, buffer: Array, number: int) -> Array:
        count = self.operation.count
        return buffer[number * count : (number + 1) * count]

    def others(self) -> list[int]:
        """Return the workers that a block goes to or comes from: in place one's own is there."""
        return [peer for peer in self.workers if not (self.operation.in_place and peer == self.me)]


def _all_reduce(a: NcclCallArguments) -> StreamCall:
    return partial(a.nccl.allReduce, a.source, a.target, len(a.result), a.type, a.op, a.stream)


def _reduce_scatter(a: NcclCallArguments) -> StreamCall:
    return partial(a.nccl.reduceScatter, a.source, a.target, a.operation.count, a.type, a.op, a.stream)


def _all_gather(a: NcclCallArguments) -> StreamCall:
    return partial(a.nccl.allGather, a.source, a.target, a.operation.count, a.type, a.stream)


def _broadcast(a: NcclCallArguments) -> StreamCall:
    source = a.source if a.me == a.root else a.target  # of others it is not read
    return partial(a.nccl.broadcast, source, a.target, a.operation.count, a.type, a.root, a.stream)


def _reduce(a: NcclCallArguments) -> StreamCall:
    target = a.target if a.me == a.root else a.source  # of others it is not written
    return partial(a.nccl.reduce, a.source, target, a.operation.count, a.type, a.op, a.root, a.stream)


def _gather(a: NcclCallArguments) -> StreamCall:
    calls = [] if a.operation.in_place and a.me == a.root else [a.send(a.contribution, a.root)]
    if a.me == a.root:
        calls += [a.receive(a.block(a.dst, peer), peer) for peer in a.others()]
    return a.group(calls)


def _scatter(a: NcclCallArguments) -> StreamCall:
    calls = [] if a.operation.in_place and a.me == a.root else [a.receive(a.result, a.root)]
    if a.me == a.root:
        calls += [a.send(a.block(a.contribution, peer), peer) for peer in a.others()]
    return a.group(calls)


def _all_to_all(a: NcclCallArguments) -> StreamCall:
    return a.group(
        [a.send(a.block(a.contribution, peer), peer) for peer in a.workers]
        + [a.receive(a.block(a.dst, peer), peer) for peer in a.workers]
    )


def _all_to_all_v(a: NcclCallArguments) -> StreamCall:
    unequal = a.operation.call.blocks(a.operation.count)
    if unequal is None:
        raise ValueError(f"{a.operation.collective.name} has equal blocks")

    def blocks(buffer: Array, counts: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[int, Array]]:
        ends = counts.cumsum()
        each = [buffer[int(end - count) : int(end)] for count, end in zip(counts, ends, strict=True)]
        return [(peer, block) for peer, block in enumerate(each) if len(block)]

    return a.group(
        [a.send(block, peer) for peer, block in blocks(a.contribution, unequal[a.me])]
        + [a.receive(block, peer) for peer, block in blocks(a.dst, unequal[:, a.me])]
    )


def _barrier(a: NcclCallArguments) -> StreamCall:
    word = address(a.word)
    return partial(a.nccl.allReduce, word, word, 1, NCCL_TYPES["int32"], NCCL_OPS["max"], a.stream)


def _send_recv(a: NcclCallArguments) -> StreamCall:
    there, back = {a.root: a.peer, a.peer: a.root}.get(a.me), a.me == a.root
    if there is None:
        return a.group([])
    (send, out), (receive, into) = a.send(a.contribution, there), a.receive(a.result, there)

    def ping() -> None:
        send(*out)
        receive(*into)

    def pong() -> None:
        receive(*into)
        send(*out)

    return ping if back else pong


def _bidirectional(a: NcclCallArguments) -> StreamCall:
    other = {a.root: a.peer, a.peer: a.root}.get(a.me)
    return a.group([] if other is None else [a.send(a.contribution, other), a.receive(a.result, other)])


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
"""The call of each collective."""


def check_placement(operation: Operation) -> None:
    """See that NCCL, as its users call it, has this placement.

    Raises:
        BadInputError: for one that it has not.
    """
    if operation.in_place and operation.collective.name == "all_to_all":
        there = "false: grouped sends and receives, which is how NCCL's users write it, need a buffer each"
        raise BadInputError("in_place of all_to_all of native over nccl", True, there)


class NcclVendorTransport(NcclTransportBase):
    """The collectives of NCCL, at its default settings or at what its environment says.

    Args:
        comm, gpu, graph, library: as for schedules.
        buffers: memory that NCCL allocates and may know; None is CuPy's, which it does not.
    """

    def __init__(
        self, comm: "MPI.Intracomm", gpu: "Gpu", *, graph: bool = False, library: "NcclLibrary | None" = None,
        buffers: "NcclBuffers | None" = None,
    ) -> None:  # fmt: skip
        super().__init__(comm, gpu, graph=graph, library=library)
        self.buffers = buffers

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        if not self.buffers:
            return super().empty(count, dtype)
        # What NCCL allocates is aligned to more than a page, and is known to it from its first byte on.
        buffer: Array = self.keep(allocate_guarded(self.buffers.empty, count, dtype, front=False))
        return buffer

    def plan(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        """Lay out the call, on all ranks together.

        Raises:
            BadInputError: for a placement that the call has not, or where NCCL makes no windows of these GPUs.
        """
        from hpccoll.transports.nccl.communicators import nccl_world
        from hpccoll.transports.nccl.cupy_device import CupyDevice, group_calls

        check_placement(operation)
        me, workers = self.comm.rank, operation.layout.workers
        everyone = nccl_world(self.comm, self.library)
        device = CupyDevice(self.gpu, everyone.communicator)
        communicator = everyone.workers(workers)
        if self.buffers:
            self.buffers.register(communicator, workers, (src, dst))
        what = f"inside NCCL's {operation.collective.name}"
        if communicator is None:
            return StreamPlan(device, dst[:0], [], what)
        word = device.empty(1, np.dtype("int32"))  # a barrier's buffer is the payload's, whose check it must not change
        arguments = NcclCallArguments(communicator, me, operation, src, dst, word, self.gpu.stream.ptr, group_calls)
        calls = [CALLS[operation.collective.name](arguments)]
        if operation.reduction.averages and len(arguments.result):
            whole = Span("result", 0, len(arguments.result))
            calls += device.fold_calls(operation, {"result": arguments.result}, [[Fold(whole, (whole,), workers)]])
        plan = StreamPlan(device, arguments.result, calls, what, (src, dst, word))
        try:
            return plan.prepared(graph=self.graph)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Have NCCL forget the buffers; they are freed once nobody names them."""
        super().close()
        if self.buffers:
            self.buffers.close()
