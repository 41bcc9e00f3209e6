"""Slow nodes: those that stand out of the screen are measured again, and the retest alone decides."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.controls import Controls
from hpccoll.diagnosis.fitted_effects import FittedEffects
from hpccoll.diagnosis.matchings import Pair, beside_healthy
from hpccoll.diagnosis.rack_faults import RackFaults
from hpccoll.diagnosis.robust_statistics import (
    MEDIAN_ERROR,
    QUARTILE,
    SCALE_ERROR,
    clipped,
    quantile,
    robust_deviation,
)
from hpccoll.diagnosis.significance import (
    LEAST_EFFECT,
    NODES,
    USUAL_SPREAD,
    SlownessTest,
    effect_error,
    judged_effect,
    smallest_found,
)
from hpccoll.diagnosis.slot_records import (
    Component,
    Fault,
    Floats,
    Integers,
    JudgedEffect,
    Procedure,
    Purpose,
)
from hpccoll.diagnosis.transfers import DIRECTIONS, Transfers, measure_transfers

SUSPECTED = 2.5
"""The robust standard deviations of all effects from which on a node is measured again."""

LEAST_SUSPECTED = 2 / 3 * LEAST_EFFECT
"""The least effect of such a node: after a sweep of all pairs, most that stand out are less slow than matters."""

MOST_SUSPECTS = 4
"""At most one node in this number is measured again: each needs a healthy one beside it, and others to compare with."""

LEAST_CONTROLS = 4
"""How many healthy nodes must be left as controls, or suspects that are not measured again are controls, too."""

MANY_CONTROLS = 24
"""The controls from which on their scatter shows how much healthy nodes differ; fewer do so by USUAL_SPREAD."""

ERRORS = np.sqrt([1, 4 / 3, 4 / 3])
"""The errors of the three effects of a node over the first, if half of the variance is common to both directions."""


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Slow nodes."""

    faults: tuple[Fault, ...]
    smallest_effect: float  # the logarithm of the factor that would have been found in 90 %
    # whether suspects were left over that could not be measured again, and all that were are slow
    too_many: bool
    effects: tuple[JudgedEffect, ...]  # of all nodes in the screen, and of suspects in the retest
    retest: Transfers | None  # less distance and faulty racks; None if there was none

    @property
    def nodes(self) -> Integers:
        """Return the slow nodes."""
        nodes = [fault.component.where[0] for fault in self.faults]
        return np.array(nodes, np.int64)


def find_node_faults(
    cluster: Cluster,
    fit: FittedEffects,
    racks: RackFaults,
    slots: int,
    slow_pairs: Collection[Pair],
) -> Procedure[NodeFaults]:
    """Measure suspects beside healthy nodes, and judge them.

    A suspect is slow if its effect on both directions, or on one, exceeds the threshold; *node* if
    the effect on the better direction is more than half of that on the worse, and *send* or
    *receive* otherwise.

    Args:
        cluster: the nodes.
        fit: the effects in the screen.
        racks: the faulty racks, whose effects are subtracted.
        slots: how many the screen had.
        slow_pairs: what may be slow links, which are measured beside the suspects.
    """
    test = SlownessTest(NODES / cluster.rails, 3 * cluster.nodes)
    everyone = np.arange(cluster.nodes)
    ordered, effects, scales = _suspects(cluster, fit, racks, slots)
    least = np.maximum(SUSPECTED * scales, LEAST_SUSPECTED)
    judged = _judged(everyone, "screen", effects, scales, least)
    most_suspects = max(1, cluster.nodes // MOST_SUSPECTS)
    suspects = ordered[:most_suspects]
    scale = float(scales[0])
    # an estimated scale over the true one
    highest = smallest_found(1, SCALE_ERROR / math.sqrt(cluster.nodes))
    screened = smallest_found(SUSPECTED * scale * highest, scale)
    if not suspects.size:
        retested = _smallest_in_retest(cluster, fit, test, highest)
        smallest = max(screened, retested)
        return NodeFaults((), smallest, False, judged, None)
    pairs = max(1, cluster.nodes // 2 - len(suspects))
    largest_effects = effects[:, suspects].max(0)
    count = test.slots(fit.noise, pairs, largest_effects.min())
    healthy = np.setdiff1d(everyone, ordered)
    if len(healthy) < 2 * len(suspects) + LEAST_CONTROLS:
        healthy = np.setdiff1d(everyone, suspects)  # a few other suspects do not spoil controls
    partners = beside_healthy(
        suspects, healthy, cluster.racks, count, cluster.rng, requested_pairs=slow_pairs
    )
    measured = yield from measure_transfers(partners, "retest")
    measured = measured.less(racks.added(partners))
    unhealthy = np.setdiff1d(everyone, healthy)
    controls = Controls(measured, unhealthy)
    errors = _errors(controls, fit)
    thresholds = np.array([test.threshold(error) for error in errors])
    judged += _judged(suspects, "retest", controls.effects, errors, thresholds)
    faults = []
    for node in suspects.tolist():
        effects_of_node = controls.effects[:, node]
        if (effects_of_node > thresholds).any():
            kind = _slow_direction(effects_of_node)
            component = Component(DIRECTIONS[kind], (node,))
            fault = test.fault(component, effects_of_node[kind], errors[kind])
            faults.append(fault)
    smallest = max(screened, test.smallest_effect(errors[0]))
    are_all_slow = len(faults) == len(suspects)
    too_many = len(ordered) > len(suspects) and are_all_slow
    return NodeFaults(tuple(faults), smallest, too_many, judged, measured)


def _smallest_in_retest(
    cluster: Cluster, fit: FittedEffects, test: SlownessTest, highest: float
) -> float:
    """Return the smallest effect that a retest of one suspect would have found; ``highest`` bounds a scale."""
    pairs = max(1, cluster.nodes // 2 - 1)
    noise_error = effect_error(fit.noise, test.slots(fit.noise, pairs), pairs)
    if cluster.nodes < MANY_CONTROLS:
        error = math.hypot(noise_error, USUAL_SPREAD)
        return smallest_found(test.threshold(error), error)
    # by the scatter of controls
    return smallest_found(test.threshold(noise_error * highest), noise_error)


def _slow_direction(effects: Floats) -> int:
    """Return in which of DIRECTIONS a node is slow, by its effects [3]."""
    _, send, receive = effects
    if min(send, receive) > max(send, receive) / 2:
        return DIRECTIONS.index("node")
    return DIRECTIONS.index("receive" if receive > send else "send")


def _judged(
    nodes: Integers, purpose: Purpose, effects: Floats, errors: Floats, thresholds: Floats
) -> tuple[JudgedEffect, ...]:
    """Return the effects [3, nodes] of some nodes with their errors [3] and thresholds [3]."""
    judged: list[JudgedEffect] = []
    for kind, effects_of_nodes, error, threshold in zip(
        DIRECTIONS, effects, errors, thresholds, strict=True
    ):
        for node in nodes.tolist():
            component = Component(kind, (node,))
            judged.append(
                judged_effect(component, purpose, effects_of_nodes[node], error, threshold)
            )
    return tuple(judged)


def _suspects(
    cluster: Cluster, fit: FittedEffects, racks: RackFaults, slots: int
) -> tuple[Integers, Floats, Floats]:
    """Return the nodes that stand out, those that do most first, the effects [3, nodes], and their errors [3]."""
    effects = fit.node_effects.copy()
    in_faulty_rack = racks.nodes
    for rack in np.unique(cluster.racks[in_faulty_rack]):
        members = cluster.racks == rack
        middle = np.median(effects[:, members], axis=1)
        effects[:, members] -= middle[:, None]
    least = MEDIAN_ERROR * fit.noise / math.sqrt(slots) / 2
    deviations = []
    for values in effects:
        in_good_racks = values[~in_faulty_rack]
        deviations.append(robust_deviation(in_good_racks))
    scales = np.maximum(deviations, max(least, 1e-12))
    excess = (effects / scales[:, None]).max(0)
    order = np.argsort(-excess)
    stands_out = (excess > SUSPECTED) & (effects.max(0) > LEAST_SUSPECTED)
    return order[stands_out[order]], effects, scales


def _errors(controls: Controls, fit: FittedEffects) -> Floats:
    """Return the standard errors [3] of the effects: of noise, and of lasting differences of healthy nodes.

    Controls that are slower than others in the screen and in the retest are so for good, and no
    fault: the covariance of both effects is the variance of what lasts. A pair shows the slower of
    its two nodes, and little of the other: twice the standard deviation covers nodes that differ by
    1 %.
    """
    noise = max(fit.noise, controls.noise)
    noise_error = effect_error(noise, controls.slots, controls.pairs) * ERRORS
    usual = controls.usual
    if usual.sum() < MANY_CONTROLS:
        return np.asarray(np.hypot(USUAL_SPREAD, noise_error))
    scatter = np.array(
        [robust_deviation(direction_effects[usual]) for direction_effects in controls.effects]
    )
    scatter[1:] = scatter[1:].max()
    screened = quantile(fit.values.T, QUARTILE)
    retested = controls.effects[0]
    has_both = np.isfinite(screened) & np.isfinite(retested)
    clipped_screened = clipped(screened[has_both])
    clipped_retested = clipped(retested[has_both])
    covariances = np.cov(clipped_screened, clipped_retested)
    lasting = max(float(covariances[0, 1]), 0)
    measuring_error = np.maximum(noise_error, scatter)
    return np.asarray(np.hypot(2 * math.sqrt(lasting), measuring_error))
