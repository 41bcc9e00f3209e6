"""Recovery from ranks that stall, as NCCL's user guide describes it (Fault Tolerance).

Ranks wait for NCCL on the host and poll it for errors. After an error or a timeout, the responding ranks abort NCCL's
communicators, exchange messages over MPI, agree on the survivors, and create an MPI communicator of the survivors with
``MPI.Comm.Create_group``, which needs no other ranks. Its NCCL communicator has a new unique id. A rank that responds
too late learns that it is excluded.

The first operations on a communicator connect ranks, and the host blocks inside the call without a timeout. Plans
therefore run them when they are compiled, under the job's watchdog.

If a rank exits, the launcher ends the job and names the process; this module does not handle that.
"""

import os
import time
from collections.abc import Callable, Iterable

from mpi4py import MPI

STALL_TAG, PRESENT_TAG, PROPOSE_TAG, ACCEPT_TAG, COMMIT_TAG = 32000, 32001, 32002, 32003, 32004
"""The tags of these messages; plans over MPI use them only with 500 lanes."""

SPIN_S, POLL_INTERVAL_S = 0.5, 1e-3
"""The seconds for which a wait only polls for completion, because it may be timed; and the interval afterwards."""

PROBES = 10
"""The number of probes for a message; MPI may receive it only during the first."""

_PENDING_SENDS: list[MPI.Request] = []
"""The requests of messages to ranks that may never receive them; their buffers must stay alive."""


class StalledError(RuntimeError):
    """An operation does not complete; the message has the time, or NCCL's error."""


class PeerStallError(StalledError):
    """Another rank has announced a stall; the message names it."""


class ExcludedError(RuntimeError):
    """The other ranks have continued without this rank; the message names them."""


def wait(is_done: Callable[[], bool], error: Callable[[], str | None], timeout_s: float, what: str = "NCCL") -> None:
    """Wait until ``is_done()``.

    Args:
        is_done: returns whether the operation has completed.
        error: returns NCCL's error message, None without an error.
        timeout_s: the limit in seconds.
        what: the name of the operation for the error message.

    Raises:
        StalledError: if the limit is exceeded, or ``error`` returns a message.
    """
    now = time.monotonic()
    spin_until, deadline = now + min(SPIN_S, timeout_s / 2), now + timeout_s
    while not is_done():
        if time.monotonic() < spin_until:
            os.sched_yield()  # NCCL and MPI have their own threads
            continue
        if message := error():
            raise StalledError(message)
        if time.monotonic() > deadline:
            raise StalledError(f"{what} did not complete in {timeout_s:.3g} s")
        time.sleep(POLL_INTERVAL_S)


def announce_stall(comm: MPI.Intracomm) -> None:
    """Tell the other ranks that this rank has stopped waiting, before it aborts NCCL, which may take seconds."""
    _send_to(comm, _peers(comm), STALL_TAG)


def check_peers(comm: MPI.Intracomm) -> None:
    """Check whether another rank has announced a stall.

    Raises:
        PeerStallError: if one has.
    """
    status = MPI.Status()
    if any(comm.iprobe(MPI.ANY_SOURCE, STALL_TAG, status) for _ in range(PROBES)):
        raise PeerStallError(f"rank {status.source} announced a stall")


def is_excluded(comm: MPI.Intracomm) -> bool:
    """Return whether other ranks have agreed on survivors without this rank; any thread may call this."""
    return any(comm.iprobe(MPI.ANY_SOURCE, PROPOSE_TAG) for _ in range(PROBES))


def agree_on_survivors(comm: MPI.Intracomm, timeout_s: float) -> list[int]:
    """Return the ranks of ``comm`` that respond; each of them calls this, once for a communicator.

    The lowest responding rank proposes the survivors to all ranks, including those that respond later. A rank accepts
    only one proposal, and a proposal is committed after all ranks in it have accepted: ranks never split into two
    groups.

    Args:
        comm: the communicator of all ranks.
        timeout_s: the limit in seconds for each of the three phases.

    Raises:
        ExcludedError: on a rank that responds too late.
        StalledError: if the proposing rank stops, or a rank does not accept.
    """
    peers = _peers(comm)
    _send_to(comm, peers, PRESENT_TAG)
    present = {comm.rank, *_receive_from(comm, peers, PRESENT_TAG, timeout_s, unless=PROPOSE_TAG)}
    if comm.rank == min(present) and not comm.iprobe(MPI.ANY_SOURCE, PROPOSE_TAG):
        survivors = sorted(present)
        _send_to(comm, peers, PROPOSE_TAG, survivors)
        others = [peer for peer in survivors if peer != comm.rank]
        if missing := {*others} - _receive_from(comm, others, ACCEPT_TAG, timeout_s):
            raise StalledError(f"rank {min(missing)} responded, but did not accept the survivors in {timeout_s:g} s")
        _send_to(comm, others, COMMIT_TAG)
        return survivors
    status = MPI.Status()
    if not _receive_from(comm, [MPI.ANY_SOURCE], PROPOSE_TAG, 2 * timeout_s, take=False):  # its sender may be late
        raise StalledError(f"rank {min(present)} responded, but proposed no survivors in {2 * timeout_s:g} s")
    proposal: list[int] = comm.recv(source=MPI.ANY_SOURCE, tag=PROPOSE_TAG, status=status)
    proposer = status.source
    if comm.rank not in proposal:
        raise ExcludedError(f"ranks {', '.join(map(str, proposal))} continued without rank {comm.rank}")
    _send_to(comm, [proposer], ACCEPT_TAG)
    if not _receive_from(comm, [proposer], COMMIT_TAG, 2 * timeout_s):
        raise StalledError(f"rank {proposer} proposed the survivors, but not all accepted in {2 * timeout_s:g} s")
    return proposal


def drain_messages(comm: MPI.Intracomm) -> None:
    """Receive all messages left of this protocol, because MPICH fails at its end if any remain; a collective call."""
    comm.alltoall([None] * comm.size)  # earlier messages have arrived when this completes
    for tag in (STALL_TAG, PRESENT_TAG, PROPOSE_TAG, ACCEPT_TAG, COMMIT_TAG):
        while comm.iprobe(MPI.ANY_SOURCE, tag):
            comm.recv(source=MPI.ANY_SOURCE, tag=tag)
    _PENDING_SENDS[:] = [request for request in _PENDING_SENDS if not request.Test()]


def _peers(comm: MPI.Intracomm) -> list[int]:
    return [peer for peer in range(comm.size) if peer != comm.rank]


def _send_to(comm: MPI.Intracomm, peers: Iterable[int], tag: int, content: object = None) -> None:
    _PENDING_SENDS.extend(comm.isend(content, peer, tag) for peer in peers)


def _receive_from(
    comm: MPI.Intracomm,
    peers: Iterable[int],
    tag: int,
    timeout_s: float,
    *,
    unless: int | None = None,
    take: bool = True,
) -> set[int]:
    """Return those of ``peers`` whose message arrives in time.

    Args:
        comm: the communicator.
        peers: the ranks to wait for; MPI.ANY_SOURCE waits for any one.
        tag: the tag of the message.
        timeout_s: the limit in seconds.
        unless: a tag; the wait ends early if any rank has sent a message with it.
        take: whether to receive the messages; otherwise they stay in MPI's queue.
    """
    arrived: set[int] = set()
    missing, deadline = {*peers}, time.monotonic() + timeout_s
    while missing and not (unless and comm.iprobe(MPI.ANY_SOURCE, unless)):
        for peer in [peer for peer in missing if comm.iprobe(peer, tag)]:
            if take:
                comm.recv(source=peer, tag=tag)
            arrived.add(peer)
            missing.remove(peer)
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_INTERVAL_S)
    return arrived


def shrink_communicator(comm: MPI.Intracomm, survivors: list[int]) -> MPI.Intracomm:
    """Return a communicator of the ranks ``survivors``; only they call this."""
    group = comm.Get_group()
    subgroup = group.Incl(survivors)
    shrunk = comm.Create_group(subgroup)
    subgroup.Free()
    group.Free()
    return shrunk
