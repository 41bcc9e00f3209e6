"""Hand-made results of training steps: a timeline of round numbers, for each algorithm by what communication takes."""

import json
from functools import reduce
from itertools import pairwise
from pathlib import Path

import numpy as np
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.load_results import to_results
from hpccoll.store.raw_results import Outcome, RawResults
from hpccoll.store.result_files import ResultFiles

FORWARD_MS, BACKWARD_MS = 10, 20
"""The computation of a micro-batch, as of a workload with ``compute_us=30000``."""

BUCKETS = (4000, 16_000, 8000)
"""Bytes of the buckets, in the order of their collectives."""


def step_case(algorithm="ring", **workload):
    params = {"model": "resnet50", "compute_us": 30_000, **workload}
    return raw_examples.case(
        sum(BUCKETS), collective="training_step", algorithm=algorithm, in_place=True, params=params
    )


def stage(buckets=BUCKETS, phases=("forward", "backward", "backward", "backward"), products=None):
    """Return a stage as the program of a raw file has it: an all-reduce of each bucket, and computations."""
    operations = [
        {
            "label": f"bucket {number}",
            "collective": "all_reduce",
            "axis": "dp",
            "bytes": size,
            "phase": "backward",
        }
        for number, size in enumerate(buckets, 1)
    ]
    computations = [{"phase": phase} for phase in phases]
    for computation, number in zip(computations, products or (), strict=bool(products)):
        computation["products"] = [[1024, number]] if number else []
    return [*operations, *computations]


CHAIN = (("encode", "codec", 16_000), ("", "all_reduce", 8000), ("decode", "codec", 16_000))
"""The operations of a bucket in fp16, with the bytes of each."""


def compressed_step(
    codec_ms, wire_ms, *, ready_ms=30, path="compressed.h5", attempt=(), **workload
):
    """Return the raw results of a step whose one bucket is compressed: two codecs, and the all-reduce between them."""
    operations = [
        {
            "label": f"bucket 1 {work}".strip(),
            "collective": name,
            "axis": "dp",
            "bytes": size,
            "phase": "backward",
        }
        for work, name, size in CHAIN
    ]
    program = [[*operations, {"phase": "forward"}, {"phase": "backward"}]]
    ends = [
        ready_ms + after for after in (0, codec_ms / 2, codec_ms / 2 + wire_ms, codec_ms + wire_ms)
    ]
    events = [
        *(moment for begin, end in pairwise(ends) for moment in (ready_ms, begin, end)),
        0,
        10,
        10,
        30,
    ]
    results = {
        name: workload.pop(name) for name in ("overflowed", "not_finite") if name in workload
    }
    case = step_case(**{"compress": "fp16", **workload})
    raw = steps({"ring": 12}, path=path, run_id=path, **dict(attempt))
    raw.attempts[0] = (
        raw.attempts[0][0],
        [step_outcome(case, step_times([events] * 2), program, **results)],
    )
    raw.job = raw_examples.job(case, ranks=2, effort=raw.job.effort)
    return raw


def timeline_ms(communication_ms, *, overlap=True, buckets=BUCKETS):
    """Return the events of a rank in milliseconds: all buckets take as long, and end the backward pass in turn."""
    part = BACKWARD_MS / len(buckets)
    computed = [
        (0, FORWARD_MS),
        *((FORWARD_MS + n * part, FORWARD_MS + (n + 1) * part) for n in range(len(buckets))),
    ]
    last, operations = 0.0, []
    for number in range(len(buckets)):
        ready = computed[number + 1][1] if overlap else FORWARD_MS + BACKWARD_MS
        begin = max(ready, last)
        last = begin + communication_ms / len(buckets)
        operations.append((ready, begin, last))
    return [
        *(moment for each in operations for moment in each),
        *(moment for each in computed for moment in each),
    ]


def step_times(events_ms, end_ms=None, *, iterations=6, number=1, start_ns=10**15):
    """Return the times of a step, the same in all iterations."""
    end_ms = [max(events) for events in events_ms] if end_ms is None else end_ms
    longest = max(map(len, events_ms))
    start = start_ns + np.arange(iterations)[:, None] * 10**9 + np.zeros(len(events_ms), np.int64)
    padded = (
        np.array([[*events, *[np.nan] * (longest - len(events))] for events in events_ms]) * 1e6
    )
    since = np.nan_to_num(padded, nan=-1).astype(np.int64)
    events = np.where(np.isnan(padded), -1, start[:, :, None] + since)
    end = start + (np.array(end_ms) * 1e6).astype(np.int64)
    return CaseTimes.from_samples(start, end, one_clock=True, event_ns=events, round_number=number)


def step_outcome(of, times, program=None, **more):
    about = {
        "case": of,
        "status": "ok",
        "bytes": of.bytes,
        "params": dict(of.params),
        "wrong": 0,
        "converged": True,
        "executed": of.algorithm,
        "evidence": "its schedule",
        "floor": of.algorithm == "null",
        "times": times,
        "program": json.dumps(program or [stage()]),
        "cpu_s": np.full(times.start_ns.shape[1], 1e-3),
    }
    return Outcome(**{**about, **more})


def steps(
    milliseconds,
    workloads=({},),
    *,
    ranks=2,
    path="here.h5",
    rounds=1,
    products=None,
    iterations=6,
    **attempt,
):
    """Return the raw results of steps of each workload by each algorithm."""
    outcomes = []
    for workload in workloads:
        for algorithm, takes in milliseconds.items():
            events = [timeline_ms(takes, overlap=bool(workload.get("overlap", 1)))] * ranks
            parts = [
                step_outcome(
                    step_case(algorithm, **workload),
                    step_times(events, number=number, iterations=iterations),
                    [stage(products=products)],
                )
                for number in range(1, rounds + 1)
            ]
            outcomes.append(reduce(Outcome.merge, parts))
    job = raw_examples.job(
        *(each.case for each in outcomes), ranks=ranks, effort=Effort(rounds=rounds)
    )
    of = raw_examples.attempt(ranks=ranks, **{"nodes": ranks, **attempt})
    return RawResults(path=Path(path), job=job, attempts=[(of, outcomes)])


def step_rows(*raw_results):
    """Return the rows of raw results by algorithm."""
    return {
        row.algorithm: row for row in to_results(ResultFiles(raw_results=list(raw_results))).rows
    }
