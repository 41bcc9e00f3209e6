"""What runs a workload on ranks. The extension that brings the workload names it under ``runners``."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from mpi4py import MPI
from numpy.typing import NDArray

from hpccoll.cases.case import Case, Effort, Parameter
from hpccoll.common.errors import BadInputError
from hpccoll.common.extensions import contributed, contributed_names
from hpccoll.measure.timing_loop import PythonLoop, RankProgress, RankSync
from hpccoll.schedule import Layout

if TYPE_CHECKING:
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.stream_wait import Connecting, Wait

PrepareCall: TypeAlias = "Callable[[MPI.Intracomm, Layout, Case, Gpu | None], PreparedCase]"
"""Prepares a collective of a workload on the ranks of a communicator, which call it together."""


@dataclass(frozen=True, slots=True)
class RoundFindings:
    """What a round of a workload has shown beside its times; on other ranks than rank 0 only how much is wrong."""

    wrong: int = 0  # added to the values that are wrong in the buffers of collectives
    reasons: tuple[str, ...] = ()
    # of shape [iteration], by the names of CaseTimes
    step_arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)  # by the names of CaseResult


class PreparedWorkload(Protocol):
    """A case of a workload on the ranks of a communicator: what ``PreparedCase`` is of a collective."""

    gpu: "Gpu | None"
    layout: Layout
    run: Callable[[], None]
    bytes: int
    params: Mapping[str, Parameter]
    floor: bool
    checked: bool
    operations: int
    operations_with_check: int
    wire_bytes: int | None
    rack_bytes: int | None

    @property
    def executor(self) -> str:
        """What runs the plans inside."""

    @property
    def calls(self) -> "list[PreparedCase]":
        """The collectives inside."""

    @property
    def begin(self) -> Callable[[], None] | None:
        """What each rank does after iterations that do not count; None if nothing."""

    def effort(self, effort: Effort) -> Effort:
        """Return how long a round takes."""

    def loop(self, sync: RankSync, barrier: object, progress: RankProgress) -> PythonLoop:
        """Return the loop that times it."""

    def set_wait(self, wait: "Wait") -> bool:
        """Wait for operations by ``wait``; return whether they run on a stream."""

    def progress(self) -> str:
        """Return where it is."""

    def device_ns(self) -> int:
        """Return the duration of the last run by the clock of the device; -1 if it has no clock."""

    def reset(self) -> None:
        """Fill the buffers again."""

    def wrong(self) -> int:
        """Return how many values of this rank are wrong."""

    def diagnose(self, name: Callable[[int], str]) -> str | None:
        """Return what is wrong in the buffers of this rank; ``name`` names a rank."""

    def worker_bytes(self, end: str) -> int | None:
        """Return the bytes between nodes of workers, by the end that is counted."""

    def evidence(self, sent: int | None) -> tuple[str, str | None]:
        """Return the algorithm that ran, and the evidence; ``sent`` are the bytes that ports have sent."""

    def events(self, iterations: int) -> NDArray[Any]:
        """Return the times of events within the last iterations, in nanoseconds, [iteration, event]."""

    def description(self) -> Any:
        """Return what the events are, as JSON."""

    def counts(self) -> Mapping[str, int]:
        """Return what this rank has counted, by the names of CaseResult: sums over ranks are results."""

    def findings(
        self, sync: RankSync, iterations: int, name: Callable[[int], str], progress: RankProgress
    ) -> RoundFindings:
        """Return what the iterations have shown; all ranks call this together."""

    def close(self) -> None:
        """Free buffers and communicators."""


class WorkloadRunner(Protocol):
    """Prepares cases of a workload; ``files`` are those of the user that it names, as JSON by name."""

    def begin_job(self, cases: Iterable[Case]) -> None:
        """Prepare the process for a job with these cases over NCCL, before its first operation."""

    def missing(
        self, case: Case, effort: Effort, comm: MPI.Intracomm, gpus: "Callable[[], RankGpus]"
    ) -> Iterator[str | None]:
        """Yield reasons why the machine cannot run a case, None where it can; all ranks ask for them together."""

    def prepare(
        self,
        comm: MPI.Intracomm,
        layout: Layout,
        case: Case,
        prepare_call: PrepareCall,
        files: Mapping[str, Any],
        gpu: "Gpu | None",
        connecting: "Connecting",
    ) -> PreparedWorkload:
        """Return a case with its plans and buffers; all ranks call this together.

        Raises:
            BadInputError: on all ranks, if the case cannot run on them.
        """


def workload_runner(name: str) -> WorkloadRunner:
    """Return what runs a workload.

    Raises:
        BadInputError: if no extension brings it.
    """
    runner: WorkloadRunner | None = contributed("runners", name)
    if runner is None:
        raise BadInputError("workload", name, contributed_names("runners"))
    return runner


def begin_workloads(cases: Sequence[Case]) -> None:
    """Prepare this process for the workloads among the cases of a job over NCCL."""
    from hpccoll.schedule import is_workload

    for name in dict.fromkeys(case.collective for case in cases):
        if is_workload(name):
            workload_runner(name).begin_job([case for case in cases if case.collective == name])
