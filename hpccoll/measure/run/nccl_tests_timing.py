"""The timing ``nccl-tests``: the loop of that program, over NCCL.

A round is one call of BenchTime in src/common.cu of nccl-tests 2.19.6. After the warm-up calls and
a wait, it

- fills the buffers, runs one operation, waits for it, and enters a barrier;
- queues all operations at once, waits once for all of them, and divides the time by their number;
- fills the buffers again, runs one operation, waits for it, and checks its result.

Call number i has the buffers at offset S x (i modulo the number of places of S bytes in the largest
buffer), which is that of the largest size of the job (-e): the operations meet cold caches unless S
is large. No event is recorded. The time is the mean over ranks (-a 1). The memory is
ncclMemAlloc's, if nccl4py is installed.

nccl-tests warms up out of place, and all sizes before the first one is timed; here each case has
its own warm-up, in its placement. As a graph, the operations are also replayed once before they are
timed, which uploads the graph.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hpccoll.cases.case import Effort
from hpccoll.transports.nccl.communicator_config import missing_for_nccl4py
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.stream_wait import Wait, wait_with_limit

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.measure.run.result_check import Check
    from hpccoll.measure.run.result_check_gpu import GpuCheck

WARMUP, CALLS = 1, 20
"""The defaults of -w and -n."""

MEM_ALLOC_SINCE = 21900
"""The version of NCCL from which on nccl-tests takes memory of ncclMemAlloc (AllocateBuffs)."""


@dataclass(frozen=True, slots=True)
class NcclTestsCounts:
    """How many calls a round has."""

    warmup: int
    calls: int

    @classmethod
    def of(cls, effort: Effort) -> "NcclTestsCounts":
        """Return the numbers that the user wants, or those of nccl-tests."""
        warmup = WARMUP if effort.loop_warmup is None else effort.loop_warmup
        if effort.loop_iterations is None:
            calls = CALLS
        else:
            calls = effort.loop_iterations
        return cls(warmup, calls)


def nccl_tests_effort(effort: Effort) -> Effort:
    """Return the effort of a round: all calls together are one iteration."""
    return replace(effort, warmup=0, min_iterations=1, max_iterations=1, rounds=1)


def places_of_calls(nbytes: int, largest: int, counts: NcclTestsCounts) -> int:
    """Return how many places of ``nbytes`` the calls use, of those in a buffer of ``largest`` bytes; at least one."""
    in_buffer = largest // max(nbytes, 1)
    return max(1, min(in_buffer, max(counts.calls, counts.warmup)))


def memory_of_nccl_tests(comm: "MPI.Intracomm") -> tuple[str | None, str]:
    """Return the setting ``buffers`` with which all ranks have NCCL's memory, or None; and what memory they have.

    All ranks call this together.
    """
    reasons: list[str | None] = comm.allgather(missing_for_nccl4py(MEM_ALLOC_SINCE))
    for reason in filter(None, reasons):
        return None, f"memory of cudaMalloc, not of ncclMemAlloc as in nccl-tests: {reason}"
    return "allocated", "memory of ncclMemAlloc"


class NcclTestsTiming:
    """Times all operations of a round together; it has the methods of ``StreamTiming``.

    ``plans`` are those of the places in their order: the first one's buffers are filled and
    checked.
    """

    def __init__(
        self, plans: list[StreamPlan], check: "Check | GpuCheck", counts: NcclTestsCounts
    ) -> None:
        first, *further = plans
        self._first = first
        self._check = check
        self._queue_one = first.enqueue
        self._queue_all = first.repeated(counts.calls, further)
        self._warmup = [plans[number % len(plans)] for number in range(counts.warmup)]
        self.wait_by(wait_with_limit)
        self.operations = counts.calls
        self.operations_with_check = counts.calls + 2

    def warm_up(self) -> None:
        """Run the warm-up calls, and wait once for all of them."""
        for plan in self._warmup:
            plan.enqueue()
        self._wait()

    def reset(self) -> None:
        """Fill the buffers, and run one operation."""
        self._check.reset()
        self._queue_one()
        self._wait()

    def run(self) -> None:
        self._queue_all()
        self._wait()

    def wrong(self) -> int:
        self._check.reset()
        self._queue_one()
        self._wait()
        return self._check.wrong()

    def device_ns(self) -> int:
        """Return -1: no event is recorded."""
        return -1

    def wait_by(self, wait: Wait) -> None:
        """Make runs wait with ``wait``."""
        self._wait = partial(wait, self._first.idle, self._first.error)
