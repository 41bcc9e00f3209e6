"""``hpccoll run`` where a rank is stuck, and is waited for four seconds just then.

It is rank 1 WHEN it ``starts`` or ``ends``, and rank 0 as it ``writes`` the results.

On a busy machine these may be over before rank 0 has met its launcher, who waits for rank 1 then:
it ends when it is alone.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from hpccoll.cli.job_program import main
from hpccoll.measure import mpi_startup


def stuck():
    """Return when no other rank is left of those that the launcher has started here, rank 0 before this one."""
    while any(
        _lives(pid)
        for pid in Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    ):
        time.sleep(0.1)


def _lives(pid):
    with suppress(OSError):  # it has ended, and was waited for
        return (
            int(pid) != os.getpid()
            and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
        )
    return False


WHEN, *ARGUMENTS = sys.argv[1:]
mine = os.environ["PMI_RANK"] == "1"
if WHEN == "starts":
    os.environ[mpi_startup.START_TIMEOUT_VARIABLE] = "4"
    if mine:
        stuck()
        sys.exit()
if WHEN == "writes":
    from hpccoll.measure.run.job_runner import JobRunner

    measured = JobRunner._run_attempts

    def measured_and_late(program, *about):
        fine = measured(program, *about)
        os.environ[mpi_startup.START_TIMEOUT_VARIABLE] = "4"
        type(program.results).finish = lambda *_: stuck()
        return fine

    JobRunner._run_attempts = measured_and_late
code = main(ARGUMENTS)
os.environ[mpi_startup.START_TIMEOUT_VARIABLE] = "4"
if mine:
    stuck()
sys.exit(code)
