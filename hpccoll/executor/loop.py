"""The timing loop in C (timing.c): iterations of one operation, without a call of Python in between."""

import ctypes
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import CompiledExecutor
from hpccoll.executor.library import load_library
from hpccoll.executor.structures import BLOCK, STRUCTURES, Records, records

Blocks: TypeAlias = Sequence[tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger]]]
"""Rows of a buffer, and their values, which are longer by one element for each further generation."""


class CheckedBuffers(Protocol):
    """What the loop fills before an operation, and compares after it.

    Args:
        generation: the generation of values of the last operation.
        missized: the wrong elements of each operation because the result has not the expected size.
        fills: what is filled before an operation.
        compared: what is compared after it.
        guard_blocks: memory that no operation may write.
    """

    generation: int
    missized: int

    @property
    def fills(self) -> Blocks: ...

    @property
    def compared(self) -> Blocks: ...

    @property
    def guard_blocks(self) -> Blocks: ...


class ExecutorLoop:
    """The loop of a plan.

    Args:
        progress: the number of the phase in LOOP_PHASES, the iteration and the heartbeats, which C
            keeps up to date.
    """

    def __init__(
        self,
        plan: CompiledExecutor,
        check: CheckedBuffers,
        generations: int,
        barrier: ExecutorBarrier,
        progress: ctypes.Array[ctypes.c_int64],
    ) -> None:
        self._plan = plan
        self._check = check
        self._barrier = barrier
        self._progress = progress
        fills = check.fills
        compared = check.compared
        guards = check.guard_blocks
        self._fill_records = _records(fills)  # C holds their addresses
        self._compared_records = _records(compared)
        self._guard_records = _records(guards)
        self._struct = STRUCTURES["timed_case_t"](
            plan=plan.address,
            barrier=barrier.address,
            generations=generations,
            guards_dirty=1,
            progress=ctypes.addressof(progress),
            fill_blocks=self._fill_records.ctypes.data,
            fill_count=len(fills),
            compared_blocks=self._compared_records.ctypes.data,
            compared_count=len(compared),
            guard_blocks=self._guard_records.ctypes.data,
            guard_count=len(guards),
        )
        self._measure = load_library().hpccoll_measure
        self._measure.restype = ctypes.c_int64

    def run(self, count: int) -> tuple[NDArray[np.int64], int]:
        """Run ``count`` iterations; all ranks call this together.

        Returns:
            the start, the end, the device time and the CPU time of each iteration in ns, where a
            CPU has no device time: it is -1; and the number of wrong elements.

        Raises:
            RuntimeError: if MPI returns an error.
        """
        times = np.full((4, count), -1, np.int64)
        start_end_cpu = np.empty((3, count), np.int64)
        self._struct.generation = self._check.generation
        wrong = self._measure(
            ctypes.byref(self._struct),
            ctypes.c_int64(count),
            ctypes.c_void_p(start_end_cpu.ctypes.data),
        )
        self._check.generation = self._struct.generation
        if wrong < 0:
            self._barrier.check()
            self._plan.check(wrong)
        times[[0, 1, 3]] = start_end_cpu
        return times, wrong + self._check.missized * count


def _records(blocks: Blocks) -> Records:
    rows = []
    for buffer, values in blocks:
        row_bytes = buffer[:1].nbytes
        row = (
            buffer.ctypes.data,
            values.ctypes.data,
            len(buffer),
            row_bytes,
            values.strides[0],
            buffer.itemsize,
        )
        rows.append(row)
    return records(rows, BLOCK)


class RepeatLoop:
    """The loop of repeat.c: a plan again and again, each time followed by a barrier of the library.

    Args:
        barrier: the call of the barrier, in C.
        progress: as for ``ExecutorLoop``.
    """

    def __init__(
        self, plan: CompiledExecutor, barrier: Records, progress: ctypes.Array[ctypes.c_int64]
    ) -> None:
        self._plan = plan
        self._kept = barrier, progress  # C holds their addresses
        self._struct = STRUCTURES["repeated_case_t"](
            plan=plan.address, barrier=barrier.ctypes.data, progress=ctypes.addressof(progress)
        )
        self._repeat = load_library().hpccoll_repeat
        self._repeat.restype = ctypes.c_int64

    def run(self, count: int) -> NDArray[np.int64]:
        """Run ``count`` iterations; all ranks call this together.

        Returns:
            the times of ``ExecutorLoop.run``; the CPU time is the mean of all iterations with their
            barriers.

        Raises:
            RuntimeError: if MPI returns an error.
        """
        times = np.full((4, count), -1, np.int64)
        start_end_cpu = np.empty((3, count), np.int64)
        address = ctypes.c_void_p(start_end_cpu.ctypes.data)
        code = self._repeat(ctypes.byref(self._struct), ctypes.c_int64(count), address)
        if self._struct.error:
            raise RuntimeError(f"MPI_Barrier fails: {MPI.Get_error_string(self._struct.error)}")
        self._plan.check(code)
        times[[0, 1, 3]] = start_end_cpu
        return times
