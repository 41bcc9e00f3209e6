"""Trains digits on these ranks as if they were on two nodes; rank 0 prints JSON: digits_ranks.py STEPS CASE...

A case is ALGORITHM, or ALGORITHM,COMPRESSION,FACTOR: on all ranks alike the means are those times
the factor.
"""

import json
import sys
from functools import partial

import numpy as np
from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.schedule import Layout

COMM, (STEPS, *CASES) = MPI.COMM_WORLD, sys.argv[1:]


def scale(gradients, factor):
    for each in gradients:
        np.multiply(each, factor, out=each)


found = {}
for name in CASES:
    algorithm, compress, factor = name.split(",") if "," in name else (name, "none", "1")
    workload = TrainingStep.of({"model": "digits", "compress": compress})
    case = Case(
        collective=TRAINING_STEP,
        algorithm=algorithm,
        bytes=workload.gradient_bytes("float32"),
        in_place=True,
        params=workload.params,
        op="sum",
    )
    step = PreparedStep(COMM, Layout.of(COMM.size, COMM.size // 2), case, PreparedCase)
    replica, progress = step.training.replica, RankProgress()
    replica.corrupt = partial(scale, replica.gradients, np.float32(factor))
    for _ in range(int(STEPS)):
        step.reset()
        step.run()
        step.wrong()
    learned = step.training.collect(Ranks(COMM), int(STEPS), str, progress)
    beats = COMM.allreduce(progress.heartbeats, MPI.MIN)
    found[name] = {
        "wrong": learned.wrong,
        "reasons": learned.reasons,
        "beats": beats,
        **learned.results,
    }
    step.close()
if COMM.rank == 0:
    print(json.dumps(found))
