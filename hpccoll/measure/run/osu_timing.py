"""The timing ``osu``: the loop of the collectives of the OSU Micro-Benchmarks, over MPI.

All ranks call the operation again and again, each call followed by MPI_Barrier of the library, on
buffers that nobody writes in between; each call is timed alone, without the barrier. The time of a
round is the mean over the iterations after the warm-up, and over ranks. The numbers of iterations
are those of OSU (COLL_LOOP and COLL_SKIP in c/util/osu_util.h of 7.4; the loop is that of
c/mpi/collective/blocking/osu_allreduce.c).

A compiled plan runs in C (executor/repeat.c). OSU checks no result unless ``-c`` is given; here one
more operation follows, on buffers that are written anew, and its result is checked.
"""

import gc
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from hpccoll.cases.case import Effort
from hpccoll.executor.loop import RepeatLoop
from hpccoll.measure.timing_loop import IN_OPERATION, Nanoseconds, RankProgress, TimedOperation
from hpccoll.transports.mpi.library_calls import LibraryCall

if TYPE_CHECKING:
    from hpccoll.executor.compiled_executor import CompiledExecutor

LARGEST_SMALL_BYTES = 8192
"""The largest message with the numbers of iterations of small ones (LARGE_MESSAGE_SIZE)."""

SMALL, LARGE = (100, 1000), (10, 100)
"""Warm-up and timed iterations of small and of large messages."""


def osu_effort(effort: Effort, nbytes: int) -> Effort:
    """Return how often OSU runs an operation of ``nbytes``, or how often the user wants it, as the effort of a round.

    OSU's -x and -i hold for all sizes.
    """
    warmup, iterations = SMALL if nbytes <= LARGEST_SMALL_BYTES else LARGE
    if effort.loop_warmup is not None:
        warmup = effort.loop_warmup
    if effort.loop_iterations is not None:
        iterations = effort.loop_iterations
    return replace(
        effort, warmup=warmup, min_iterations=iterations, max_iterations=iterations, rounds=1
    )


class OsuLoop:
    """The iterations of a round in C or, without ``compiled``, in Python.

    ``iterations`` are those of the round, warm-up included: the buffers are written before the
    first one, and the check follows the last one.
    """

    def __init__(
        self,
        operation: TimedOperation,
        comm: MPI.Intracomm,
        progress: RankProgress,
        iterations: int,
        compiled: "CompiledExecutor | None",
    ) -> None:
        self._operation = operation
        self._progress = progress
        self._left = iterations
        self._written = False
        self._barrier = LibraryCall(comm, "Barrier", ())
        self._in_c = (
            RepeatLoop(compiled, self._barrier.in_c(), progress.numbers) if compiled else None
        )

    def run(self, count: int) -> tuple[Nanoseconds, int]:
        """Run ``count`` iterations; see ``RunIterations``."""
        self._progress.enter("preparing")
        if not self._written:
            self._operation.reset()
            self._written = True
        gc.disable()
        # in place each result is the next contribution
        with np.errstate(over="ignore", invalid="ignore"):
            if self._in_c:
                times = self._in_c.run(count)
            else:
                times = self._in_python(count)
        gc.enable()
        self._left -= count
        if self._left > 0:
            return times, 0
        self._progress.enter("checking")
        self._operation.reset()
        self._operation.run()
        return times, self._operation.wrong()

    def _in_python(self, count: int) -> Nanoseconds:
        run = self._operation.run
        barrier = self._barrier.in_python()
        clock = time.perf_counter_ns
        times = np.full((4, count), -1, np.int64)
        cpu = time.process_time_ns()
        barrier()
        for number in range(count):
            self._progress.iteration += 1
            self._progress.phase = IN_OPERATION
            start = clock()
            run()
            times[1, number] = clock()
            times[0, number] = start
            self._progress.enter("waiting for the other ranks")
            barrier()
        times[3] = (time.process_time_ns() - cpu) // count
        return times
