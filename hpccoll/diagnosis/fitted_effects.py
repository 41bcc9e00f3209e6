"""The model of the screen: log time = slot + distance + the larger effect of both nodes + noise."""

import math
from dataclasses import dataclass

import numpy as np

from hpccoll.diagnosis.robust_statistics import (
    MEDIAN_ERROR,
    QUARTILE,
    median,
    median_of_others,
    quantile,
    robust_deviation,
)
from hpccoll.diagnosis.slot_records import Floats, Integers
from hpccoll.diagnosis.transfers import Transfers

SWEEPS = 6
"""How often each term is fitted to what the others leave; effects then change by less than a tenth of their error."""


@dataclass(frozen=True, slots=True)
class FittedEffects:
    """The terms of the model, as logarithms."""

    node_effects: Floats  # [3, nodes]: the effect of each, by DIRECTIONS
    values: Floats  # [slots, nodes]: pairs without the terms of slot and distance
    residuals: Floats  # [slots, nodes]: without that of the nodes, too
    far: float  # of pairs across racks
    noise: float  # standard deviation of the residuals


def fit_effects(measured: Transfers, racks: Integers) -> FittedEffects:
    """Fit the model.

    The term of a slot is the lower quartile over its pairs, that of distance the difference of
    those across and within racks, and that of a node the lower quartile over its partners, less
    what a slower partner adds. Up to half of the nodes may be slow. With the sum of both effects in
    place of the larger, a quarter of them confuses the fit.

    Args:
        measured: the slots, in which each node has several partners.
        racks: [nodes]: the number of the rack of each node; all 0 if racks are unknown.
    """
    partners = measured.partners
    both = measured.both
    is_far = racks[partners] != racks
    slow = np.zeros(partners.shape[1])  # the effects of nodes, if positive
    far = 0.0

    def effects_of(beyond: Floats) -> Floats:
        from_slower_partner = np.maximum(slow[partners] - slow, 0)
        effects = quantile((beyond - from_slower_partner).T, QUARTILE)
        return np.nan_to_num(effects - median(effects))

    for _ in range(SWEEPS):
        left = both - slower_of(slow, partners)
        if is_far.any():
            beyond_slot = left - quantile(left)[:, None]
            across = quantile(beyond_slot[is_far], QUARTILE)
            within = quantile(beyond_slot[~is_far], QUARTILE)
            far = float(np.nan_to_num(across - within))
        distance = far * is_far
        slot_quantile = quantile(left - distance, QUARTILE)
        usual = slot_quantile[:, None] + distance
        slow = np.maximum(effects_of(both - usual), 0)
    residuals = both - usual - slower_of(slow, partners)
    middle = quantile(residuals)[:, None]
    effects_by_direction = [effects_of(direction - usual) for direction in measured.directions]
    noise = _noise(residuals, partners)
    return FittedEffects(
        node_effects=np.array(effects_by_direction),
        values=both - usual - middle,
        residuals=residuals - middle,
        far=far,
        noise=noise,
    )


def slower_of(effects: Floats, partners: Integers) -> Floats:
    """Return the larger effect of the two nodes of each pair, [slots, nodes]; 0 if both are faster than most."""
    slower = np.maximum(effects, effects[partners])
    return np.maximum(slower, 0)


def _noise(residuals: Floats, partners: Integers) -> float:
    """Return the robust deviation of pairs from others in their slots, corrected for what effects of nodes absorb."""
    slots, nodes = residuals.shape
    pairs = np.isfinite(residuals).sum() / 2
    median_variance = MEDIAN_ERROR**2 / max(pairs / slots - 1, 1)
    beyond_others = residuals - median_of_others(residuals, partners)
    freedom = max(pairs - nodes + 1, 1)
    return robust_deviation(beyond_others) * math.sqrt(pairs / freedom / (1 + median_variance))
