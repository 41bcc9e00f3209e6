"""Ranks over NCCL that go on after one of them stalls: waits have a deadline, and ranks that answer form a new group.

NCCL and MPI wait for a stalled rank without limit. NCCL's user guide (Fault Tolerance) tells ranks to poll, to abort
the communicators, and to create new ones. The states of a rank:

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

Only rank 0 decides, so that ranks never split into two groups. Besides the abort, this takes at most LIMIT + 2 ANSWER
of the timeout, after which the watchdog ends a rank without progress; it spares a rank for which VERDICT has come,
because a launcher ends all ranks with the first one. What has no deadline is left to the watchdog: preparing cases,
whose first operations connect ranks while the host blocks, and collecting outcomes.

If all ranks have answered, they complete what only some of them had started, and MPI_Finalize returns. A launch that
has lost a rank ends by MPI_Abort after its results are written, because MPI_Finalize would wait for that rank.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from mpi4py import MPI

from hpccoll.cases.case import Case, Job, Shape
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.ranks import Ranks, abort_job, print_of_rank
from hpccoll.measure.timing_loop import Nanoseconds
from hpccoll.transports.nccl.communicators import abort_all_worlds
from hpccoll.transports.nccl.stream_plan import StreamPlan

if TYPE_CHECKING:
    from hpccoll.measure.case_factory import Prepared
    from hpccoll.measure.prepared_case import PreparedCase

LIMIT, ANSWER = 1 / 4, 1 / 6
"""Fractions of the watchdog's timeout; the states above explain them."""

STOP, PRESENT, VERDICT = range(3)
"""The tags of the messages, on a communicator that has no others."""

SPIN_S, POLL_INTERVAL_S = 0.5, 1e-3
"""The seconds for which a wait only polls for completion, because it may be timed; and the interval afterwards."""

PROBES = 10
"""The number of probes for a message; MPI may receive it only during the first."""

MIN_WORKERS = 2
"""The smallest number of workers that go on: a single one exchanges nothing."""

REMOTE_ERROR = re.compile(r"remote[_ ](error|process)", re.IGNORECASE)
"""NCCL's error on ranks whose peer has failed: CuPy's name of ncclRemoteError, and its text in NCCL (init.cc)."""

Report: TypeAlias = tuple[bool, float, str]
"""What a rank reports: whether it saw the stall itself, the seconds that it waited, and its error."""


class StalledError(RuntimeError):
    """An operation does not complete; the message has the time, or NCCL's error."""


class PeerStallError(StalledError):
    """Another rank has stopped."""


class ExcludedError(RuntimeError):
    """The other ranks have gone on without this rank."""


def poll_until(done: Callable[[], bool], error: Callable[[], str | None], timeout_s: float, what: str = "NCCL") -> None:
    """Wait until ``done()``, for an operation that is called ``what``.

    Raises:
        StalledError: if that takes longer than ``timeout_s``, or ``error()`` returns why it never will.
    """
    now = time.monotonic()
    spin_until, deadline = now + min(SPIN_S, timeout_s / 2), now + timeout_s
    while not done():
        if time.monotonic() < spin_until:
            os.sched_yield()  # NCCL and MPI have their own threads
            continue
        if message := error():
            raise StalledError(message)
        if time.monotonic() > deadline:
            raise StalledError(f"{what} did not complete in {timeout_s:.3g} s")
        time.sleep(POLL_INTERVAL_S)


class DeadlineSync:
    """The synchronisation of the timing loop (``RankSync``) with a deadline, parts of the watchdog's timeout in s.

    Created on all ranks together.
    """

    def __init__(self, ranks: Ranks, timeout: float) -> None:
        self.ranks, self.limit_s, self.answer_s = ranks, timeout * LIMIT, timeout * ANSWER
        self.control_comm = ranks.comm.Dup()  # for messages while barriers are pending
        self._peers = [rank for rank in range(ranks.comm.size) if rank != ranks.comm.rank]
        self._sends: list[MPI.Request] = []  # a stalled rank may never receive them
        self._barriers: list[MPI.Request] = []  # those that are pending after a stall
        self._barriers_started = 0
        # The last two waits: the last one alone does not show whether this rank waited or was waited for.
        self._recent_waits_s = 0.0, 0.0

    def barrier(self) -> None:
        request = self._start_barrier()
        try:
            self.wait(request.Test, lambda: None, "a barrier")
        except StalledError:
            self._barriers.append(request)
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
        self._check_peers()  # the last rank passes the barrier even if the others have stopped

    def wait(self, done: Callable[[], bool], complaint: Callable[[], str | None], what: str = "NCCL") -> None:
        """Wait until ``done()``; the arguments are those of ``poll_until``.

        Raises:
            StalledError: if the limit expires, another rank stops, or ``complaint()`` returns a reason.
        """

        def failure() -> str | None:
            if reason := complaint():  # before the peers: this rank's own error is the better reason
                return f"{reason} at {self.rank_names()[self.ranks.comm.rank]}"
            self._check_peers()
            return None

        began = time.monotonic()
        try:
            poll_until(done, failure, self.limit_s, what)
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
        """Agree on the ranks that go on, each of which has aborted NCCL; return what happened, and their communicator.

        Raises:
            ExcludedError: if the others have gone on without this rank.
            StalledError: if rank 0, which keeps the results, does not answer.
        """
        self._send_stop()
        comm, names = self.control_comm, self.rank_names()
        report = type(error) is not PeerStallError, max(self._recent_waits_s), str(error)
        if comm.rank == 0:
            reports = {0: report, **self._receive_reports()}
            self._send(VERDICT, self._peers, reports)
        else:
            self._send(PRESENT, [0], report)
            try:
                poll_until(self.verdict_has_come, lambda: None, 2 * self.answer_s)
            except StalledError:
                raise StalledError(f"{names[0]} has stalled, which keeps the results: {error}") from None
            reports = comm.recv(source=0, tag=VERDICT)
        if comm.rank not in reports:
            raise ExcludedError
        present, lost = sorted(reports), [rank for rank in range(comm.size) if rank not in reports]
        # It needs no other ranks. It is used even if all have answered: they have used the old one unequally.
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
            poll_until(all_answered, lambda: None, self.answer_s)
        return reports

    def _description(self, reports: Mapping[int, Report], names: Sequence[str], lost: Sequence[int]) -> str:
        # Of the rank that waited longest among those that saw the stall themselves, by more than another's error.
        *_, cause = max((saw, not REMOTE_ERROR.search(text), waited, text) for saw, waited, text in reports.values())
        if lost:
            lost_names, others = (" and ".join(names[rank] for rank in some) for some in (lost, sorted(reports)))
            return f"{lost_names} stalled: {cause}; no answer in {self.answer_s:.3g} s; {others} continued without it"
        longest = max(waited for _, waited, _ in reports.values())
        late = {rank: longest - waited for rank, (saw, waited, _) in reports.items() if not saw}
        delays = [f"{names[rank]}, at least {s:.1f} s" for rank, s in sorted(late.items()) if s > longest / 2]
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
        return [f"rank {n} on {host}" for n, (host, _) in zip(numbers, self.ranks.node_ids, strict=True)]


def launcher_numbers(comm: MPI.Intracomm) -> list[int]:
    """Return the ranks in MPI_COMM_WORLD of all ranks of ``comm``."""
    return comm.Get_group().Translate_ranks(None, MPI.COMM_WORLD.Get_group())


def abort_cases(cases: "Sequence[PreparedCase]") -> None:
    """Abort all operations of NCCL and free these prepared cases on this rank, alone.

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


class RankGroup:
    """The ranks that measure, with their GPUs: all of a launch, or those that go on; created on all of them together.

    The last ``aggregators`` of the ranks of the launch are aggregators.
    """

    def __init__(self, ranks: Ranks, aggregators: int) -> None:
        self.ranks, self.gpus, self.aggregators = ranks, RankGpus(ranks), aggregators
        self.me, self.workers = ranks.comm.rank, ranks.comm.size - aggregators  # of the whole launch
        self._losses: list[dict[str, Any]] = []  # as in the provenance
        self._syncs: list[DeadlineSync] = []  # they hold the messages that a lost rank may still receive

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
        return {} if self.complete else {"left_behind": [*self._losses], "launched_as": numbers}

    def sync(self, job: Job) -> DeadlineSync | None:
        """Return the synchronisation of a job that can lose ranks: over NCCL, if the watchdog may call MPI, too."""
        over_nccl = any(case.transport == "nccl" for case in job.cases)
        can_lose = over_nccl and self.ranks.comm.size > 1 and MPI.Query_thread() == MPI.THREAD_MULTIPLE
        return DeadlineSync(self.ranks, job.effort.timeout) if can_lose else None

    def recover(self, prepared: "Prepared", sync: DeadlineSync, error: StalledError, attempt: int, case: Case) -> str:
        """Abort NCCL, go on with the ranks that answer, renumbered and each with its GPU, and return what happened.

        Raises:
            ExcludedError: if the others have gone on without this rank.
            StalledError: if no rank can go on.
            GpuFailedError: if the GPU of this rank has failed, which is no stall.
        """
        self.gpus.gpu_of_rank.idle()
        where = prepared.progress()
        abort_cases(prepared.calls)
        before = launcher_numbers(self.ranks.comm)
        description, comm = sync.regroup(type(error)(f"{error} ({where})"))
        if lost := [rank for rank in before if rank not in launcher_numbers(comm)]:
            self._losses.append({"attempt": attempt, "case": case.id, "ranks": lost, "how": description})
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
