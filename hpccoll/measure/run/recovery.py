"""The group of ranks that measure: after a stall it goes on with those that answer (deadline_sync.py)."""

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from hpccoll.cases.case import Case, Job, Shape
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.measure.ranks import Ranks, abort_job, launcher_numbers, print_of_rank

if TYPE_CHECKING:
    from hpccoll.common.errors import StalledError
    from hpccoll.evidence.gpu_pair import GpuPair
    from hpccoll.measure.deadline_sync import DeadlineSync
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.measure.run.case_factory import Prepared
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.transports.gpu import Gpu

MIN_WORKERS = 2
"""The smallest number of workers that go on: a single one exchanges nothing."""


def abort_cases(cases: "Sequence[PreparedCase]", gpu: "Gpu") -> None:
    """Abort all operations of NCCL and free these prepared cases, whose GPU is ``gpu``, on this rank, alone.

    ncclCommAbort waits until no graph refers to the communicator (NCCL 2.28.9, init.cc), and cases
    share one: all graphs are therefore destroyed before any communicator is aborted. Buffers are
    freed when no kernel writes to them any more. An aborted communicator deregisters its buffers.
    """
    # only ranks with GPUs need it
    from hpccoll.transports.nccl.communicators import abort_all_worlds

    for case in cases:
        case.destroy_graphs()
    abort_all_worlds()
    gpu.await_device()  # if the GPU hangs, its rank stays here and is lost
    for case in cases:
        case.close_alone()


class RankGroup:
    """The ranks that measure, with their GPUs: all of a launch, or those that go on; created on all of them together.

    The last ``aggregators`` of the ranks of the launch are aggregators. ``gpu_pair`` is what a
    launch of its own has found between nodes; None if there was none.
    """

    def __init__(self, ranks: Ranks, aggregators: int, gpu_pair: "GpuPair | None" = None) -> None:
        self.ranks = ranks
        self.aggregators = aggregators
        self._gpu_pair = gpu_pair
        # of the whole launch
        self.me, self.workers = ranks.comm.rank, ranks.comm.size - aggregators
        self._losses: list[dict[str, Any]] = []  # as in the provenance
        # they hold the messages that a lost rank may still receive
        self._syncs: list[DeadlineSync] = []

    @cached_property
    def gpus(self) -> "RankGpus":
        """The GPUs of the ranks, for jobs with buffers on GPUs."""
        # most ranks have buffers in host memory alone
        from hpccoll.measure.gpu_assignment import RankGpus

        gpus = RankGpus(self.ranks)
        gpus.pair = self._gpu_pair
        return gpus

    def gpu_provenance(self, job: Job) -> Mapping[str, Any]:
        """Return the record of the GPU of this rank; empty if the job has no buffers on GPUs."""
        transports = {case.transport for case in job.cases if case.device == "cuda"}
        if not transports:
            return {}
        return self.gpus.provenance(transports)

    @property
    def shape(self) -> Shape:
        layout = self.ranks.layout(self.aggregators)
        return Shape(layout.nodes, layout.workers, layout.aggregators)

    @property
    def complete(self) -> bool:
        """Whether the group has all ranks of the launch."""
        return not self._losses

    @property
    def can_continue(self) -> bool:
        """Whether the remaining ranks can measure: all aggregators and enough workers are left."""
        workers = sum(number < self.workers for number in launcher_numbers(self.ranks.comm))
        return workers >= MIN_WORKERS and self.ranks.comm.size - workers == self.aggregators

    @property
    def loss(self) -> tuple[str, int]:
        """The reason why cases are left to be measured, and the first rank that was lost."""
        return f"it needs all ranks: {self._losses[0]['how']}", self._losses[0]["ranks"][0]

    def provenance(self) -> Mapping[str, object]:
        """Return the record of the lost ranks in the provenance of an attempt, empty if none was lost."""
        numbers = launcher_numbers(self.ranks.comm)
        if self.complete:
            return {}
        return {"left_behind": [*self._losses], "launched_as": numbers}

    def sync(self, job: Job) -> "DeadlineSync | None":
        """Return the synchronisation of a job that can lose ranks: on GPUs' streams, if the watchdog may call MPI."""
        on_streams = any(TRANSPORTS[case.transport].graphs for case in job.cases)
        can_lose = (
            on_streams and self.ranks.comm.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        )
        if not can_lose:
            return None
        from hpccoll.measure.deadline_sync import DeadlineSync  # ranks over MPI have no deadline

        return DeadlineSync(self.ranks, job.effort.timeout)

    def recover(
        self,
        prepared: "Prepared | None",
        sync: "DeadlineSync",
        error: "StalledError",
        attempt: int,
        case: Case,
    ) -> str:
        """Abort operations, go on with the ranks that answer, renumbered, each with its GPU; return what happened.

        ``prepared`` is None if the case stalled while it was prepared; the frames of ``error`` keep
        its buffers until no kernel uses them any more.

        Raises:
            ExcludedError: if the others have gone on without this rank.
            StalledError: if no rank can go on.
            GpuFailedError: if the GPU of this rank has failed, which is not a stall.
        """
        gpu = self.gpus.gpu_of_rank
        gpu.idle()
        where = f" ({prepared.progress()})" if prepared else ""
        abort_cases(prepared.calls if prepared else (), gpu)
        before = launcher_numbers(self.ranks.comm)
        description, comm = sync.regroup(type(error)(f"{error}{where}"))
        if lost := [rank for rank in before if rank not in launcher_numbers(comm)]:
            self._losses.append(
                {"attempt": attempt, "case": case.id, "ranks": lost, "how": description}
            )
            self._syncs.append(sync)
        self.ranks = Ranks(comm)
        self.gpus = self.gpus.subset(self.ranks)
        return description

    def end_launch(self, *, excluded: bool = False) -> None:
        """End a launch that has lost a rank, maybe this one; rank 0 has written the results, and calls this last."""
        if self.complete and not excluded:
            return
        while self.me:  # rank 0 ends it
            time.sleep(1)
        print_of_rank(0, f"{self._losses[0]['how']}; the launch ends by MPI_Abort")
        abort_job(MPI.COMM_WORLD, code=3)  # something planned is missing
