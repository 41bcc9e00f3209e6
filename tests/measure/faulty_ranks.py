"""``hpccoll run`` with an injected fault: python faulty_ranks.py FAULT ARGUMENTS OF RUN."""

import ctypes
import os
import sys
import time
from itertools import count, islice

import numpy as np

from hpccoll.algorithms.ring import ring
from hpccoll.cli.rank_program import main
from hpccoll.executor.compiled_executor import CompiledExecutor
from hpccoll.executor.lowered_step import LocalCopy, LoweredStep
from hpccoll.executor.mpi_functions import call_record, handle
from hpccoll.executor.python_executor import PythonExecutor
from hpccoll.executor.structures import CALL
from hpccoll.schedule import all_reduce
from hpccoll.transports.mpi.transport import MpiPlan
from hpccoll.transports.mpi.vendor import MpiVendorPlan

FAULT, *ARGUMENTS = sys.argv[1:]
CALLS = 12
"""Operations that go well."""

run_sequence = PythonExecutor._run_sequence
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


BYTES = 8
"""That a plan writes where it may not."""

WRITES = {
    "after-dst": lambda _src, dst: dst.ctypes.data + dst.nbytes,
    "before-dst": lambda _src, dst: dst.ctypes.data - BYTES,
    "after-src": lambda src, _dst: src.ctypes.data + src.nbytes,
    "in-place-of-rank-0": lambda _src, dst: dst.ctypes.data + dst.nbytes // 2 - BYTES,
    "in-src": lambda src, _dst: src.ctypes.data,
}
"""Where it writes."""

BY_COUNT = {
    1024: "empty-result", 1032: "short-result", 1040: "result-elsewhere", 1048: "after-dst", 1056: "before-dst",
    1064: "after-src", 1072: "in-src",
}  # fmt: skip
"""The fault of a plan by its elements, where FAULT is ``by-count``."""


def view(start, nbytes=BYTES):
    return np.frombuffer((ctypes.c_char * nbytes).from_address(start), np.uint8)


def faulty_copies(fault, result, src, dst):
    """Return what rank 1 copies at the end of an operation with this fault."""
    if fault in WRITES:
        return [LocalCopy(view(WRITES[fault](src, dst)), np.full(BYTES, 0x5A, np.uint8))]
    if fault == "result-elsewhere":
        return [LocalCopy(result, dst), LocalCopy(dst, np.zeros_like(dst))]
    return []


def faulty_calls():
    """Return the blocking calls that rank 1 makes first in a compiled operation, as FAULT says."""
    from mpi4py import MPI

    if FAULT == "sleeps":
        call = np.zeros(1, CALL)
        call["function"] = ctypes.cast(ctypes.CDLL(None).sleep, ctypes.c_void_p).value
        call["arguments"][0, 0] = 1000
        return [call]
    no_root = 99
    return [call_record("MPI_Bcast", 0, 0, handle(MPI.BYTE), no_root, handle(MPI.COMM_WORLD))] * (FAULT == "raises")


def spoil(plan):
    """Have plans of this kind do at rank 1 what FAULT says, and all else as it is to be."""
    init = plan.__init__

    def faulty_init(self, comm, operation, src, dst, *more, **options):
        if comm.rank != 1:
            init(self, comm, operation, src, dst, *more, **options)
            return
        result = np.zeros_like(dst)
        fault = BY_COUNT[operation.count] if FAULT == "by-count" else FAULT
        copies = faulty_copies(fault, result, src, dst)
        right_init = CompiledExecutor.__init__

        def faulty_init(self, comm, executor_options, sequences=(), initial=0, *, calls=(), **options):
            last = [LoweredStep(after=copies)] if copies else []
            sequences = [*sequences[:-1], [*(sequences[-1] if sequences else []), *last]]
            calls = [*faulty_calls(), *calls]
            right_init(self, comm, executor_options, sequences, max(1, initial), calls=calls, **options)

        CompiledExecutor.__init__ = faulty_init
        init(self, comm, operation, src, dst, *more, **options)
        CompiledExecutor.__init__ = right_init
        self.result = result if fault == "result-elsewhere" else self.result
        self.result = self.result[: {"empty-result": 0, "short-result": -1}.get(fault)]

    plan.__init__ = faulty_init


PythonExecutor._run_sequence = run_wrong
for kind in (MpiPlan, MpiVendorPlan):
    spoil(kind)
if FAULT == "secrets":
    secrets = ("NCCL_API_KEY", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "OMPI_MCA_x_password", "HOME_OF_HIDDEN")
    os.environ.update(dict.fromkeys(secrets, "s3cr3t"), OMPI_MCA_btl="self", NCCL_ALGO="Ring")
code = main(ARGUMENTS)
if FAULT == "modules":
    from mpi4py import MPI

    names = ("typer", "pydantic", "altair", "snakemake", "scipy", "pandas", "h5py")
    found = [name for name in names if name in sys.modules]
    for rank, modules in enumerate(MPI.COMM_WORLD.gather(found) or ()):
        print(f"modules of rank {rank}: {modules}")
sys.exit(code)
