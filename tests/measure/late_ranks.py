"""``hpccoll train`` of which a rank is late: late_ranks.py RANK MICROSECONDS ARGUMENTS; it begins each step so late."""

import sys

from hpccoll.cli.job_program import main
from hpccoll.measure.step_engine import StepEngine

RANK, LAG_US, *ARGUMENTS = sys.argv[1:]
walk = StepEngine.walk


def walk_late(engine):
    from mpi4py import MPI  # it initialises MPI, which the program does itself

    if MPI.COMM_WORLD.rank == int(RANK):
        engine._begun_ns += 1000 * int(LAG_US)
    walk(engine)


StepEngine.walk = walk_late
sys.exit(main(ARGUMENTS, "train"))
