"""The compiled timing loop: iterations of one operation by native code, without a call of Python in between."""

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
from mpi4py import MPI

from hpccoll.cases.memory_estimate import GENERATIONS
from hpccoll.common.errors import BadInputError
from hpccoll.executor.library import load_library
from hpccoll.executor.structures import BLOCK, BarrierStruct, IdleStruct, Records, TimedCaseStruct, records
from hpccoll.measure.result_check import Check, ValueBlocks
from hpccoll.measure.timing_loop import Nanoseconds, RankProgress
from hpccoll.transports.mpi.native_executor import CompiledOptions, NativePlan
from hpccoll.transports.mpi.native_functions import mpi_functions, probe_struct, request_array, status_array
from hpccoll.transports.mpi.shared_windows import SharedMemory
from hpccoll.transports.transport_interface import address

LINE = 8
"""The int64 of a cache line."""

ARRIVED, RELEASED, GO = 0, LINE, LINE + 1
"""The words of a rank: the barriers that it has entered; as the leader of its node, the barrier that its node may
leave, and when."""


class NativeBarrier:
    """A barrier that all ranks leave at the same time; created and closed by all ranks together.

    Args:
        comm: the communicator of the ranks.
        options: how a rank waits.
    """

    def __init__(self, comm: MPI.Intracomm, options: CompiledOptions) -> None:
        shared = SharedMemory(comm)
        try:
            words = shared.empty(2 * LINE, np.dtype(np.int64))
            self._words = [shared.views(words)[rank] for rank in shared.ranks]
        except BadInputError:  # on all ranks: too little shared memory; each rank is then a node of its own
            words = np.empty(2 * LINE, np.int64)
            self._words = [words]
        words[...] = 0
        self._shared, alone = shared, len(self._words) == 1
        node_rank = 0 if alone else shared.node.rank
        shared.node.Barrier()  # no rank enters a barrier before the words are zero
        bases = [address(of_rank) for of_rank in self._words]
        self._arrived = np.array([base + ARRIVED * words.itemsize for base in bases], np.uint64)
        self._leaders = cast("MPI.Intracomm", comm.Split(0 if node_rank == 0 else MPI.UNDEFINED, comm.rank))
        self._requests = _dissemination(self._leaders) if node_rank == 0 else []
        self._handles, self._statuses = request_array(self._requests), status_array(2)
        self._mpi = mpi_functions()
        self._struct = BarrierStruct(
            arrived=address(self._arrived),
            released=bases[0] + RELEASED * words.itemsize, go=bases[0] + GO * words.itemsize,
            node_ranks=len(bases), node_rank=node_rank, requests=address(self._handles),
            rounds=len(self._requests) // 2, statuses=address(self._statuses),
            probe=probe_struct(comm, self._mpi, self._statuses), idle=IdleStruct(shares_core=options.oversubscribed),
        )  # fmt: skip
        self.address = ctypes.addressof(self._struct)

    def check(self) -> None:
        """Raise the error of a call that failed.

        Raises:
            RuntimeError: if MPI returned an error.
        """
        if self._struct.error:
            raise RuntimeError(f"the barrier fails: {MPI.Get_error_string(self._struct.error)}")

    def wait(self) -> None:
        """Wait until all ranks have entered the barrier."""
        load_library().hpccoll_barrier(ctypes.c_void_p(self.address))
        self.check()

    def close(self) -> None:
        """Free the words and the requests."""
        for request in self._requests:
            request.Free()
        if self._leaders != MPI.COMM_NULL:
            self._leaders.Free()
        self._shared.close()


def _dissemination(leaders: MPI.Intracomm) -> list[MPI.Prequest]:
    """Return a send and a receive for each round, in which a leader signals another one at twice the last distance."""
    nothing, requests, distance = np.empty(0, np.uint8), [], 1
    while distance < leaders.size:
        requests += [
            leaders.Send_init(nothing, (leaders.rank + distance) % leaders.size, tag=distance.bit_length()),
            leaders.Recv_init(nothing, (leaders.rank - distance) % leaders.size, tag=distance.bit_length()),
        ]
        distance *= 2
    return requests


class NativeLoop:
    """The loop in native code.

    Args:
        plan: the plan of the operation.
        check: the values of the buffers before and after the operation.
        barrier: the barrier of all ranks.
        progress: the progress of this rank, which is kept up to date.
    """

    def __init__(self, plan: NativePlan, check: Check, barrier: NativeBarrier, progress: RankProgress) -> None:
        self._plan, self._check, self._barrier = plan, check, barrier
        self._progress = progress  # native code writes to it
        self._blocks = [_records(blocks) for blocks in (check.fills, check.compared, check.guard_blocks)]
        fills, compared, guards = self._blocks
        self._struct = TimedCaseStruct(
            plan=plan.address, barrier=barrier.address,
            fill_blocks=address(fills), fill_count=len(check.fills),
            compared_blocks=address(compared), compared_count=len(check.compared),
            guard_blocks=address(guards), guard_count=len(check.guard_blocks),
            generations=GENERATIONS, guards_dirty=1, progress=progress.address,
        )  # fmt: skip
        self._measure = load_library().hpccoll_measure
        self._measure.restype = ctypes.c_int64

    def run(self, count: int) -> tuple[Nanoseconds, int]:
        """Run ``count`` iterations; see ``OperationLoop``. A CPU has no device time: it is -1.

        Raises:
            RuntimeError: if MPI returns an error.
        """
        times = np.full((4, count), -1, np.int64)
        start_end_cpu = np.empty((3, count), np.int64)
        self._struct.generation = self._check.generation
        wrong = self._measure(
            ctypes.byref(self._struct), ctypes.c_int64(count), ctypes.c_void_p(address(start_end_cpu))
        )
        self._check.generation = self._struct.generation
        if wrong < 0:
            self._barrier.check()
            self._plan.check(wrong)
        times[[0, 1, 3]] = start_end_cpu
        return times, wrong + self._check.missized * count


def _records(blocks: Sequence[ValueBlocks]) -> Records:
    rows = [
        (
            address(block.buffer), address(block.values), len(block.buffer), block.buffer[:1].nbytes,
            block.values.strides[0], block.buffer.itemsize,
        )
        for block in blocks
    ]  # fmt: skip
    return records(rows, BLOCK)
