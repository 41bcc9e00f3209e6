"""MPI: a schedule compiled once per buffer into persistent requests, in lanes that advance independently.

The messages of a step start together; when all have ended, the arrivals are folded in the listed order. Lanes are dealt
to sequences, one for each slice of ``window`` channels: lanes of a sequence follow one another and share its scratch;
sequences advance as their messages come, so that one folds while another transfers.

Where all ranks begin inside their nodes and go on between them, a channel waits until the one before it has ended its
first step: all at once, they would share the cores, and the wires would stand still until the last ones were done.
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
from hpccoll.transports.operation import Array, CompiledPlan, HostBuffers, Operation, check_agreement

MAX_PERSISTENT_REQUESTS = 65536
"""Above this many, a plan starts new requests each time: MPICH keeps about 900 bytes for a persistent one."""

CHANNELS_KEY = "parameter channels"
"""What is complained of where there are more lanes than tags."""


class MpiTransport(HostBuffers):
    """Schedules over the point-to-point messages of an MPI library."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__()
        self.comm = comm

    def plan(self, operation: Operation, src: Array, dst: Array) -> CompiledPlan:
        return MpiPlan(self.comm, operation, src, dst)


class TieredTransport(GuardedBuffers):
    """The same schedules, but inside a node a part is taken from the memory of its sender, where it lies.

    What a flat algorithm does inside nodes, and all of what ``hierarchical`` does there, then needs no copy but that
    into its place; a fold reads the other's memory. On one node it is a transport of its own, ``shm``.
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
    """An operation compiled for the buffers of this rank; made on all ranks together.

    Raises:
        BadInputError: for more lanes than there are tags.
        PlanMismatchError: where the ranks do not agree on what they send each other.
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
        _check_plans_agree(comm, operation, self._sequences)
        steps = [step for sequence in self._sequences for step in sequence]
        persistent = sum(len(step.messages) for step in steps) <= MAX_PERSISTENT_REQUESTS
        for step in steps:
            step.prepare(comm, persistent=persistent)
        self._width = max((len(step.messages) for step in steps), default=0)
        self._at, self._begun = [0] * len(self._sequences), len(self._sequences)
        waits = comm.allreduce(_starts_inside_node(self._sequences, operation.layout, comm.rank), MPI.LAND)
        self._together = len(operation.schedules) if waits else len(self._sequences)

    def run(self) -> None:
        if len(self._at) == 1:
            self._run_sequence()
        else:
            self._run_sequences()

    def _run_sequence(self) -> None:
        # MPICH's Waitall takes longer than to test until all have ended, 1 KiB on 2 ranks 4.1 us against 3.3, and like
        # its Waitsome it does not give way to ranks that share a core.
        ended = MPI.Request.Testall
        self._at[0] = 0
        for step in self._sequences[0]:
            requests = step.start()
            while not ended(requests):
                os.sched_yield()
            step.finish()
            self._at[0] += 1

    def _run_sequences(self) -> None:
        number_of = len(self._sequences)
        self._at[:] = [0] * number_of
        width = self._width
        active: list[MPI.Request] = [MPI.REQUEST_NULL] * (width * number_of)
        pending = [0] * number_of
        self._begun = live = 0
        while True:
            while self._begun < number_of and self._may_begin(self._begun):
                pending[self._begun] = self._begin(self._begun, active)
                live += pending[self._begun] > 0
                self._begun += 1
            if not live:
                return
            ended_now = MPI.Request.Testsome(active)
            if not ended_now:
                # MPICH's Waitsome never gives way: with more ranks than cores, 46 ms where this takes 0.5.
                os.sched_yield()
                continue
            for ended in ended_now:
                number = ended // width
                pending[number] -= 1
                if not pending[number]:
                    self._sequences[number][self._at[number]].finish()
                    self._at[number] += 1
                    pending[number] = self._begin(number, active)
                    live -= not pending[number]

    def _may_begin(self, number: int) -> bool:
        """Return whether a sequence is one of the first, or follows one that has ended a step, or has none."""
        before = number - self._together
        return before < 0 or self._at[before] > 0 or not self._sequences[before]

    def _begin(self, number: int, active: list[MPI.Request]) -> int:
        """Start the next step of a sequence that has messages, and return how many; 0 at the end of the sequence."""
        sequence = self._sequences[number]
        while self._at[number] < len(sequence):
            step = sequence[self._at[number]]
            requests = step.start()
            if requests:
                first = number * self._width
                active[first : first + len(requests)] = requests
                return len(requests)
            step.finish()
            self._at[number] += 1
        return 0

    def progress(self) -> str:
        """Return, for each sequence that has begun, the step it is in and the peers of that step."""
        places = []
        for number, (at, sequence) in enumerate(zip(self._at, self._sequences[: self._begun], strict=False)):
            if at < len(sequence):
                peers = ", ".join(f"{'to' if m.sends else 'from'} rank {m.peer}" for m in sequence[at].messages)
                places.append(f"sequence {number}, step {at + 1} of {len(sequence)} ({peers or 'no messages'})")
        return "; ".join(places) or "done"

    def close(self) -> None:
        for sequence in self._sequences:
            for step in sequence:
                for request in step.requests:
                    request.Free()
        for datatype in self._datatypes:
            datatype.Free()
        self._sequences, self._datatypes = [], []


def _starts_inside_node(sequences: Sequence[Sequence[CompiledStep]], layout: Layout, me: int) -> bool:
    """Return whether the first steps of a rank, of which others follow, are with ranks of its node alone."""
    if layout.nodes == 1:
        return False
    peers = {message.peer for steps in sequences for message in (steps[0].messages if steps else ())}
    return all(layout.node[peer] == layout.node[me] for peer in peers)


def _check_plans_agree(comm: MPI.Intracomm, operation: Operation, sequences: list[list[CompiledStep]]) -> None:
    """See that what each rank sends to each other is what that one expects.

    Raises:
        PlanMismatchError: on every rank; names both ranks of each pair that disagrees.
    """
    what = f"{operation.collective.name} {operation.count} {operation.dtype} {operation.reduction.name}".encode()
    digests: dict[tuple[bool, int], hashlib.blake2b] = defaultdict(lambda: hashlib.blake2b(what, digest_size=8))
    for sequence in sequences:
        for step in sequence:
            for message in filter(attrgetter("nbytes"), step.messages):  # one that says done ends a step, whichever
                digests[message.sends, message.peer].update(b"%d %d;" % (message.tag, message.nbytes))
    theirs = comm.alltoall([digests[True, peer].digest() for peer in range(comm.size)])
    strange = [peer for peer, digest in enumerate(theirs) if digest != digests[False, peer].digest()]
    check_agreement(comm.allgather(strange))
