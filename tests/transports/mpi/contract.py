"""What the MPI transports owe, checked by every rank of a real MPI: mpiexec -n N python contract.py.

Every rank knows what all ranks contribute, does the operation in lockstep by itself, and holds the bits it was given
against that. It says which checks failed and ends with 1; test_mpi.py runs it.
"""

import sys
import time
import traceback

import contract_plans
import contract_schedules
import contract_vendor
from contract_schedules import COMM, ME

from hpccoll.measure.ranks import abort_job

CHECKS = [*contract_schedules.CHECKS, *contract_plans.CHECKS, *contract_vendor.CHECKS]


def main() -> None:
    for check in CHECKS:
        started = time.monotonic()
        try:
            check()
        except BaseException:  # noqa: BLE001  whatever it is, the other ranks wait for this one
            print(f"r{ME} | {check.__name__.replace('_', ' ')}\n{traceback.format_exc()}", flush=True)
            abort_job(COMM)
        COMM.Barrier()
        if ME == 0:
            print(f"{check.__name__} {time.monotonic() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
