"""The group of ranks that measures: all ranks of a launch, or those that continue after others have stalled."""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from mpi4py import MPI

from hpccoll.measure.deadline_sync import DeadlineSync, Stall, launcher_numbers, rejoin
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.ranks import ABORT_DELAY_S, Ranks, abort_job
from hpccoll.spec.case import Case, Shape
from hpccoll.transports.nccl.fault_tolerance import ExcludedError, StalledError

MIN_WORKERS = 2
"""The smallest number of workers that continue: a single one exchanges nothing."""

INCOMPLETE = 3
"""The exit code of a launch that has not measured everything planned."""


class RankGroup:
    """The ranks that measure, with their GPUs; created on all ranks of a launch together.

    Args:
        ranks: all ranks of the launch.
        aggregators: the number of aggregators, which are the last ranks.
    """

    def __init__(self, ranks: Ranks, aggregators: int) -> None:
        self.ranks, self.gpus, self.aggregators = ranks, RankGpus(ranks), aggregators
        self.me, self.workers = ranks.comm.rank, ranks.comm.size - aggregators  # of the whole launch
        self.excluded = False  # whether the others have continued without this rank
        self._lossy_syncs: list[DeadlineSync] = []  # the earlier synchronisations of this rank that lost a rank
        self._stalls: list[tuple[int, Case, Stall]] = []  # the stalls that lost ranks, each with its attempt and case

    @property
    def shape(self) -> Shape:
        layout = self.ranks.layout(self.aggregators)
        return Shape(layout.nodes, layout.workers, layout.aggregators)

    @property
    def complete(self) -> bool:
        """Whether the group has all ranks of the launch."""
        return not self._stalls

    @property
    def can_continue(self) -> bool:
        """Whether the remaining ranks can measure: all aggregators and enough workers are left."""
        workers = sum(number < self.workers for number in launcher_numbers(self.ranks.comm))
        return workers >= MIN_WORKERS and self.ranks.comm.size - workers == self.aggregators

    @property
    def loss(self) -> tuple[str, int]:
        """The reason why cases are left to be measured, and the first rank that was lost."""
        _, _, stall = self._stalls[0]
        return f"it needs all ranks: {stall.description}", stall.lost_ranks[0]

    def provenance(self) -> Mapping[str, object]:
        """Return the record of the lost ranks in the provenance of an attempt; empty if no rank was lost."""
        if self.complete:
            return {}
        lost = [
            {"attempt": attempt, "case": case.id, "ranks": stall.lost_ranks, "how": stall.description}
            for attempt, case, stall in self._stalls
        ]
        return {"left_behind": lost, "launched_as": launcher_numbers(self.ranks.comm)}

    def regroup(self, sync: DeadlineSync, error: StalledError, attempt: int, case: Case) -> Stall:
        """Continue with the ranks that still respond, renumbered; each rank keeps its GPU.

        Args:
            sync: the synchronisation in which a rank stalled.
            error: the error with which this rank gave up.
            attempt: the number of the attempt.
            case: the case that was measured.

        Raises:
            ExcludedError: if the others have continued without this rank.
            StalledError: if no rank can continue.
        """
        try:
            stall = sync.regroup(error)
        except ExcludedError:
            self._lossy_syncs.append(sync)
            self.excluded = True
            self.print_message("stalled; the other ranks continued without it, and it exits with them")
            raise
        if stall.lost_ranks:
            self._lossy_syncs.append(sync)
            self._stalls.append((attempt, case, stall))
        self.ranks = Ranks(stall.comm)
        self.gpus = self.gpus.subset(self.ranks)
        return stall

    def finish(self, timeout: float) -> None:
        """Wait for lost ranks, so that MPI_Finalize returns; abort the launch if they do not return in time.

        Args:
            timeout: the seconds to wait for them.
        """
        if not self._lossy_syncs or rejoin(self._lossy_syncs, None if self.excluded else timeout):
            return
        if self.ranks.comm.rank == 0:
            self.print_message(f"{self.loss[0]}; the launch is aborted: no return within {timeout:g} s")
        else:
            time.sleep(ABORT_DELAY_S)  # rank 0 prints the reason before any rank aborts
        abort_job(MPI.COMM_WORLD, code=INCOMPLETE)

    def print_message(self, message: str) -> None:
        """Print a message of this rank; callable from any thread."""
        with suppress(OSError):  # a full disk or a closed pipe must not keep the job from ending
            print(f"r{self.me} | {message}", file=sys.stderr, flush=True)
