"""``hpccoll run`` of which rank 1 is killed in an operation: python dying_ranks.py ROUND ARGUMENTS OF RUN.

ROUND is that of a case in which it dies, counted from 1 over all cases of the launch; 0 where it does not.
"""

import os
import signal
import sys
from itertools import count

import mpi4py

mpi4py.rc.initialize = False  # hpccoll starts MPI
from hpccoll.measure import attempt_runner  # noqa: E402
from hpccoll.run import main  # noqa: E402

ROUND, *ARGUMENTS = sys.argv[1:]
measure, rounds = attempt_runner.measure, count(1)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def measure_and_die(subject, *about):
    if next(rounds) == int(ROUND) and os.environ["PMI_RANK"] == "1":
        subject.run = die
    return measure(subject, *about)


attempt_runner.measure = measure_and_die
sys.exit(main(ARGUMENTS))
