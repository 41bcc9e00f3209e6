"""Slow racks and uplinks: pairs within a rack and across, beside those of healthy racks."""

import math
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.fitted_effects import FittedEffects
from hpccoll.diagnosis.matchings import ACROSS, consecutive_pairs, pair_up
from hpccoll.diagnosis.records import (
    Booleans,
    Component,
    Fault,
    Floats,
    Integers,
    JudgedEffect,
    Kind,
    Procedure,
)
from hpccoll.diagnosis.robust_statistics import median, quantile, robust_deviation
from hpccoll.diagnosis.significance import LEAST_EFFECT, RACKS, SlownessTest, judged_effect
from hpccoll.diagnosis.transfers import Transfers, measure_transfers

SLOTS = 12
"""The slots of the test of suspected racks, in each of which several pairs of a rack transfer across."""

LOW = 0.1
"""The quantile that stands for the pairs of a rack. The few flows that are on one uplink by chance slow one another, in
most slots of some diagnoses: a lower quartile then accuses 1 % of healthy machines."""

LOW_ERROR = 1.709
"""The standard error of that quantile of normal values over that of their mean."""

SUSPECTED = 3
"""The standard errors from which on a rack is tested."""


@dataclass(frozen=True, slots=True)
class RackFaults:
    """Faulty racks, and what they and distance add to the logarithms of times."""

    faults: tuple[Fault, ...]
    effects: tuple[JudgedEffect, ...]  # of all racks in the screen, and of those that were tested
    racks: Integers  # [nodes]: the rack of each
    far: float  # to a transfer to another rack
    across: Floats  # [racks]: to one to or from a faulty rack; 0 for healthy racks
    inside: Floats  # [racks]: to one within

    def added(self, partners: Integers) -> Floats:
        """Return what is added to transfers [slots, nodes]."""
        here, there = self.racks, self.racks[partners]
        far = self.far + np.maximum(self.across[here], self.across[there])
        return np.where(here != there, far, self.inside[here])

    @property
    def nodes(self) -> Booleans:
        """Which nodes [nodes] are in a faulty rack."""
        return np.asarray(self.across[self.racks] > 0)


def find_rack_faults(cluster: Cluster, fit: FittedEffects, screen: Transfers) -> Procedure[RackFaults]:
    """Measure the racks whose pairs across are slow in the screen, at most a third of all, and judge them.

    A rack is slow if its pairs within are slow by more than half as much as those across; otherwise its uplink is.
    """
    count = cluster.racks.max() + 1
    across, inside, faults = np.zeros(count), np.zeros(count), []
    suspects, screened_error, judged = _suspects(cluster, fit, screen)
    if suspects.size:
        measured = yield from measure_transfers(_half_across(cluster, suspects), "racks")
        measured = measured.less(fit.far * cluster.is_far(measured.partners))
        test = SlownessTest(RACKS / cluster.rails, 2 * count)
        slow_across, slow_inside = _low_quantiles(cluster, measured, suspects)
        far = cluster.is_far(measured.partners)
        scatter = robust_deviation(np.delete(slow_across, suspects))
        for rack in suspects.tolist():
            pairs = far[:, cluster.racks == rack].sum()
            of_noise = LOW_ERROR * fit.noise / math.sqrt(max(pairs, 1))
            error = math.hypot(screened_error, max(of_noise, scatter))
            uplink, threshold = Component("uplink", (int(cluster.rack_names[rack]),)), test.threshold(error)
            judged.append(judged_effect(uplink, "racks", slow_across[rack], error, threshold))
            if slow_across[rack] > threshold:
                across[rack], inside[rack] = slow_across[rack], np.nan_to_num(slow_inside[rack])
                kind: Kind = "rack" if inside[rack] > across[rack] / 2 else "uplink"
                faults.append(test.fault(replace(uplink, kind=kind), across[rack], error))
    return RackFaults(tuple(faults), tuple(judged), cluster.racks, fit.far, across, inside)


def _suspects(cluster: Cluster, fit: FittedEffects, screen: Transfers) -> tuple[Integers, float, list[JudgedEffect]]:
    """Return racks whose pairs across are slow, the slowest first, the standard error of effects, and all of these."""
    judged = cluster.judged_racks
    if not judged.size:
        return judged, 0.0, []
    far = cluster.is_far(screen.partners)
    across = np.where(far, fit.values, np.nan)
    effects = np.array([quantile(across[:, cluster.racks == rack].ravel(), LOW) for rack in judged])
    effects = np.nan_to_num(effects - median(effects))
    size = np.bincount(cluster.racks)[judged].min()
    pairs = far[:, np.isin(cluster.racks, judged)].sum() / len(judged)
    of_noise, of_nodes = fit.noise / math.sqrt(max(pairs, 1)), robust_deviation(fit.of_nodes[0]) / math.sqrt(size)
    error = LOW_ERROR * max(of_noise, of_nodes)
    slowest, least = np.argsort(-effects)[: len(judged) // 3], max(LEAST_EFFECT / 2, SUSPECTED * error)
    named = zip(cluster.rack_names[judged].tolist(), effects, strict=True)
    screened = [judged_effect(Component("uplink", (name,)), "screen", effect, error, least) for name, effect in named]
    return judged[slowest[effects[slowest] > least]], error, screened


def _half_across(cluster: Cluster, suspects: Integers) -> Integers:
    """Return slots [SLOTS, nodes]: half of a rack transfers within, half across, and suspects beside healthy racks.

    In level rounds only ACROSS nodes of a rack transfer across.
    """
    members = [np.flatnonzero(cluster.racks == rack) for rack in range(cluster.racks.max() + 1)]
    slots = []
    for _ in range(SLOTS):
        pairs = []
        leaving: dict[bool, list[Integers]] = {False: [], True: []}  # the nodes that transfer across, of suspects apart
        for rack, nodes in enumerate(members):
            order = cluster.rng.permutation(nodes)
            staying = max(0, len(order) - (ACROSS if cluster.has_level_rounds else len(order) // 4 * 2))
            pairs.append(consecutive_pairs(order[:staying]))
            leaving[rack in suspects].append(order[staying:])
        healthy, suspected = (cluster.rng.permutation(np.concatenate(each)) for each in leaving.values())
        count = min(len(healthy), len(suspected))
        pairs += [np.stack([suspected[:count], healthy[:count]], 1), consecutive_pairs(healthy[count:])]
        slots.append(pair_up(cluster.nodes, *pairs))
    return np.array(slots)


def _low_quantiles(cluster: Cluster, measured: Transfers, suspects: Integers) -> Floats:
    """Return the low quantiles of pairs, across and within, [2, racks], less those of healthy racks."""
    racks, far = cluster.racks, cluster.is_far(measured.partners)
    suspected = np.isin(racks, suspects) | np.isin(racks[measured.partners], suspects)
    value = measured.both - quantile(np.where(suspected, np.nan, measured.both))[:, None]
    kinds = (np.where(kind, value, np.nan) for kind in (far, ~far))
    low = np.array(
        [[quantile(of_kind[:, racks == rack].ravel(), LOW) for rack in range(racks.max() + 1)] for of_kind in kinds]
    )
    return np.asarray(low - quantile(np.delete(low, suspects, 1))[:, None])
