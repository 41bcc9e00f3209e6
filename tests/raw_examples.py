"""Example raw results to write, read and report: fixed ones, and hypothesis strategies for arbitrary ones."""

from dataclasses import fields
from functools import reduce
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from hpccoll.cases.case import BACK_TO_BACK, LOOPS_OF_PROGRAMS, TIMINGS, Case, Effort, Job
from hpccoll.schedule import collective
from hpccoll.schedule.reduction import itemsize
from hpccoll.store.case_times import CaseTimes, KeptTimes
from hpccoll.store.raw_results import Attempt, Outcome, RankLocation, RawResults


def case(size=1024, **more):
    return Case(**{"collective": "all_reduce", "algorithm": "ring", "bytes": size, **more})


def job(*cases, ranks=2, **more):
    return Job(**{"name": "mpi.p2", "ranks": ranks, "effort": Effort(), "cases": cases, **more})


def attempt(number=1, ranks=2, **more):
    places = tuple(
        RankLocation(host=f"n{me}", node=me, clock=0, pid=100 + me, affinity="0-1")
        for me in range(ranks)
    )
    about = {
        "run_id": f"run-{number}", "number": number, "kind": "measured", "machine": "2 nodes", "ranks": ranks,
        "nodes": min(2, ranks), "ranks_per_node": 1, "mapping": "block", "aggregators": 0, "oversubscribed": False,
        "places": places, "ports": ("eth0", "rail2"),
        "provenance": {"mpi": {"version": "MPICH 5"}, "hosts": ["n0", "n1"]}, "created": "2026-01-05T10:00:00+00:00",
    }  # fmt: skip
    return Attempt(**{**about, **more})


def times(
    iterations=4,
    ranks=2,
    limit=1 << 22,
    *,
    one_clock=True,
    first=10**15,
    workers=None,
    number=1,
    events=False,
    has_mean=False,
):
    start = first + np.arange(iterations)[:, None] * 1000 + np.arange(ranks)
    end = start + 100 + (np.arange(iterations * ranks).reshape(iterations, ranks) * 7919) % 97
    device = end - start - 50 if events else None
    return CaseTimes.from_samples(
        start,
        end,
        one_clock=one_clock,
        limit=limit,
        workers=workers,
        round_number=number,
        device_ns=device,
        has_mean=has_mean,
    )


def moved_bytes(of, workers=2):
    """Return the bytes that a case with so many workers moves: whole elements."""
    family, size = collective(of.collective), itemsize(of.dtype)
    return family.elements(of.bytes, size, workers) * family.blocks(workers) * size


def outcome(of=None, **more):
    of = of or case()
    about = {
        "case": of, "status": "ok", "bytes": moved_bytes(of), "params": {"channels": 1}, "wrong": 0, "converged": True,
        "wire_bytes_predicted": 2048, "wire_bytes_measured": 2300, "wire_sent": (1200.0, 1100.0),
        "workers_sent_predicted": 2048, "workers_received_predicted": 2048,
        "port_sent": ((800.0, 400.0), (1100.0, 0.0)), "port_received": ((1000.0, 100.0), (1200.0, 0.0)),
        "wire_received": (1100.0, 1200.0), "counters": {"operations": 9, "tx_dropped": 0}, "executed": "ring",
        "evidence": "its schedule", "times": times(), "cpu_s": np.array([1e-6, 2e-6]),
    }  # fmt: skip
    return Outcome(**{**about, **more})


def round_outcome(number, of=None, iterations=4, *, events=False, **more):
    """Return the outcome of a case in one round."""
    return outcome(of, times=times(iterations, number=number, events=events), **more)


def skipped(of=None, reason="too large"):
    return Outcome(case=of or case(), status="skipped", reason=reason)


def raw(*outcomes, more=(), path="here.h5"):
    """Return one attempt with ``outcomes``, of a job that also has the cases ``more``."""
    of = job(*(o.case for o in outcomes), *more)
    return RawResults(path=Path(path), job=of, attempts=[(attempt(), list(outcomes))])


def comparable(value):
    """Return raw results or parts of them as nested tuples that == compares; arrays include their dtype."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind, value.shape, tuple(value.ravel().tolist())
    if isinstance(value, dict):
        return tuple(sorted((name, comparable(item)) for name, item in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(comparable, value))
    if isinstance(value, KeptTimes):
        value = value.read()
    if hasattr(value, "__dataclass_fields__"):
        return tuple(
            (field.name, comparable(getattr(value, field.name)))
            for field in fields(value)
            if field.name != "path"
        )
    return value


texts = st.text(
    st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=["Cc", "Cs"]),
    max_size=20,
)
optional_texts = st.none() | texts.filter(bool)
params = st.dictionaries(
    st.sampled_from(["channels", "window", "radix", "peer", "traffic"]),
    st.integers(1, 99) | texts.filter(str.isprintable),
    max_size=3,
)


def any_known(values):
    return any(value is not None for value in values)


ROUNDS = 9
"""The rounds of the job of arbitrary results."""


@st.composite
def outcomes(draw, of, ranks, workers):
    if draw(st.booleans()):
        return skipped(of, draw(texts.filter(bool)))
    one_clock, events = draw(st.booleans()), draw(st.booleans())
    parts = []
    for number in draw(st.lists(st.integers(1, ROUNDS), unique=True, min_size=1, max_size=3)):
        n = draw(st.integers(1, 6))
        limit, first = draw(st.sampled_from([1 << 22, n * 2, 1])), draw(st.integers(0, 2**62))
        how = {
            "one_clock": one_clock,
            "first": first,
            "workers": workers,
            "number": number,
            "events": events,
        }
        how["has_mean"] = of.timing in LOOPS_OF_PROGRAMS
        parts.append(times(n, ranks, limit, **how))
    taken = reduce(CaseTimes.merge, parts)
    cpu_s = draw(st.lists(st.floats(0, 10), min_size=ranks, max_size=ranks))
    known = st.none() | st.floats(0, 1e15)
    wire = draw(
        st.just([()]) | st.lists(st.tuples(*[known] * ranks).filter(any), min_size=1, max_size=2)
    )
    several = st.lists(st.tuples(known, known), min_size=ranks, max_size=ranks)
    ports = draw(
        st.just([])
        | several.filter(lambda nodes: any(value is not None for node in nodes for value in node))
    )
    counters = st.dictionaries(
        st.sampled_from(["operations", "tx_dropped"]), st.none() | st.integers(0, 2**63)
    )
    wrong = draw(st.none() | st.just(0) | st.integers(1, 2**40))
    per_rank = {
        name: draw(st.just(()) | st.tuples(*[st.none() | values] * ranks).filter(any_known))
        for name, values in (
            ("gpu_sm_clock", st.floats(0, 1e10)),
            ("gpu_clock_events", st.integers(0, 2**40)),
        )
    }
    return Outcome(
        case=of,
        status="wrong" if wrong else "ok",
        reason=draw(optional_texts),
        bytes=moved_bytes(of, workers),
        params=draw(params),
        wrong=wrong,
        converged=draw(st.booleans()),
        wire_bytes_predicted=draw(st.none() | st.integers(0, 2**50)),
        wire_bytes_measured=draw(st.none() | st.integers(0, 2**50)),
        wire_sent=wire[0],
        wire_received=wire[-1],
        workers_sent_predicted=draw(st.none() | st.integers(0, 2**50)),
        port_sent=tuple(ports),
        port_received=(),
        rack_bytes_predicted=draw(st.none() | st.integers(0, 2**50)),
        counters=draw(st.none() | counters),
        requested=draw(optional_texts),
        executed=draw(texts.filter(bool)),
        evidence=draw(optional_texts),
        operations=draw(st.integers(1, 99))
        if of.timing in BACK_TO_BACK
        else draw(st.sampled_from([None, 1])),
        floor=draw(st.booleans()),
        times=taken,
        cpu_s=np.array(cpu_s),
        **per_rank,
    )


@st.composite
def raw_results(draw):
    """Draw results of a job: several attempts of different shapes, with subsampled ranks and without some cases."""
    sizes = draw(st.lists(st.integers(1, 2**40), unique=True, min_size=1, max_size=5))
    choices = {
        "op": st.sampled_from(["sum", None]),
        "in_place": st.booleans(),
        "root": st.none() | st.integers(0, 9),
    }
    choices |= {
        "mapping": st.sampled_from([None, "block", "cyclic"]),
        "timing": st.sampled_from(TIMINGS),
    }
    cases = [
        case(size, params=draw(params), **draw(st.fixed_dictionaries(choices))) for size in sizes
    ]
    attempts, left = [], list(cases)
    for number in range(1, draw(st.integers(1, 3)) + 1):
        ranks = draw(st.integers(1, 5))
        done = [left.pop() for _ in range(min(len(left), draw(st.integers(1, 3))))]
        if done:
            aggregators = draw(st.integers(0, ranks - 1))
            shape = {
                "ranks_per_node": draw(st.none() | st.integers(1, 8)),
                "oversubscribed": draw(st.booleans()),
                "aggregators": aggregators,
                "evidence": draw(st.none() | st.dictionaries(texts, texts, max_size=2)),
            }
            attempts.append(
                (
                    attempt(number, ranks, **shape),
                    [draw(outcomes(of, ranks, ranks - aggregators)) for of in done],
                )
            )
    return RawResults(
        path=Path("here.h5"), job=job(*cases, effort=Effort(rounds=ROUNDS)), attempts=attempts
    )
