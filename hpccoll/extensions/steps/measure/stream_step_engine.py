"""Runs the program of a training step on a GPU: computations on one stream, collectives on others, all queued at once.

The host queues the whole step and waits for its end, as a framework does. An operation begins on
its stream when the work before its start has ended on the stream of computations; what follows a
wait begins there when that operation has ended. Events of CUDA make both wait, without the host.
Times are read from events, and count from the first event of the step.

Operations are launched in one order on all ranks, which may differ from that of the program: see
``launch_order``.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle

import numpy as np

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
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.pause import pause
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.stream_wait import Wait, wait_with_limit

ROWS = range(128, 4096 + 1, 128)
"""The rows of the matrices of ``gemm`` on a GPU.

The largest product has 137 billion FLOPs: 139 us at the peak rate of an H100, 440 us at that of an
A100 (989 and 312 TFLOP/s for dense float16, by NVIDIA's data sheets), more in practice, and long
against the microseconds in which the host queues it. The smallest has 4 million: its kernel is as
short as kernels get.
"""


class StreamStepEngine(ProgramRunner[StreamPlan]):
    """Runs a program like ``StepEngine``: each operation on the stream of its GPU, computations on that of ``gpu``.

    ``order`` has the numbers of the operations in the order of their launches. With ``in_turns`` an
    operation begins when the one that was launched before it has ended, whatever their streams are.
    """

    def __init__(
        self,
        program: StepProgram | None,
        workload: TrainingStep,
        operations: Sequence[StreamPlan],
        gpus: Sequence[Gpu],
        gpu: Gpu,
        order: Sequence[int],
        *,
        in_turns: bool,
    ) -> None:
        super().__init__(program, operations)
        self._gpus = gpus
        self._gpu = gpu
        self._order = order
        self._in_turns = in_turns
        self._launched = 0  # how many operations of the order the current run has launched
        # those that it has started, and what each of them is after
        self._started: dict[int, int | None] = {}
        self._events = [gpu.event() for _ in range(self.events)]
        self._first, self._last = gpu.event(), gpu.event()
        if program:
            self._computations = _computations(gpu, program, workload)
        else:
            self._computations = iter(())
        self._wait: Wait = wait_with_limit
        # the time at which the last run began, until its events are read
        self._unread: int | None = None
        self.current = "the step on the GPU"

    def run(self) -> None:
        """Run the program once; ``read_events`` follows, outside of the time that is measured."""
        began = time.perf_counter_ns()
        self._launched = 0
        self._started = {}
        self._gpu.record(self._first)
        self.walk()
        self._gpu.record(self._last)
        self._wait(self._gpu.idle, self._error)  # its last work waits for that of the other streams
        self._unread = began

    def compute(self, _instruction: Compute, event: int) -> None:
        self._gpu.record(self._events[event])
        for queue in next(self._computations):
            queue()
        self._gpu.record(self._events[event + 1])

    def await_end(self, number: int) -> None:
        self._gpu.wait_event(self._events[3 * number + END])

    def start(self, number: int, after: int | None) -> None:
        """Note that an operation is ready, and launch it after all that come before it in the order."""
        self._gpu.record(self._events[3 * number + READY])
        self._started[number] = after
        while self._launched < len(self._order) and self._order[self._launched] in self._started:
            self._launch(self._order[self._launched])
            self._launched += 1

    def _launch(self, number: int) -> None:
        after = self._started[number]
        own = self._gpus[number]
        own.wait_event(self._events[3 * number + READY])
        if after is not None:
            own.wait_event(self._events[3 * after + END])
        if self._in_turns and self._launched:
            before = self._order[self._launched - 1]
            own.wait_event(self._events[3 * before + END])
        own.record(self._events[3 * number + BEGIN])
        self.operations[number].enqueue()
        own.record(self._events[3 * number + END])

    def read_events(self) -> None:
        """Append the times of the last run to ``runs``, before the next run records the events again.

        Each event takes 1 to 2 us to read, and a step has up to thousands.
        """
        if self._unread is not None:
            since = (self._gpu.elapsed_ns(self._first, event) for event in self._events)
            self.runs.append(self._unread + np.fromiter(since, np.int64, len(self._events)))
            self._unread = None

    def device_ns(self) -> int:
        return self._gpu.elapsed_ns(self._first, self._last)

    def wait_by(self, wait: Wait) -> bool:
        """Make runs wait with ``wait``; return True."""
        self._wait = wait
        return True

    def _error(self) -> str | None:
        return next(filter(None, (operation.error() for operation in self.operations)), None)

    def close(self) -> None:
        self._computations = iter(())  # frees the matrices


def _computations(
    gpu: Gpu, program: StepProgram, workload: TrainingStep
) -> Iterator[Sequence[Callable[[], object]]]:
    """Yield what queues each computation of a program in its order, the first one again after the last."""
    if workload.compute != GEMM:
        seconds = phase_seconds(program, workload)
        pause_ns = pause(gpu)
        computations = (
            instruction for instruction in program.instructions if isinstance(instruction, Compute)
        )
        durations = [
            int(seconds[computation.phase] * computation.flops * 1e9)
            for computation in computations
        ]
        return cycle([[partial(pause_ns, duration)] if duration else [] for duration in durations])
    products = matrix_products(program, ROWS)
    sizes = {rows for sizes_and_counts in products for rows, _ in sizes_and_counts}
    multiply = gpu.products(max(sizes, default=0))
    for rows in sizes:  # the first product loads the library, and the first of a size its kernel
        multiply(rows, 1)
    gpu.await_work()
    return cycle(
        [
            [partial(multiply, *product) for product in sizes_and_counts]
            for sizes_and_counts in products
        ]
    )
