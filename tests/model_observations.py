"""Observations of machines that are known: what the simulation says that they take, with noise."""

from dataclasses import replace

import numpy as np

from hpccoll.model.machine import Machine, Segment, Tier
from hpccoll.model.observations import Observation
from hpccoll.model.validation import predicted_seconds
from hpccoll.schedule import COLLECTIVES, Layout

SIZES = tuple(1 << k for k in range(10, 23))
SIX_NODES = Layout.of(6, 1)
LATENCY, BYTE, FOLD = 5e-5, 8e-9, 3e-10
MACHINE = Machine(
    tiers={
        "node": Tier((Segment(latency_s=1e-6, byte_s=1e-10),)),
        "rack": Tier((Segment(latency_s=LATENCY, byte_s=BYTE),)),
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
    collective, algorithm, layout=SIX_NODES, machine=MACHINE, sizes=SIZES, noise=0.0, rounds=5, about=(), **params
):
    """Return what an algorithm takes on a machine at every size: medians of rounds with relative ``noise``."""
    draw = np.random.default_rng(layout.ranks)
    found = []
    for nbytes in sizes:
        one = observation(collective, algorithm, nbytes, 1.0, layout, about, **params)
        times = predicted_seconds(one, machine) * (1 + noise * draw.standard_normal(rounds))
        found.append(replace(one, seconds=float(np.median(times)), rounds_s=tuple(times.tolist())))
    return found
