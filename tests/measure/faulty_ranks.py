"""``hpccoll run`` with an injected fault: python faulty_ranks.py FAULT ARGUMENTS OF RUN."""

import ctypes
import os
import sys
import time
from itertools import count, islice

from hpccoll.algorithms.ring import ring
from hpccoll.measure import case_factory
from hpccoll.run import main
from hpccoll.schedule import all_reduce
from hpccoll.transports.mpi.persistent import MpiPlan
from hpccoll.transports.mpi.vendor import MpiVendorPlan

FAULT, *ARGUMENTS = sys.argv[1:]
CALLS = 12
"""Operations that go well."""

run_sequence = MpiPlan._run_sequence
calls = count(1)


def run_wrong(self):
    from mpi4py import MPI

    if next(calls) > CALLS and MPI.COMM_WORLD.rank == 1:
        if FAULT == "sleeps":
            time.sleep(1000)
        elif FAULT == "raises":
            raise RuntimeError("the moon is in the wrong house")
    run_sequence(self)


@all_reduce("short")
def short(layout, me):
    """The ring without its last step."""
    yield from islice(ring.schedule(layout).steps(me), 2 * layout.workers - 3)


@all_reduce("unpaired")
def unpaired(layout, me):
    """A ring of which rank 1 does nothing."""
    if me != 1:
        yield from ring.schedule(layout).steps(me)


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


def spoil(plan):
    """Have plans of this kind do at rank 1 what FAULT says, and all else as it is to be."""
    init, run = plan.__init__, plan.run

    def faulty_init(self, comm, operation, src, dst, *more):
        init(self, comm, operation, src, dst, *more)
        self.buffers = src, dst, comm.rank
        if comm.rank == 1:
            self.result = self.result[: {"empty-result": 0, "short-result": -1}.get(FAULT)]
            if FAULT == "result-elsewhere":
                self.result = self.result.copy()

    def faulty_run(self):
        run(self)
        *buffers, rank = self.buffers
        if rank == 1 and FAULT in WRITES:
            ctypes.memset(WRITES[FAULT](*buffers), 0x5A, BYTES)
        if rank == 1 and FAULT == "result-elsewhere":
            self.result[:] = buffers[1]
            buffers[1][:] = 0

    plan.__init__, plan.run = faulty_init, faulty_run


MpiPlan._run_sequence = run_wrong
for kind in (MpiPlan, MpiVendorPlan):
    spoil(kind)
if FAULT == "no-memory":
    case_factory.available_memory = lambda: 10_000
if FAULT == "secrets":
    secrets = ("NCCL_API_KEY", "SLURM_JWT", "AWS_SECRET_ACCESS_KEY", "OMPI_MCA_x_password", "HOME_OF_HIDDEN")
    os.environ.update(dict.fromkeys(secrets, "s3cr3t"), OMPI_MCA_btl="self", NCCL_ALGO="Ring")
code = main(ARGUMENTS)
if FAULT == "modules":
    from mpi4py import MPI

    names = ("typer", "rich", "pydantic", "altair", "snakemake", "scipy", "pandas", "h5py", "matplotlib", "xarray")
    found = [name for name in names if name in sys.modules]
    for rank, modules in enumerate(MPI.COMM_WORLD.gather(found) or ()):
        print(f"modules of rank {rank}: {modules}")
sys.exit(code)
