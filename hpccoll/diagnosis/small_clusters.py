"""Two to seven nodes: every fault is a hypothesis, and all that explain the measurements are candidates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.matchings import Pair, random_matchings, sweep_length
from hpccoll.diagnosis.records import Component, Diagnosis, Explanation, Fault, Floats, Procedure
from hpccoll.diagnosis.robust_statistics import MEDIAN_ERROR, median, robust_deviation
from hpccoll.diagnosis.significance import (
    LEAST_BEYOND_RATE,
    LEAST_EFFECT,
    LINKS,
    MUCH_BEYOND_RATE,
    NODES,
    RACKS,
    USUAL_SPREAD,
    SlownessTest,
    judged_effect,
    smallest_found,
)
from hpccoll.diagnosis.transfers import DIRECTIONS, Transfers, measure_transfers

FEWEST_NODES_TO_FIT = 8
"""The nodes from which on a node has enough partners for a quartile."""

SWEEPS = 24
"""How often each pair is measured."""

ALIKE = 9.2
"""Hypotheses whose chi-squared exceeds that of the best by less are candidates: 99 % for two parameters."""

TWO_FAULTS = 20
"""What a second fault adds to chi-squared: there are up to 720 such hypotheses, and one fault is more likely."""

SLOWER_OF_TWO = 0.83
"""The standard deviation of the larger of two normal values: a pair is as slow as the slower of its nodes."""

MOST_NODES_OF_RATE = 3
"""The most nodes that are compared with an expected time; more show by themselves what is usual."""


class _Fitted(NamedTuple):
    chi_squared: float
    freedom: int  # degrees of freedom
    effects: Floats  # [components of the explanation]: logarithms of factors
    errors: Floats


class _Pairs(NamedTuple):
    """The measurements of all pairs; the mean of their directions, and half of the difference, are independent."""

    pairs: list[Pair]
    values: Floats  # [2, pairs]: medians over sweeps
    errors: Floats  # [2, 1]
    noise: float  # standard deviation of a mean of both directions


def diagnose_small(cluster: Cluster, expected_s: float | None) -> Procedure[Diagnosis]:
    """Measure all pairs, and compare hypotheses: one fault of a node, a direction or a link, or two of them.

    A hypothesis is fitted by weighted least squares. Without an expected time, all transfers have a further term in
    common, and of two or three nodes two that are slow in both directions look healthy. Where no hypothesis explains
    the measurements within their errors, these are too small, and are enlarged (R. T. Birge, "The Calculation of Errors
    by the Method of Least Squares", 1932). What all candidates have in common is certain.

    Args:
        cluster: two to seven nodes.
        expected_s: the usual time of a transfer in seconds; None if it is unknown.
    """
    nodes = cluster.nodes
    sweep = random_matchings(nodes, sweep_length(nodes), cluster.rng)
    measured = yield from measure_transfers(np.tile(sweep, (SWEEPS, 1)), "screen")
    found = _medians(measured, math.log(expected_s) if expected_s else 0.0)
    columns = _columns(found.pairs, nodes)
    two = (each for each in combinations(columns, 2) if _are_separable(*each, nodes))
    explanations: list[Explanation] = [(), *((each,) for each in columns), *two]
    test = SlownessTest((NODES + LINKS + RACKS) / cluster.rails, len(columns))
    has_rate = expected_s is not None and nodes <= MOST_NODES_OF_RATE
    fastest = float(np.nanmin(found.values[0], initial=np.inf))  # of a rate that is a little too high none is
    has_rate = has_rate and (abs(fastest) < LEAST_BEYOND_RATE or fastest > MUCH_BEYOND_RATE)
    healthy = test.critical_value * USUAL_SPREAD * math.sqrt(nodes / (nodes - 1))  # beyond the mean of the others
    least = LEAST_BEYOND_RATE if has_rate else max(LEAST_EFFECT, healthy)
    fits = {each: _fit(found, columns, each, has_rate=has_rate) for each in explanations}
    closest = min(fits.values(), key=lambda fit: fit.chi_squared)
    if closest.chi_squared > closest.freedom > 0:
        found = found._replace(errors=found.errors * math.sqrt(closest.chi_squared / closest.freedom))
        fits = {each: _fit(found, columns, each, has_rate=has_rate) for each in explanations}
    visible = Component("node" if nodes > 2 or has_rate else "send", (0,))
    error = float(fits[visible,].errors[0])
    smallest = smallest_found(max(least, test.critical_value * error), error)
    of_links = [float(fit.errors[0]) for (*each,), fit in fits.items() if [part.kind for part in each] == ["link"]]
    smallest_link = smallest_found(max(least, test.critical_value * max(of_links)), max(of_links))
    judged = []
    for component in columns:
        if nodes == 2 and not has_rate and component.kind not in DIRECTIONS[1:]:
            continue  # as fast as the only pair
        (effect,), (error,) = (values.tolist() for values in (fits[component,].effects, fits[component,].errors))
        judged.append(judged_effect(component, "screen", effect, error, max(least, test.critical_value * error)))
    fits = {each: fit for each, fit in fits.items() if not each or fit.effects.min() > least}
    chi_squared = {each: fit.chi_squared + TWO_FAULTS * (len(each) > 1) for each, fit in fits.items()}
    best = min(fits, key=chi_squared.__getitem__)
    faults: tuple[Fault, ...] = ()
    if chi_squared[()] - chi_squared[best] > test.critical_value**2:
        alike = tuple(each for each in fits if chi_squared[each] < chi_squared[best] + ALIKE)
        faults = _named(test, fits, best, alike)
    return Diagnosis(
        faults, 0, found.noise, math.exp(smallest), effects=tuple(judged), smallest_link_effect=math.exp(smallest_link)
    )


def _named(
    test: SlownessTest, fits: Mapping[Explanation, _Fitted], best: Explanation, alike: Sequence[Explanation]
) -> tuple[Fault, ...]:
    """Return what all candidates contain as faults, and what only some of them contain as candidates of a further one.

    A candidate that contains nothing further is enough: then there may be no further fault.
    """
    certain = {*best}.intersection(*alike)
    if tuple(certain) in alike:
        best = tuple(certain)
    values = zip(best, fits[best].effects.tolist(), fits[best].errors.tolist(), strict=True)
    faults = sorted((test.fault(*each) for each in values), key=lambda each: each.component not in certain)
    if len(certain) < len(faults):
        further = tuple(tuple(part for part in each if part not in certain) for each in alike)
        faults[len(certain) :] = [replace(faults[len(certain)], candidates=further)]
    return tuple(faults)


def _medians(measured: Transfers, usual: float) -> _Pairs:
    partners = measured.partners
    pairs = [*combinations(range(partners.shape[1]), 2)]
    values, errors, noise = [], [], []
    for each in (measured.both - usual, (measured.sent - measured.received) / 2):
        by_pair = [each[partners[:, a] == b, a] for a, b in pairs]
        middle = [median(one) for one in by_pair]
        noise.append(robust_deviation(np.concatenate([one - m for one, m in zip(by_pair, middle, strict=True)])))
        values.append(middle)
        errors.append([math.hypot(MEDIAN_ERROR * noise[-1] / math.sqrt(SWEEPS), SLOWER_OF_TWO * USUAL_SPREAD)])
    return _Pairs(pairs, np.array(values), np.array(errors), noise[0])


def _columns(pairs: list[Pair], nodes: int) -> dict[Component, Floats]:
    """Return what a component adds to the mean and to the half difference of pairs, [2, pairs], if its effect is 1."""
    columns = {}
    for node in range(nodes):
        touched = np.array([float(node in pair) for pair in pairs])
        sign = np.array([float(node == a) - float(node == b) for a, b in pairs])
        columns[Component("node", (node,))] = np.array([touched, 0 * touched])
        columns[Component("send", (node,))] = np.array([touched, sign]) / 2
        columns[Component("receive", (node,))] = np.array([touched, -sign]) / 2
    for k, pair in enumerate(pairs):
        columns[Component("link", pair)] = np.array([np.eye(len(pairs))[k], np.zeros(len(pairs))])
    return columns


def _are_separable(one: Component, other: Component, nodes: int) -> bool:
    """Return whether the pairs of so many nodes distinguish two faults from one fault, and from any other two."""
    kinds = {one.kind, other.kind}
    if nodes <= MOST_NODES_OF_RATE:
        return kinds == {"node"}
    if "link" in kinds:
        return kinds == {"link"} or not {*one.where} & {*other.where}
    return one.where != other.where or "node" not in kinds


def _fit(found: _Pairs, columns: Mapping[Component, Floats], explanation: Explanation, *, has_rate: bool) -> _Fitted:
    """Fit an explanation. The pair of two faulty nodes is left out: it is as slow as the slower one of them."""
    weights = np.isfinite(found.values) / found.errors  # 0 for pairs without a time
    parts = [columns[each] for each in explanation]
    if len(parts) == 2 and len(found.pairs) == 3:
        parts = [np.minimum(parts[0] + parts[1], 1)]  # of three nodes two are slow: every pair contains one
    elif (pair := tuple(node for each in explanation for node in each.where)) in found.pairs and len(parts) == 2:
        weights[:, found.pairs.index(pair)] = 0
    usual = np.array([np.ones(len(found.pairs)), np.zeros(len(found.pairs))])
    terms = [] if has_rate else [usual]
    matrix = np.array([(term * weights).ravel() for term in (*terms, *parts)]).reshape(-1, weights.size).T
    values = (np.nan_to_num(found.values) * weights).ravel()
    inverse = np.linalg.pinv(matrix)
    fitted = inverse @ values
    errors = np.sqrt((inverse**2).sum(1))
    chi_squared = float(((values - matrix @ fitted) ** 2).sum())
    freedom = int(np.count_nonzero(weights)) - matrix.shape[1]
    count = len(explanation)
    of_parts = np.resize(fitted[len(terms) :], count), np.resize(errors[len(terms) :], count)
    return _Fitted(chi_squared, freedom, *of_parts)
