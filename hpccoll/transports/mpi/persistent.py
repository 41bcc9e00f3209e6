"""Schedules over MPI's point-to-point messages, compiled once per buffer into persistent requests.

The messages of a step start together; after all have completed, the arrivals are folded in the listed order. Lanes are
distributed over sequences, one for each slice of ``window`` channels. The lanes of a sequence run one after another and
share its scratch; sequences progress independently, so that one folds while another transfers.

If all ranks start with messages inside their nodes, a channel waits until the one before it has completed its first
step. Otherwise all channels would compete for the cores first, and the network would be idle until the last was done.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from mpi4py import MPI

from hpccoll.errors import BadInputError
from hpccoll.schedule import Layout
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.mpi.compile import MAX_LANES, MpiCompiler
from hpccoll.transports.mpi.shared_windows import SharedMemory
from hpccoll.transports.mpi.step import CompiledStep, QueuedMemory
from hpccoll.transports.transport_interface import Array, CompiledPlan, HostBuffers, Operation, check_agreement

MAX_PERSISTENT_REQUESTS = 65536
"""The maximum number of persistent requests of a plan; above it, each run starts new requests. MPICH keeps about 900
bytes for a persistent request."""

CHANNELS_KEY = "parameter channels"
"""The key named in the error if a plan has more lanes than tags."""


class MpiTransport(HostBuffers):
    """Schedules over the point-to-point messages of an MPI library."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self.comm = comm

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        return MpiPlan(self.comm, operation, src, dst)


class TieredTransport(GuardedBuffers):
    """Schedules over shared memory inside nodes and over messages between them.

    A receiver on the sender's node reads the part directly from the sender's memory: a receive is one copy, a fold
    none. On a single node this transport is called ``shm``.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self.comm, self.shared = comm, SharedMemory(comm)

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer = self.shared.empty(count, dtype)
        self.guarded.append(self.shared.guarded(buffer))
        return buffer

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        return MpiPlan(self.comm, operation, src, dst, self.shared)

    def close(self) -> None:
        super().close()
        self.shared.close()


class MpiPlan:
    """An operation compiled for the buffers of this rank; all ranks create it together.

    Args:
        comm: the communicator of the ranks.
        operation: the operation.
        src: the source buffer of this rank, unused in place.
        dst: the destination buffer of this rank.
        shared: the shared memory that contains src and dst, None to send all parts.
        memory: the memory of src and dst if it is not the host's.

    Raises:
        BadInputError: if the operation has more lanes than there are tags.
        PlanMismatchError: if the ranks disagree on the messages between them.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        operation: Operation,
        src: Array,
        dst: Array,
        shared: SharedMemory | None = None,
        memory: QueuedMemory | None = None,
    ) -> None:
        if comm.size != operation.layout.ranks:
            raise ValueError(f"{comm.size} ranks cannot run a plan for {operation.layout.ranks}")
        if operation.lanes > MAX_LANES:
            raise BadInputError(
                CHANNELS_KEY, operation.channels, f"at most {MAX_LANES} lanes, it makes {operation.lanes}"
            )
        self.result = operation.result(dst, comm.rank)
        compiler = MpiCompiler(comm.rank, operation, src, dst, shared, memory)
        self._sequences, self._datatypes = compiler.sequences(), compiler.datatypes
        _check_plans_match(comm, operation, self._sequences)
        steps = [step for sequence in self._sequences for step in sequence]
        persistent = sum(len(step.messages) for step in steps) <= MAX_PERSISTENT_REQUESTS
        for step in steps:
            step.prepare(comm, persistent=persistent)
        self._max_messages = max((len(step.messages) for step in steps), default=0)
        self._step_index, self._started = [0] * len(self._sequences), len(self._sequences)
        staggered = comm.allreduce(_starts_inside_node(self._sequences, operation.layout, comm.rank), MPI.LAND)
        self._initial = len(operation.schedules) if staggered else len(self._sequences)

    def run(self) -> None:
        if len(self._step_index) == 1:
            self._run_sequence()
        else:
            self._run_sequences()

    def _run_sequence(self) -> None:
        # MPICH's Waitall is slower than repeated Testall (1 KiB on 2 ranks: 4.1 us against 3.3 us), and like its
        # Waitsome it does not yield to ranks that share a core.
        completed = MPI.Request.Testall
        self._step_index[0] = 0
        for step in self._sequences[0]:
            requests = step.start()
            while not completed(requests):
                os.sched_yield()
            step.finish()
            self._step_index[0] += 1

    def _run_sequences(self) -> None:
        count = len(self._sequences)
        self._step_index[:] = [0] * count
        slots = self._max_messages
        active: list[MPI.Request] = [MPI.REQUEST_NULL] * (slots * count)
        pending = [0] * count
        self._started = running = 0
        while True:
            while self._started < count and self._may_start(self._started):
                pending[self._started] = self._start_step(self._started, active)
                running += pending[self._started] > 0
                self._started += 1
            if not running:
                return
            completed = MPI.Request.Testsome(active)
            if not completed:
                # MPICH's Waitsome never yields: with more ranks than cores it takes 46 ms, and this loop 0.5 ms.
                os.sched_yield()
                continue
            for request in completed:
                number = request // slots
                pending[number] -= 1
                if not pending[number]:
                    self._sequences[number][self._step_index[number]].finish()
                    self._step_index[number] += 1
                    pending[number] = self._start_step(number, active)
                    running -= not pending[number]

    def _may_start(self, number: int) -> bool:
        """Return whether a sequence may start: at once, or after its predecessor has completed a step or has none."""
        before = number - self._initial
        return before < 0 or self._step_index[before] > 0 or not self._sequences[before]

    def _start_step(self, number: int, active: list[MPI.Request]) -> int:
        """Start a sequence's next step with messages, and return their number; return 0 at the end of the sequence."""
        sequence = self._sequences[number]
        while self._step_index[number] < len(sequence):
            step = sequence[self._step_index[number]]
            requests = step.start()
            if requests:
                first = number * self._max_messages
                active[first : first + len(requests)] = requests
                return len(requests)
            step.finish()
            self._step_index[number] += 1
        return 0

    def progress(self) -> str:
        """Return the current step of each started sequence, and the peers of that step."""
        unfinished = []
        for number, (at, sequence) in enumerate(zip(self._step_index, self._sequences[: self._started], strict=False)):
            if at < len(sequence):
                peers = ", ".join(f"{'to' if m.sends else 'from'} rank {m.peer}" for m in sequence[at].messages)
                unfinished.append(f"sequence {number}, step {at + 1} of {len(sequence)} ({peers or 'no messages'})")
        return "; ".join(unfinished) or "done"

    def close(self) -> None:
        for sequence in self._sequences:
            for step in sequence:
                for request in step.requests:
                    request.Free()
        for datatype in self._datatypes:
            datatype.Free()
        self._sequences, self._datatypes = [], []


def _starts_inside_node(sequences: Sequence[Sequence[CompiledStep]], layout: Layout, me: int) -> bool:
    """Return whether the first steps of this rank have messages only with ranks of its node, of several nodes."""
    if layout.nodes == 1:
        return False
    peers = {message.peer for steps in sequences for message in (steps[0].messages if steps else ())}
    return all(layout.node[peer] == layout.node[me] for peer in peers)


def _check_plans_match(comm: MPI.Intracomm, operation: Operation, sequences: list[list[CompiledStep]]) -> None:
    """Check that each rank sends to each other rank the messages that the other expects.

    Raises:
        PlanMismatchError: on every rank; names both ranks of each pair that disagrees.
    """
    header = f"{operation.collective.name} {operation.count} {operation.dtype} {operation.reduction.name}".encode()
    digests: dict[tuple[bool, int], hashlib.blake2b] = defaultdict(lambda: hashlib.blake2b(header, digest_size=8))
    for sequence in sequences:
        for step in sequence:
            for message in filter(attrgetter("nbytes"), step.messages):  # done signals have no bytes
                digests[message.sends, message.peer].update(b"%d %d;" % (message.tag, message.nbytes))
    sent_to_me = comm.alltoall([digests[True, peer].digest() for peer in range(comm.size)])
    mismatched = [peer for peer, digest in enumerate(sent_to_me) if digest != digests[False, peer].digest()]
    check_agreement(comm.allgather(mismatched))
