"""Patient: ranks that wait for each other with a clock in view while a case over NCCL is measured.

NCCL waits for ever for a rank that stalls, and so does MPI. Here a rank gives up after a part of the watchdog's time,
or when another has; all that are there then call each other (``nccl_survive``), and go on. The watchdog still has what
is waited for elsewhere, where cases are made and where their outcomes are collected.

What was begun together is ended together: barriers that somebody is missing from, and messages that nobody took, are
brought to their ends once all ranks are there again, at the latest before MPI ends, which is done together, too. A rank
that does not come back by then is ended with the launch.
"""

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
"""Of the watchdog's time: after which a rank gives up, and in which ranks that are called have to answer. To agree on
who goes on takes five times the latter at most, which is less than the watchdog's, too."""

PAUSE = 0.01
"""Seconds between two looks for a rank that is to come back, which may take an hour."""


@dataclass(frozen=True, slots=True)
class Stall:
    """What came of a roll call: the same on all ranks that are there.

    Args:
        words: who stalled, and how that was seen.
        lost_ranks: the ranks that have not answered, as the launcher numbers them.
        comm: of the others; where all are there, too, for on the old one some may have begun what others have not.
    """

    words: str
    lost_ranks: tuple[int, ...]
    comm: MPI.Intracomm


class DeadlineSync:
    """The other ranks, as the loop needs them; made on all of them together.

    Args:
        ranks: the ranks.
        timeout: of the watchdog, in seconds.
    """

    def __init__(self, ranks: Ranks, timeout: float) -> None:
        self.ranks, self.limit_s, self.answer_s = ranks, timeout * LIMIT, timeout * ANSWER
        self.control_comm = ranks.comm.Dup()  # where nobody is in the middle of a barrier
        self._barriers_started = 0  # barriers
        self._pending_barriers: list[MPI.Request] = []  # those that somebody was missing from
        self._recent_waits_s = (
            0.0,
            0.0,
        )  # seconds, the last two times: who has waited is not the one that was waited for

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
        """See that all are there before MPI waits for them: nobody looks at a clock there."""
        self.barrier()
        try:
            check_peers(self.control_comm)  # who comes last finds the barrier open, and the others gone
        except StalledError:
            announce_stall(self.control_comm)
            raise

    def wait(self, done: Callable[[], bool], complaint: Callable[[], str | None], what: str = "NCCL") -> None:
        """Wait until ``done()``, no longer than the limit, nor after another rank has given up.

        Raises:
            StalledError: otherwise, or where there is a ``complaint()``.
        """

        def wrong() -> str | None:
            check_peers(self.control_comm)
            return complaint()

        began = time.monotonic()
        try:
            wait(done, wrong, self.limit_s, what)
        except StalledError:
            announce_stall(self.control_comm)
            raise
        finally:
            self._recent_waits_s = self._recent_waits_s[1], time.monotonic() - began

    def regroup(self, stall: StalledError) -> Stall:
        """Find out who is there, after NCCL was aborted at this rank; the ranks that are do so together.

        Raises:
            ExcludedError: on a rank that the others have gone on without.
            StalledError: where it cannot be agreed on who goes on, or rank 0 is gone, which keeps the results.
        """
        there = agree_on_survivors(self.control_comm, self.answer_s)
        gone = [rank for rank in range(self.control_comm.size) if rank not in there]
        comm = shrink_communicator(self.control_comm, there)
        said: list[tuple[bool, float, str]] = comm.allgather(
            (type(stall) is not PeerStallError, max(self._recent_waits_s), str(stall))
        )
        longest = max(waited for _, waited, _ in said)
        *_, words = max(said)  # of the one that has seen it by itself, after the longest time
        names = self.rank_names()
        if 0 in gone:
            raise StalledError(f"{names[0]} has stalled, which keeps the results: {words}")
        if gone:
            who, others = (_listed([names[rank] for rank in some]) for some in (gone, there))
            silent = f"it has not answered in {self.answer_s:.3g} s"
            words = f"{who} stalled: {words}; {silent}, and {others} went on without it"
            launched = launcher_numbers(self.ranks.comm)
            return Stall(words, tuple(launched[rank] for rank in gone), comm)
        self.complete_pending()
        late = {rank: longest - waited for rank, (saw, waited, _) in zip(there, said, strict=True) if not saw}
        if who := _listed([f"{names[rank]}, at least {s:.1f} s" for rank, s in late.items() if s > longest / 2]):
            return Stall(f"{who} after the others: {words}; it has come back, and all ranks went on", (), comm)
        return Stall(f"{words}; all ranks answered, and went on", (), comm)

    def complete_pending(self) -> None:
        """End what was begun together and what was said aside; on all ranks together, once all are there."""
        most = max(self.control_comm.allgather(self._barriers_started))
        while self._barriers_started < most:
            self._pending_barriers.append(self._start_barrier())
        MPI.Request.Waitall(self._pending_barriers)
        self._pending_barriers = []
        drain_messages(self.control_comm)

    def close(self) -> None:
        """Free what all ranks have, on all of them together."""
        self.control_comm.Free()

    def is_excluded(self) -> bool:
        """Return whether the others have gone on without this rank; from any thread."""
        return is_excluded(self.control_comm)

    def rank_names(self) -> list[str]:
        """Return each rank by the launcher's number, and its host."""
        return [
            f"rank {n} on {host}"
            for n, (host, _) in zip(launcher_numbers(self.ranks.comm), self.ranks.node_ids, strict=True)
        ]


def launcher_numbers(comm: MPI.Intracomm) -> list[int]:
    """Return the number of each rank of ``comm`` as the launcher has it."""
    own, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    translated = own.Translate_ranks(None, world)
    own.Free()
    world.Free()
    return translated


def _listed(words: Sequence[str]) -> str:
    """Return words as one would say them."""
    *some, last = words or [""]
    return f"{', '.join(some)} and {last}" if some else last


def rejoin(generations: Sequence[DeadlineSync], patience: float | None) -> bool:
    """Wait for those that were left behind, and end what is left of all that was begun together.

    Args:
        generations: of the ranks, those this rank was one of that have lost one, the first one first: all ranks.
        patience: in seconds, None where this rank is one of those.

    Returns:
        whether all have come.
    """
    until = None if patience is None else time.monotonic() + patience
    coming = generations[0].control_comm.Ibarrier()
    while not coming.Test():
        if until is not None and time.monotonic() > until:
            return False
        time.sleep(PAUSE)
    for generation in reversed(generations):
        generation.complete_pending()
    return True
