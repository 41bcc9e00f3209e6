"""Training steps on GPUs; rank 0 prints what they did, as JSON: python gpu_step_ranks.py [DIRECTORY].

Rank k has GPU k modulo their number. With a directory, the last argument, the GPU is the host: NCCL's bindings are real
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
from hpccoll.measure.prepared_case import PreparedCase
from hpccoll.measure.prepared_step import PreparedStep
from hpccoll.measure.timing_loop import PythonLoop, RankProgress
from hpccoll.schedule import Layout
from hpccoll.training.step_program import Start
from hpccoll.training.workload import TRAINING_STEP, Workload
from hpccoll.transports.gpu import missing_cublas
from hpccoll.transports.nccl import communicators
from hpccoll.transports.nccl.communicators import NcclRefusedError, raise_nccl_failure

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from rank_gpu import gpu_of_rank

COMM = MPI.COMM_WORLD
LAYOUT = Layout.of(COMM.size)
HSDP = {"model": "dlrm", "scale": 64, "compute_us": 2000, "sharding": "hsdp", "parallel": "shard=2"}
RESNET = {"model": "resnet50", "scale": 4096, "compute_us": 200_000}
STEPS = {
    "ring": (RESNET, "ring"),
    "native": (RESNET, "native"),
    "null": (RESNET, "null"),
    "without overlap": ({**RESNET, "overlap": 0}, "native"),
    "gemm": ({**RESNET, "compute": "gemm", "scale": 64}, "native"),
    "tensor": ({"model": "gpt2", "scale": 1 << 20, "compute_us": 2000, "parallel": f"tp={COMM.size}"}, "native"),
    "zero3": ({"model": "dlrm", "scale": 64, "compute_us": 2000, "sharding": "zero3"}, "ring"),
}
PIPELINE = {"model": "gpt2", "scale": 1 << 20, "compute_us": 2000, "micro_batches": 2}
PIPELINES = {"pp": "pp=2"}
if COMM.size > 2:
    STEPS = {"hsdp": (HSDP, "native")}  # two shards, and replicas of them
    PIPELINES = {"tp x pp": "tp=2,pp=2", "dp x pp": "dp=2,pp=2", "pp of four": "pp=4"}
STEPS |= {
    f"{name} {algorithm} graph={graph}": ({**PIPELINE, "parallel": mesh, "graph": graph}, algorithm)
    for name, mesh in PIPELINES.items()
    for algorithm in ("native", "ring")
    for graph in (0, 1)
}


def prepared_step(params, algorithm, gpu):
    """Return a step of a workload; ``graph`` is a parameter of its collectives."""
    params = Workload.of(params).params | {name: params[name] for name in ("graph",) if name in params}
    case = Case(
        collective=TRAINING_STEP, algorithm=algorithm, transport="nccl", device="cuda",
        bytes=Workload.of(params).gradient_bytes("float32"), in_place=True, params=params,
    )  # fmt: skip
    return PreparedStep(
        COMM, LAYOUT, case, lambda comm, layout, inside, own: PreparedCase(comm, layout, inside, gpu=own), gpu=gpu
    )


def outcome(params, algorithm, gpu):
    """Return the wrong elements of three runs, and the times of the last one relative to its start on each rank."""
    step, wrong = prepared_step(params, algorithm, gpu), 0
    for _ in range(3):
        step.reset()
        COMM.Barrier()
        step.run()
        wrong += step.wrong()
    (events,) = step.events(1)
    events = (events[events >= 0] - events[events >= 0].min()).tolist()
    streams = [each.stream for each in step.program.operations]
    found = {
        "wrong": COMM.allreduce(wrong), "events": events, "program": step.description()[0],
        "of_ranks": COMM.gather({"events": events, "streams": streams}), "streams": streams,
        "device_ns": step.device_ns(), "executor": step.executor,
        "instructions": [type(each).__name__ for each in step.engine.instructions],
        "after": [
            (number, start.after)
            for number, start in enumerate(each for each in step.engine.instructions if isinstance(each, Start))
            if start.after is not None
        ],
    }  # fmt: skip
    step.close()
    return found


def order_of_readings(gpu):
    """Return the order in which iterations of a timing loop read the clock and events: two readings enclose a run."""
    step = prepared_step({**RESNET, "compute": "none"}, "native", gpu)
    readings, elapsed_ns = [], gpu.elapsed_ns

    def noted(name, read):
        def read_and_note(*arguments):
            readings.append(name)
            return read(*arguments)

        return read_and_note

    gpu.elapsed_ns = noted("event", elapsed_ns)
    try:
        clock = noted("clock", time.perf_counter_ns)
        times, _ = PythonLoop(step, SimpleNamespace(barrier=COMM.Barrier), RankProgress(), clock).run(3)
    finally:
        gpu.elapsed_ns = elapsed_ns
    events = step.events(3)
    step.close()
    return {
        "readings": readings, "events": len(events[0]), "runs": len(events),
        "inside": [bool((start <= run).all()) for start, run in zip(times[0], events, strict=True)],
    }  # fmt: skip


def with_a_fault(gpu):
    """Return the wrong elements of a step in which a bucket is left out, and what ranks get of a refusal on one."""
    step = prepared_step(RESNET, "ring", gpu)
    step.engine.operations[1].enqueue = lambda: None
    step.reset()
    COMM.Barrier()
    step.run()
    wrong, refused = COMM.allreduce(step.wrong()), refused_on_one_rank(step)
    step.close()
    return wrong, refused


def refused_on_one_rank(step):
    """Return what each rank gets where NCCL refuses a call in a group of which only the last rank is."""
    try:
        with step._agreed():
            raise_nccl_failure(["invalid usage" if COMM.rank == COMM.size - 1 else None], "fails")
    except NcclRefusedError:
        return COMM.gather("refused")
    return COMM.gather("prepared")


def main(gpu):
    found = {name: outcome(*each, gpu) for name, each in STEPS.items()}
    if COMM.size == 2:
        found["left out"], found["refused"] = with_a_fault(gpu)
        found["order"] = order_of_readings(gpu)
    communicators.close_all_worlds()
    if COMM.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    HOST = Path(sys.argv[-1]) if sys.argv[1:] else None
    if not HOST and missing_cublas():
        STEPS.pop("gemm", None)
    run_on_all(COMM, lambda: main(gpu_of_rank(COMM, HOST)))
