"""Survive: a rank that stalls is noticed, and the others go on without it, as NCCL's guide has it (Fault Tolerance).

Who waits for NCCL does so on the host, and asks it for errors meanwhile. When one comes, or time runs out, the ranks
that are there abort NCCL's communicators, call each other over MPI, agree on who they are, and make an MPI communicator
of them alone: ``MPI.Comm.Create_group`` asks nothing of the rest. NCCL's own for it has a unique id of its own. A rank
that comes too late is told.

A communicator's first operations connect ranks, for which the host waits inside the call, where nobody looks at a
clock: plans do them when they are made, under the eye of the job's watchdog.

A rank that has ended is another matter: the launcher ends the job then, and says which process it was.
"""

import os
import time
from collections.abc import Callable, Iterable

from mpi4py import MPI

STALL_TAG, PRESENT_TAG, PROPOSE_TAG, ACCEPT_TAG, COMMIT_TAG = 32000, 32001, 32002, 32003, 32004
"""Tags: only a plan over MPI of 500 lanes uses them too."""

SPIN_S, POLL_INTERVAL_S = 0.5, 1e-3
"""Seconds for which nothing is done but to look whether all has ended, for somebody may be timing it, and then between
two looks."""

PROBES = 10
"""Of MPI for a message, which it may only fetch when it is first asked."""

_PENDING_SENDS: list[MPI.Request] = []
"""What was sent to ranks that may never ask for it: its bytes have to stay."""


class StalledError(RuntimeError):
    """Ranks do not come to an end: says for how long, or what NCCL said."""


class PeerStallError(StalledError):
    """Another rank has seen it first; names that one."""


class ExcludedError(RuntimeError):
    """The others have gone on without this rank; names them."""


def wait(done: Callable[[], bool], complaint: Callable[[], str | None], timeout: float, what: str = "NCCL") -> None:
    """Wait until ``done()``.

    Args:
        done: whether it has come to its end.
        complaint: returns why it never will: what NCCL says; None while nobody knows of anything.
        timeout: seconds after which somebody has stalled.
        what: is waited for.

    Raises:
        StalledError: where time is over, or there is a complaint.
    """
    now = time.monotonic()
    soon, until = now + min(SPIN_S, timeout / 2), now + timeout
    while not done():
        if time.monotonic() < soon:
            os.sched_yield()  # NCCL and MPI have threads of their own
            continue
        if said := complaint():
            raise StalledError(said)
        if time.monotonic() > until:
            raise StalledError(f"{what} has not come to an end in {timeout:.3g} s")
        time.sleep(POLL_INTERVAL_S)


def announce_stall(comm: MPI.Intracomm) -> None:
    """Tell the others at once that this rank waits no longer: to abort NCCL may take it seconds."""
    _send_to(comm, _peers(comm), STALL_TAG)


def check_peers(comm: MPI.Intracomm) -> None:
    """Hear whether another rank has given up.

    Raises:
        CalledError: where one does.
    """
    status = MPI.Status()
    if any(comm.iprobe(MPI.ANY_SOURCE, STALL_TAG, status) for _ in range(PROBES)):
        raise PeerStallError(f"rank {status.source} has given up")


def is_excluded(comm: MPI.Intracomm) -> bool:
    """Return whether the others have decided who goes on while this rank was not there; from any thread."""
    return any(comm.iprobe(MPI.ANY_SOURCE, PROPOSE_TAG) for _ in range(PROBES))


def agree_on_survivors(comm: MPI.Intracomm, patience: float) -> list[int]:
    """Return the ranks of ``comm`` that are there: each of them calls, and within ``patience`` hears of the others.

    The lowest of them decides, and tells everyone, those too that come later. A rank agrees to one decision alone, and
    it holds when all that it names have agreed: ranks never go on in two groups. Called once for a communicator.

    Args:
        comm: of all ranks.
        patience: seconds, for each of the three turns of this.

    Raises:
        ExcludedError: on a rank that came later.
        StalledError: where who is to decide does not, or not all agree.
    """
    peers = _peers(comm)
    _send_to(comm, peers, PRESENT_TAG)
    present = {comm.rank, *_receive_from(comm, peers, PRESENT_TAG, patience, unless=PROPOSE_TAG)}
    if comm.rank == min(present) and not comm.iprobe(MPI.ANY_SOURCE, PROPOSE_TAG):
        decided = sorted(present)
        _send_to(comm, peers, PROPOSE_TAG, decided)
        others = [peer for peer in decided if peer != comm.rank]
        if missing := {*others} - _receive_from(comm, others, ACCEPT_TAG, patience):
            raise StalledError(f"rank {min(missing)} was there, but has not agreed in {patience:g} s to who goes on")
        _send_to(comm, others, COMMIT_TAG)
        return decided
    status = MPI.Status()
    if not _receive_from(
        comm, [MPI.ANY_SOURCE], PROPOSE_TAG, 2 * patience, take=False
    ):  # who decides may have come later
        raise StalledError(f"rank {min(present)} was there, but has not said in {2 * patience:g} s who goes on")
    named: list[int] = comm.recv(source=MPI.ANY_SOURCE, tag=PROPOSE_TAG, status=status)
    by = status.source
    if comm.rank not in named:
        raise ExcludedError(f"ranks {', '.join(map(str, named))} have gone on without rank {comm.rank}")
    _send_to(comm, [by], ACCEPT_TAG)
    if not _receive_from(comm, [by], COMMIT_TAG, 2 * patience):
        raise StalledError(f"rank {by} has decided who goes on, but not all have agreed in {2 * patience:g} s")
    return named


def drain_messages(comm: MPI.Intracomm) -> None:
    """Take what roll calls have left: MPICH ends badly where a message is never taken. On all ranks together."""
    comm.alltoall([None] * comm.size)  # what a rank has said before is there when this is
    for tag in (STALL_TAG, PRESENT_TAG, PROPOSE_TAG, ACCEPT_TAG, COMMIT_TAG):
        while comm.iprobe(MPI.ANY_SOURCE, tag):
            comm.recv(source=MPI.ANY_SOURCE, tag=tag)
    _PENDING_SENDS[:] = [request for request in _PENDING_SENDS if not request.Test()]


def _peers(comm: MPI.Intracomm) -> list[int]:
    return [peer for peer in range(comm.size) if peer != comm.rank]


def _send_to(comm: MPI.Intracomm, peers: Iterable[int], tag: int, word: object = None) -> None:
    _PENDING_SENDS.extend(comm.isend(word, peer, tag) for peer in peers)


def _receive_from(
    comm: MPI.Intracomm,
    peers: Iterable[int],
    tag: int,
    patience: float,
    *,
    unless: int | None = None,
    take: bool = True,
) -> set[int]:
    """Return which of ``peers`` have sent a word in time, and take it; wait no longer once one ``unless`` is there."""
    heard: set[int] = set()
    left, until = {*peers}, time.monotonic() + patience
    while left and not (unless and comm.iprobe(MPI.ANY_SOURCE, unless)):
        for peer in [peer for peer in left if comm.iprobe(peer, tag)]:
            if take:
                comm.recv(source=peer, tag=tag)
            heard.add(peer)
            left.remove(peer)
        if time.monotonic() > until:
            break
        time.sleep(POLL_INTERVAL_S)
    return heard


def shrink_communicator(comm: MPI.Intracomm, there: list[int]) -> MPI.Intracomm:
    """Return a communicator of the ranks ``there``, made by them alone."""
    group = comm.Get_group()
    some = group.Incl(there)
    made = comm.Create_group(some)
    some.Free()
    group.Free()
    return made
