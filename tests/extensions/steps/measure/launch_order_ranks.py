"""A pipeline step on the NCCL test library, with room for one kernel: launch_order_ranks.py DIRECTORY ORDER MESH ...

ORDER is ``global``, that of the step, or ``program``, in which each stage starts its operations;
MESH is a mesh, native or ring, and whether the collectives are graphs: ``tp=2,pp=2 native 0``. Rank
0 prints of each step the wrong elements, and on how many ranks an operation began before the one
ended that was launched before it; or ``deadlock``, in which ranks abort NCCL after a second.
"""

import json
import os
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

os.environ["NCCL_TEST_ORDER"] = "strict"

from mpi4py import MPI
from nccl_on_host import HostGpu
from rank_checks import run_on_all

from hpccoll.cases.case import Case
from hpccoll.common.errors import StalledError
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.measure.step_computations import BEGIN, END
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.schedule import Layout
from hpccoll.transports.nccl.communicators import abort_all_worlds, close_all_worlds
from hpccoll.transports.stream_wait import poll_until

COMM, LIMIT = MPI.COMM_WORLD, 1.0
DIRECTORY, ORDER, *STEPS = sys.argv[1:]
GPU = HostGpu(Path(DIRECTORY))


def prepare(comm, layout, inside, gpu):
    return PreparedCase(comm, layout, inside, gpu, RunSettings())


def prepared_step(mesh, algorithm, graph):
    workload = TrainingStep.of(
        {"model": "gpt2", "scale": 1 << 20, "compute_us": 500, "micro_batches": 3, "parallel": mesh}
    )
    case = Case(
        collective=TRAINING_STEP,
        algorithm=algorithm,
        bytes=workload.gradient_bytes("float32"),
        in_place=True,
        params={**workload.params, "graph": int(graph)},
        transport="nccl",
        device="cuda",
    )
    return PreparedStep(COMM, Layout.of(COMM.size), case, prepare, gpu=GPU)


def overlaps(step):
    """Whether an operation of the last run began on this rank before the one launched before it had ended."""
    (events,) = step.events(1)
    times = [events[3 * number : 3 * number + 3] for number in step.engine._order]
    return any(after[BEGIN] < before[END] for before, after in pairwise(times))


def outcome(text):
    step = prepared_step(*text.split())
    if ORDER == "program":
        step.engine._order = sorted(step.engine._order)
        step.set_wait(partial(poll_until, timeout_s=LIMIT))
    step.reset()
    COMM.Barrier()
    try:
        step.run()
    except StalledError:
        COMM.Barrier()  # all have waited for that long
        abort_all_worlds()
        return "deadlock"
    found = COMM.allreduce(step.wrong()), COMM.allreduce(overlaps(step))
    step.close()
    return found


def main():
    found = [outcome(text) for text in STEPS]
    close_all_worlds()
    if COMM.rank == 0:
        print(json.dumps(found))


run_on_all(COMM, main)
