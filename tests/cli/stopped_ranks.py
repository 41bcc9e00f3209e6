"""``hpccoll`` diagnose or run where a rank stops or is late: stopped_ranks.py RANK WHEN COMMAND [OPTIONS].

WHEN: ``before`` MPI_Init, or ``after`` it, before its first call; or a file, which exists when the
rank goes on there: rank 0 makes it when it has named the rank.

Before MPI_Init a rank sleeps, and ends by itself in the end, because MPICH's launcher does not
always kill a process that is stopped and has never called it. After MPI_Init a signal stops the
rank, with its own timers.
"""

import os
import signal
import sys
import time
from pathlib import Path

from hpccoll.cli import diagnose, job_program
from hpccoll.host import place_facts
from hpccoll.measure import mpi_startup

RANK, WHEN, COMMAND, *ARGUMENTS = sys.argv[1:]
os.environ[mpi_startup.START_TIMEOUT_VARIABLE] = "8" if WHEN in ("before", "after") else "60"
mpi_startup.LATE_INIT_S = 1.0
place_facts.node_name = lambda: f"n{mpi_startup.launcher_rank()}"


MISSING_S = 120
"""How long a rank does not come: longer than the limit of the others, and shorter than that of the test."""


def stop(*_):
    os.kill(os.getpid(), signal.SIGSTOP)


def come_late(*_):
    while not Path(WHEN).exists():
        time.sleep(0.01)


def name_soon(*_):
    from hpccoll.measure import roll_call

    def print_and_go_on(*about):
        print_of_rank(*about)
        Path(WHEN).touch()

    roll_call.LATE_S, print_of_rank = 0.2, roll_call.print_of_rank
    roll_call.print_of_rank = print_and_go_on


if mpi_startup.launcher_rank() == int(RANK):
    if WHEN == "before":
        time.sleep(MISSING_S)
        sys.exit("the launcher did not end this rank")
    mpi_startup.check_launch = stop if WHEN == "after" else come_late
elif WHEN not in ("before", "after"):
    mpi_startup.check_launch = name_soon
sys.exit({"diagnose": diagnose.main, "run": job_program.main}[COMMAND](ARGUMENTS))
