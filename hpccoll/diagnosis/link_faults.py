"""Slow links: pairs that are slower than both of their nodes explain."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.controls import Controls
from hpccoll.diagnosis.fitted_effects import FittedEffects, slower_of
from hpccoll.diagnosis.matchings import Pair, consecutive_pairs, packed, pair_up
from hpccoll.diagnosis.records import Booleans, Component, Fault, Integers, JudgedEffect, Procedure
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
from hpccoll.diagnosis.transfers import Transfers, measure_transfers

CONTROLS = 8
"""The control pairs beside few suspected links, if there are nodes for them; beside more links, as many as these."""

TIMES_SCREENED = 3
"""How often a slow pair is measured again before the test: most are slow by chance, and drop out at once."""

SLOTS = 9
"""The slots of the test of the links that are left. The threshold that follows is 8 %, of which links are slow if a
cable or a port is."""

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
    controls = max(1, min(CONTROLS, cluster.nodes // 2 - 1))
    of_nodes = QUARTILE_ERROR * fit.noise / math.sqrt(len(fit.residuals) / 2)
    error = math.hypot(effect_error(fit.noise, SLOTS, controls), of_nodes)
    once = fit.noise * math.sqrt(1 + MEDIAN_ERROR**2 / controls)
    reach = NORMAL.inv_cdf(PASSED)
    return max(_least(fit) + reach * once, _test(cluster).threshold(error) + reach * error)


def _test(cluster: Cluster) -> SlownessTest:
    return SlownessTest(LINKS / cluster.rails, cluster.nodes * (cluster.nodes - 1) / 2)


def find_slow_pairs(fit: FittedEffects, partners: Integers) -> set[Pair]:
    """Return the pairs that are slower in the screen, whose partners are [slots, nodes], than their nodes explain."""
    return _pairs(partners, fit.residuals > _least(fit))


def measure_other_pairs(cluster: Cluster, fit: FittedEffects, slots: Iterable[Integers]) -> Procedure[set[Pair]]:
    """Measure the pairs that the screen left out, and return those that are slower than their nodes explain.

    Args:
        cluster: the nodes.
        fit: the effects of the nodes in the screen.
        slots: the partners of parts of these pairs, each [slots, nodes].
    """
    slow = set[Pair]()
    for partners in slots:
        measured = yield from measure_transfers(partners, "links")
        expected = fit.far * cluster.is_far(partners) + slower_of(fit.of_nodes[0], partners)
        left = measured.less(expected).both
        slow |= _pairs(partners, left - quantile(left)[:, None] > _least(fit))
    return slow


def find_link_faults(
    cluster: Cluster, fit: FittedEffects, slow_pairs: set[Pair], slow: Integers, retest: Transfers | None
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
    cut, fast = _least(fit), set[Pair]()
    if retest:
        left = retest.both - slower_of(fit.of_nodes[0], retest.partners)
        fast = _pairs(retest.partners, left - quantile(left)[:, None] < cut)
    free, left_out = np.setdiff1d(np.arange(cluster.nodes), slow), set(slow.tolist())
    pairs = [pair for pair in slow_pairs - fast if left_out.isdisjoint(pair)]
    test = _test(cluster)
    tested: dict[Pair, _Tested] = {}
    for each in (*[1] * TIMES_SCREENED, SLOTS):
        tested = yield from _measure_again(cluster, fit, pairs, free, each)
        pairs = [pair for pair, found in tested.items() if found.effect > cut]
    controls = max(1, min(CONTROLS, len(free) // 2 - 1))
    of_nodes = QUARTILE_ERROR * fit.noise / math.sqrt(len(fit.residuals) / 2)
    faults, judged = list[Fault](), list[JudgedEffect]()
    for pair, (effect, noise) in tested.items():
        component, error = Component("link", pair), math.hypot(effect_error(noise, SLOTS, controls), of_nodes)
        threshold = test.threshold(error)
        judged.append(judged_effect(component, "links", effect, error, threshold))
        if effect > max(cut, threshold):
            faults.append(test.fault(component, effect, error))
    return tuple(faults), tuple(judged)


class _Tested(NamedTuple):
    """What a pair takes beyond its nodes and the control pairs beside it."""

    effect: float
    noise: float  # of a pair, in the screen or among its controls, whichever is larger: a machine may become busy


def _least(fit: FittedEffects) -> float:
    return max(LEAST_EFFECT / 2, 2 * fit.noise)


def _pairs(partners: Integers, chosen: Booleans) -> set[Pair]:
    slot, node = np.nonzero(chosen & (np.arange(partners.shape[1]) < partners))
    return set(zip(node.tolist(), partners[slot, node].tolist(), strict=True))


def _measure_again(
    cluster: Cluster, fit: FittedEffects, pairs: list[Pair], free: Integers, times: int
) -> Procedure[dict[Pair, _Tested]]:
    """Measure each pair some times beside control pairs."""
    tested: dict[Pair, _Tested] = {}
    most = min(cluster.nodes // MOST_LINKS, cluster.nodes // 2 - LEAST_CONTROLS)
    for group in packed(pairs, max(1, most)):
        ends = np.array(group).ravel()
        rest = np.setdiff1d(free, ends)
        controls = max(CONTROLS, len(group))
        orders = [consecutive_pairs(cluster.rng.permutation(rest))[:controls] for _ in range(times)]
        partners = np.array([pair_up(cluster.nodes, group, order) for order in orders])
        measured = yield from measure_transfers(partners, "links")
        measured = measured.less(fit.far * cluster.is_far(partners) + slower_of(fit.of_nodes[0], partners))
        beside = Controls(measured, ends)
        noise = max(fit.noise, beside.noise)
        effects = beside.effects[0, ends[::2]].tolist()
        tested |= {pair: _Tested(effect, noise) for pair, effect in zip(group, effects, strict=True)}
    return tested
