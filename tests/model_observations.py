"""Observations of machines that are known: what the simulation says that they take, with noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from raw_examples import attempt, case, job, outcome
from synthetic_timings import times_around

from hpccoll.model.machine import Machine, MessageCosts, Tier
from hpccoll.model.observations import Observation
from hpccoll.model.validation import predicted_seconds
from hpccoll.schedule import COLLECTIVES, Layout
from hpccoll.store.raw_results import RawResults

SIZES = tuple(1 << k for k in range(10, 23))
SIX_NODES = Layout.of(6, 1)
LATENCY, BYTE, FOLD = 5e-5, 8e-9, 3e-10
MACHINE = Machine(
    tiers={
        "node": Tier((MessageCosts(latency_s=1e-6, byte_s=1e-10),)),
        "rack": Tier((MessageCosts(latency_s=LATENCY, byte_s=BYTE),)),
    },
    fold_s={"float32": FOLD},
)


def observation(collective, algorithm, nbytes, seconds, layout=SIX_NODES, about=(), **params):
    """Return an observation, with the fields ``about`` in addition to its parameters; native is no algorithm."""
    family = COLLECTIVES[collective]
    arguments = {name: value for name, value in params.items() if name in family.arguments}
    call, known = family.call(layout.workers, **arguments), family.algorithms.get(algorithm)
    more = {"requested": params, "op": "sum" if family.has_op else None, **dict(about)}
    used = {**(known.parameters if known else {}), **params}
    return Observation(call, known, used, nbytes, seconds, layout, **more)


def observed(
    collective,
    algorithm,
    layout=SIX_NODES,
    machine=MACHINE,
    sizes=SIZES,
    noise=0.0,
    rounds=5,
    about=(),
    **params,
):
    """Return what an algorithm takes on a machine at every size: medians of rounds with relative ``noise``."""
    draw = np.random.default_rng([layout.ranks, *algorithm.encode()])
    found = []
    for nbytes in sizes:
        one = observation(collective, algorithm, nbytes, 1.0, layout, about, **params)
        times = predicted_seconds(one, machine) * (1 + noise * draw.standard_normal(rounds))
        found.append(replace(one, seconds=float(np.median(times)), rounds_s=tuple(times.tolist())))
    return found


def raw_trips(executor="python", factor=1):
    """Return the raw results of ping-pongs by an executor, which take ``factor`` times as long."""
    outcomes = [
        outcome(
            case(
                size,
                collective="send_recv",
                algorithm="ping_pong",
                op=None,
                root=0,
                params={"peer": -1},
            ),
            bytes=size,
            executor=executor,
            params={"peer": -1},
            times=times_around(factor * (1e-6 + 1e-10 * size)),
        )
        for size in (2**k for k in range(10, 16))
    ]
    measured = job(*(one.case for one in outcomes))
    run = attempt(run_id=f"run by {executor}")
    return RawResults(path=Path(f"{executor}.h5"), job=measured, attempts=[(run, outcomes)])
