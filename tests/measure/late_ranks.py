"""``hpccoll train`` of which a rank is late: late_ranks.py RANK LAG ARGUMENTS.

It begins each step so many microseconds late; with a lag of x1.5 all its computations (by ``wait``)
take 1.5 times as long.
"""

import sys
from dataclasses import replace

from hpccoll.cli.job_program import main
from hpccoll.extensions.steps.measure.step_engine import StepEngine

RANK, LAG, *ARGUMENTS = sys.argv[1:]
walk, end_of_computation = StepEngine.walk, StepEngine._end_of_computation


def is_late():
    from mpi4py import MPI  # it initialises MPI, which the program does itself

    return MPI.COMM_WORLD.rank == int(RANK)


def walk_late(engine):
    if is_late():
        engine._begun_ns += 1000 * int(LAG)
    walk(engine)


def end_late(engine, instruction, begin):
    factor = float(LAG[1:]) if is_late() else 1.0
    return end_of_computation(engine, replace(instruction, flops=instruction.flops * factor), begin)


if LAG.startswith("x"):
    StepEngine._end_of_computation = end_late
else:
    StepEngine.walk = walk_late
sys.exit(main(ARGUMENTS, "train"))
