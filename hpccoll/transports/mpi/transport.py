"""Schedules over MPI's point-to-point messages, lowered once per buffer into persistent requests.

The messages of a step start together; after all have completed, the arrivals are folded in the
listed order. Lanes are distributed over sequences, one for each slice of ``window`` channels. The
lanes of a sequence run one after another and share its scratch; sequences progress independently,
so that one folds while another transfers.

If all ranks start with messages inside their nodes, a channel waits until the one before it has
completed its first step. Otherwise all channels would compete for the cores first, and the network
would be idle until the last was done.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_MPI_LANES
from hpccoll.executor.compiled_executor import CompiledExecutor, ExecutorOptions
from hpccoll.executor.lowered_step import LoweredStep
from hpccoll.executor.mpi_functions import MAX_COUNT
from hpccoll.schedule import Layout
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.mpi.lowering import MpiLowering
from hpccoll.transports.mpi.shared_windows import SharedMemory
from hpccoll.transports.transport_interface import TransportPlan, aligned_empty, check_agreement

if TYPE_CHECKING:
    from hpccoll.executor.python_executor import PythonExecutor
    from hpccoll.transports.gpu import Gpu

MAX_PERSISTENT_REQUESTS = 65536
"""The maximum number of persistent requests of a plan; above it, each run starts new requests.
MPICH keeps about 900 bytes for a persistent request."""


class MpiTransport(GuardedBuffers):
    """Schedules over the point-to-point messages of an MPI library; without ``options`` Python runs the plans."""

    def __init__(self, comm: MPI.Intracomm, options: ExecutorOptions | None = None) -> None:
        super().__init__(aligned_empty)
        self.comm = comm
        self.options = options

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        return MpiPlan(self.comm, operation, src, dst, options=self.options)


class TieredTransport(GuardedBuffers):
    """Schedules over shared memory inside nodes and over messages between them.

    A receiver on the sender's node reads the part directly from the sender's memory: a receive is
    one copy, a fold none. On a single node this transport is called ``shm``. Without ``options``
    Python runs the plans.
    """

    def __init__(self, comm: MPI.Intracomm, options: ExecutorOptions | None = None) -> None:
        self.comm = comm
        self.shared = SharedMemory(comm)
        self.options = options
        super().__init__(self.shared.empty)

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        buffer = self.shared.empty(count, dtype)
        self.guarded.append(self.shared.guarded(buffer))
        return buffer

    def plan(self, operation: Operation, src: Array, dst: Array) -> TransportPlan:
        return MpiPlan(self.comm, operation, src, dst, self.shared, options=self.options)

    def close(self) -> None:
        super().close()
        self.shared.close()


def _python_executor(
    comm: MPI.Intracomm,
    sequences: Sequence[Sequence[LoweredStep]],
    initial: int,
    *,
    persistent: bool,
) -> "PythonExecutor":
    from hpccoll.executor.python_executor import PythonExecutor  # most ranks have the compiled one

    return PythonExecutor(comm, sequences, initial, persistent=persistent)


class MpiPlan:
    """An operation lowered for the buffers of this rank; all ranks create it together.

    Args:
        shared: the shared memory that contains src and dst, None to send all parts.
        memory: the GPU that has src and dst, None if the host has them; the Python executor then
            runs the plan.
        options: how the compiled executor runs the plan; None for the Python executor.

    Raises:
        BadInputError: on all ranks, if there is too little shared memory, or a count is too large.
        PlanMismatchError: if the ranks disagree on the messages between them.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        operation: Operation,
        src: Array,
        dst: Array,
        shared: SharedMemory | None = None,
        memory: "Gpu | None" = None,
        options: ExecutorOptions | None = None,
    ) -> None:
        if comm.size != operation.layout.ranks:
            raise ValueError(f"{comm.size} ranks cannot run a plan for {operation.layout.ranks}")
        if operation.lanes > MAX_MPI_LANES:
            # `unmet_needs` skips such a case
            raise ValueError(f"MPI has no tags for {operation.lanes} lanes")
        self.result = operation.result(dst, comm.rank)
        lowering = MpiLowering(comm.rank, operation, src, dst, shared, memory)
        sequences, self._datatypes = lowering.sequences(), lowering.datatypes
        # folds on a GPU hold only their addresses
        self._kept_memory = lowering.buffers, lowering.scratches
        staggered = _check_plans_match(comm, operation, sequences)
        initial = len(operation.slices) if staggered else len(sequences)
        messages = [message for steps in sequences for step in steps for message in step.messages]
        persistent = len(messages) <= MAX_PERSISTENT_REQUESTS
        self.executor: CompiledExecutor | PythonExecutor
        if options is None or memory is not None:
            self.executor = _python_executor(comm, sequences, initial, persistent=persistent)
        else:
            largest = max((message.data[1] for message in messages), default=0)
            large = comm.allreduce(not persistent and largest > MAX_COUNT, MPI.LOR)
            try:
                self.executor = CompiledExecutor(
                    comm,
                    options,
                    sequences,
                    initial,
                    persistent=persistent,
                    large=large,
                    shared=shared,
                )
            # on all ranks: too little shared memory, or a count that is too large
            except BadInputError:
                self._free_datatypes()
                raise
        self.run, self.progress = self.executor.run, self.executor.progress

    def close(self) -> None:
        self.executor.close()
        self._free_datatypes()

    def _free_datatypes(self) -> None:
        for datatype in self._datatypes:
            datatype.Free()
        self._datatypes = []


def _starts_inside_node(
    sequences: Sequence[Sequence[LoweredStep]], layout: Layout, me: int
) -> bool:
    """Return whether there are other nodes, and the first steps of this rank have messages only inside its node."""
    if layout.nodes == 1:
        return False
    first_steps = [steps[0] for steps in sequences if steps]
    peers = {message.peer for step in first_steps for message in step.messages}
    return all(layout.node[peer] == layout.node[me] for peer in peers)


def _check_plans_match(
    comm: MPI.Intracomm, operation: Operation, sequences: list[list[LoweredStep]]
) -> bool:
    """Check that each rank sends to each other rank the messages that the other expects.

    Returns:
        Whether all ranks start with messages inside their nodes.

    Raises:
        PlanMismatchError: on every rank; names both ranks of each pair that disagrees.
    """
    header = operation.description.encode()
    digests: dict[tuple[bool, int], hashlib.blake2b] = defaultdict(
        lambda: hashlib.blake2b(header, digest_size=8)
    )
    for sequence in sequences:
        for step in sequence:
            # done signals have no bytes
            for message in filter(attrgetter("nbytes"), step.messages):
                digests[message.sends, message.peer].update(
                    b"%d %d;" % (message.tag, message.nbytes)
                )
    sent_to_me = comm.alltoall([digests[True, peer].digest() for peer in range(comm.size)])
    mismatched = [
        peer for peer, digest in enumerate(sent_to_me) if digest != digests[False, peer].digest()
    ]
    starts_inside = _starts_inside_node(sequences, operation.layout, comm.rank)
    mismatched_of_ranks, all_start_inside = zip(
        *comm.allgather((mismatched, starts_inside)), strict=True
    )
    check_agreement(mismatched_of_ranks)
    return all(all_start_inside)
