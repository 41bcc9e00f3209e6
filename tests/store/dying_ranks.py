"""``hpccoll run`` whose rank 1 kills itself in an operation: python dying_ranks.py ROUND ARGUMENTS_OF_RUN.

ROUND counts the rounds of all cases of the launch from 1; with 0 rank 1 survives.
"""

import os
import signal
import sys
from itertools import count

import mpi4py

# hpccoll starts MPI, and mpi4py ends it: mpiexec kills the other ranks once one exits without
# MPI_Finalize.
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
from hpccoll.cli.job_program import main  # noqa: E402
from hpccoll.measure.run import attempt_runner  # noqa: E402

ROUND, *ARGUMENTS = sys.argv[1:]
measure, rounds = attempt_runner.measure, count(1)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def measure_and_die(prepared, *arguments, **more):
    if next(rounds) == int(ROUND) and os.environ["PMI_RANK"] == "1":
        prepared.run = die
    return measure(prepared, *arguments, **more)


attempt_runner.measure = measure_and_die
sys.exit(main(ARGUMENTS))
