"""Ranks of which one stalls, or comes too late, or ends: run under mpiexec by test_nccl_survive.py.

NCCL is a fake that does what a communicator is asked, as far as ranks see it; MPI is real.
"""

import os
import signal
import sys
import time

import pytest
from mpi4py import MPI

from hpccoll.transports import nccl_world
from hpccoll.transports.nccl_survive import ExcludedError, StalledError, hear_out, wait, without_the_stalled

COMM = MPI.COMM_WORLD
PATIENCE, GONE_ON = 5, 77
"""Seconds for two ranks that are there to hear of each other, however busy the machine; and a tag."""


class FakeCommunicator:
    def __init__(self, size, unique, rank):
        self.size, self.unique, self.rank, self.said = size, unique, rank, []

    def abort(self):
        self.said.append("aborted")

    def destroy(self):
        self.said.append("destroyed")

    def commSplit(self, color, key):  # noqa: N802
        return None if color < 0 else FakeCommunicator(0, self.unique, key)

    def check_async_error(self):
        pass


class Library:
    made = 0
    NcclCommunicator = FakeCommunicator

    @classmethod
    def get_unique_id(cls):
        cls.made += 1
        return b"%3d" % cls.made + os.urandom(125)


def unique_ids_are_exchanged():
    one = nccl_world.world(COMM, Library)
    assert nccl_world.world(COMM, Library) is one
    assert len(set(COMM.allgather(one.communicator.unique))) == 1
    assert len(one.communicator.unique) == 128
    assert (one.communicator.size, one.communicator.rank) == (COMM.size, COMM.rank)
    assert COMM.allreduce(Library.made) == 1
    part = one.workers(COMM.size - 1)
    assert (part is None) == (COMM.rank == COMM.size - 1)
    assert one.workers(COMM.size) is one.communicator
    assert one.workers(COMM.size - 1) is part
    other = COMM.Dup()
    another = nccl_world.world(other, Library)
    assert another.communicator.unique != one.communicator.unique
    nccl_world.close_all()
    assert one.communicator.said == another.communicator.said == ["destroyed"]
    assert part is None or part.said == ["destroyed"]
    assert nccl_world.world(COMM, Library) is not one
    nccl_world.close_all()
    other.Free()


def stalls(who):
    """Have rank ``who`` come when the others have gone on."""
    one = nccl_world.world(COMM, Library)
    old = one.communicator
    COMM.Barrier()
    if COMM.rank == who:
        for _ in range(COMM.size - 1):
            COMM.recv(tag=GONE_ON)
    with pytest.raises(StalledError, match=r"0\.2 s"):
        wait(lambda: False, old.check_async_error, 0.2)
    try:
        made, gone = without_the_stalled(one, PATIENCE, Library)
    except ExcludedError as error:
        print(f"rank {COMM.rank}: {error}", flush=True)
        assert COMM.rank == who
    else:
        assert gone == [who]
        assert made.comm.allreduce(1) == COMM.size - 1
        assert made.communicator.size == COMM.size - 1
        assert made.communicator.unique != old.unique
        assert nccl_world.world(made.comm, Library) is made
        COMM.send(None, who, GONE_ON)
    assert old.said == ["aborted"]
    nccl_world.close_all()
    hear_out(COMM)


def nobody_stalls():
    one = nccl_world.world(COMM, Library)
    time.sleep(0.1 * COMM.rank)
    made, gone = without_the_stalled(one, 20, Library)
    assert (gone, made.comm.size) == ([], COMM.size)
    nccl_world.close_all()


def ends(who):
    if COMM.rank == who:
        os.kill(os.getpid(), signal.SIGKILL)
    one = nccl_world.world(COMM, Library)
    wait(lambda: False, one.communicator.check_async_error, 60)


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    globals()[name](*map(int, numbers))
    print(f"rank {COMM.rank} done", flush=True)
