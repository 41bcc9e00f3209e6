"""The contract of the MPI transports, checked by every rank of a real MPI: mpiexec -n N python contract.py.

Every rank knows the contributions of all ranks, runs the operation in lockstep by itself, and compares the results bit
by bit. The program prints the failed checks and exits with 1; test_mpi_transport.py runs it.
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
