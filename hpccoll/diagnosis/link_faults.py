"""Slow links: pairs that are slower than both of their nodes explain."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.controls import Controls
from hpccoll.diagnosis.fitted_effects import FittedEffects, slower_of
from hpccoll.diagnosis.matchings import Pair, consecutive_pairs, packed, pair_up
from hpccoll.diagnosis.robust_statistics import MEDIAN_ERROR, QUARTILE_ERROR, quantile
from hpccoll.diagnosis.significance import (
    FOUND,
    LEAST_EFFECT,
    LINKS,
    NORMAL,
    SlownessTest,
    effect_error,
    judged_effect,
)
from hpccoll.diagnosis.slot_records import (
    Booleans,
    Component,
    Fault,
    Integers,
    JudgedEffect,
    Procedure,
)
from hpccoll.diagnosis.transfers import Transfers, measure_transfers

CONTROLS = 8
"""The control pairs beside few suspected links, if there are nodes for them; beside more links, as many as these."""

TIMES_SCREENED = 3
"""How often a slow pair is measured again before the test: most are slow by chance, and drop out at once."""

SLOTS = 9
"""The slots of the test of the links that are left. The threshold that follows is 8 %: a bad cable
or port slows a link by more than that."""

MOST_LINKS = 3
"""One link for this many nodes is measured in a slot, at most."""

PASSED = FOUND ** (1 / (2 + TIMES_SCREENED))
"""The share of the slow links of the smallest effect that pass each measurement, of all that it takes to find one."""

LEAST_CONTROLS = 3
"""The control pairs that are left in any slot, so that a spike of one does not hide a link."""


def smallest_link_effect(cluster: Cluster, fit: FittedEffects) -> float:
    """Return the logarithm of the factor of a slow link that would have been found in FOUND of the diagnoses.

    It must stand out of the screen, each time that it is measured again, and in the test.
    """
    controls = _fewest_controls(cluster.nodes)
    error = _link_error(fit, fit.noise, controls)
    error_of_one_slot = fit.noise * math.sqrt(1 + MEDIAN_ERROR**2 / controls)
    reach = NORMAL.inv_cdf(PASSED)
    in_screen = _least(fit) + reach * error_of_one_slot
    in_test = _test(cluster).threshold(error) + reach * error
    return max(in_screen, in_test)


def _fewest_controls(nodes: int) -> int:
    """Return the control pairs beside few links of a number of nodes."""
    return max(1, min(CONTROLS, nodes // 2 - 1))


def _link_error(fit: FittedEffects, noise: float, controls: int) -> float:
    """Return the standard error of the effect of a link in the test, which is beyond that of its nodes."""
    node_error = QUARTILE_ERROR * fit.noise / math.sqrt(len(fit.residuals) / 2)
    return math.hypot(effect_error(noise, SLOTS, controls), node_error)


def _test(cluster: Cluster) -> SlownessTest:
    pairs = cluster.nodes * (cluster.nodes - 1) / 2
    return SlownessTest(LINKS / cluster.rails, pairs)


def find_slow_pairs(fit: FittedEffects, partners: Integers) -> set[Pair]:
    """Return the pairs that are slower in the screen, whose partners are [slots, nodes], than their nodes explain."""
    return _pairs(partners, fit.residuals > _least(fit))


def measure_other_pairs(
    cluster: Cluster, fit: FittedEffects, slots: Iterable[Integers]
) -> Procedure[set[Pair]]:
    """Measure the pairs that the screen left out, and return those that are slower than their nodes explain.

    Args:
        cluster: the nodes.
        fit: the effects of the nodes in the screen.
        slots: the partners, [slots, nodes]; each array covers a part of the pairs.
    """
    slow = set[Pair]()
    for partners in slots:
        measured = yield from measure_transfers(partners, "links")
        expected = fit.far * cluster.is_far(partners) + slower_of(fit.node_effects[0], partners)
        left = measured.less(expected).both
        slow |= _pairs(partners, left - quantile(left)[:, None] > _least(fit))
    return slow


def find_link_faults(
    cluster: Cluster,
    fit: FittedEffects,
    slow_pairs: set[Pair],
    slow: Integers,
    retest: Transfers | None,
) -> Procedure[tuple[tuple[Fault, ...], tuple[JudgedEffect, ...]]]:
    """Measure pairs that were slow in the screen, and judge those that are so each time.

    The effects are those of the pairs that were judged.

    Args:
        cluster: the nodes.
        fit: the effects of the nodes, and what they leave of each pair.
        slow_pairs: those of all pairs.
        slow: nodes whose pairs are not judged, and no controls.
        retest: of nodes, which measured pairs of other nodes, too.
    """
    least = _least(fit)
    fast = set[Pair]()
    if retest:
        left = retest.both - slower_of(fit.node_effects[0], retest.partners)
        fast = _pairs(retest.partners, left - quantile(left)[:, None] < least)
    free = np.setdiff1d(np.arange(cluster.nodes), slow)
    left_out = set(slow.tolist())
    pairs = [pair for pair in slow_pairs - fast if left_out.isdisjoint(pair)]
    tested: dict[Pair, _Tested] = {}
    for slots in (*[1] * TIMES_SCREENED, SLOTS):
        tested = yield from _measure_again(cluster, fit, pairs, free, slots)
        pairs = [pair for pair, measured in tested.items() if measured.effect > least]
    test = _test(cluster)
    controls = _fewest_controls(len(free))
    faults: list[Fault] = []
    judged: list[JudgedEffect] = []
    for pair, (effect, noise) in tested.items():
        component = Component("link", pair)
        error = _link_error(fit, noise, controls)
        threshold = test.threshold(error)
        judged.append(judged_effect(component, "links", effect, error, threshold))
        if effect > max(least, threshold):
            faults.append(test.fault(component, effect, error))
    return tuple(faults), tuple(judged)


class _Tested(NamedTuple):
    """What a pair takes beyond its nodes and the control pairs beside it."""

    effect: float
    # of a pair, in the screen or among its controls, whichever is larger: a machine may become busy
    noise: float


def _least(fit: FittedEffects) -> float:
    return max(LEAST_EFFECT / 2, 2 * fit.noise)


def _pairs(partners: Integers, chosen: Booleans) -> set[Pair]:
    """Return the pairs of the chosen transfers [slots, nodes]."""
    is_lower_node = np.arange(partners.shape[1]) < partners  # a pair occurs at both of its nodes
    slots, lower = np.nonzero(chosen & is_lower_node)
    higher = partners[slots, lower]
    return set(zip(lower.tolist(), higher.tolist(), strict=True))


def _measure_again(
    cluster: Cluster, fit: FittedEffects, pairs: list[Pair], free: Integers, slots: int
) -> Procedure[dict[Pair, _Tested]]:
    """Measure each pair in a number of slots beside control pairs."""
    tested: dict[Pair, _Tested] = {}
    most = min(cluster.nodes // MOST_LINKS, cluster.nodes // 2 - LEAST_CONTROLS)
    for group in packed(pairs, max(1, most)):
        ends = np.array(group).ravel()
        rest = np.setdiff1d(free, ends)
        controls = max(CONTROLS, len(group))
        matchings = []
        for _ in range(slots):
            control_pairs = consecutive_pairs(cluster.rng.permutation(rest))[:controls]
            matchings.append(pair_up(cluster.nodes, group, control_pairs))
        partners = np.array(matchings)
        measured = yield from measure_transfers(partners, "links")
        expected = fit.far * cluster.is_far(partners) + slower_of(fit.node_effects[0], partners)
        beside = Controls(measured.less(expected), ends)
        noise = max(fit.noise, beside.noise)
        effects = beside.effects[0, ends[::2]].tolist()  # both nodes of a pair have the same one
        tested |= {
            pair: _Tested(effect, noise) for pair, effect in zip(group, effects, strict=True)
        }
    return tested
