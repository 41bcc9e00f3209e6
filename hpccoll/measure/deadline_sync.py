"""Ranks over NCCL that go on after one of them stalls: waits have a deadline, and ranks that answer form a new group.

NCCL and MPI wait for a stalled rank without limit. NCCL's user guide (Fault Tolerance) tells ranks
to poll, to abort the communicators, and to create new ones. The states of a rank:

    MEASURING   Its waits poll. It stops if one takes LIMIT of the watchdog's timeout, NCCL reports an error, or another
        |       rank has sent STOP. It then sends STOP to all others.
    STOPPED     It aborts NCCL's communicators, and waits for its GPU. If the GPU hangs, the rank stays here.
        |
    ANSWERED    It sends PRESENT to rank 0: whether it saw the stall itself, how long it waited, and its error. Rank 0
        |       waits ANSWER of the timeout for all ranks, and sends the reports that have come, VERDICT, to all. The
        |       others wait twice as long for VERDICT, because rank 0 may be late.
        +---- VERDICT has its report: MEASURING, with these ranks in a new communicator. The case has failed.
        +---- VERDICT lacks it: EXCLUDED. It came back too late, and sleeps until rank 0 ends the launch.
        +---- There is no VERDICT: rank 0, which keeps the results, has stalled. The rank aborts the launch.

Only rank 0 decides, so that ranks never split into two groups. Besides the abort, this takes at
most LIMIT + 2 ANSWER of the timeout, after which the watchdog ends a rank without progress; it
spares a rank for which VERDICT has come, because a launcher ends all ranks with the first one.
First operations, which connect the ranks while a case is prepared, have a limit of their own
(connecting.py). What has no deadline is left to the watchdog: making communicators, and collecting
outcomes.

If all ranks have answered, they complete what only some of them had started, and MPI_Finalize
returns. A launch that has lost a rank ends by MPI_Abort after its results are written, because
MPI_Finalize would wait for that rank.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from mpi4py import MPI

from hpccoll.common.errors import ExcludedError, StalledError
from hpccoll.evidence.own_nccl_log import LAST_WARNINGS
from hpccoll.measure.ranks import Ranks, launcher_numbers
from hpccoll.measure.timing_loop import Nanoseconds
from hpccoll.store.case_times import CaseTimes, SummaryRule
from hpccoll.transports.stream_wait import no_error, poll_until

LIMIT, ANSWER = 1 / 4, 1 / 6
"""Fractions of the watchdog's timeout; the states above explain them."""

STOP, PRESENT, VERDICT = range(3)
"""The tags of the messages, on a communicator that has no others."""

PROBES = 10
"""The number of probes for a message; MPI may receive it only during the first."""

REMOTE_ERROR = re.compile(r"remote[_ ](error|process)", re.IGNORECASE)
"""NCCL's error on ranks whose peer has failed: CuPy's name of ncclRemoteError, and its text in NCCL (init.cc)."""

Report: TypeAlias = tuple[bool, float, str]
"""What a rank reports: whether it saw the stall itself, the seconds that it waited, and its error."""


class PeerStallError(StalledError):
    """Another rank has stopped."""


class DeadlineSync:
    """The synchronisation of the timing loop (``RankSync``) with a deadline, parts of the watchdog's timeout in s.

    Created on all ranks together.
    """

    def __init__(self, ranks: Ranks, timeout: float) -> None:
        self.ranks = ranks
        self.limit_s = timeout * LIMIT
        self.answer_s = timeout * ANSWER
        self.control_comm = ranks.comm.Dup()  # for messages while barriers are pending
        self._peers = [rank for rank in range(ranks.comm.size) if rank != ranks.comm.rank]
        self._sends: list[MPI.Request] = []  # a stalled rank may never receive them
        self._barriers: list[MPI.Request] = []  # those that are pending after a stall
        self._barriers_started = 0
        # The last two waits: the last one alone does not show whether this rank waited or was
        # waited for.
        self._recent_waits_s = 0.0, 0.0

    def barrier(self, limit_s: float | None = None) -> None:
        request = self._start_barrier()
        try:
            self.wait(request.Test, no_error, "a barrier", limit_s)
        except StalledError:
            self._barriers.append(request)
            raise

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        self.await_all()
        return self.ranks.gather(local)

    def summarise(self, local: Nanoseconds, rule: SummaryRule, iterations: int) -> CaseTimes | None:
        self.await_all()
        return self.ranks.summarise(local, rule, iterations)

    def gather_kept(self, local: Nanoseconds, stride: int) -> Nanoseconds | None:
        self.await_all()
        return self.ranks.gather_kept(local, stride)

    def agree(self, value: int) -> int:
        self.await_all()
        return self.ranks.agree(value)

    def _start_barrier(self) -> MPI.Request:
        self._barriers_started += 1
        return self.ranks.comm.Ibarrier()

    def await_all(self, limit_s: float | None = None) -> None:
        """Wait for all ranks with the deadline, before a blocking call of MPI, which has none."""
        self.barrier(limit_s)
        self._check_peers()  # the last rank passes the barrier even if the others have stopped

    def wait(
        self,
        done: Callable[[], bool],
        complaint: Callable[[], str | None],
        operation: str = "the operation",
        limit_s: float | None = None,
    ) -> None:
        """Wait until ``done()``; the arguments are those of ``poll_until``, with LIMIT of the timeout by default.

        Raises:
            StalledError: if the limit expires, another rank stops, or ``complaint()`` returns a
                reason.
        """

        def failure() -> str | None:
            # before the peers: this rank's own error is the better reason
            if reason := complaint():
                return f"{reason} at {self.rank_names()[self.ranks.comm.rank]}"
            self._check_peers()
            return None

        began = time.monotonic()
        try:
            poll_until(done, failure, limit_s or self.limit_s, operation)
        except StalledError:
            self._send_stop()
            raise
        finally:
            self._recent_waits_s = self._recent_waits_s[1], time.monotonic() - began

    def _check_peers(self) -> None:
        if any(self.control_comm.iprobe(MPI.ANY_SOURCE, STOP) for _ in range(PROBES)):
            self._send_stop()
            raise PeerStallError("another rank has stopped")

    def _send_stop(self) -> None:
        if not self._sends:  # STOP is the first message, and sent once
            self._send(STOP, self._peers)

    def _send(self, tag: int, peers: Sequence[int], content: object = None) -> None:
        self._sends += [self.control_comm.isend(content, peer, tag) for peer in peers]

    def regroup(self, error: StalledError) -> tuple[str, MPI.Intracomm]:
        """Agree on the ranks that go on, after each has aborted NCCL; return what happened, and their communicator.

        Raises:
            ExcludedError: if the others have gone on without this rank.
            StalledError: if rank 0, which keeps the results, does not answer.
        """
        self._send_stop()
        comm = self.control_comm
        names = self.rank_names()
        report = type(error) is not PeerStallError, max(self._recent_waits_s), str(error)
        if comm.rank == 0:
            reports = {0: report, **self._receive_reports()}
            self._send(VERDICT, self._peers, reports)
        else:
            self._send(PRESENT, [0], report)
            try:
                poll_until(self.verdict_has_come, no_error, 2 * self.answer_s)
            except StalledError:
                raise StalledError(
                    f"{names[0]} has stalled, which keeps the results: {error}"
                ) from None
            reports = comm.recv(source=0, tag=VERDICT)
        if comm.rank not in reports:
            raise ExcludedError
        present = sorted(reports)
        lost = [rank for rank in range(comm.size) if rank not in reports]
        # It needs no other ranks. It is used even if all have answered: they have used the old one
        # unequally.
        remaining = comm.Create_group(comm.Get_group().Incl(present))
        if not lost:
            self._complete()
        return self._description(reports, names, lost), remaining

    def _receive_reports(self) -> dict[int, Report]:
        reports: dict[int, Report] = {}
        status = MPI.Status()

        def all_answered() -> bool:
            while self.control_comm.iprobe(MPI.ANY_SOURCE, PRESENT, status):
                reports[status.source] = self.control_comm.recv(source=status.source, tag=PRESENT)
            return len(reports) == len(self._peers)

        with suppress(StalledError):
            poll_until(all_answered, no_error, self.answer_s)
        return reports

    def _description(
        self, reports: Mapping[int, Report], names: Sequence[str], lost: Sequence[int]
    ) -> str:
        *_, cause = max(_rank_of_cause(report) for report in reports.values())
        if lost:
            lost_names, alive = (
                " and ".join(names[rank] for rank in some) for some in (lost, sorted(reports))
            )
            return f"{lost_names} stalled: {cause}; no answer in {self.answer_s:.3g} s; {alive} continued without it"
        longest = max(waited for _, waited, _ in reports.values())
        late = {rank: longest - waited for rank, (saw, waited, _) in reports.items() if not saw}
        delays = [
            f"{names[rank]}, at least {s:.1f} s"
            for rank, s in sorted(late.items())
            if s > longest / 2
        ]
        if delays:
            return f"{' and '.join(delays)} after the others: {cause}; it has returned, and all ranks continued"
        return f"{cause}; all ranks answered and continued"

    def _complete(self) -> None:
        """Complete all barriers and messages, which MPI_Finalize needs; all ranks have answered, and call this."""
        most = max(self.control_comm.allgather(self._barriers_started))
        while self._barriers_started < most:
            self._barriers.append(self._start_barrier())
        for peer in self._peers:
            self.control_comm.recv(source=peer, tag=STOP)
        MPI.Request.Waitall(self._barriers + self._sends)

    def verdict_has_come(self) -> bool:
        """Return whether VERDICT has come, without this rank unless it has sent PRESENT; callable from any thread."""
        return any(self.control_comm.iprobe(0, VERDICT) for _ in range(PROBES))

    def rank_names(self) -> list[str]:
        """Return a name for each rank: its rank in MPI_COMM_WORLD and its host."""
        numbers = launcher_numbers(self.ranks.comm)
        return [
            f"rank {n} on {host}" for n, (host, _) in zip(numbers, self.ranks.node_ids, strict=True)
        ]


def _rank_of_cause(report: Report) -> tuple[bool, bool, bool, float, str]:
    """Return how well a report explains the stall, for comparisons, and its error.

    A rank that saw the stall itself, or has warnings of NCCL, knows more than one that another rank
    stopped, and its own error more than that of a peer; then come warnings, and the longest wait.
    """
    saw_it, waited_s, error = report
    is_warned = LAST_WARNINGS in error
    return saw_it or is_warned, not REMOTE_ERROR.search(error), is_warned, waited_s, error
