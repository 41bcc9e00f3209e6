"""Shared uplinks: whether pairs at once slow one another, and slots with few of them at once."""

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.fitted_effects import FittedEffects
from hpccoll.diagnosis.matchings import random_matchings
from hpccoll.diagnosis.robust_statistics import robust_deviation
from hpccoll.diagnosis.slot_records import Booleans, Floats, Procedure, Result, Slots
from hpccoll.diagnosis.transfers import measure_transfers

PARTS = 8
"""The slots into which a slot is divided."""

MATCHINGS = 3
"""What is measured in parts."""

LEAST_SCATTER = 0.1
"""The robust deviation, as a logarithm, from which on pairs are contended, if it is SCATTER times the usual one."""

SCATTER = 2
"""The scatter of contended pairs over that of others, at least: two flows on one uplink take twice as long."""


def is_contended(cluster: Cluster, fit: FittedEffects, far: Booleans) -> Procedure[bool]:
    """Return whether pairs at once scatter more than others: those across known racks, or than a matching in parts.

    If all of them are equally slower at once, that does not matter. The parts are measured if pairs
    scatter much.
    """
    if cluster.has_level_rounds:
        at_once, usual = fit.residuals[far], fit.residuals[~far]
    elif fit.noise < LEAST_SCATTER or cluster.nodes < 2 * PARTS:
        return False
    else:
        matching = measure_transfers(
            random_matchings(cluster.nodes, MATCHINGS, cluster.rng), "contention"
        )
        in_parts = yield from divided(matching, cluster.rng)
        at_once, usual = fit.residuals, in_parts.both
    return robust_deviation(at_once) > max(LEAST_SCATTER, SCATTER * robust_deviation(usual))


def divided(procedure: Procedure[Result], rng: np.random.Generator) -> Procedure[Result]:
    """Run a procedure with each of its slots in PARTS slots, which have a random part of its pairs each."""
    try:
        slots = next(procedure)
        while True:
            times = yield from _in_parts(slots, rng)
            slots = procedure.send(times)
    except StopIteration as end:
        result: Result = end.value
        return result


def _in_parts(requested: Slots, rng: np.random.Generator) -> Procedure[Floats]:
    partners = requested.partners
    slots, nodes = partners.shape
    lower = np.minimum(np.arange(nodes), partners)  # the name of a pair
    parts = rng.integers(PARTS, size=partners.shape)
    part = np.take_along_axis(parts, lower, 1)
    is_chosen = part == np.arange(PARTS)[:, None, None]  # [parts, slots, nodes]
    by_part = np.where(is_chosen, partners, np.arange(nodes))
    few_pairs = by_part.swapaxes(0, 1).reshape(slots * PARTS, nodes)
    times = yield Slots(few_pairs, requested.purpose)
    times_by_part = times.reshape(slots, PARTS, nodes).swapaxes(0, 1)
    chosen = np.take_along_axis(times_by_part, part[None], 0)
    return np.asarray(chosen[0])
