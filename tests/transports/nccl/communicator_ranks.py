"""NCCL's communicators of real MPI ranks, with a fake of NCCL: run under mpiexec by test_communicators.py."""

import pytest
from fake_nccl import FakeCommunicator, FakeGpu, Library
from mpi4py import MPI

from hpccoll.transports.nccl import communicators, nccl_errors

COMM = MPI.COMM_WORLD


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
            with pytest.raises(nccl_errors.NcclFailedError) as error:
                communicators.nccl_world(COMM, FakeGpu(), library).workers(COMM.size - 1)
            said.append(str(error.value))
        words = f"NCCL makes no communicator at rank {who}: NCCL_ERROR_SYSTEM_ERROR: unhandled system error"
        assert said == [words, words]
        assert where == "split" or library.calls <= 2  # once
        communicators.close_all_worlds()


if __name__ == "__main__":
    fails()
