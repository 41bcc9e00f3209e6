"""Results with the times that a test wants, and tables of them."""

from functools import reduce
from pathlib import Path

import numpy as np
from raw_examples import attempt, case, job, outcome

from hpccoll.spec.case import Case, Effort
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.load import _run
from hpccoll.store.raw import RawResults
from hpccoll.store.rows import Results
from hpccoll.store.statistics import make_row
from hpccoll.tuning.build_table import build_table
from hpccoll.units import parse_parameter

KIB, MIB = 1 << 10, 1 << 20


def lines(alpha, beta, sizes):
    """Return the seconds at ``sizes`` of a start-up ``alpha`` and ``beta`` seconds a byte."""
    return {size: alpha + beta * size for size in sizes}


def taking(seconds, spread=0.0, drift=(1,), iterations=20):
    """Return times whose median is ``seconds``, half of them below and half above by ``spread``, times each drift."""
    ns = np.round(seconds * 1e9 * (1 + spread * np.linspace(-1, 1, iterations))).astype(np.int64)
    start = np.zeros((iterations, 2), np.int64)
    rounds = (
        CaseTimes.of(start, np.repeat(ns[:, None] * times, 2, axis=1), one_clock=True, round_number=number)
        for number, times in enumerate(drift, 1)
    )
    return reduce(CaseTimes.merge, rounds)


def measured(curves, *, spread=0.0, number=1, about=(), drift=(1,), **more):
    """Return results of one attempt at cases that took what ``curves`` say: {words: {size: seconds}}.

    Args:
        curves: by the algorithm and its parameters, such as ``ring channels=4``.
        spread: how far times are from their median.
        number: of the run.
        about: what is to be said of all rows' attempt.
        drift: how many times as long everything took in each of the rounds.
        more: of all outcomes, or of all cases: what is a field of one.
    """
    of_case = {name: more.pop(name) for name in list(more) if name in Case.__dataclass_fields__ and name != "bytes"}
    outcomes = []
    for words, curve in curves.items():
        algorithm, *params = words.split()
        for size, seconds in curve.items():
            of = case(size, algorithm=algorithm, **{"params": dict(map(parse_parameter, params)), **of_case})
            about_it = {"bytes": size, "times": taking(seconds, spread, drift), "floor": algorithm == "null", **more}
            outcomes.append(outcome(of, **about_it))
    launch = attempt(number, **dict(about))
    of = job(*(o.case for o in outcomes), effort=Effort(rounds=len(drift)))
    raw = RawResults(path=Path("here.h5"), job=of, attempts=[(launch, outcomes)])
    rows = tuple(make_row(raw.job, launch, each) for each in outcomes)
    return Results(rows=rows, runs=(_run(raw, launch),), planned=len(rows))


def both(*several):
    """Return the results of all."""
    rows = tuple(row for results in several for row in results.rows)
    return Results(rows=rows, runs=tuple(run for results in several for run in results.runs), planned=len(rows))


def table(curves, **more):
    """Return the table of such results."""
    return build_table(measured(curves, **more))


def chosen(made):
    """Return what a table of one setting takes from which size on: [(first, words)]."""
    (entry,) = made.entries
    return [(r.first, r.choice.label) for r in entry.ranges]
