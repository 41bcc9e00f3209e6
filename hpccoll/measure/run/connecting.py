"""The phase in which NCCL connects the ranks of a launch: it has a limit, and a failure names the rank and NCCL's log.

NCCL makes connections in the first operation of a communicator, and on some paths of later plans.
The commonest faults of a new cluster show there: a network interface that leads nowhere, ACS, an
adapter without a link.
"""

from collections.abc import Callable

from mpi4py import MPI

from hpccoll.common.errors import StalledError
from hpccoll.evidence.own_nccl_log import OWN_LOG
from hpccoll.measure.deadline_sync import DeadlineSync
from hpccoll.measure.ranks import Ranks, print_of_rank
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.transports.stream_wait import Connecting, no_error, poll_until

PHASE, PHASE_WITHOUT_NCCL = "connecting NCCL", "running a first operation"

CONNECT, AWAIT = 1 / 2, 3 / 5
"""Fractions of the watchdog's timeout: the time of a first operation, and that of a rank that has
completed it and waits for the others. To regroup takes a third of the timeout at most
(deadline_sync.py)."""


class NcclConnecting(Connecting):
    """How the ranks of a launch wait for first operations; created on all of them together.

    Args:
        ranks: the ranks.
        progress: the phase is entered here, for the watchdog.
        timeout: the watchdog's, in s.
        sync: ends the wait of all ranks if one of them stalls; None: each waits by itself.
    """

    def __init__(
        self, ranks: Ranks, progress: RankProgress, timeout: float, sync: DeadlineSync | None = None
    ) -> None:
        self._ranks = ranks
        self._progress = progress
        self._sync = sync
        self._connect_s = timeout * CONNECT
        self._await_s = timeout * AWAIT
        host, _ = ranks.node_id
        self._rank = MPI.COMM_WORLD.rank
        self._place = f"rank {self._rank} on {host}"
        self._failure = ""
        self._phase = PHASE

    def begin(self, *, by_nccl: bool = True) -> None:
        self._failure = ""
        self._phase = PHASE_WITHOUT_NCCL
        if by_nccl:
            self._phase = PHASE
            if self._progress.phase != PHASE:
                OWN_LOG.mark()
        self._progress.enter(self._phase)
        self._progress.phase_details = self._details

    def note(self, failure: str) -> None:
        self._failure = failure

    def _details(self) -> str:
        """Return what is known of a rank that is still connecting, for the watchdog."""
        if self._phase != PHASE:
            return self._failure
        parts = [self._failure, OWN_LOG.report()]
        return "; ".join(part for part in parts if part)

    def wait(self, done: Callable[[], bool], error: Callable[[], str | None]) -> None:
        """Wait for a first operation.

        Raises:
            StalledError: names this rank, NCCL's last warnings and its log; PeerStallError, with
                the same, if another rank has stopped.
        """
        try:
            self._poll(done, error, "its first operation", self._connect_s)
        except StalledError as stall:
            if self._place in str(stall):
                place = ""
            else:
                place = f" at {self._place}"
            message = f"{self._phase}: {stall}{place}"
            if self._phase == PHASE:
                message += f"; {OWN_LOG.report()}"
            if self._sync:  # the results keep only one message for all ranks that agree
                print_of_rank(self._rank, message)
            raise type(stall)(message) from None

    def await_all(self) -> None:
        """Wait until all ranks have prepared a case or failed; blocking calls of MPI may follow.

        Raises:
            StalledError: if a rank does not come; PeerStallError if one has stalled.
        """
        self._progress.enter("waiting for the other ranks")
        if self._sync:
            self._sync.await_all(self._await_s)
        else:
            request = self._ranks.comm.Ibarrier()
            poll_until(request.Test, no_error, self._await_s, "preparing a case on all ranks")

    def _poll(
        self,
        done: Callable[[], bool],
        error: Callable[[], str | None],
        operation: str,
        limit_s: float,
    ) -> None:
        if self._sync:
            self._sync.wait(done, error, operation, limit_s)
        else:
            poll_until(done, error, limit_s, operation)
