"""The loop: iterations of one operation, each between two readings of a clock, until they say enough.

Every iteration starts from the same buffers, behind a barrier, and its result is checked; none of that is timed. After
each batch rank 0 looks at the longest duration over ranks of every iteration and decides for all whether to go on.
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
    """What the loop needs of the other ranks."""

    def barrier(self) -> None:
        """Return when all ranks have come."""

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        """Return the arrays of all ranks at rank 0, stacked as [..., rank], and None elsewhere."""

    def agree(self, more: int) -> int:
        """Return what rank 0 says."""


class TimedOperation(Protocol):
    """What is measured."""

    def reset(self) -> None:
        """Put the buffers back to where an operation starts."""

    def run(self) -> None:
        """Do the operation."""

    def wrong(self) -> int:
        """Return how many elements of the result are wrong."""

    def device_ns(self) -> int:
        """Return how long the operation took by the clock of the device, in ns; -1 where it has none."""


@dataclass(slots=True)
class RankProgress:
    """Where a rank is, for the watchdog; ``heartbeats`` changes with every sign of life."""

    case: str = "none yet"
    iteration: int = 0
    phase: str = "starting"
    heartbeats: int = 0

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.heartbeats += 1


@dataclass(slots=True)
class Samples:
    """What a case gave: times in ns at rank 0, each by its rank's own clock; what else there is, of this rank."""

    start_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))  # [iteration, rank]
    end_ns: Nanoseconds = field(default_factory=lambda: np.empty((0, 0), np.int64))  # [iteration, rank]
    device_ns: Nanoseconds = field(
        default_factory=lambda: np.empty((0, 0), np.int64)
    )  # [iteration, rank], -1: no such clock
    converged: bool = False
    cpu_s: float = 0.0  # CPU seconds per operation
    wrong: int = 0  # elements, over the timed iterations


def measure(
    prepared: TimedOperation,
    together: RankSync,
    effort: Effort,
    progress: RankProgress,
    clock: Clock = time.perf_counter_ns,
    cpu_clock: Clock = time.process_time_ns,
) -> Samples:
    """Measure ``prepared``; called on all ranks together.

    Args:
        prepared: the operation with its buffers.
        together: the ranks.
        effort: how many iterations, how long.
        progress: told where this rank is.
        clock: of this rank, in ns.
        cpu_clock: CPU time of this rank, in ns.
    """
    began = clock()
    samples = Samples()
    _batch(effort.warmup, prepared, together, progress, clock, cpu_clock)
    batches = []
    cpu_ns, done, more = 0, 0, effort.min_iterations
    while more:
        times, wrong = _batch(more, prepared, together, progress, clock, cpu_clock)
        samples.wrong += wrong
        done += more
        cpu_ns += int(times[3].sum())
        progress.enter("gathering times")
        gathered = together.gather(times[:3])
        if gathered is not None:
            batches.append(gathered)
            samples.start_ns, samples.end_ns, samples.device_ns = np.concatenate(batches, axis=1)
            durations = durations_max(samples.start_ns, samples.end_ns)
            more, samples.converged = iterations_left(effort, durations, (clock() - began) / 1e9)
        more = together.agree(more)
    samples.cpu_s = cpu_ns / 1e9 / done
    return samples


def _batch(
    count: int, prepared: TimedOperation, together: RankSync, progress: RankProgress, clock: Clock, cpu_clock: Clock
) -> tuple[Nanoseconds, int]:
    """Return start, end, device and CPU time of ``count`` iterations, and the wrong elements in them."""
    times = np.empty((4, count), np.int64)
    wrong = 0
    gc.disable()  # it would stop inside some operations and not in others
    for i in range(count):
        progress.iteration += 1
        progress.enter("preparing")
        prepared.reset()
        progress.enter("waiting for the other ranks")
        together.barrier()
        progress.phase = "in the operation"
        cpu = cpu_clock()
        start = clock()
        prepared.run()
        times[1, i] = clock()
        times[0, i] = start
        times[3, i] = cpu_clock() - cpu
        times[2, i] = prepared.device_ns()
        progress.enter("checking")
        wrong += prepared.wrong()
    gc.enable()
    return times, wrong


def iterations_left(effort: Effort, durations: Nanoseconds, elapsed: float) -> tuple[int, bool]:
    """Return how many more iterations to do, 0 for none, and whether the durations have converged.

    Args:
        effort: the limits.
        durations: of the iterations so far, in ns.
        elapsed: wall seconds that the case has taken so far.
    """
    done = len(durations)
    median, low, high = median_interval(durations)
    converged = done >= LEAST_ITERATIONS and (high - low) / 2 <= effort.precision * median
    if converged or done >= effort.max_iterations or elapsed >= effort.seconds:
        return 0, converged
    affordable = int((effort.seconds - elapsed) / max(elapsed, 1e-9) * done)
    return max(1, min(done, effort.max_iterations - done, affordable)), converged
