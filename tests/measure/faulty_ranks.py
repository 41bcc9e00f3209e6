"""``hpccoll run`` with an injected fault: python faulty_ranks.py FAULT ARGUMENTS OF RUN."""

import ctypes
import os
import sys
import time
from itertools import count, islice

import numpy as np

from hpccoll.algorithms.ring import ring
from hpccoll.cli.job_program import main
from hpccoll.executor.compiled_executor import CompiledExecutor
from hpccoll.executor.mpi_functions import call_record, handle
from hpccoll.executor.python_executor import PythonExecutor
from hpccoll.executor.structures import CALL
from hpccoll.schedule import Step, all_reduce

FAULT, *ARGUMENTS = sys.argv[1:]
CALLS = 12
"""Operations that go well."""

run_sequence, init = PythonExecutor._run_sequence, CompiledExecutor.__init__
calls = count(1)


def run_wrong(self):
    from mpi4py import MPI

    if next(calls) > CALLS and MPI.COMM_WORLD.rank == 1:
        if FAULT == "sleeps":
            time.sleep(1000)
        elif FAULT == "raises":
            raise RuntimeError("the moon is in the wrong house")
    return run_sequence(self)


@all_reduce("short")
def short(layout, me):
    """The ring without its last step."""
    yield from islice(ring.schedule(layout).steps(me), 2 * layout.workers - 3)


@all_reduce("unmatched", vectorised=False)
def unmatched(layout, me):
    """The ring, whose first rank forgets its last send."""
    *steps, last = ring.schedule(layout).steps(me)
    yield from steps
    yield last if me else Step(*last.actions[1:])


def faulty_calls():
    """Return the blocking calls that rank 1 makes first in a compiled operation, as FAULT says."""
    from mpi4py import MPI

    if FAULT == "sleeps":
        call = np.zeros(1, CALL)
        call["function"] = ctypes.cast(ctypes.CDLL(None).sleep, ctypes.c_void_p).value
        call["arguments"][0, 0] = 1000
        return [call]
    no_root = 99
    return [call_record("MPI_Bcast", 0, 0, handle(MPI.BYTE), no_root, handle(MPI.COMM_WORLD))] * (
        FAULT == "raises"
    )


def init_with_faulty_calls(self, comm, *arguments, calls=(), **options):
    init(
        self,
        comm,
        *arguments,
        calls=[*(faulty_calls() if comm.rank == 1 else ()), *calls],
        **options,
    )


PythonExecutor._run_sequence, CompiledExecutor.__init__ = run_wrong, init_with_faulty_calls
if FAULT == "leaks":
    secrets = (
        "NCCL_API_KEY",
        "SLURM_JWT",
        "AWS_SECRET_ACCESS_KEY",
        "OMPI_MCA_x_password",
        "HOME_OF_HIDDEN",
    )
    os.environ.update(dict.fromkeys(secrets, "s3cr3t"), OMPI_MCA_btl="self", NCCL_ALGO="Ring")
code = main(ARGUMENTS)
if FAULT == "leaks":
    from mpi4py import MPI

    names = ("pydantic", "altair", "snakemake", "scipy", "pandas", "h5py")
    found = [name for name in names if name in sys.modules]
    for rank, modules in enumerate(MPI.COMM_WORLD.gather(found) or ()):
        print(f"modules of rank {rank}: {modules}")
sys.exit(code)
