"""``hpccoll run`` with something wrong on purpose: python faulty_ranks.py FAULT ARGUMENTS OF RUN."""

import os
import sys
import time
from itertools import count, islice

from hpccoll.algorithms.ring import ring
from hpccoll.measure import maker
from hpccoll.run import main
from hpccoll.schedule import all_reduce
from hpccoll.transports.mpi import MpiPlan

FAULT, *ARGUMENTS = sys.argv[1:]
CALLS = 12
"""Operations that go well."""

run_one = MpiPlan._run_one
calls = count(1)


def run_wrong(self):
    from mpi4py import MPI

    if next(calls) > CALLS and MPI.COMM_WORLD.rank == 1:
        if FAULT == "sleeps":
            time.sleep(1000)
        elif FAULT == "raises":
            raise RuntimeError("the moon is in the wrong house")
    run_one(self)


@all_reduce("short")
def short(layout, me):
    """The ring without its last step."""
    yield from islice(ring.schedule(layout).steps(me), 2 * layout.workers - 3)


@all_reduce("unpaired")
def unpaired(layout, me):
    """A ring of which rank 1 does nothing."""
    if me != 1:
        yield from ring.schedule(layout).steps(me)


MpiPlan._run_one = run_wrong
if FAULT == "no-memory":
    maker.available_memory = lambda: 10_000
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
