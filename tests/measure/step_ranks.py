"""Training steps on these ranks; rank 0 prints what they did, as JSON: python step_ranks.py."""

import json

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.measure.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.prepared_step import PreparedStep
from hpccoll.schedule import Layout
from hpccoll.training.step_program import Start
from hpccoll.training.workload import TRAINING_STEP, Workload

COMM = MPI.COMM_WORLD
LAYOUT = Layout.of(COMM.size, 2)
SMALL = {"scale": 1 << 20, "compute_us": 2000}
STEPS = {
    "resnet50": {"model": "resnet50", "scale": 4096},
    "without overlap": {"model": "resnet50", "scale": 4096, "overlap": 0},
    "accumulated": {"model": "resnet50", "scale": 4096, "micro_batches": 3},
    "zero1": {"model": "resnet50", "scale": 4096, "sharding": "zero1"},
    "zero3": {"model": "dlrm", "scale": 64, "sharding": "zero3"},
    "fsdp": {"model": "gpt2", "sharding": "fsdp"},
    "fsdp without overlap": {"model": "gpt2", "sharding": "fsdp", "overlap": 0},
    "hsdp": {"model": "gpt2", "sharding": "hsdp", "parallel": "dp=4,shard=2"},
    "tensor": {"model": "gpt2", "parallel": "dp=2,tp=2"},
    "sequence": {"model": "gpt2", "parallel": "dp=1,tp=4", "sequence": 1},
    "pipeline": {"model": "gpt2", "parallel": "pp=4", "micro_batches": 5},
    "three axes of two": {"model": "gpt2", "parallel": "dp=1,tp=2,pp=2", "micro_batches": 2},
    "experts": {"model": "mixtral-8x7b", "parallel": "dp=4,ep=2", "buckets": "one"},
}
EXECUTORS = {"compiled": ExecutorOptions(oversubscribed=True), "python": None}


def prepared_step(params, algorithm="ring", executor="compiled", refused_ranks=()):
    params = Workload.of({**SMALL, **params}).params
    nbytes = Workload.of(params).gradient_bytes("float32")
    case = Case(collective=TRAINING_STEP, algorithm=algorithm, bytes=nbytes, in_place=True, params=params)

    def prepare(comm, layout, inside, _gpu):
        if COMM.rank in refused_ranks:
            raise BadInputError("algorithm", algorithm, "one that runs on these nodes")
        return PreparedCase(comm, layout, inside, settings=RunSettings(executor_options=EXECUTORS[executor]))

    return PreparedStep(COMM, LAYOUT, case, prepare)


def run(step, times=2):
    """Return the wrong elements of runs, and the times of the last one."""
    wrong = 0
    for _ in range(times):
        step.reset()
        COMM.Barrier()
        step.run()
        wrong += step.wrong()
    (events,) = step.events(1)
    return COMM.allreduce(wrong), events[events >= 0].tolist()


def outcome(params, *settings):
    step = prepared_step(params, *settings)
    wrong, events = run(step)
    found = {
        "wrong": wrong, "of_ranks": COMM.gather({"events": events, "streams": [*step.engine.streams]}),
        "executor": step.executor, "wire_bytes": step.wire_bytes, "bytes": step.bytes, "executed": step.evidence(None),
    }  # fmt: skip
    step.close()
    return found


def without_a_bucket():
    """Return the wrong elements of a step that leaves out a bucket, and of one whose buffer changes after it."""
    step = prepared_step(STEPS["resnet50"])
    whole = step.engine.instructions
    third = [number for number, each in enumerate(whole) if isinstance(each, Start)][2]
    step.engine.operations = [*step.engine.operations[:2], *step.engine.operations[3:]]
    step.engine.instructions = (*whole[:third], *whole[third + 1 :])
    left_out = run(step)[0]
    step.close()
    step = prepared_step(STEPS["resnet50"])
    step.reset()
    step.run()
    step.inside[4].dst[0] += 1
    changed = COMM.allreduce(step.wrong())
    named = step.diagnose() or ""
    step.close()
    return {"left out": left_out, "changed": changed, "named": named}


def refusal(params, **settings):
    try:
        prepared_step(params, **settings).close()
    except BadInputError as error:
        return str(error)
    return None


results = {
    "steps": {name: outcome(params) for name, params in STEPS.items()},
    "native": {name: outcome(STEPS[name], "native") for name in ("resnet50", "fsdp", "pipeline", "experts")},
    "null": outcome(STEPS["resnet50"], "null"),
    "python": outcome(STEPS["resnet50"], "ring", "python"),
    "gemm": outcome(STEPS["resnet50"] | {"compute": "gemm"}),
    "nothing": outcome(STEPS["resnet50"] | {"compute": "none"}),
    "faults": without_a_bucket(),
    "refusal": refusal({"model": "resnet50", "parallel": "dp=3"}),
    "refusals of a group": COMM.gather(refusal(STEPS["tensor"], refused_ranks=(2, 3))),
    "afterwards": outcome(STEPS["tensor"]),
}
if COMM.rank == 0:
    print(json.dumps(results))
