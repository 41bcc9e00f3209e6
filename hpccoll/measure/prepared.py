"""What can be measured: the interface of prepared cases and training steps, and the abort of those over NCCL."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from hpccoll.cases.case import Case, Effort, Parameter
from hpccoll.cases.communicator_settings import CommunicatorSettings
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.measure.stream_timing import Wait
from hpccoll.measure.timing_loop import OperationLoop, RankProgress, RankSync, TimedOperation
from hpccoll.schedule import Layout
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.nccl.communicators import abort_all_worlds
from hpccoll.transports.nccl.stream_plan import StreamPlan


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the cases of a job are run; without ``executor_options`` Python runs plans in host memory."""

    communicator: CommunicatorSettings = field(default_factory=dict)
    executor_options: ExecutorOptions | None = None
    effort: Effort = field(default_factory=Effort)


DEFAULT_SETTINGS = RunSettings()


class Prepared(TimedOperation, Protocol):
    """A case, whose algorithm is not ``auto``, with its plans and buffers on the ranks of a communicator.

    ``gpu`` is that of this rank, None in host memory; ``bytes`` the size S that is moved; ``params`` has all
    parameters, defaults included. With ``floor`` nothing is moved. ``operations`` are timed in each iteration; its
    check may need further ones.
    """

    case: Case
    layout: Layout
    gpu: Gpu | None
    bytes: int
    params: Mapping[str, Parameter]
    floor: bool
    checked: bool
    operations: int
    operations_with_check: int

    @property
    def executor(self) -> str:
        """The executor that runs the operations: ``compiled`` or ``python``."""

    @property
    def wire_bytes(self) -> int | None:
        """The bytes between nodes per operation, counted on schedules; None for a library's own algorithm."""

    @property
    def rack_bytes(self) -> int | None:
        """The bytes between racks per operation, counted likewise; None also if there is a single rack."""

    def worker_bytes(self, end: str) -> int | None:
        """Return the part of ``wire_bytes`` whose ``end``, source or target, is on a node of workers."""

    def loop(self, sync: RankSync, barrier: Callable[[], ExecutorBarrier], progress: RankProgress) -> OperationLoop:
        """Return the loop that times the operation; all ranks call this together.

        ``barrier`` returns the barrier of the compiled loop; ``progress`` is kept up to date.
        """

    def set_wait(self, wait: Wait) -> bool:
        """Make runs wait for queued work with ``wait``; return whether they can, which needs a stream."""

    def progress(self) -> str:
        """Return how far the current run has come."""

    def diagnose(self, name: Callable[[int], str] = ...) -> str | None:
        """Return a description of all errors in the buffers, or None; ``name`` names a rank of this numbering."""

    def evidence(self, sent: int | None) -> tuple[str, str | None]:
        """Return the algorithm that ran, as far as it is known without logs, and the evidence for that.

        ``sent`` are the bytes per operation that all hosts sent, by their port counters; None if unknown.
        """

    def close(self) -> None:
        """Free plans, buffers and communicators; all ranks call this together."""

    def abort(self) -> None:
        """Abort the operations of NCCL and free everything, on this rank alone."""


class PreparedCall(Prepared, Protocol):
    """A prepared case of a single call, with the plan of a transport."""

    plan: Any


def abort_cases(cases: Collection[PreparedCall]) -> None:
    """Abort all operations of NCCL and free all prepared cases of this rank, alone.

    ncclCommAbort waits until no graph refers to the communicator (NCCL 2.28.9, init.cc), and cases share one: all
    graphs are therefore destroyed before any communicator is aborted. Buffers are freed when no kernel writes to them
    any more. An aborted communicator deregisters its buffers.
    """
    for case in cases:
        if isinstance(case.plan, StreamPlan):
            case.plan.destroy_graphs()
    abort_all_worlds()
    for case in cases:
        if case.gpu:
            case.gpu.synchronize()  # if the GPU hangs, its rank blocks here and is lost
    for case in cases:
        case.close()
