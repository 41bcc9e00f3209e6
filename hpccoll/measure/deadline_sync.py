"""Synchronisation with a deadline, used while a case over NCCL is measured.

NCCL and MPI wait for a stalled rank without limit. Here a rank gives up after a fraction of the watchdog's timeout, or
when another rank has given up; the ranks that still respond then regroup (``transports/nccl/fault_tolerance.py``) and
continue. The watchdog still covers the waits elsewhere, where cases are prepared and outcomes are collected.

Every collective call that was started must complete on all ranks: barriers that a rank has not entered and messages
that no rank has received are completed once all ranks respond again, at the latest before MPI_Finalize, which is
collective, too. If a rank does not return by then, the launch is aborted.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpi4py import MPI

from hpccoll.measure.ranks import Ranks
from hpccoll.measure.timing_loop import Nanoseconds
from hpccoll.transports.nccl.fault_tolerance import (
    PeerStallError,
    StalledError,
    agree_on_survivors,
    announce_stall,
    check_peers,
    drain_messages,
    is_excluded,
    shrink_communicator,
    wait,
)

LIMIT, ANSWER = 1 / 4, 1 / 6
"""Fractions of the watchdog's timeout: the time after which a rank gives up, and the time within which the ranks must
answer a roll call. The agreement on the remaining ranks takes at most five times the latter, less than the timeout."""

REMOTE_ERROR = re.compile(r"remote[_ ](error|process)", re.IGNORECASE)
"""NCCL's error on ranks whose peer has failed: CuPy's name of ncclRemoteError, and its text in NCCL (init.cc)."""

PAUSE = 0.01
"""The seconds between two tests for the return of a rank, which may take an hour."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The result of a roll call, equal on all ranks that answered it.

    Args:
        description: the stalled ranks and how the stall was detected.
        lost_ranks: the ranks that have not answered, by their ranks in MPI_COMM_WORLD.
        comm: a communicator of the other ranks. It is a new one even if all ranks answered, because some ranks may have
            started operations on the old one that others have not.
    """

    description: str
    lost_ranks: tuple[int, ...]
    comm: MPI.Intracomm


class DeadlineSync:
    """The synchronisation of the timing loop (``RankSync``) with a deadline; created on all ranks together.

    Args:
        ranks: the ranks.
        timeout: the timeout of the watchdog, in seconds.
    """

    def __init__(self, ranks: Ranks, timeout: float) -> None:
        self.ranks, self.limit_s, self.answer_s = ranks, timeout * LIMIT, timeout * ANSWER
        self.control_comm = ranks.comm.Dup()  # a communicator on which no barrier is pending
        self._barriers_started = 0
        self._pending_barriers: list[MPI.Request] = []  # a rank has not entered them
        # The last two waits: the last one alone does not show whether this rank waited or was waited for.
        self._recent_waits_s = 0.0, 0.0

    def barrier(self) -> None:
        request = self._start_barrier()
        try:
            self.wait(request.Test, lambda: None, "a barrier")
        except StalledError:
            self._pending_barriers.append(request)
            raise

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        self._await_all()
        return self.ranks.gather(local)

    def agree(self, more: int) -> int:
        self._await_all()
        return self.ranks.agree(more)

    def _start_barrier(self) -> MPI.Request:
        self._barriers_started += 1
        return self.ranks.comm.Ibarrier()

    def _await_all(self) -> None:
        """Wait for all ranks with the deadline, before a blocking call of MPI, which has none."""
        self.barrier()
        try:
            check_peers(self.control_comm)  # the last rank passes the barrier even if the others have given up
        except StalledError:
            announce_stall(self.control_comm)
            raise

    def wait(self, done: Callable[[], bool], complaint: Callable[[], str | None], what: str = "NCCL") -> None:
        """Wait until ``done()`` returns True.

        Args:
            done: returns whether the operation has completed.
            complaint: returns the reason why it never will, None if no error is known.
            what: the name of the operation in the error message.

        Raises:
            StalledError: if the limit expires, another rank gives up, or ``complaint()`` returns a reason.
        """

        def failure() -> str | None:
            if reason := complaint():  # before the peers: this rank's own error is the better reason
                return f"{reason} at {self.rank_names()[self.ranks.comm.rank]}"
            check_peers(self.control_comm)
            return None

        began = time.monotonic()
        try:
            wait(done, failure, self.limit_s, what)
        except StalledError:
            announce_stall(self.control_comm)
            raise
        finally:
            self._recent_waits_s = self._recent_waits_s[1], time.monotonic() - began

    def regroup(self, stall: StalledError) -> Stall:
        """Agree on the ranks that still respond; they call this together, after each has aborted NCCL.

        Args:
            stall: the error with which this rank gave up.

        Raises:
            ExcludedError: if the others have continued without this rank.
            StalledError: if the ranks cannot agree, or rank 0, which keeps the results, does not respond.
        """
        present = agree_on_survivors(self.control_comm, self.answer_s)
        lost = [rank for rank in range(self.control_comm.size) if rank not in present]
        comm = shrink_communicator(self.control_comm, present)
        reports: list[tuple[bool, float, str]] = comm.allgather(
            (type(stall) is not PeerStallError, max(self._recent_waits_s), str(stall))
        )
        longest = max(waited for _, waited, _ in reports)
        # Of the rank that waited longest among those that detected the stall themselves, by more than another's error.
        *_, cause = max((saw, not REMOTE_ERROR.search(text), waited, text) for saw, waited, text in reports)
        names = self.rank_names()
        if 0 in lost:
            raise StalledError(f"{names[0]} has stalled, which keeps the results: {cause}")
        if lost:
            lost_names, others = (_join_text([names[rank] for rank in some]) for some in (lost, present))
            description = (
                f"{lost_names} stalled: {cause}; no answer in {self.answer_s:.3g} s; {others} continued without it"
            )
            world_ranks = launcher_numbers(self.ranks.comm)
            return Stall(description, tuple(world_ranks[rank] for rank in lost), comm)
        self.complete_pending()
        late = {rank: longest - waited for rank, (saw, waited, _) in zip(present, reports, strict=True) if not saw}
        delays = [f"{names[rank]}, at least {s:.1f} s" for rank, s in late.items() if s > longest / 2]
        if delays:
            description = f"{_join_text(delays)} after the others: {cause}; it has returned, and all ranks continued"
            return Stall(description, (), comm)
        return Stall(f"{cause}; all ranks answered and continued", (), comm)

    def complete_pending(self) -> None:
        """Complete all started barriers and receive all pending messages; called by all ranks together."""
        most = max(self.control_comm.allgather(self._barriers_started))
        while self._barriers_started < most:
            self._pending_barriers.append(self._start_barrier())
        MPI.Request.Waitall(self._pending_barriers)
        self._pending_barriers = []
        drain_messages(self.control_comm)

    def close(self) -> None:
        """Free the control communicator; called by all ranks together."""
        self.control_comm.Free()

    def is_excluded(self) -> bool:
        """Return whether the others have continued without this rank; callable from any thread."""
        return is_excluded(self.control_comm)

    def rank_names(self) -> list[str]:
        """Return a name for each rank: its rank in MPI_COMM_WORLD and its host."""
        return [
            f"rank {n} on {host}"
            for n, (host, _) in zip(launcher_numbers(self.ranks.comm), self.ranks.node_ids, strict=True)
        ]


def launcher_numbers(comm: MPI.Intracomm) -> list[int]:
    """Return the ranks in MPI_COMM_WORLD of all ranks of ``comm``."""
    own, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    translated = own.Translate_ranks(None, world)
    own.Free()
    world.Free()
    return translated


def _join_text(words: Sequence[str]) -> str:
    """Return words joined by commas and ``and``."""
    *others, last = words or [""]
    return f"{', '.join(others)} and {last}" if others else last


def rejoin(syncs: Sequence[DeadlineSync], timeout: float | None) -> bool:
    """Wait for the excluded ranks, then complete all that was started together; all ranks of a launch call this.

    Args:
        syncs: the synchronisations of this rank whose groups have lost a rank, in order of time; the first one has all
            ranks of the launch.
        timeout: the seconds to wait, None on an excluded rank, which waits without limit.

    Returns:
        whether all ranks have returned.
    """
    until = None if timeout is None else time.monotonic() + timeout
    returned = syncs[0].control_comm.Ibarrier()
    while not returned.Test():
        if until is not None and time.monotonic() > until:
            return False
        time.sleep(PAUSE)
    for sync in reversed(syncs):
        sync.complete_pending()
    return True
