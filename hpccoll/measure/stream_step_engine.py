"""Runs the program of a training step on a GPU: computations on one stream, collectives on others, all queued at once.

The host queues the whole step and waits for its end, as a framework does. An operation begins on its stream when the
work before its start has ended on the stream of computations; what follows a wait begins there when that operation has
ended. Both are events, of which the host sees nothing. Times are those of events, after the first one of the step.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hpccoll.measure.step_engine import BEGIN, END, READY, Nanoseconds, Products, phase_seconds
from hpccoll.measure.stream_timing import Wait
from hpccoll.training.step_program import Compute, Start, StepProgram
from hpccoll.training.step_program import Wait as WaitFor
from hpccoll.training.workload import GEMM, Workload
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.pause import pause
from hpccoll.transports.nccl.stream_plan import StreamPlan

MATRIX = 2048
"""The rows and columns of the matrices of ``gemm``: 17 billion FLOPs a product, some tens of microseconds."""


class StreamStepEngine:
    """Runs a program; each run records when every computation and operation began and ended.

    Args:
        program: the program of this rank; None for an aggregator, which only runs ``operations``.
        workload: how ranks compute.
        operations: the plan of every Start, in the order of the program.
        streams: the stream of each of them.
        gpus: the GPU with each of these streams, on which its plans queue.
        gpu: the GPU with the stream of computations.
        dtype: the type of the elements of ``gemm``.
    """

    def __init__(
        self, program: StepProgram | None, workload: Workload, operations: Sequence[StreamPlan],
        streams: Sequence[str], gpus: Mapping[str, Gpu], gpu: Gpu, dtype: np.dtype[np.generic],
    ) -> None:  # fmt: skip
        self.operations, self.streams, self._gpus, self._gpu = operations, streams, gpus, gpu
        starts = [Start(None)] * len(operations)  # type: ignore[arg-type]  # an aggregator's start at once
        self.instructions = program.instructions if program else starts
        self.computations = sum(isinstance(each, Compute) for each in self.instructions)
        self._events = [gpu.event() for _ in range(3 * len(operations) + 2 * self.computations)]
        self._first, self._last = gpu.event(), gpu.event()
        self._compute = _computation(program, workload, gpu, dtype) if program else None
        self._wait: Callable[[], object] = self.synchronize
        self.runs: list[Nanoseconds] = []
        self.current = "the step on the GPU"

    @property
    def events(self) -> int:
        """The number of times of a run: three of each operation, then two of each computation."""
        return len(self._events)

    def run(self) -> None:
        """Run the program once."""
        gpu, events = self._gpu, self._events
        if self._compute:
            self._compute.begin_step()
        began = time.perf_counter_ns()
        gpu.record(self._first)
        started, at = 0, 3 * len(self.operations)
        for instruction in self.instructions:
            match instruction:
                case Compute():
                    gpu.record(events[at])
                    if self._compute:
                        self._compute(instruction)
                    gpu.record(events[at + 1])
                    at += 2
                case Start():
                    self._start(started, instruction.after)
                    started += 1
                case WaitFor():
                    gpu.wait_event(events[3 * instruction.number + END])
        for number in range(started):
            gpu.wait_event(events[3 * number + END])
        gpu.record(self._last)
        self._wait()
        self.runs.append(np.array([began + gpu.elapsed_ns(self._first, event) for event in events], np.int64))

    def _start(self, number: int, after: int | None) -> None:
        """Queue an operation on its stream: after what has been computed, and after its predecessor."""
        events = self._events[3 * number : 3 * number + 3]
        own = self._gpus[self.streams[number]]
        self._gpu.record(events[READY])
        own.wait_event(events[READY])
        if after is not None:
            own.wait_event(self._events[3 * after + END])
        own.record(events[BEGIN])
        self.operations[number].enqueue()
        own.record(events[END])

    def synchronize(self) -> None:
        """Wait for all queued work."""
        self._gpu.synchronize()  # its last work waits for that of the other streams

    def device_ns(self) -> int:
        """Return the duration of the last run by the clock of the GPU."""
        return self._gpu.elapsed_ns(self._first, self._last)

    def wait_by(self, wait: Wait) -> None:
        """Make runs wait with ``wait``, which has a time limit, instead of without limit."""
        self._wait = lambda: wait(self._idle, self._error)

    def _idle(self) -> bool:
        return self._gpu.idle()

    def _error(self) -> str | None:
        return next(filter(None, (operation.error() for operation in self.operations)), None)

    def close(self) -> None:
        """Drop what computes."""
        self._compute = None


class GpuProducts:
    """Queues products of matrices on the stream of a GPU."""

    def __init__(self, gpu: Gpu, dtype: np.dtype[np.generic]) -> None:
        half = np.dtype(np.float16 if dtype.itemsize == np.dtype(np.float16).itemsize else np.float32)
        self._multiply = gpu.product(MATRIX, half)
        self._multiply()
        gpu.synchronize()  # the first product loads the library
        self._products = Products(2 * MATRIX**3)

    def begin_step(self) -> None:
        """Forget what a step before has left."""
        self._products.begin_step()

    def __call__(self, computation: Compute) -> None:
        for _ in range(self._products.of(computation.flops)):
            self._multiply()


class GpuPauses:
    """Queues pauses of known lengths on the stream of a GPU."""

    def __init__(self, gpu: Gpu, program: StepProgram, workload: Workload) -> None:
        self._seconds, self._queue = phase_seconds(program, workload), pause(gpu)

    def begin_step(self) -> None:
        """A pause leaves nothing to the next step."""

    def __call__(self, computation: Compute) -> None:
        if duration := int(self._seconds[computation.phase] * computation.flops * 1e9):
            self._queue(duration)


def _computation(
    program: StepProgram, workload: Workload, gpu: Gpu, dtype: np.dtype[np.generic]
) -> GpuProducts | GpuPauses:
    """Return what queues computations on the stream of a GPU."""
    return GpuProducts(gpu, dtype) if workload.compute == GEMM else GpuPauses(gpu, program, workload)
