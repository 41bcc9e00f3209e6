"""The timing loop: runs one operation repeatedly, each run between two clock readings, until the median is precise.

Every iteration starts from the same buffers, after a barrier, and its result is checked; neither is timed. After each
batch rank 0 examines the longest duration over ranks of every iteration and decides for all ranks whether to continue.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.spec.case import LEAST_ITERATIONS, Effort
from hpccoll.store.statistics import durations_max, median_interval

Nanoseconds = NDArray[np.int64]
Clock = Callable[[], int]


class RankSync(Protocol):
    """The communication between ranks that the loop needs."""

    def barrier(self) -> None:
        """Wait until all ranks have entered the barrier."""

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        """Return the arrays of all ranks at rank 0, stacked as [..., rank], and None elsewhere."""

    def agree(self, more: int) -> int:
        """Return the value of ``more`` at rank 0."""


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


@dataclass(slots=True)
class RankProgress:
    """The progress of a rank, for the watchdog; ``heartbeats`` increases with every new phase."""

    case: str = "none yet"
    iteration: int = 0
    phase: str = "starting"
    heartbeats: int = 0

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.heartbeats += 1


@dataclass(slots=True)
class Samples:
    """The measurements of a case: times in ns at rank 0, each by the clock of its rank; the rest for this rank."""

    start_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))  # [iteration, rank]
    end_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))  # [iteration, rank]
    device_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))  # likewise; -1 without a clock
    converged: bool = False
    cpu_s: float = 0.0  # CPU seconds per operation
    wrong: int = 0  # elements, over the timed iterations


def measure(
    operation: TimedOperation,
    sync: RankSync,
    effort: Effort,
    progress: RankProgress,
    clock: Clock = time.perf_counter_ns,
    cpu_clock: Clock = time.process_time_ns,
) -> Samples:
    """Measure ``operation``; all ranks call this together.

    Args:
        operation: the operation with its buffers.
        sync: the communication with the other ranks.
        effort: the number of iterations and the time limit.
        progress: the progress of this rank, which is kept up to date.
        clock: the clock of this rank, in ns.
        cpu_clock: the CPU time of this rank, in ns.
    """
    began = clock()
    samples = Samples()
    _batch(effort.warmup, operation, sync, progress, clock, cpu_clock)
    batches = []
    cpu_ns, done, more = 0, 0, effort.min_iterations
    while more:
        times, wrong = _batch(more, operation, sync, progress, clock, cpu_clock)
        samples.wrong += wrong
        done += more
        cpu_ns += int(times[3].sum())
        progress.enter("gathering times")
        gathered = sync.gather(times[:3])
        if gathered is not None:
            batches.append(gathered)
            samples.start_ns, samples.end_ns, samples.device_ns = np.concatenate(batches, axis=1)
            durations = durations_max(samples.start_ns, samples.end_ns)
            more, samples.converged = iterations_left(effort, durations, (clock() - began) / 1e9)
        more = sync.agree(more)
    samples.cpu_s = cpu_ns / 1e9 / done
    return samples


def _batch(
    count: int, operation: TimedOperation, sync: RankSync, progress: RankProgress, clock: Clock, cpu_clock: Clock
) -> tuple[Nanoseconds, int]:
    """Return start, end, device and CPU time of ``count`` iterations, and the number of wrong elements in them."""
    times = np.empty((4, count), np.int64)
    wrong = 0
    gc.disable()  # a collection would interrupt some operations and not others
    for i in range(count):
        progress.iteration += 1
        progress.enter("preparing")
        operation.reset()
        progress.enter("waiting for the other ranks")
        sync.barrier()
        progress.phase = "in the operation"
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


def iterations_left(effort: Effort, durations: Nanoseconds, elapsed: float) -> tuple[int, bool]:
    """Return the number of further iterations, 0 to stop, and whether the median has converged.

    Args:
        effort: the limits.
        durations: the durations of the iterations so far, in ns.
        elapsed: the wall time that the case has taken so far, in s.
    """
    done = len(durations)
    median, low, high = median_interval(durations)
    converged = done >= LEAST_ITERATIONS and (high - low) / 2 <= effort.precision * median
    if converged or done >= effort.max_iterations or elapsed >= effort.seconds:
        return 0, converged
    affordable = int((effort.seconds - elapsed) / max(elapsed, 1e-9) * done)
    return max(1, min(done, effort.max_iterations - done, affordable)), converged
