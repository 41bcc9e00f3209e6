"""Ranks of which one stalls, responds too late, or is killed: run under mpiexec by test_fault_tolerance.py.

NCCL is a fake; MPI is real.
"""

import os
import signal
import sys
import time

import pytest
from mpi4py import MPI

from hpccoll.transports.nccl import communicators
from hpccoll.transports.nccl.fault_tolerance import (
    ExcludedError,
    StalledError,
    agree_on_survivors,
    drain_messages,
    shrink_communicator,
    wait,
)

COMM = MPI.COMM_WORLD
PATIENCE, GONE_ON = 5, 77
"""The time limit in seconds, long enough for a busy machine; and a tag."""


class FakeCommunicator:
    def __init__(self, size, unique, rank):
        self.size, self.unique, self.rank, self.said = size, unique, rank, []

    def abort(self):
        self.said.append("aborted")

    def destroy(self):
        self.said.append("destroyed")

    def commSplit(self, color, key):  # noqa: N802
        return None if color < 0 else FakeCommunicator(0, self.unique, key)


class Library:
    made = 0
    NcclCommunicator = FakeCommunicator

    @classmethod
    def get_unique_id(cls):
        cls.made += 1
        return b"%3d" % cls.made + os.urandom(125)


def unique_ids_are_exchanged():
    one = communicators.nccl_world(COMM, Library)
    assert communicators.nccl_world(COMM, Library) is one
    assert len(set(COMM.allgather(one.communicator.unique))) == 1
    assert len(one.communicator.unique) == 128
    assert (one.communicator.size, one.communicator.rank) == (COMM.size, COMM.rank)
    assert COMM.allreduce(Library.made) == 1
    part = one.workers(COMM.size - 1)
    assert (part is None) == (COMM.rank == COMM.size - 1)
    assert one.workers(COMM.size) is one.communicator
    assert one.workers(COMM.size - 1) is part
    other = COMM.Dup()
    another = communicators.nccl_world(other, Library)
    assert another.communicator.unique != one.communicator.unique
    communicators.close_all_worlds()
    assert one.communicator.said == another.communicator.said == ["destroyed"]
    assert part is None or part.said == ["destroyed"]
    assert communicators.nccl_world(COMM, Library) is not one
    communicators.close_all_worlds()
    other.Free()


class Failing(Library):
    """NCCL that fails at one rank, in one of the calls by which a communicator comes to be."""

    def __init__(self, where, who):
        self.where, self.who, self.calls = where, who, 0

    def _call(self, where):
        self.calls += 1
        if (where, COMM.rank) == (self.where, self.who):
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")

    def get_unique_id(self):
        self._call("id")
        return Library.get_unique_id()

    def NcclCommunicator(self, *about):  # noqa: N802  CuPy's name
        self._call("init")
        made = FakeCommunicator(*about)
        made.commSplit = lambda *_: self._call("split")
        return made


def fails():
    for where, who in (("id", 0), ("init", 1), ("split", 2)):
        library, said = Failing(where, who), []
        for _ in range(2):
            with pytest.raises(communicators.NcclFailedError) as error:
                communicators.nccl_world(COMM, library).workers(COMM.size - 1)
            said.append(str(error.value))
        words = f"NCCL makes no communicator at rank {who}: NCCL_ERROR_SYSTEM_ERROR: unhandled system error"
        assert said == [words, words]
        assert where == "split" or library.calls <= 2  # once
        communicators.close_all_worlds()


def stalls(who):
    """Let rank ``who`` respond after the others have continued."""
    one = communicators.nccl_world(COMM, Library)
    old = one.communicator
    COMM.Barrier()
    if COMM.rank == who:
        for _ in range(COMM.size - 1):
            COMM.recv(tag=GONE_ON)
    with pytest.raises(StalledError, match=r"0\.2 s"):
        wait(lambda: False, lambda: None, 0.2)
    communicators.abort_all_worlds()
    try:
        survivors = agree_on_survivors(COMM, PATIENCE)
    except ExcludedError as error:
        print(f"rank {COMM.rank}: {error}", flush=True)
        assert COMM.rank == who
    else:
        assert survivors == [rank for rank in range(COMM.size) if rank != who]
        made = communicators.nccl_world(shrink_communicator(COMM, survivors), Library)
        assert made.comm.allreduce(1) == COMM.size - 1
        assert made.communicator.size == COMM.size - 1
        assert made.communicator.unique != old.unique
        assert communicators.nccl_world(made.comm, Library) is made
        COMM.send(None, who, GONE_ON)
    assert old.said == ["aborted"]
    communicators.close_all_worlds()
    drain_messages(COMM)


def nobody_stalls():
    time.sleep(0.1 * COMM.rank)
    survivors = agree_on_survivors(COMM, 20)
    assert survivors == [*range(COMM.size)]
    assert shrink_communicator(COMM, survivors).size == COMM.size
    drain_messages(COMM)


def ends(who):
    if COMM.rank == who:
        os.kill(os.getpid(), signal.SIGKILL)
    wait(lambda: False, lambda: None, 60)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    globals()[name](*map(int, numbers))
    print(f"rank {COMM.rank} done", flush=True)
