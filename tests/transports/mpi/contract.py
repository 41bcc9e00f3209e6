"""The contract of the MPI transports, checked by every rank of a real MPI: mpiexec -n N python contract.py.

Every rank knows the contributions of all ranks, runs the operation in lockstep by itself, and
compares the results bit by bit. The program prints the failed checks and exits with 1;
test_mpi_transport.py runs it.
"""

import contract_plans
import contract_schedules
import contract_vendor
from rank_checks import run_checks

CHECKS = [*contract_schedules.CHECKS, *contract_plans.CHECKS, *contract_vendor.CHECKS]

if __name__ == "__main__":
    run_checks(contract_schedules.COMM, CHECKS)
