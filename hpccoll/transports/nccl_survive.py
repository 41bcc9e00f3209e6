"""Survive: a rank that stalls is noticed, and the others go on without it, as NCCL's guide has it (Fault Tolerance).

Who waits for NCCL does so on the host, and asks it for errors meanwhile. When one comes, or time runs out, the ranks
that are there abort NCCL's communicator, call each other over MPI, agree on who they are, and make another for an MPI
communicator of them alone: ``MPI.Comm.Create_group`` asks nothing of the rest. A rank that comes too late is told.

A communicator's first operations connect ranks, for which the host waits inside the call, where nobody looks at a
clock: plans do them when they are made, under the eye of the job's watchdog.

A rank that has ended is another matter: the launcher ends the job then, and says which process it was.
"""

import time
from collections.abc import Callable

from mpi4py import MPI

from hpccoll.transports.nccl_world import Library, World, forget, world

PRESENT, DECIDED = 32001, 32002
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

    The lowest of them decides, and tells everyone, those too that come later. Called once for a communicator.

    Raises:
        ExcludedError: on a rank that came later.
        StalledError: where who is to decide does not.
    """
    peers = [peer for peer in range(comm.size) if peer != comm.rank]
    _UNDER_WAY.extend(comm.isend(None, peer, PRESENT) for peer in peers)
    present = {comm.rank}
    until = time.monotonic() + patience
    decided = _decision(comm)
    while decided is None and len(present) < comm.size and time.monotonic() < until:
        present |= {peer for peer in peers if peer not in present and _said(comm, peer)}
        time.sleep(PAUSE)
        decided = _decision(comm)
    if decided is None and comm.rank == min(present):
        decided = sorted(present)
        _UNDER_WAY.extend(comm.isend(decided, peer, DECIDED) for peer in peers)
    until = time.monotonic() + patience
    while decided is None and time.monotonic() < until:
        time.sleep(PAUSE)
        decided = _decision(comm)
    if decided is None:
        raise StalledError(f"rank {min(present)} was there, but has not said in {patience:g} s who goes on")
    if comm.rank not in decided:
        raise ExcludedError(f"ranks {', '.join(map(str, decided))} have gone on without rank {comm.rank}")
    return decided


def _said(comm: MPI.Intracomm, peer: int) -> bool:
    """Return whether a word of ``peer`` has come, and take it."""
    if not comm.iprobe(peer, PRESENT):
        return False
    comm.recv(source=peer, tag=PRESENT)
    return True


def _decision(comm: MPI.Intracomm) -> list[int] | None:
    if not comm.iprobe(MPI.ANY_SOURCE, DECIDED):
        return None
    decided: list[int] = comm.recv(source=MPI.ANY_SOURCE, tag=DECIDED)
    return decided


def without_the_stalled(made: World, patience: float, library: Library | None = None) -> tuple[World, list[int]]:
    """Return the world of the ranks of ``made`` that are there, and those that are not; called by all that are.

    Args:
        made: whose communicator does not come to an end; it is aborted.
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
