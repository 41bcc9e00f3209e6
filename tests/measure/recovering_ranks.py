"""Ranks of which one stalls, responds too late, or is killed: run under mpiexec by test_recovery.py.

NCCL is a fake; MPI is real.
"""

import os
import signal
import sys
from types import SimpleNamespace

import pytest
import raw_examples
from fake_nccl import Library
from mpi4py import MPI

from hpccoll.measure.ranks import Ranks
from hpccoll.measure.recovery import DeadlineSync, ExcludedError, RankGroup, StalledError, poll_until
from hpccoll.transports.nccl import communicators

COMM = MPI.COMM_WORLD
GONE_ON, LEARNED = 77, 78
"""The tags of messages to and from the rank that is lost."""
TIMEOUT = 16
"""Seconds of the watchdog, a sixth of which a busy machine leaves to answer."""
PREPARED = SimpleNamespace(progress=lambda: "in its test", calls=[])


def new_group():
    """Return the group of all ranks and its synchronisation."""
    group = RankGroup(Ranks(COMM), aggregators=0)
    group.gpus.gpu_of_rank = SimpleNamespace(idle=lambda: True, synchronize=lambda: None)
    return group, DeadlineSync(group.ranks, TIMEOUT)


def stalls(who):
    """Let rank ``who`` respond after the others have gone on."""
    group, sync = new_group()
    old = communicators.nccl_world(COMM, Library).communicator
    COMM.Barrier()
    if COMM.rank == who:
        for _ in range(COMM.size - 1):
            COMM.recv(tag=GONE_ON)
    with pytest.raises(StalledError) as error:
        sync.wait(lambda: False, lambda: None)
    try:
        description = group.recover(PREPARED, sync, error.value, 1, raw_examples.case())
    except ExcludedError:
        assert (COMM.rank, old.said) == (who, ["aborted"])
        print(f"rank {who} is excluded", flush=True)
        COMM.send(None, 0, LEARNED)
        group.end_launch(excluded=True)
    others = [rank for rank in range(COMM.size) if rank != who]
    assert description.startswith(f"rank {who} on ")
    assert "NCCL did not complete in 4 s (in its test); no answer in 2.67 s; " in description
    assert group.provenance()["launched_as"] == others
    assert (group.complete, group.can_continue, group.loss[1]) == (False, True, who)
    made = communicators.nccl_world(group.ranks.comm, Library)
    assert made.comm.allreduce(1) == made.communicator.size == COMM.size - 1
    assert made.communicator.unique != old.unique
    assert old.said == ["aborted"]
    COMM.send(None, who, GONE_ON)
    if COMM.rank == 0:
        COMM.recv(source=who, tag=LEARNED)
    group.end_launch()


def all_answer(failing):
    """Let NCCL fail at a rank while the others wait for it, one of them in a barrier that it does not enter."""
    group, sync = new_group()
    wait_for = {
        failing: lambda: sync.wait(lambda: False, lambda: "NCCL reports: an error"),
        (failing + 1) % COMM.size: sync.barrier,
    }
    with pytest.raises(StalledError) as error:
        wait_for.get(COMM.rank, lambda: sync.wait(lambda: False, lambda: None))()
    description = group.recover(PREPARED, sync, error.value, 1, raw_examples.case())
    assert description.startswith(f"NCCL reports: an error at rank {failing} on ")
    assert description.endswith("; all ranks answered and continued")
    assert (group.complete, group.provenance()) == (True, {})
    assert group.ranks.comm.allreduce(1) == COMM.size
    assert MPI.Request.Testall(sync._barriers + sync._sends)  # MPI_Finalize may wait for what is left
    assert not sync.control_comm.iprobe()
    group.end_launch()


def ends(who):
    if COMM.rank == who:
        os.kill(os.getpid(), signal.SIGKILL)
    poll_until(lambda: False, lambda: None, 60)


if __name__ == "__main__":
    name, number = sys.argv[1:]
    globals()[name](int(number))
    print(f"rank {COMM.rank} done", flush=True)
