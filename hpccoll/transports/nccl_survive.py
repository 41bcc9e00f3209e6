"""Survive: a rank that stalls is noticed, and the others go on without it, as NCCL's guide has it (Fault Tolerance).

Who waits for NCCL does so on the host, and asks it for errors meanwhile. When one comes, or time runs out, the ranks
that are there abort NCCL's communicator, call each other over MPI, agree on who they are, and make another for an MPI
communicator of them alone: ``MPI.Comm.Create_group`` asks nothing of the rest. A rank that comes too late is told.

A communicator's first operations connect ranks, for which the host waits inside the call, where nobody looks at a
clock: plans do them when they are made, under the eye of the job's watchdog.

A job does not do so: its ranks meet in MPI as well, and a stall there ends in the watchdog, which names it; the next
attempt resumes. This is for programs that wait as above, and tests/gpu has the drill.

A rank that has ended is another matter: the launcher ends the job then, and says which process it was.
"""

import time
from collections.abc import Callable, Iterable

from mpi4py import MPI

from hpccoll.transports.nccl_world import Library, World, forget, world

PRESENT, DECIDED, AGREED, SETTLED = 32001, 32002, 32003, 32004
"""Tags: only a plan over MPI of 500 lanes uses them too."""

PAUSE = 1e-4
"""Seconds between two looks."""


_UNDER_WAY: list[MPI.Request] = []
"""What was sent to ranks that may never ask for it: its bytes have to stay."""


class StalledError(RuntimeError):
    """NCCL does not come to an end: says for how long, or what it said."""


class ExcludedError(RuntimeError):
    """The others have gone on without this rank; names them."""


def wait(done: Callable[[], bool], check: Callable[[], object], timeout: float) -> None:
    """Wait until ``done()``.

    Args:
        done: whether the stream has come to its end.
        check: raises where NCCL knows of an error: CuPy's ``check_async_error``.
        timeout: seconds after which somebody has stalled.

    Raises:
        StalledError: where time is over, or ``check`` raises.
    """
    until = time.monotonic() + timeout
    while not done():
        try:
            check()
        except (RuntimeError, KeyError) as error:  # KeyError: CuPy 14 has no words for NCCL's newest errors
            raise StalledError(f"NCCL says: {error}") from error
        if time.monotonic() > until:
            raise StalledError(f"NCCL has not come to an end in {timeout:g} s")
        time.sleep(PAUSE)


def roll_call(comm: MPI.Intracomm, patience: float) -> list[int]:
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
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    _tell(comm, peers, PRESENT)
    present = {comm.rank, *_hear(comm, peers, PRESENT, patience, unless=DECIDED)}
    if comm.rank == min(present) and not comm.iprobe(MPI.ANY_SOURCE, DECIDED):
        decided = sorted(present)
        _tell(comm, peers, DECIDED, decided)
        others = [peer for peer in decided if peer != comm.rank]
        if missing := {*others} - _hear(comm, others, AGREED, patience):
            raise StalledError(f"rank {min(missing)} was there, but has not agreed in {patience:g} s to who goes on")
        _tell(comm, others, SETTLED)
        return decided
    status = MPI.Status()
    if not _hear(comm, [MPI.ANY_SOURCE], DECIDED, 2 * patience, take=False):  # who decides may have come later
        raise StalledError(f"rank {min(present)} was there, but has not said in {2 * patience:g} s who goes on")
    named: list[int] = comm.recv(source=MPI.ANY_SOURCE, tag=DECIDED, status=status)
    by = status.source
    if comm.rank not in named:
        raise ExcludedError(f"ranks {', '.join(map(str, named))} have gone on without rank {comm.rank}")
    _tell(comm, [by], AGREED)
    if not _hear(comm, [by], SETTLED, 2 * patience):
        raise StalledError(f"rank {by} has decided who goes on, but not all have agreed in {2 * patience:g} s")
    return named


def hear_out(comm: MPI.Intracomm) -> None:
    """Take what roll calls have left: MPICH ends badly where a message is never taken. On all ranks together."""
    comm.alltoall([None] * comm.size)  # what a rank has said before is there when this is
    for tag in (PRESENT, DECIDED, AGREED, SETTLED):
        while comm.iprobe(MPI.ANY_SOURCE, tag):
            comm.recv(source=MPI.ANY_SOURCE, tag=tag)


def _tell(comm: MPI.Intracomm, peers: Iterable[int], tag: int, word: object = None) -> None:
    _UNDER_WAY.extend(comm.isend(word, peer, tag) for peer in peers)


def _hear(
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
        time.sleep(PAUSE)
    return heard


def without_the_stalled(made: World, patience: float, library: Library | None = None) -> tuple[World, list[int]]:
    """Return the world of the ranks of ``made`` that are there, and those that are not; called by all that are.

    Args:
        made: whose communicator does not come to an end; it is aborted, for which NCCL waits until the graphs of plans
            that name it are closed.
        patience: seconds in which ranks hear of each other.
        library: NCCL.

    Raises:
        ExcludedError: on a rank that came too late.
        StalledError: where nobody decides.
    """
    forget(made)
    made.abort()  # or the stream of this rank would never end
    there = roll_call(made.comm, patience)
    group = made.comm.Get_group()
    some = group.Incl(there)
    comm = made.comm.Create_group(some)
    some.Free()
    group.Free()
    return world(comm, library), sorted({*range(made.comm.size)} - {*there})
