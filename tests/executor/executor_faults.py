"""The compiled loop on two ranks, with faults in rank 1's plan: mpiexec -n 2 python executor_faults.py."""

import numpy as np
from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.executor.structures import WORK_COPY, WORK_FOLD
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.timing_loop import PythonLoop, RankProgress
from hpccoll.transports.mpi.shared_windows import SharedMemory

COMM = MPI.COMM_WORLD
RANKS = Ranks(COMM)
OPTIONS = ExecutorOptions(oversubscribed=True)
BARRIER = ExecutorBarrier(COMM, SharedMemory(COMM), OPTIONS)
ITERATIONS = 20
STALE = np.full(1 << 16, 3, np.float32)
"""What an earlier operation may have left in scratch."""


def leave_out_a_fold(works):
    works["count"][np.flatnonzero(works["kind"] == WORK_FOLD)[0]] = 0


def shorten_a_fold(works):
    works["count"][np.flatnonzero(works["kind"] == WORK_FOLD)[-1]] -= 1


def shorten_a_copy(works):
    works["count"][np.flatnonzero(works["kind"] == WORK_COPY)[-1]] -= 4


def fold_stale_scratch(works):
    works["b"][np.flatnonzero(works["kind"] == WORK_FOLD)[0]] = STALE.ctypes.data


def fold_another_operation(works):
    # two rows of kernels on: minimum
    works["kernel"][np.flatnonzero(works["kind"] == WORK_FOLD)[0]] += 14


FAULTS = (
    leave_out_a_fold,
    shorten_a_fold,
    shorten_a_copy,
    fold_stale_scratch,
    fold_another_operation,
)


def check(case: Case) -> None:
    """Run the case without and with each fault; the compiled check sees what the one in Python sees."""
    prepared = PreparedCase(
        COMM, RANKS.layout(0), case, settings=RunSettings(executor_options=OPTIONS)
    )
    loop = prepared.loop(RANKS, lambda: BARRIER, RankProgress())
    in_python = PythonLoop(prepared, RANKS, RankProgress())
    works = prepared.plan.executor._arrays["works"]
    right = works.copy()
    assert COMM.allreduce(loop.run(ITERATIONS)[1]) == 0, case.id
    for fault in FAULTS:
        has_copies = COMM.bcast(bool((works["kind"] == WORK_COPY).any()), 1)
        if fault is shorten_a_copy and not has_copies:
            continue
        if COMM.rank == 1:
            fault(works)
        wrong = [COMM.allreduce(each.run(ITERATIONS)[1]) for each in (loop, in_python)]
        if COMM.rank == 0:
            print(f"{case.id} {fault.__name__}: {wrong}")
        assert wrong[0] > 0, f"{case.id} {fault.__name__}: not seen"
        assert wrong[0] == wrong[1], f"{case.id} {fault.__name__}: {wrong}"
        works[:] = right
    assert COMM.allreduce(loop.run(ITERATIONS)[1]) == 0, case.id
    prepared.close()


PLACES = [(transport, in_place) for transport in ("mpi", "shm") for in_place in (False, True)]
for transport, in_place in PLACES:
    for name in ("ring", "recursive_doubling"):
        check(
            Case(
                collective="all_reduce",
                algorithm=name,
                transport=transport,
                bytes=4096,
                in_place=in_place,
            )
        )
BARRIER.close()
