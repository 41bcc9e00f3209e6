"""Trains digits on these ranks as if they were on two nodes; rank 0 prints JSON: digits_ranks.py STEPS ALGORITHM..."""

import json
import sys

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.measure.prepared_case import PreparedCase
from hpccoll.measure.prepared_step import PreparedStep
from hpccoll.measure.ranks import Ranks
from hpccoll.schedule import Layout
from hpccoll.training.workload import TRAINING_STEP, Workload

COMM, (STEPS, *ALGORITHMS) = MPI.COMM_WORLD, sys.argv[1:]
PARAMS = Workload.of({"model": "digits"})
found = {}
for algorithm in ALGORITHMS:
    case = Case(
        collective=TRAINING_STEP, algorithm=algorithm, bytes=PARAMS.gradient_bytes("float32"), in_place=True,
        params=PARAMS.params, op="sum",
    )  # fmt: skip
    step = PreparedStep(COMM, Layout.of(COMM.size, COMM.size // 2), case, PreparedCase)
    for _ in range(int(STEPS)):
        step.reset()
        step.run()
        step.wrong()
    learned = step.training.collect(Ranks(COMM), int(STEPS), str)
    found[algorithm] = {"wrong": learned.wrong, **learned.results}
    step.close()
if COMM.rank == 0:
    print(json.dumps(found))
