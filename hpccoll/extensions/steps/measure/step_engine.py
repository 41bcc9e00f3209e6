"""Runs the program of a training step on a rank: computes, and meanwhile drives the collectives that have started.

One thread calls MPI. While the rank computes by ``wait``, it has nothing else to do than drive
collectives, as a host whose accelerator computes; with ``gemm`` another thread multiplies matrices.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hpccoll.executor.compiled_executor import CompiledExecutor, advance_until
from hpccoll.extensions.steps.measure.step_computations import (
    BEGIN,
    END,
    READY,
    ProgramRunner,
    matrix_products,
    phase_seconds,
)
from hpccoll.extensions.steps.training.step_keys import GEMM
from hpccoll.extensions.steps.training.step_program import Compute, StepProgram
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.computing_thread import ComputingThread
from hpccoll.measure.matrix_multiplication import HOST_ROWS, Gemm
from hpccoll.transports.stream_wait import Wait as StreamWait

FOREVER_NS = 1 << 62

SLICE_NS = 200_000
"""How long collectives are driven between two looks at whether a computation has ended."""


class Drivable(Protocol):
    """A collective that runs while something else happens."""

    def start(self) -> None:
        """Start it."""

    def advance(self) -> bool:
        """Let it progress without waiting; return whether it has ended."""


class CodecOperation:
    """A codec as an operation of a step: when it has started, it has ended."""

    def __init__(self, run: Callable[[], None] | None) -> None:
        """Take what it does; None: nothing."""
        self._run = run

    def start(self) -> None:
        """Run it; codecs count what is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self._run:
                self._run()

    def advance(self) -> bool:
        """Return that it has ended."""
        return True


class StepEngine(ProgramRunner[Drivable]):
    """Runs a program in host memory.

    ``streams`` are those of its operations. Without a thread that computes, computations are what
    the workload says.
    """

    def __init__(
        self,
        program: StepProgram | None,
        workload: TrainingStep,
        operations: Sequence[Drivable],
        streams: Sequence[str],
        thread: ComputingThread | None = None,
    ) -> None:
        super().__init__(program, operations)
        self.streams = streams
        self._compiled = all(
            isinstance(operation, CompiledExecutor | CodecOperation) for operation in operations
        )
        products = None
        if program and workload.compute == GEMM:
            products = Gemm(matrix_products(program, HOST_ROWS))
        self._thread = thread or products
        self._seconds = phase_seconds(program, workload) if program else {}
        self.times = np.zeros(self.events, np.int64)
        # when what follows may begin, by waits and by computations
        self._begun_ns = self._computed_ns = 0
        self._queues: dict[str, deque[int]] = {stream: deque() for stream in streams}
        self._after: list[int | None] = [None] * len(operations)
        self._begun, self._ended = [False] * len(operations), [False] * len(operations)
        self.current = "the start of the step"

    def run(self) -> None:
        self.times = np.zeros(self.events, np.int64)
        self._begun[:] = self._ended[:] = [False] * len(self.operations)
        if self._thread:
            self._thread.begin_step()
        self._begun_ns = self._computed_ns = time.perf_counter_ns()
        self.walk()
        if self._thread:
            self._thread.end_step()
        self.runs.append(self.times)

    def compute(self, instruction: Compute, event: int) -> None:
        begin = max(self._computed_ns, self._begun_ns)
        self._computed_ns = self._end_of_computation(instruction, begin)
        self.times[event : event + 2] = begin, self._computed_ns

    def _end_of_computation(self, instruction: Compute, begin: int) -> int:
        self.current = f"the {instruction.phase} pass"
        if self._thread:
            computation = self._thread.start()
            while not computation.done() and self._running():
                self._drive(time.perf_counter_ns() + SLICE_NS)
            computation.result()
            return time.perf_counter_ns()
        end = begin + int(self._seconds[instruction.phase] * instruction.flops * 1e9)
        if end > begin:
            self._drive(end)
        return end

    def start(self, number: int, after: int | None) -> None:
        self.times[3 * number + READY] = max(self._computed_ns, self._begun_ns)
        self._after[number] = after
        self._queues[self.streams[number]].append(number)
        self._begin_next()

    def _begin_next(self) -> None:
        """Begin the first operation of each stream, unless its predecessor is still running."""
        for queue in self._queues.values():
            while queue and not self._begun[queue[0]]:
                after = self._after[queue[0]]
                if after is not None and not self._ended[after]:
                    break
                self._begin(queue[0])

    def _begin(self, number: int) -> None:
        self.times[3 * number + BEGIN] = time.perf_counter_ns()
        self._begun[number] = True
        operation = self.operations[number]
        operation.start()
        if isinstance(operation, CodecOperation) or (
            isinstance(operation, CompiledExecutor) and not operation.running
        ):
            self._end(number)

    def _end(self, number: int) -> None:
        self.times[3 * number + END] = time.perf_counter_ns()
        self._ended[number] = True
        self._queues[self.streams[number]].popleft()
        self._begin_next()

    def await_end(self, number: int) -> None:
        self.current = f"a wait for operation {number}"
        while not self._ended[number]:
            self._drive(FOREVER_NS, number)
        self._begun_ns = time.perf_counter_ns()

    def _running(self) -> list[int]:
        return [queue[0] for queue in self._queues.values() if queue and self._begun[queue[0]]]

    def _drive(self, until_ns: int, awaited: int | None = None) -> None:
        while True:
            running = self._running()
            if awaited is not None and self._ended[awaited]:
                return
            if self._compiled:
                if not advance_until([self.operations[n] for n in running], until_ns):  # type: ignore[misc]
                    return
                for number in running:
                    if not self.operations[number].running:  # type: ignore[attr-defined]
                        self._end(number)
            else:
                ended = [number for number in running if self.operations[number].advance()]
                for number in ended:
                    self._end(number)
                if not ended:
                    if time.perf_counter_ns() >= until_ns:
                        return
                    _pause(until_ns, driving=bool(running))

    def read_events(self) -> None:
        """There is nothing to read: the host has recorded all times."""

    def device_ns(self) -> int:
        return -1

    def wait_by(self, _wait: StreamWait) -> bool:
        return False

    def close(self) -> None:
        if self._thread:
            self._thread.close()


def _pause(until_ns: int, *, driving: bool) -> None:
    """Give other ranks the core for a moment, or until a time if nothing is to be driven."""
    if driving:
        os.sched_yield()
    else:
        time.sleep(max(0.0, min(until_ns - time.perf_counter_ns(), 10**9) / 1e9))
