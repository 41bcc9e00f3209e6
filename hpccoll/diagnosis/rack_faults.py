"""Slow racks and uplinks: pairs within a rack and across, beside those of healthy racks."""

import math
from dataclasses import dataclass, replace

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.fitted_effects import FittedEffects
from hpccoll.diagnosis.matchings import ACROSS, consecutive_pairs, pair_up
from hpccoll.diagnosis.robust_statistics import median, quantile, robust_deviation
from hpccoll.diagnosis.significance import LEAST_EFFECT, RACKS, SlownessTest, judged_effect
from hpccoll.diagnosis.slot_records import (
    Booleans,
    Component,
    Fault,
    Floats,
    Integers,
    JudgedEffect,
    Procedure,
)
from hpccoll.diagnosis.transfers import Transfers, measure_transfers

SLOTS = 12
"""The slots of the test of suspected racks; in each, several pairs of a rack transfer across."""

LOW = 0.1
"""The quantile that stands for the pairs of a rack. The few flows that are on one uplink by chance
slow one another, in most slots of some diagnoses: a lower quartile then accuses 1 % of healthy
machines."""

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
        here = self.racks
        there = self.racks[partners]
        far = self.far + np.maximum(self.across[here], self.across[there])
        return np.where(here != there, far, self.inside[here])

    @property
    def nodes(self) -> Booleans:
        """Which nodes [nodes] are in a faulty rack."""
        return np.asarray(self.across[self.racks] > 0)


def find_rack_faults(
    cluster: Cluster, fit: FittedEffects, screen: Transfers
) -> Procedure[RackFaults]:
    """Measure the racks whose pairs across are slow in the screen, at most a third of all, and judge them.

    A rack is slow if its pairs within are slow by more than half as much as those across; otherwise
    its uplink is.
    """
    count = cluster.racks.max() + 1
    across = np.zeros(count)
    inside = np.zeros(count)
    faults = []
    suspects, screened_error, judged = _suspects(cluster, fit, screen)
    if suspects.size:
        transfers = yield from measure_transfers(_half_across(cluster, suspects), "racks")
        far = cluster.is_far(transfers.partners)
        without_distance = transfers.less(fit.far * far)
        slow_across, slow_inside = _low_quantiles(cluster, without_distance, suspects)
        scatter = robust_deviation(np.delete(slow_across, suspects))
        test = SlownessTest(RACKS / cluster.rails, 2 * count)
        for rack in suspects.tolist():
            pairs = far[:, cluster.racks == rack].sum()
            noise_error = LOW_ERROR * fit.noise / math.sqrt(max(pairs, 1))
            error = math.hypot(screened_error, max(noise_error, scatter))
            threshold = test.threshold(error)
            name = int(cluster.rack_names[rack])
            uplink = Component("uplink", (name,))
            judged.append(judged_effect(uplink, "racks", slow_across[rack], error, threshold))
            if not slow_across[rack] > threshold:  # NaN without a valid time
                continue
            across[rack] = slow_across[rack]
            inside[rack] = np.nan_to_num(slow_inside[rack])
            component = uplink
            if inside[rack] > across[rack] / 2:
                component = replace(uplink, kind="rack")
            faults.append(test.fault(component, across[rack], error))
    return RackFaults(tuple(faults), tuple(judged), cluster.racks, fit.far, across, inside)


def _suspects(
    cluster: Cluster, fit: FittedEffects, screen: Transfers
) -> tuple[Integers, float, list[JudgedEffect]]:
    """Return racks whose pairs across are slow, the slowest first, and of all racks the standard error and effects."""
    judged = cluster.judged_racks
    if not judged.size:
        return judged, 0.0, []
    far = cluster.is_far(screen.partners)
    across = np.where(far, fit.values, np.nan)
    low = _low_quantiles_of_racks(across, cluster.racks, judged)
    effects = np.nan_to_num(low - median(low))

    sizes = np.bincount(cluster.racks)
    size = sizes[judged].min()
    is_judged = np.isin(cluster.racks, judged)
    pairs = far[:, is_judged].sum() / len(judged)
    noise_error = fit.noise / math.sqrt(max(pairs, 1))
    node_error = robust_deviation(fit.node_effects[0]) / math.sqrt(size)
    error = LOW_ERROR * max(noise_error, node_error)
    least = max(LEAST_EFFECT / 2, SUSPECTED * error)

    screened = []
    for name, effect in zip(cluster.rack_names[judged].tolist(), effects, strict=True):
        uplink = Component("uplink", (name,))
        screened.append(judged_effect(uplink, "screen", effect, error, least))
    slowest = np.argsort(-effects)[: len(judged) // 3]
    suspects = slowest[effects[slowest] > least]
    return judged[suspects], error, screened


def _half_across(cluster: Cluster, suspects: Integers) -> Integers:
    """Return slots [SLOTS, nodes]: half of a rack transfers within, half across, and suspects beside healthy racks.

    In level rounds only ACROSS nodes of a rack transfer across.
    """
    members = [np.flatnonzero(cluster.racks == rack) for rack in range(cluster.racks.max() + 1)]
    slots = []
    for _ in range(SLOTS):
        pairs = []
        healthy_leaving, suspects_leaving = [], []  # the nodes that transfer across
        for rack, nodes in enumerate(members):
            order = cluster.rng.permutation(nodes)
            leaving = ACROSS if cluster.has_level_rounds else len(order) // 4 * 2
            staying = max(0, len(order) - leaving)
            pairs.append(consecutive_pairs(order[:staying]))
            if rack in suspects:
                suspects_leaving.append(order[staying:])
            else:
                healthy_leaving.append(order[staying:])
        healthy = cluster.rng.permutation(np.concatenate(healthy_leaving))
        suspected = cluster.rng.permutation(np.concatenate(suspects_leaving))
        count = min(len(healthy), len(suspected))
        pairs.append(np.stack([suspected[:count], healthy[:count]], 1))
        pairs.append(consecutive_pairs(healthy[count:]))
        slots.append(pair_up(cluster.nodes, *pairs))
    return np.array(slots)


def _low_quantiles(cluster: Cluster, measured: Transfers, suspects: Integers) -> Floats:
    """Return the low quantiles of pairs, across and within, [2, racks], less those of healthy racks."""
    racks = cluster.racks
    far = cluster.is_far(measured.partners)
    is_partner_suspected = np.isin(racks[measured.partners], suspects)
    is_suspected = np.isin(racks, suspects) | is_partner_suspected
    healthy_times = np.where(is_suspected, np.nan, measured.both)
    usual = quantile(healthy_times)
    beyond = measured.both - usual[:, None]
    all_racks = np.arange(racks.max() + 1)
    beyond_across = np.where(far, beyond, np.nan)
    beyond_within = np.where(far, np.nan, beyond)
    across = _low_quantiles_of_racks(beyond_across, racks, all_racks)
    within = _low_quantiles_of_racks(beyond_within, racks, all_racks)
    low = np.array([across, within])
    healthy = np.delete(low, suspects, 1)
    return np.asarray(low - quantile(healthy)[:, None])


def _low_quantiles_of_racks(values: Floats, racks: Integers, chosen: Integers) -> Floats:
    """Return the low quantile of the values [slots, nodes] of each chosen rack."""
    low = []
    for rack in chosen:
        values_of_rack = values[:, racks == rack]
        low.append(quantile(values_of_rack.ravel(), LOW))
    return np.array(low)
