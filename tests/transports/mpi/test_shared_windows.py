"""Shared memory under a real MPI: ranks of a node read each other's writes."""

import pytest

pytestmark = pytest.mark.mpi

PROGRAM = """
import os

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import BadInputError
from hpccoll.transports.mpi import shared_windows

LARGE = 256 << 20
comm = MPI.COMM_WORLD
me, memory = comm.rank, shared_windows.SharedMemory(comm)
counts = [1000 * rank for rank in range(comm.size)]  # rank 0 has nothing
own, nothing = memory.empty(counts[me], np.dtype("int32")), memory.empty(0, np.dtype("int32"))
assert own.ctypes.data % shared_windows.PAGE_BYTES == 0 or not len(own)
own[:] = me
for call, arguments in memory.fences:
    call(*arguments)
comm.Barrier()
for call, arguments in memory.fences:
    call(*arguments)
assert len(memory.fences) == 1, "an empty buffer needs no window"
assert {rank: len(view) for rank, view in memory.views(own).items()} == dict(enumerate(counts))
assert all((view == rank).all() for rank, view in memory.views(own).items())
assert not any(map(len, memory.views(nothing).values()))
comm.Barrier()
room = os.statvfs(shared_windows.SHM_DIRECTORY)
memory.empty(LARGE * (me == 0), np.dtype("int8"))
comm.Barrier()
taken = (room.f_bavail - os.statvfs(shared_windows.SHM_DIRECTORY).f_bavail) * room.f_frsize
assert taken > LARGE / 2, "what was given is not there yet: others would be given it too"
try:
    memory.empty((1 << 50) * (me == 0), np.dtype("int8"))  # more than is free, on one rank
except BadInputError as error:
    assert "'1.05e+06 GiB' is not valid: at most" in str(error), error
    assert str(shared_windows.SHM_DIRECTORY) in str(error), error
else:
    raise AssertionError("1 PiB was given")
memory.close()
print("done")
"""


def test_ranks_of_a_node_read_each_others_writes_and_too_large_windows_are_rejected(
    mpiexec, tmp_path
):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = mpiexec(3, program)
    assert (ran.returncode, ran.stdout.count("done")) == (0, 3), ran.stdout + ran.stderr
