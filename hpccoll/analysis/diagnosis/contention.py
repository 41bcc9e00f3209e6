"""Shared uplinks: whether pairs at once slow one another, and slots with few of them at once."""

import numpy as np

from hpccoll.analysis.diagnosis.cluster import Cluster
from hpccoll.analysis.diagnosis.fitted_effects import FittedEffects
from hpccoll.analysis.diagnosis.matchings import random_matchings
from hpccoll.analysis.diagnosis.records import Booleans, Floats, Integers, Procedure, Result, Slots
from hpccoll.analysis.diagnosis.robust_statistics import robust_deviation
from hpccoll.analysis.diagnosis.transfers import measure_transfers

PARTS = 8
"""The slots into which a slot is divided."""

LEAST_SCATTER = 0.1
"""The robust deviation, as a logarithm, from which on pairs are contended, if it is SCATTER times the usual one."""

SCATTER = 2
"""The scatter of contended pairs over that of others, at least: two flows on one uplink take twice as long."""


def find_contention(cluster: Cluster) -> Procedure[bool]:
    """Measure one matching at once, and in parts, and return whether pairs scatter more at once.

    If all of them are equally slower at once, that is no obstacle.
    """
    partners = random_matchings(cluster.nodes, 1, cluster.rng)
    at_once = yield from measure_transfers(partners, "contention")
    in_parts = yield from divided(measure_transfers(partners, "contention"), cluster.rng)
    return _is_contended(at_once.both, in_parts.both)


def is_contended(fit: FittedEffects, far: Booleans) -> bool:
    """Return whether pairs across racks scatter more than others, because several flows are on the same uplinks."""
    return _is_contended(fit.residuals[far], fit.residuals[~far])


def _is_contended(together: Floats, otherwise: Floats) -> bool:
    return robust_deviation(together) > max(LEAST_SCATTER, SCATTER * robust_deviation(otherwise))


def divided(procedure: Procedure[Result], rng: np.random.Generator) -> Procedure[Result]:
    """Run a procedure with each of its slots in PARTS slots, each of which has a random part of its pairs."""
    try:
        asked = next(procedure)
        while True:
            times = yield from _in_parts(asked, rng)
            asked = procedure.send(times)
    except StopIteration as end:
        result: Result = end.value
        return result


def _in_parts(asked: Slots, rng: np.random.Generator) -> Procedure[Floats]:
    partners = asked.partners
    slots, nodes = partners.shape
    lower = np.minimum(np.arange(nodes), partners)  # the name of a pair
    part: Integers = np.take_along_axis(rng.integers(PARTS, size=partners.shape), lower, 1)
    chosen = part == np.arange(PARTS)[:, None, None]  # [parts, slots, nodes]
    few = np.where(chosen, partners, np.arange(nodes)).swapaxes(0, 1).reshape(slots * PARTS, nodes)
    times = yield Slots(few, asked.purpose)
    by_part = times.reshape(slots, PARTS, nodes).swapaxes(0, 1)
    return np.asarray(np.take_along_axis(by_part, part[None], 0)[0])
