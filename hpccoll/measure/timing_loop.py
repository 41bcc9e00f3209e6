"""The timing loop: runs one operation repeatedly, each run between two clock readings, until the median is precise.

Every iteration starts from the same buffers, after a barrier, and its result is checked; neither is
timed. After each batch rank 0 examines the longest duration over ranks of every iteration and
decides for all ranks whether to continue. The iterations themselves are run by C
(executor/loop.py), or by Python where only Python can run them.
"""

import gc
import time
from collections.abc import Callable
from ctypes import c_int64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import LEAST_ITERATIONS, Effort
from hpccoll.executor.structures import LOOP_PHASES
from hpccoll.store.case_times import CaseTimes, SummaryRule
from hpccoll.store.median_interval import median_interval

if TYPE_CHECKING:
    from hpccoll.host.gpu_monitor import GpuMonitor

Nanoseconds = NDArray[np.int64]
Clock = Callable[[], int]

BLOCK_S = 0.2
"""The seconds that a block of iterations takes, if one iteration is not longer."""

NO_LOOP_PHASE = -1
"""The number that stands for a phase outside the compiled loop."""

IN_OPERATION = LOOP_PHASES[2]
"""The phase in which the operation runs."""


class RankSync(Protocol):
    """The communication between ranks that the loop needs."""

    def barrier(self) -> None:
        """Wait until all ranks have entered the barrier."""

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        """Return the arrays of all ranks at rank 0, stacked as [..., rank], and None elsewhere."""

    def summarise(self, local: Nanoseconds, rule: SummaryRule, iterations: int) -> CaseTimes | None:
        """Return the summary of the times of all ranks at rank 0, and None elsewhere; see ``gathered_times``."""

    def gather_kept(self, local: Nanoseconds, stride: int) -> Nanoseconds | None:
        """Return the arrays of every stride-th rank at rank 0, stacked as [kept rank, ...], and None elsewhere."""

    def agree(self, value: int) -> int:
        """Return the ``value`` of rank 0."""


class TimedOperation(Protocol):
    """The operation that is measured."""

    def reset(self) -> None:
        """Restore the buffers to their state before an operation."""

    def run(self) -> None:
        """Run the operation."""

    def wrong(self) -> int:
        """Return the number of wrong elements of the result."""

    def device_ns(self) -> int:
        """Return the duration of the last run by the clock of the device, in ns; -1 if it has no clock."""


def no_plan() -> str:
    """Return the progress while no case is prepared: nothing is known of it."""
    return ""


class RankProgress:
    """The progress of a rank, for the watchdog.

    The compiled loop writes the phase, the iteration and the heartbeats into memory, so that a
    thread of Python can read them meanwhile. The iteration counts on from case to case unless it is
    set.
    """

    def __init__(self, iteration: int = 0) -> None:
        self.task = "before the first case"
        self.case = ""
        """What the rank is doing, in words, and the id of the case that it belongs to; empty if it belongs to none."""
        self.where: Callable[[], str] = no_plan
        """A function that returns the progress of the current operation."""
        self.phase_details: Callable[[], str] = no_plan
        """A function that returns what is known of the current phase, until the next one is entered."""
        self._phase = "starting"
        self.numbers = (c_int64 * 3)(NO_LOOP_PHASE, iteration, 0)
        """The number of the phase in LOOP_PHASES, the iteration, and the heartbeats."""

    def begin(self, task: str, case: str = "") -> None:
        """Begin another task, with its iteration 0; ``case`` is the id of its case, if it has one."""
        self.task = task
        self.case = case
        self.iteration = 0

    @property
    def phase(self) -> str:
        """The current activity in words."""
        number = self.numbers[0]
        if number == NO_LOOP_PHASE:
            return self._phase
        return LOOP_PHASES[number]

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        self.numbers[0] = NO_LOOP_PHASE

    @property
    def iteration(self) -> int:
        """The number of the current iteration."""
        return self.numbers[1]

    @iteration.setter
    def iteration(self, iteration: int) -> None:
        self.numbers[1] = iteration

    @property
    def heartbeats(self) -> int:
        """A number that increases with every new phase, except that an operation does not increase it."""
        return self.numbers[2]

    def enter(self, phase: str) -> None:
        """Enter a new phase."""
        self.phase = phase
        self.phase_details = no_plan
        self.numbers[2] += 1


@dataclass(slots=True)
class Samples:
    """The measurements of a case; those of this rank but for the times."""

    times: CaseTimes | None = None  # at rank 0, those of all ranks
    iterations: int = 0  # timed ones
    converged: bool = False
    cpu_s: float = 0.0  # CPU seconds per iteration
    wrong: int = 0  # elements, over the timed iterations


OF_ALL = SummaryRule()
"""All ranks are workers, each with a clock of its own."""

RunIterations: TypeAlias = Callable[[int], tuple[Nanoseconds, int]]
"""Runs a number of iterations of one operation on all ranks together; returns the start, end,
device and CPU time of each in ns, [4, iteration], and the number of wrong elements in all of them.
"""


class PythonLoop:
    """The loop in Python: for operations that only Python can run, and as the reference of the compiled loop.

    ``clock`` and ``cpu_clock``, the CPU time of this rank, are in ns; ``progress`` is kept up to
    date.
    """

    def __init__(
        self,
        operation: TimedOperation,
        sync: RankSync,
        progress: RankProgress,
        clock: Clock = time.perf_counter_ns,
        cpu_clock: Clock = time.process_time_ns,
    ) -> None:
        self._operation = operation
        self._sync = sync
        self._progress = progress
        self._clock = clock
        self._cpu_clock = cpu_clock

    def run(self, count: int) -> tuple[Nanoseconds, int]:
        """Run ``count`` iterations; see ``RunIterations``."""
        operation = self._operation
        progress = self._progress
        clock = self._clock
        cpu_clock = self._cpu_clock
        barrier = self._sync.barrier
        times = np.empty((4, count), np.int64)
        wrong = 0
        gc.disable()  # a collection would interrupt some operations and not others
        for i in range(count):
            progress.iteration += 1
            progress.enter("preparing")
            operation.reset()
            progress.enter("waiting for the other ranks")
            barrier()
            progress.phase = IN_OPERATION
            cpu = cpu_clock()
            start = clock()
            operation.run()
            times[1, i] = clock()
            times[0, i] = start
            times[3, i] = cpu_clock() - cpu
            times[2, i] = operation.device_ns()
            progress.enter("checking")
            wrong += operation.wrong()
        gc.enable()
        return times, wrong


def measure(
    run: RunIterations,
    sync: RankSync,
    effort: Effort,
    progress: RankProgress,
    clock: Clock = time.perf_counter_ns,
    *,
    monitor: "GpuMonitor | None" = None,
    begin: Callable[[], None] | None = None,
    rule: SummaryRule = OF_ALL,
) -> Samples:
    """Measure an operation; all ranks call this together. ``progress`` is kept up to date; ``clock`` is in ns.

    ``begin`` is called after the warm-up. ``rule`` says how times are summarised.

    Iterations run in blocks of at most BLOCK_S, because signals are handled between blocks only.
    """
    began = clock()
    samples = Samples()
    iteration_s = BLOCK_S  # a first block has one iteration

    def agree(wanted: int) -> int:
        """Return the length of the next block, the same on all ranks; 0 if rank 0 wants no more iterations."""
        return sync.agree(min(wanted, max(1, int(BLOCK_S / max(iteration_s, 1e-9)))))

    def run_block(count: int) -> tuple[Nanoseconds, int]:
        nonlocal iteration_s
        block_began = clock()
        result = run(count)
        iteration_s = (clock() - block_began) / 1e9 / count
        return result

    warmup = effort.warmup
    while warmup:
        count = agree(warmup)
        run_block(count)
        warmup -= count
    if begin:
        begin()
    if monitor:
        monitor.begin()
    blocks: list[CaseTimes] = []
    cpu_ns = 0
    done = 0
    batch = effort.min_iterations
    while count := agree(batch):
        times, wrong = run_block(count)
        if monitor:
            monitor.after_block(count)
        samples.wrong += wrong
        cpu_ns += int(times[3].sum())
        done += count
        batch -= count
        progress.enter("gathering times")
        block = sync.summarise(times[:3], rule, done)
        if block is not None:
            blocks.append(block)
        if blocks and batch == 0:
            samples.times = CaseTimes.joined(blocks).in_memory()
            blocks = [samples.times]
            batch, samples.converged = iterations_left(
                effort, samples.times.max_ns, (clock() - began) / 1e9
            )
    samples.cpu_s, samples.iterations = cpu_ns / 1e9 / done, done
    return samples


def iterations_left(effort: Effort, durations: Nanoseconds, elapsed: float) -> tuple[int, bool]:
    """Return the number of further iterations, 0 to stop, and whether the median has converged.

    ``durations`` are those of the iterations so far; ``elapsed`` is the wall time of the case so
    far, in s.
    """
    done = len(durations)
    median, low, high = median_interval(durations)
    converged = done >= LEAST_ITERATIONS and (high - low) / 2 <= effort.precision * median
    if converged or done >= effort.max_iterations or elapsed >= effort.seconds:
        return 0, converged
    affordable = int((effort.seconds - elapsed) / max(elapsed, 1e-9) * done)
    return max(1, min(done, effort.max_iterations - done, affordable)), converged
