"""NCCL's own collectives, called as applications call them, with the in-place forms of nccl-tests.

All-to-all, gather and scatter are NCCL's from 2.28 on, through nccl4py, because CuPy's binding
lacks them. Collectives that NCCL or its binding lacks use the common idiom: grouped sends and
receives, and for a barrier an all-reduce of one word. An average is a sum followed by one division,
because ncclAvg multiplies before it adds, which rounds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.nccl.cupy_device import StreamCall, group_calls
from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.nccl.transport import NcclTransportBase
from hpccoll.transports.shared_lowering import Span
from hpccoll.transports.transport_interface import address

NCCL_TYPES = {
    "uint8": 1,
    "int32": 2,
    "int64": 4,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
"""ncclDataType_t of each element (nccl.h)."""

NCCL_OPS = {"sum": 0, "avg": 0, "prod": 1, "max": 2, "min": 3}
"""ncclRedOp_t of each reduction (nccl.h)."""

NewerCall: TypeAlias = Callable[..., None]
"""ncclGather, ncclScatter or ncclAlltoAll of a communicator."""

Blocks: TypeAlias = list[tuple[int, Array]]
"""The ranks to send to or receive from, with the elements for or of each."""

GroupCalls: TypeAlias = Callable[
    [list[tuple[Callable[..., object], tuple[object, ...]]]], StreamCall
]


class NcclCallArguments:
    """The arguments of a call at this worker.

    Args:
        group: the function that combines calls into one group.
    """

    def __init__(
        self,
        communicator: Any,
        me: int,
        operation: Operation,
        src: Array,
        dst: Array,
        word: Array,
        stream: int,
        group: GroupCalls,
    ) -> None:
        self.nccl = communicator
        self.me = me
        self.operation = operation
        self.dst = dst
        self.word = word
        self.stream = stream
        self.group = group
        self.workers = operation.layout.workers
        self.root = operation.call.root
        self.partner = operation.call.partner(me)
        self.type = NCCL_TYPES[operation.dtype.name]
        self.op = NCCL_OPS[operation.reduction.name]
        self.contribution = operation.contribution(src, dst, me)
        self.result = operation.result(dst, me)
        self.source = address(self.contribution)
        self.target = address(self.result)

    def send(self, buffer: Array, peer: int) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.nccl.send, (address(buffer), len(buffer), self.type, peer, self.stream)

    def receive(self, buffer: Array, peer: int) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.nccl.recv, (address(buffer), len(buffer), self.type, peer, self.stream)

    def blocks(self, buffer: Array, *, sends: bool) -> Blocks:
        """Return the block of each worker in a buffer that has one of each."""
        counts = np.full(self.workers, self.operation.count)
        unequal = self.operation.call.blocks(self.operation.count)
        if unequal is not None:
            counts = unequal[self.me] if sends else unequal[:, self.me]
        ends = counts.cumsum()
        starts = ends - counts
        return [(peer, buffer[starts[peer] : ends[peer]]) for peer in range(self.workers)]

    def exchange(self, sent: Blocks, received: Blocks) -> StreamCall:
        """Return the group of sends and receives; in place, a rank has its own block already."""
        sends = [self.send(block, peer) for peer, block in sent if self._moves(block, peer)]
        receives = [
            self.receive(block, peer) for peer, block in received if self._moves(block, peer)
        ]
        return self.group(sends + receives)

    def _moves(self, block: Array, peer: int) -> bool:
        if self.operation.in_place and peer == self.me:
            return False
        return len(block) > 0


def _broadcast(a: NcclCallArguments) -> StreamCall:
    source = a.source if a.me == a.root else a.target  # read on the root only
    return partial(a.nccl.broadcast, source, a.target, a.operation.count, a.type, a.root, a.stream)


def _reduce(a: NcclCallArguments) -> StreamCall:
    target = a.target if a.me == a.root else a.source  # written on the root only
    return partial(
        a.nccl.reduce, a.source, target, a.operation.count, a.type, a.op, a.root, a.stream
    )


def _barrier(a: NcclCallArguments) -> StreamCall:
    word = address(a.word)
    return partial(a.nccl.allReduce, word, word, 1, NCCL_TYPES["int32"], NCCL_OPS["max"], a.stream)


def _send_recv(a: NcclCallArguments) -> StreamCall:
    if a.partner is None:
        return a.group([])
    calls = [a.send(a.contribution, a.partner), a.receive(a.result, a.partner)]
    if a.me != a.root:
        calls.reverse()

    def in_turn() -> None:
        for call, arguments in calls:
            call(*arguments)

    return in_turn


def _exchange(a: NcclCallArguments) -> StreamCall:
    if a.partner is None:
        return a.exchange([], [])
    return a.exchange([(a.partner, a.contribution)], [(a.partner, a.result)])


def _gather(a: NcclCallArguments) -> StreamCall:
    received = a.blocks(a.dst, sends=False) if a.me == a.root else []
    return a.exchange([(a.root, a.contribution)], received)


def _scatter(a: NcclCallArguments) -> StreamCall:
    sent = a.blocks(a.contribution, sends=True) if a.me == a.root else []
    return a.exchange(sent, [(a.root, a.result)])


def _all_to_all(a: NcclCallArguments) -> StreamCall:
    return a.exchange(a.blocks(a.contribution, sends=True), a.blocks(a.dst, sends=False))


CALLS: dict[str, Callable[[NcclCallArguments], StreamCall]] = {
    "all_reduce": lambda a: partial(
        a.nccl.allReduce, a.source, a.target, len(a.result), a.type, a.op, a.stream
    ),
    "reduce_scatter": lambda a: partial(
        a.nccl.reduceScatter, a.source, a.target, a.operation.count, a.type, a.op, a.stream
    ),
    "all_gather": lambda a: partial(
        a.nccl.allGather, a.source, a.target, a.operation.count, a.type, a.stream
    ),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
    "all_to_all_v": _all_to_all,
    "barrier": _barrier,
    "send_recv": _send_recv,
    "bidirectional": _exchange,
    "multi_pair": _exchange,
}
"""The call of each collective by CuPy's binding."""

NEWER: dict[str, Callable[[NcclCallArguments, NewerCall], StreamCall]] = {
    "gather": lambda a, call: partial(
        call, a.source, address(a.dst), a.operation.count, a.type, a.root, a.stream
    ),
    "scatter": lambda a, call: partial(
        call, a.source, a.target, a.operation.count, a.type, a.root, a.stream
    ),
    "all_to_all": lambda a, call: partial(
        call, a.source, a.target, a.operation.count, a.type, a.stream
    ),
}
"""The call of each collective that NCCL has since 2.28."""

GROUPED = "grouped sends and receives"
EVIDENCE = {
    "all_to_all_v": GROUPED,
    "bidirectional": GROUPED,
    "multi_pair": GROUPED,
    "barrier": "an all-reduce of one word",
}
"""The calls that stand for a collective that NCCL lacks."""


def check_placement(operation: Operation) -> None:
    """Check that NCCL's call supports in place or out of place, as requested.

    Raises:
        BadInputError: if it does not.
    """
    if operation.in_place and operation.collective.name == "all_to_all":
        valid = "false, because ncclAlltoAll, and grouped sends and receives, need separate buffers"
        raise BadInputError("in_place of all_to_all of native over nccl", True, valid)


class NcclVendorTransport(NcclTransportBase):
    """NCCL's own collectives, at its default settings or those of its environment."""

    def _lower(self, operation: Operation, src: Array, dst: Array) -> StreamPlan:
        check_placement(operation)
        workers = operation.layout.workers
        name = operation.collective.name
        world = self._world()
        device = self._device(world)
        communicator = world.workers(workers)
        if self.buffers:
            self.buffers.register(communicator, workers, (src, dst))
        newer: NewerCall | None = None
        evidence = EVIDENCE.get(name)
        if name in NEWER:
            newer, evidence = self._newer_call(communicator, name)
        description = f"inside NCCL's {name}"
        if communicator is None:
            return StreamPlan(device, dst[:0], [], description, evidence=evidence)
        # a barrier must not change the payload, which is checked
        word = self.gpu.empty(1, np.dtype("int32"))
        stream = self.gpu.stream.ptr
        arguments = NcclCallArguments(
            communicator, self.comm.rank, operation, src, dst, word, stream, group_calls
        )
        calls = [NEWER[name](arguments, newer) if newer else CALLS[name](arguments)]
        if operation.reduction.averages and len(arguments.result):
            whole = Span("result", 0, len(arguments.result))
            calls += device.fold_calls(
                operation, {"result": arguments.result}, [[Fold(whole, (whole,), workers)]]
            )
        return StreamPlan(device, arguments.result, calls, description, (src, dst, word), evidence)

    def _newer_call(self, communicator: Any, collective: str) -> tuple[NewerCall | None, str]:
        """Return NCCL's call if all ranks have it, and the evidence of what is called."""
        from hpccoll.transports.nccl.communicator_config import (
            NEWER_CALLS_SINCE,
            missing_for_nccl4py,
            newer_call,
        )

        reasons = self.comm.allgather(missing_for_nccl4py(NEWER_CALLS_SINCE))
        reason = next(filter(None, reasons), None)
        if reason:
            return None, f"{GROUPED}, not NCCL's {collective}: {reason}"
        call = communicator and newer_call(communicator, collective)
        return call, f"NCCL's {collective}"
