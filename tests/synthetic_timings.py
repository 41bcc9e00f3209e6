"""Results with chosen times, and tune tables made from them."""

from functools import reduce
from pathlib import Path

import numpy as np
from raw_examples import attempt, case, job, outcome

from hpccoll.analysis.tune_table import build_table
from hpccoll.cases.case import Case, Effort
from hpccoll.common.units import parse_parameter
from hpccoll.store.case_row import make_row
from hpccoll.store.case_states import runs_of
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.job_cases import job_cases
from hpccoll.store.raw_results import RawResults
from hpccoll.store.rows import Results

KIB, MIB = 1 << 10, 1 << 20


def linear_curve(alpha, beta, sizes):
    """Return the seconds at ``sizes`` for a latency of ``alpha`` seconds and ``beta`` seconds per byte."""
    return {size: alpha + beta * size for size in sizes}


def times_around(seconds, spread=0.0, drift=(1,), iterations=20):
    """Return times with the median ``seconds`` and a relative half width ``spread``, scaled by ``drift`` per round."""
    ns = np.round(seconds * 1e9 * (1 + spread * np.linspace(-1, 1, iterations))).astype(np.int64)
    start = np.zeros((iterations, 2), np.int64)
    rounds = (
        CaseTimes.from_samples(
            start, np.repeat(ns[:, None] * factor, 2, axis=1), one_clock=True, round_number=number
        )
        for number, factor in enumerate(drift, 1)
    )
    return reduce(CaseTimes.merge, rounds)


def measured_results(curves, *, spread=0.0, number=1, about=(), drift=(1,), iterations=20, **more):
    """Return the results of one attempt at cases with chosen times.

    Args:
        curves: the seconds by size, for each algorithm with its parameters:
            ``{"ring channels=4": {1024: 1e-5}}``.
        spread: the relative half width of the times.
        number: the number of the run.
        about: fields of the attempt.
        drift: the factor of all times in each round.
        iterations: the number in each round.
        more: fields of all cases, and of all outcomes.
    """
    case_fields = {
        name: more.pop(name)
        for name in list(more)
        if name in Case.__dataclass_fields__ and name != "bytes"
    }
    outcomes = []
    for label, curve in curves.items():
        algorithm, *params = label.split()
        for size, seconds in curve.items():
            one = case(
                size,
                algorithm=algorithm,
                **{"params": dict(map(parse_parameter, params)), **case_fields},
            )
            times = times_around(seconds, spread, drift, iterations)
            outcomes.append(
                outcome(one, bytes=size, times=times, floor=algorithm == "null", **more)
            )
    launch = attempt(number, **dict(about))
    of = job(*(o.case for o in outcomes), effort=Effort(rounds=len(drift)))
    raw = RawResults(path=Path("here.h5"), job=of, attempts=[(launch, outcomes)])
    cases = job_cases(raw)
    rows = tuple(make_row(raw.job, history) for history in cases.row_histories)
    return Results(rows=rows, runs=tuple(runs_of(cases)), planned=len(rows))


def merged_results(*several):
    """Return the results of several attempts as one."""
    rows = tuple(row for results in several for row in results.rows)
    return Results(
        rows=rows, runs=tuple(run for results in several for run in results.runs), planned=len(rows)
    )


def measured_table(curves, **more):
    """Return the tune table of ``measured_results``."""
    return build_table(measured_results(curves, **more))
