"""Training steps with compressed gradients on these ranks; rank 0 prints what they did, as JSON."""

import json
from itertools import product

import numpy as np
from mpi4py import MPI
from rank_checks import run_on_all

from hpccoll.cases.case import Case
from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.schedule import Layout

COMM = MPI.COMM_WORLD
LAYOUT = Layout.of(COMM.size)
COMPRESSIONS = "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "topk=1%"


def prepared_step(algorithm="ring", executor="compiled", **keys):
    workload = TrainingStep.of({"model": "resnet50", "scale": 4096, "compute_us": 2000, **keys})
    size = workload.gradient_bytes("float32")
    case = Case(
        collective=TRAINING_STEP,
        algorithm=algorithm,
        bytes=size,
        in_place=True,
        params=workload.params,
    )
    options = ExecutorOptions(oversubscribed=True) if executor == "compiled" else None

    def prepare(comm, layout, inside, gpu):
        return PreparedCase(comm, layout, inside, gpu, RunSettings(executor_options=options))

    return PreparedStep(COMM, LAYOUT, case, prepare)


def outcome(step, times=2):
    """Return the wrong elements of runs, and what the step tells of itself."""
    wrong = 0
    for _ in range(times):
        step.reset()
        COMM.Barrier()
        step.run()
        wrong += step.wrong()
    alike = len({*COMM.allgather(b"".join(each.gradient.tobytes() for each in step.buckets))})
    (events,) = step.events(1)
    found = {
        "wrong": COMM.allreduce(wrong),
        "copies": alike,
        "diagnosis": step.diagnose(),
        "executor": step.executor,
        "wire_bytes": step.wire_bytes,
        "program": step.description()[0],
        "since": (events - events[events >= 0].min()).tolist(),
        "codecs": all(each.codec for each in step.buckets),
    }
    step.close()
    return found


def corrupted(compress):
    """Return the wrong elements if rank 0 changes one mean, or one element of a message before it is decoded."""
    found = []
    step = prepared_step(compress=compress)
    step.reset()
    step.run()
    if COMM.rank == 0:
        step.buckets[1].gradient[7] += 0.25
    found.append((COMM.allreduce(step.wrong()), step.diagnose()))
    step.reset()
    step.buckets[0].codec.average = lambda: None  # a rank that does not divide
    step.run()
    found.append((COMM.allreduce(step.wrong()), step.diagnose()))
    step.close()
    return found


def learned():
    """Return the largest error of a mean over 40 steps of constant gradients, without and with feedback."""
    errors = []
    for feedback in (0, 1):
        step = prepared_step("native", compress="topk=5%", feedback=feedback, buckets="one")
        bucket = step.buckets[0]
        gradient = np.random.default_rng(COMM.rank).random(len(bucket.gradient), np.float32)
        mean, total = COMM.allreduce(gradient) / COMM.size, np.zeros_like(gradient)
        for _ in range(200):
            bucket.gradient[:] = gradient
            COMM.Barrier()
            step.run()
            total += bucket.gradient
        errors.append(float(np.abs(total / 200 - mean).mean()))
        step.close()
    return errors


def dense():
    """Return the gradients that ranks have written, summed by a dense step, and whether nothing else is checked."""
    step = prepared_step("ring")
    for each in step.buckets:
        each.fill_by_caller()
    step.reset()
    for each in step.buckets:
        each.gradient[:] = COMM.rank + 1
    COMM.Barrier()
    step.run()
    sums = {float(value) for each in step.buckets for value in np.unique(each.gradient)}
    found = {
        "sums": sorted(sums),
        "wrong": step.wrong(),
        "elements": sum(len(each.gradient) for each in step.buckets),
    }
    step.close()
    return found


def main():
    found = {
        f"{compress} {algorithm} {feedback}": outcome(
            prepared_step(algorithm, compress=compress, feedback=feedback)
        )
        for compress, algorithm, feedback in product(COMPRESSIONS, ("ring", "native"), (0, 1))
        if (compress, algorithm) != ("bf16", "native")  # MPI has no datatype for it
    }
    found |= {
        "python": outcome(prepared_step("ring", "python", compress="fp8_e4m3")),
        "gemm": outcome(prepared_step(compress="topk=1%", compute="gemm")),
        "late": outcome(prepared_step(compress="fp16", overlap=0)),
        "null": outcome(prepared_step("null", compress="fp8_e5m2")),
        "corrupted": {compress: corrupted(compress) for compress in COMPRESSIONS},
        "learned": learned(),
        "dense": dense(),
    }
    if COMM.rank == 0:
        print(json.dumps(found))


run_on_all(COMM, main)
