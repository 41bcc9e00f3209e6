"""How operations on a GPU's stream are timed: one by one, behind a gate, or many back to back.

Two events enclose what is timed, so that the clock of the GPU measures it, too. The host's time includes the recording
of both events, some hundreds of nanoseconds each.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hpccoll.measure.result_check import Check
from hpccoll.measure.result_check_gpu import GpuCheck
from hpccoll.spec.case import AGGREGATED, GATED, Effort
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.gate import Gate
from hpccoll.transports.nccl.stream_plan import StreamPlan

Wait: TypeAlias = Callable[[Callable[[], bool], Callable[[], str | None]], None]
"""A function that waits until its first argument returns True, and raises an error if its second argument returns the
reason why it never will."""

GATE_S, GATE_SHARE = 5.0, 1 / 8
"""The seconds after which a gate gives up, and the largest part of the job's timeout. A launch blocks the host if more
work is queued than the driver holds, and only the gate's end makes room. It must end before the other ranks take this
one for stalled, after a quarter of the timeout (recovery.LIMIT)."""


class SingleTiming:
    """Times one operation: the host queues it, and waits for its end.

    Args:
        plan: the plan of the operation.
        gpu: the GPU of this rank.
        check: the check of the buffers.
    """

    operations = 1
    """The number of operations of a run."""
    operations_with_check = 1
    """The number of operations of an iteration, those of its check included."""
    by_device = False
    """Whether the time of a run is that of ``device_ns``."""
    failure: str | None = None
    """Why times of this rank are void, None if they are valid."""

    def __init__(self, plan: StreamPlan, gpu: Gpu, check: Check | GpuCheck) -> None:
        self._plan, self._gpu, self._check = plan, gpu, check
        self._stream, self._queue = gpu.stream, plan.enqueue
        self._start, self._end = gpu.event(), gpu.event()
        self._wait: Callable[[], object] = gpu.stream.synchronize

    def reset(self) -> None:
        """Restore the buffers to their state before an operation."""
        self._check.reset()

    def run(self) -> None:
        """Run the operation."""
        self._start.record(self._stream)
        self._queue()
        self._end.record(self._stream)
        self._wait()

    def wrong(self) -> int:
        """Return the number of wrong elements."""
        return self._check.wrong()

    def device_ns(self) -> int:
        """Return the duration of the last run."""
        return self._gpu.elapsed_ns(self._start, self._end)

    def wait_by(self, wait: Wait) -> None:
        """Make runs wait with ``wait``, which has a time limit, instead of without limit."""
        self._wait = partial(wait, self._plan.idle, self._plan.error)

    def release(self) -> None:
        """Let queued work start; it must have started before NCCL is aborted, which then ends it."""


class GatedTiming(SingleTiming):
    """Times one operation by the clock of the GPU, without the time in which the host queues it.

    A gate holds the stream while the operation and both events are queued behind it, before the barrier of the ranks. A
    run opens the gate.

    Args:
        plan: the plan of the operation.
        gpu: the GPU of this rank.
        check: the check of the buffers.
        limit_s: the seconds after which the gate gives up.
    """

    by_device = True

    def __init__(self, plan: StreamPlan, gpu: Gpu, check: Check | GpuCheck, limit_s: float) -> None:
        super().__init__(plan, gpu, check)
        self._gate, self._limit_s = Gate(gpu, limit_s), limit_s

    def reset(self) -> None:
        """Restore the buffers, and queue the operation behind the gate; once a gate gave up, without one."""
        self._check.reset()
        if self.failure is None:
            self._gate.queue()
        self._start.record(self._stream)
        self._queue()
        self._end.record(self._stream)

    def run(self) -> None:
        """Open the gate, and wait for the end of the operation."""
        self._gate.open()
        self._wait()
        if self._gate.gave_up:
            self.failure = (
                f"timing gated: the gate gave up after {self._limit_s:g} s, before all ranks had queued the operation: "
                "it fills the launch queue, launches block (CUDA_LAUNCH_BLOCKING), or a rank was late; do: graph=1, "
                "which queues it in one call, or timing single"
            )

    def release(self) -> None:
        self._gate.open()


class AggregatedTiming(SingleTiming):
    """Times many operations, queued back to back: the host waits once, for the last one.

    Out of place, the result after the last operation is checked, because no operation changes its source. In place, an
    operation finds the result of the one before as its contribution. The check therefore covers one more operation, on
    buffers that are written anew after the timed ones, and the results of these are not checked.

    Args:
        plan: the plan of the operation.
        gpu: the GPU of this rank.
        check: the check of the buffers.
        operations: the number of operations of a run.
        in_place: whether the contribution and the result share a buffer.
    """

    def __init__(
        self, plan: StreamPlan, gpu: Gpu, check: Check | GpuCheck, operations: int, *, in_place: bool
    ) -> None:  # fmt: skip
        super().__init__(plan, gpu, check)
        self.operations, self._in_place = operations, in_place
        self.operations_with_check = operations + in_place
        self._queue_one, self._queue = plan.enqueue, plan.repeated(operations)

    def wrong(self) -> int:
        if self._in_place:
            self._check.reset()
            self._queue_one()
            self._wait()
        return self._check.wrong()


def stream_timing(
    timing: str, plan: StreamPlan, gpu: Gpu, check: Check | GpuCheck, effort: Effort, *, in_place: bool
) -> SingleTiming:  # fmt: skip
    """Return the timing of a plan; all ranks call this together.

    Args:
        timing: one of ``hpccoll.spec.case.TIMINGS``.
        plan: the plan of the operation.
        gpu: the GPU of this rank.
        check: the check of the buffers.
        effort: the effort of the job, which has the number of operations of an aggregated run, and the timeout.
        in_place: whether the contribution and the result share a buffer.
    """
    if timing == AGGREGATED:
        return AggregatedTiming(plan, gpu, check, effort.operations, in_place=in_place)
    if timing == GATED:
        return GatedTiming(plan, gpu, check, min(GATE_S, effort.timeout * GATE_SHARE))
    return SingleTiming(plan, gpu, check)
