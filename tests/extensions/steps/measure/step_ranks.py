"""Training steps on these ranks; rank 0 prints what they did, as JSON: python step_ranks.py [gpu [host DIRECTORY]].

Rank k has GPU k modulo their number. With a directory the GPU is the host: NCCL's bindings are real
(nccl_on_host.py), streams are threads, and pauses and products occupy them.
"""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI
from rank_checks import run_on_all

from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.step_program import Start
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.timing_loop import PythonLoop, RankProgress
from hpccoll.schedule import Layout
from hpccoll.transports.gpu import missing_cublas
from hpccoll.transports.nccl import communicators, nccl_errors

sys.path.append(str(Path(__file__).parents[3] / "gpu"))
from rank_gpu import flip_a_bit, gpu_of_rank, host_directory

COMM, ON_GPU, HOST = MPI.COMM_WORLD, sys.argv[1:2] == ["gpu"], host_directory(sys.argv)
LAYOUT = Layout.of(COMM.size) if ON_GPU else Layout.of(COMM.size, 2)
GPU = gpu_of_rank(COMM, HOST) if ON_GPU else None
SMALL = {"scale": 1 << 20, "compute_us": 2000}
OPTIONS = {"compiled": ExecutorOptions(oversubscribed=True), "python": None}
RESNET = {"model": "resnet50", "scale": 4096}
TENSOR = {"model": "gpt2", "parallel": "dp=2,tp=2"}
OF_EACH_PARALLELISM = {
    "resnet50": RESNET,
    "without overlap": {**RESNET, "overlap": 0},
    "accumulated": {**RESNET, "micro_batches": 3},
    "zero1": {**RESNET, "sharding": "zero1"},
    "zero3": {"model": "dlrm", "scale": 64, "sharding": "zero3"},
    "fsdp": {"model": "gpt2", "sharding": "fsdp"},
    "fsdp without overlap": {"model": "gpt2", "sharding": "fsdp", "overlap": 0},
    "hsdp": {"model": "gpt2", "sharding": "hsdp", "parallel": "dp=4,shard=2"},
    "tensor": TENSOR,
    "sequence": {"model": "gpt2", "parallel": "dp=1,tp=4", "sequence": 1},
    "pipeline": {"model": "gpt2", "parallel": "pp=4", "micro_batches": 5},
    "three axes of two": {"model": "gpt2", "parallel": "dp=1,tp=2,pp=2", "micro_batches": 2},
    "experts": {"model": "mixtral-8x7b", "parallel": "dp=4,ep=2", "buckets": "one"},
}
IN_HOST_MEMORY = {
    **{name: (params,) for name, params in OF_EACH_PARALLELISM.items()},
    **{
        f"native {name}": (OF_EACH_PARALLELISM[name], "native")
        for name in ("resnet50", "fsdp", "pipeline", "experts")
    },
    "null": (RESNET, "null"),
    "python": (RESNET, "ring", "python"),
    "gemm": ({**RESNET, "compute": "gemm"},),
    "nothing": ({**RESNET, "compute": "none"},),
}
LONG = {**RESNET, "compute_us": 200_000}
ON_TWO_GPUS = {
    "ring": (LONG,),
    "native": (LONG, "native"),
    "null": (LONG, "null"),
    "without overlap": ({**LONG, "overlap": 0}, "native"),
    "gemm": ({**LONG, "compute": "gemm", "scale": 64}, "native"),
    "tensor": ({"model": "gpt2", "parallel": "tp=2"}, "native"),
    "zero3": (OF_EACH_PARALLELISM["zero3"],),
}
ON_FOUR_GPUS = {  # two shards, and replicas of them
    "hsdp": ({"model": "dlrm", "scale": 64, "sharding": "hsdp", "parallel": "shard=2"}, "native")
}


def steps_on_gpus():
    few = COMM.size == 2
    pipelines = (
        {"pp": "pp=2"}
        if few
        else {"tp x pp": "tp=2,pp=2", "dp x pp": "dp=2,pp=2", "pp of four": "pp=4"}
    )
    return (ON_TWO_GPUS if few else ON_FOUR_GPUS) | {
        f"{name} {algorithm} graph={graph}": (
            {"model": "gpt2", "micro_batches": 2, "parallel": mesh, "graph": graph},
            algorithm,
        )
        for name, mesh in pipelines.items()
        for algorithm in ("native", "ring")
        for graph in (0, 1)
    }


def prepared_step(params, algorithm="ring", executor="compiled", refused_ranks=()):
    """Return a step of a workload; ``graph`` is a parameter of its collectives."""
    workload = TrainingStep.of(
        {**SMALL, **{name: value for name, value in params.items() if name != "graph"}}
    )
    case = Case(
        collective=TRAINING_STEP,
        algorithm=algorithm,
        bytes=workload.gradient_bytes("float32"),
        in_place=True,
        params={**workload.params, **({"graph": params["graph"]} if "graph" in params else {})},
        **({"transport": "nccl", "device": "cuda"} if ON_GPU else {}),
    )

    def prepare(comm, layout, inside, gpu):
        if COMM.rank in refused_ranks:
            raise BadInputError("algorithm", algorithm, "one that runs on these nodes")
        return PreparedCase(
            comm, layout, inside, gpu, RunSettings(executor_options=OPTIONS[executor])
        )

    return PreparedStep(COMM, LAYOUT, case, prepare, gpu=GPU)


def run(step, times=2):
    """Return the wrong elements of runs, and the times of the last one since its start on each rank."""
    wrong = 0
    for _ in range(times):
        step.reset()
        COMM.Barrier()
        step.run()
        wrong += step.wrong()
    (events,) = step.events(1)
    return COMM.allreduce(wrong), (events[events >= 0] - events[events >= 0].min()).tolist()


def outcome(params, *settings):
    step = prepared_step(params, *settings)
    wrong, events = run(step)
    streams = [each.stream for each in step.program.operations]
    starts = [each for each in step.engine.instructions if isinstance(each, Start)]
    found = {
        "wrong": wrong,
        "events": events,
        "streams": streams,
        "program": step.description()[0],
        "of_ranks": COMM.gather({"events": events, "streams": streams}),
        "executor": step.executor,
        "device_ns": step.device_ns(),
        "wire_bytes": step.wire_bytes,
        "bytes": step.bytes,
        "executed": step.evidence(None),
        "instructions": [type(each).__name__ for each in step.engine.instructions],
        "after": [
            (number, start.after) for number, start in enumerate(starts) if start.after is not None
        ],
    }
    step.close()
    return found


def without_a_bucket():
    """Return the wrong elements of a step that leaves out a bucket, and of one whose buffer changes after it."""
    step = prepared_step(RESNET)
    whole, engine = step.engine.instructions, step.engine
    third = [number for number, each in enumerate(whole) if isinstance(each, Start)][2]
    if ON_GPU:
        engine.operations[2].enqueue = lambda: None
    else:
        engine.operations = [*engine.operations[:2], *engine.operations[3:]]
        engine.instructions = (*whole[:third], *whole[third + 1 :])
    left_out, _ = run(step)
    step.close()
    step = prepared_step(RESNET)
    step.reset()
    step.run()
    dst = step.inside[4].dst
    if ON_GPU:
        flip_a_bit(GPU, dst)
    else:
        dst[0] += 1
    changed, named = COMM.allreduce(step.wrong()), step.diagnose() or ""
    step.close()
    return {"left out": left_out, "changed": changed, "named": named}


def refusal(params, **settings):
    try:
        prepared_step(params, **settings).close()
    except BadInputError as error:
        return str(error)
    return None


def refused_by_nccl():
    """Return what a rank gets if NCCL refuses a call in a group of which only the last rank is."""
    step = prepared_step(RESNET)
    try:
        with step._agreed():
            refusals = ["invalid usage" if COMM.rank == COMM.size - 1 else None]
            nccl_errors.raise_nccl_failure(refusals, "fails")
    except nccl_errors.NcclRefusedError:
        return "refused"
    finally:
        step.close()
    return "prepared"


def order_of_readings():
    """Return the order in which iterations of a timing loop read the clock and events: two readings enclose a run."""
    step = prepared_step({**RESNET, "compute": "none"}, "native")
    readings, elapsed_ns = [], GPU.elapsed_ns

    def noted(name, read):
        def read_and_note(*arguments):
            readings.append(name)
            return read(*arguments)

        return read_and_note

    GPU.elapsed_ns = noted("event", elapsed_ns)
    try:
        clock = noted("clock", time.perf_counter_ns)
        times, _ = PythonLoop(
            step, SimpleNamespace(barrier=COMM.Barrier), RankProgress(), clock
        ).run(3)
    finally:
        GPU.elapsed_ns = elapsed_ns
    events = step.events(3)
    step.close()
    return {
        "readings": readings,
        "events": len(events[0]),
        "runs": len(events),
        "inside": [bool((start <= run).all()) for start, run in zip(times[0], events, strict=True)],
    }


def main():
    steps = steps_on_gpus() if ON_GPU else IN_HOST_MEMORY
    if ON_GPU and not HOST and missing_cublas():
        steps.pop("gemm", None)
    found = {name: outcome(*each) for name, each in steps.items()}
    if not ON_GPU:
        found["refusals"] = [refusal({**RESNET, "parallel": "dp=3"})]
        found["refusals"] += COMM.gather(refusal(TENSOR, refused_ranks=(2, 3))) or []
        found["afterwards"] = outcome(TENSOR)
    elif COMM.size == 2:
        found["refusals"], found["order"] = COMM.gather(refused_by_nccl()), order_of_readings()
    if COMM.size == 2 or not ON_GPU:
        found["faults"] = without_a_bucket()
    communicators.close_all_worlds()
    if COMM.rank == 0:
        print(json.dumps(found))


run_on_all(COMM, main)
