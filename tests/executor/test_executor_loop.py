"""The compiled timing loop under a real MPI: its barrier, its times, and faults that its check sees."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

FAULTS = Path(__file__).with_name("executor_faults.py")

BARRIER = """
import time
from mpi4py import MPI
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.transports.mpi import shared_windows
comm = MPI.COMM_WORLD
barrier = ExecutorBarrier(comm, shared_windows.SharedMemory(comm), ExecutorOptions(oversubscribed=comm.size > 2))
for late in [*range(comm.size)] * 2:
    time.sleep(0.02 * (comm.rank == late))
    entered = time.perf_counter_ns()  # of one clock: the ranks are on one machine
    barrier.wait()
    left = time.perf_counter_ns()
    assert min(comm.allgather(left)) > max(comm.allgather(entered))
barrier.close()
"""

LEADERS = """
from mpi4py import MPI
from hpccoll.transports.mpi import shared_windows
split = MPI.Intracomm.Split_type
MPI.COMM_WORLD.size  # several nodes of one or two ranks each, as far as MPI is concerned
class Nodes(shared_windows.SharedMemory):
    def __init__(self, comm):
        self.comm, self.node = comm, comm.Split(comm.rank // PER_NODE, comm.rank)
        self.ranks = self.node.allgather(comm.rank)
        self._windows, self._buffers = [], []
shared_windows.SharedMemory = Nodes
"""


LITTLE = (
    "from pathlib import Path; from hpccoll.transports.mpi import "
    "shared_windows as s; s.SHM_DIRECTORY = Path('/no')"
)


@pytest.mark.parametrize(
    ("ranks", "before"),
    [
        (1, ""),
        (3, ""),
        (3, LITTLE),
        *((n, LEADERS.replace("PER_NODE", per)) for n, per in ((3, "1"), (4, "2"), (5, "2"))),
    ],
    ids=["1", "3", "too little memory", "3x1", "2x2", "2 + 2 + 1"],
)
def test_no_rank_leaves_the_barrier_before_all_have_entered(mpiexec, ranks, before):
    ended = mpiexec(ranks, "-c", before + BARRIER)
    assert ended.returncode == 0, ended.stderr


def test_faults_in_a_compiled_plan_are_seen_by_both_checks_alike(mpiexec):
    ended = mpiexec(2, FAULTS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
