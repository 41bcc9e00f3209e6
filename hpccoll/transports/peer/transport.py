"""Schedules over the memory of peers on one node: each operation is one launch of the peer kernel.

Ranks map each other's buffers when a plan is made (shared_memory.py), lower the schedule to a
program for each sequence of channels (lowering.py), and launch a block for each (peer.cu). All
blocks must run on the GPU at once, because they would wait for blocks that never start. Ranks
therefore refuse a plan of more blocks than fit. The launch is cooperative: CUDA starts all of its
blocks together.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.nccl.fold import THREADS, kernel_macros
from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.peer_plan import PeerDevice, PeerPlan, Waits, pinned_zeros
from hpccoll.transports.peer.program import Protocol, buffer_of_peer, words_at, words_from
from hpccoll.transports.peer.program_tables import (
    FlagMemory,
    ProgramTables,
    WordMemory,
    kernel_source,
    program_tables,
)
from hpccoll.transports.peer.shared_memory import SharedGpuMemory
from hpccoll.transports.peer.words import WORD_BYTES, words_of
from hpccoll.transports.stream_wait import CONNECTING, Connecting
from hpccoll.transports.transport_interface import address, check_agreement

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu

FLAGS = "flags"

MEMORY = "GPUs with memory for its plan"
"""What the ranks need besides the buffers of the case."""

SMALLER = "smaller sizes; the protocol simple takes less than ll"
"""What a user can do if a GPU lacks memory."""


class PeerTransport(GuardedBuffers):
    """Schedules in one kernel on the memory of all ranks of a node.

    Args:
        graph: whether plans are replayed as CUDA graphs.
        connecting: how the first operation of each plan is waited for.
        protocol: how messages move.
    """

    def __init__(
        self,
        comm: "MPI.Intracomm",
        gpu: "Gpu",
        *,
        graph: bool = False,
        connecting: Connecting = CONNECTING,
        protocol: Protocol = "simple",
    ) -> None:
        self.comm = comm
        self.gpu = gpu
        self.graph = graph
        self.connecting = connecting
        self.protocol: Protocol = protocol
        self._shared = SharedGpuMemory(comm, gpu)
        super().__init__(self._shared.empty)

    def plan(self, operation: Operation, src: Array, dst: Array) -> PeerPlan:
        """Return the plan of ``operation`` after its first run; all ranks call this together.

        Raises:
            PlanMismatchError: if the ranks disagree on the messages between them.
            BadInputError: on all ranks, if a GPU lacks memory, cannot run all blocks at once, or
                cannot map the memory of the others.
            StalledError: if the first run does not complete in time.
        """
        lowering = PeerLowering(self.comm.rank, operation, self.protocol)
        received = self.comm.alltoall(lowering.proposals())
        check_agreement(self.comm.allgather(lowering.mismatched_peers(received)))
        programs = lowering.programs(received)
        ranks = operation.layout.ranks
        shared = {"src": src, "dst": dst}
        scratch = {}
        with self._shared.agreed_on("allocate the memory of a plan", MEMORY, SMALLER):
            shared["tmp"] = self._shared.empty(lowering.tmp_length, operation.dtype)
            shared[FLAGS] = self._shared.zeros(FlagMemory.count(len(programs), ranks))
            shared |= self._words(lowering)
            for name, length in lowering.scratch_lengths.items():
                scratch[name] = self.gpu.empty(length, operation.dtype)
        shared_addresses = self._shared.addresses(shared)
        addresses = dict(shared_addresses[self.comm.rank])
        for name, array in scratch.items():
            addresses[name] = self.gpu.address(array)
        first_flags = []
        for peer, peer_addresses in enumerate(shared_addresses):
            first_flags.append(peer_addresses[FLAGS])
            for name, address_of_array in peer_addresses.items():
                addresses[buffer_of_peer(peer, name)] = address_of_array
        flags = FlagMemory(self.comm.rank, first_flags)
        words = word_memory(lowering, shared_addresses)
        tables = program_tables(programs, addresses, flags, operation.dtype.itemsize, words)
        plan = self._plan_of(operation, tables, shared | scratch)
        self.connecting.begin(by_nccl=False)
        plan.prepared(graph=self.graph)
        return plan

    def _words(self, lowering: PeerLowering) -> dict[str, Array]:
        """Return the words that peers write for this rank, of even and odd operations, by their names."""
        itemsize = lowering.operation.dtype.itemsize
        counts = {}
        for peer in range(self.comm.size):
            name = words_from(peer)
            counts[name] = 2 * words_of(lowering.word_elements.get(name, 0), itemsize)
        memory = self._shared.zeros(sum(counts.values()))
        words = {}
        start = 0
        for name, count in counts.items():
            words[name] = memory[start : start + count]
            start += count
        return words

    def _plan_of(
        self, operation: Operation, tables: ProgramTables, buffers: dict[str, Array]
    ) -> PeerPlan:
        gpu = self.gpu
        blocks = tables.blocks
        function = peer_function(operation.dtype.name, operation.reduction.name, gpu.number)
        self._check_blocks(function, blocks)
        abort = pinned_zeros(gpu, 1, np.int32)
        numbers = pinned_zeros(gpu, blocks, np.uint64)
        epochs = gpu.upload(np.zeros(blocks, np.uint64))
        uploaded = [
            gpu.upload(table) for table in (tables.programs, tables.instructions, tables.inputs)
        ]
        addresses = [np.uint64(address(words)) for words in (abort, numbers)]
        arguments = (*uploaded, epochs, *addresses)
        launch = partial(
            function,
            (blocks, 1, 1),
            (THREADS, 1, 1),
            arguments,
            stream=gpu.stream,
            enable_cooperative_groups=True,
        )
        result = operation.result(buffers["dst"], self.comm.rank)
        description = (
            f"one kernel of {blocks} blocks, {len(tables.instructions)} instructions, "
            f"protocol {self.protocol}"
        )
        kept = [*buffers.values(), *uploaded, epochs]
        waits = Waits(abort, numbers, tables.flags)
        device = PeerDevice(gpu, self.connecting, waits)
        return PeerPlan(device, result, launch, description, kept, waits)

    def _check_blocks(self, function: Any, blocks: int) -> None:
        """Check on all ranks that the GPU can run all blocks at once, also if ranks share it.

        CuPy would launch as many as fit, with a warning (_launch in cupy/cuda/function.pyx of CuPy
        14), and CUDA knows nothing of other processes.
        """
        most = self.gpu.resident_blocks(function, THREADS)
        sharing = self.comm.allgather(self.gpu.id).count(self.gpu.id)
        fitting = min(self.comm.allgather(most // sharing))
        if blocks > fitting:
            raise BadInputError(
                "channels",
                f"{blocks} blocks of the peer kernel",
                f"at most {fitting}, which this GPU runs at once; do: fewer channels, or a smaller window",
            )

    def close(self) -> None:
        """Free the buffers; all ranks call this together."""
        super().close()
        self._shared.close()

    def close_alone(self) -> None:
        """Unmap the buffers of peers. Those of this rank stay allocated: peers may still read them, and write words."""
        super().close()
        self._shared.unmap()


def word_memory(
    lowering: PeerLowering, addresses: Sequence[Mapping[str, int]]
) -> dict[str, WordMemory]:
    """Return where the words lie that this rank reads and those that it writes, by their names.

    ``addresses`` has the arrays of each rank by their names there.
    """
    itemsize = lowering.operation.dtype.itemsize
    me = lowering.me
    memory = {}
    for peer, peer_addresses in enumerate(addresses):
        read, written = words_from(peer), words_at(peer)
        places = {read: addresses[me].get(read), written: peer_addresses.get(words_from(me))}
        for name, address_of_words in places.items():
            elements = lowering.word_elements.get(name, 0)
            if elements and address_of_words is not None:
                stride = words_of(elements, itemsize) * WORD_BYTES
                memory[name] = WordMemory(address_of_words, stride, peer)
    return memory


@cache
def peer_function(element: str, op: str, device: int) -> Any:  # noqa: ARG001  one for each device
    """Return the kernel for a dtype and a reduction."""
    import cupy

    options = tuple(f"-D{name}={value}" for name, value in kernel_macros(element, op).items())
    return cupy.RawKernel(kernel_source(), "peer", options).kernel
