"""How operations on a GPU's stream are timed: one by one, or many back to back.

Two events enclose what is timed, so that the clock of the GPU measures it, too. The host's time
includes the recording of both events, some hundreds of nanoseconds each.
"""

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.stream_wait import Wait, wait_with_limit

if TYPE_CHECKING:
    from hpccoll.measure.run.result_check import Check
    from hpccoll.measure.run.result_check_gpu import GpuCheck


FLOOR_READINGS = 20
"""How often the time between two events in a row is measured."""


def event_floor_ns(gpu: Gpu) -> int:
    """Return the time in ns between two events that are recorded one after the other on an idle stream, the median.

    It is part of every time between events.
    """
    first, second = gpu.event(), gpu.event()
    readings = []
    for _ in range(FLOOR_READINGS):
        gpu.await_work()
        gpu.record(first)
        gpu.record(second)
        gpu.await_work()
        readings.append(gpu.elapsed_ns(first, second))
    return round(median(readings))


class StreamTiming:
    """Times operations: the host queues one, or many back to back, and waits once, for the last one.

    Of many out of place, the result after the last operation is checked, because no operation
    changes its source. In place, an operation finds the result of the one before as its
    contribution. There, one more operation runs after the timed ones, on freshly written buffers;
    its result is checked, and those of the timed operations are not.
    """

    def __init__(
        self,
        plan: StreamPlan,
        gpu: Gpu,
        check: "Check | GpuCheck",
        operations: int | None,
        *,
        in_place: bool,
    ) -> None:
        self._plan = plan
        self._gpu = gpu
        self._check = check
        self._queue_one, self._queue = (
            plan.enqueue,
            plan.enqueue if operations is None else plan.repeated(operations),
        )
        self._checks_one_more = in_place and operations is not None
        self.operations = operations or 1
        """The number of operations of a run."""
        self.operations_with_check = self.operations + self._checks_one_more
        """The number of operations of an iteration, those of its check included."""
        self._stream = gpu.stream
        self._start = gpu.event()
        self._end = gpu.event()
        self.wait_by(wait_with_limit)
        self.reset = check.reset

    def run(self) -> None:
        self._start.record(self._stream)
        self._queue()
        self._end.record(self._stream)
        self._wait()

    def wrong(self) -> int:
        if self._checks_one_more:
            self._check.reset()
            self._queue_one()
            self._wait()
        return self._check.wrong()

    def device_ns(self) -> int:
        return self._gpu.elapsed_ns(self._start, self._end)

    def wait_by(self, wait: Wait) -> None:
        """Make runs wait with ``wait``."""
        self._wait = partial(wait, self._plan.idle, self._plan.error)
