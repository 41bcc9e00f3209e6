"""How operations on a GPU's stream are timed: one by one, or many back to back.

Two events enclose what is timed, so that the clock of the GPU measures it, too. The host's time includes the recording
of both events, some hundreds of nanoseconds each.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hpccoll.cases.case import AGGREGATED, Effort
from hpccoll.measure.result_check import Check
from hpccoll.measure.result_check_gpu import GpuCheck
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.stream_plan import StreamPlan

Wait: TypeAlias = Callable[[Callable[[], bool], Callable[[], str | None]], None]
"""A function that waits until its first argument returns True, and raises an error if its second argument returns the
reason why it never will."""


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
        timing: one of ``hpccoll.cases.case.TIMINGS``.
        plan: the plan of the operation.
        gpu: the GPU of this rank.
        check: the check of the buffers.
        effort: the effort of the job, which has the number of operations of an aggregated run.
        in_place: whether the contribution and the result share a buffer.
    """
    if timing == AGGREGATED:
        return AggregatedTiming(plan, gpu, check, effort.operations, in_place=in_place)
    return SingleTiming(plan, gpu, check)
