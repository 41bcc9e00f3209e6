"""The crew: the ranks of a launch that go on, and what became of those that they have left behind."""

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
"""Workers that go on: one exchanges nothing."""

INCOMPLETE = 3
"""The exit code of a launch in which something planned is missing."""


class RankGroup:
    """The ranks that are there, with their GPUs; made of all ranks of a launch, on all of them together.

    Args:
        ranks: all of them.
        aggregators: how many of these, the last ones, aggregate.
    """

    def __init__(self, ranks: Ranks, aggregators: int) -> None:
        self.ranks, self.gpus, self.aggregators = ranks, RankGpus(ranks), aggregators
        self.me, self.workers = ranks.comm.rank, ranks.comm.size - aggregators  # as they were launched
        self.excluded = False  # whether the others have gone on without this rank
        self._lossy_syncs: list[DeadlineSync] = []  # as which this rank was one of some of whom one was left behind
        self._stalls: list[tuple[int, Case, Stall]] = []  # each with the attempt

    @property
    def shape(self) -> Shape:
        layout = self.ranks.layout(self.aggregators)
        return Shape(layout.nodes, layout.workers, layout.aggregators)

    @property
    def complete(self) -> bool:
        """Whether nobody was left behind."""
        return not self._stalls

    @property
    def can_continue(self) -> bool:
        """Whether those that are left can measure something: all that aggregate, and workers for them."""
        workers = sum(number < self.workers for number in launcher_numbers(self.ranks.comm))
        return workers >= MIN_WORKERS and self.ranks.comm.size - workers == self.aggregators

    @property
    def loss(self) -> tuple[str, int]:
        """Why something is left to be measured, and the rank that was left behind first."""
        _, _, stall = self._stalls[0]
        return f"it needs all ranks: {stall.words}", stall.lost_ranks[0]

    def provenance(self) -> Mapping[str, object]:
        """Return what an attempt says of those that were left behind; nothing where nobody was."""
        if self.complete:
            return {}
        behind = [
            {"attempt": attempt, "case": case.id, "ranks": stall.lost_ranks, "how": stall.words}
            for attempt, case, stall in self._stalls
        ]
        return {"left_behind": behind, "launched_as": launcher_numbers(self.ranks.comm)}

    def regroup(self, sync: DeadlineSync, error: StalledError, attempt: int, case: Case) -> Stall:
        """Find out who is there, and go on with them, by numbers of their own; each rank keeps its GPU.

        Args:
            sync: as which the ranks have waited for each other.
            error: why this one gave up.
            attempt: in which that was.
            case: during which.

        Raises:
            ExcludedError: on a rank that the others have left behind.
            StalledError: where nobody can go on.
        """
        try:
            stall = sync.regroup(error)
        except ExcludedError:
            self._lossy_syncs.append(sync)
            self.excluded = True
            self.print_message("stalled, and the others have gone on: it ends with them")
            raise
        if stall.lost_ranks:
            self._lossy_syncs.append(sync)
            self._stalls.append((attempt, case, stall))
        self.ranks = Ranks(stall.comm)
        self.gpus = self.gpus.subset(self.ranks)
        return stall

    def finish(self, patience: float) -> None:
        """See those that were left behind once more, so that MPI ends well, or end the launch if they do not come.

        Args:
            patience: for them, in seconds.
        """
        if not self._lossy_syncs or rejoin(self._lossy_syncs, None if self.excluded else patience):
            return
        if self.ranks.comm.rank == 0:
            self.print_message(f"{self.loss[0]}; the launch is ended, for it has not come back in {patience:g} s")
        else:
            time.sleep(ABORT_DELAY_S)  # one speaks for all, and ends all
        abort_job(MPI.COMM_WORLD, code=INCOMPLETE)

    def print_message(self, message: str) -> None:
        """Print what this rank has to say; from any thread."""
        with suppress(OSError):  # a full disk or a closed pipe must not keep the job from ending
            print(f"r{self.me} | {message}", file=sys.stderr, flush=True)
