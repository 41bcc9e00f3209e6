"""Two to seven nodes: every fault is a hypothesis, and all that explain the measurements are candidates."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from hpccoll.diagnosis.cluster import Cluster
from hpccoll.diagnosis.matchings import Pair, random_matchings, sweep_length
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
from hpccoll.diagnosis.slot_records import (
    Component,
    Diagnosis,
    Explanation,
    Fault,
    Floats,
    JudgedEffect,
    Procedure,
)
from hpccoll.diagnosis.transfers import DIRECTIONS, Transfers, measure_transfers

FEWEST_NODES_TO_FIT = 8
"""From this number of nodes on, a node has enough partners for a quartile."""

SWEEPS = 24
"""How often each pair is measured."""

ALIKE = 9.2
"""Hypotheses whose chi-squared exceeds that of the best by less are candidates: 99 % for two parameters."""

TWO_FAULTS = 20
"""What a second fault adds to chi-squared: there are up to 720 such hypotheses, and one fault is more likely."""

SLOWER_OF_TWO = 0.83
"""The standard deviation of the larger of two normal values: a pair is as slow as the slower of its nodes."""

MOST_NODES_OF_RATE = 3
"""The most nodes that are compared with an expected time; more of them show what is usual."""


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


_Fits: TypeAlias = Mapping[Explanation, _Fitted]
_Columns: TypeAlias = Mapping[Component, Floats]


def diagnose_small(cluster: Cluster, expected_s: float | None) -> Procedure[Diagnosis]:
    """Measure all pairs, and compare hypotheses: one fault of a node, a direction or a link, or two of them.

    A hypothesis is fitted by weighted least squares. Without an expected time, all transfers share
    a further term: then two nodes of two or three that are slow in both directions look healthy.
    Where no hypothesis explains the measurements within their errors, these are too small, and are
    enlarged (R. T. Birge, "The Calculation of Errors by the Method of Least Squares", 1932). What
    all candidates have in common is certain.

    Args:
        cluster: two to seven nodes.
        expected_s: the usual time of a transfer in seconds; None if it is unknown.
    """
    nodes = cluster.nodes
    sweep = random_matchings(nodes, sweep_length(nodes), cluster.rng)
    transfers = yield from measure_transfers(np.tile(sweep, (SWEEPS, 1)), "screen")
    usual = 0.0
    if expected_s:
        usual = math.log(expected_s)
    measured = _medians(transfers, usual)
    has_rate = expected_s is not None and _is_rate_usable(measured, nodes)
    columns = _columns(measured.pairs, nodes)
    test = SlownessTest((NODES + LINKS + RACKS) / cluster.rails, len(columns))
    least = _least_effect(test, nodes, has_rate=has_rate)

    fits = _fit_all(measured, columns, nodes, has_rate=has_rate)
    judged_components = list(columns)
    visible = Component("node", (0,))
    if nodes == 2 and not has_rate:  # a node is as fast as the only pair
        judged_components = [component for component in columns if component.kind in DIRECTIONS[1:]]
        visible = Component("send", (0,))
    node_error = float(fits[visible,].errors[0])
    link_errors = []
    for component in columns:
        if component.kind == "link":
            link_errors.append(float(fits[component,].errors[0]))
    link_error = max(link_errors)
    node_threshold = max(least, test.critical_value * node_error)
    link_threshold = max(least, test.critical_value * link_error)
    smallest_effect = smallest_found(node_threshold, node_error)
    smallest_link_effect = smallest_found(link_threshold, link_error)
    faults = _decide(test, fits, least)
    effects = _judged(test, fits, judged_components, least)
    return Diagnosis(
        faults,
        0,
        measured.noise,
        math.exp(smallest_effect),
        effects=effects,
        smallest_link_effect=math.exp(smallest_link_effect),
    )


def _is_rate_usable(measured: _Pairs, nodes: int) -> bool:
    """Return whether the measurements may be compared with the expected time.

    If that is a little too short, no pair reaches it, and nothing follows from that; if all pairs
    are much slower, the nodes are slow.
    """
    if nodes > MOST_NODES_OF_RATE:
        return False
    fastest = float(np.nanmin(measured.values[0], initial=np.inf))
    return abs(fastest) < LEAST_BEYOND_RATE or fastest > MUCH_BEYOND_RATE


def _least_effect(test: SlownessTest, nodes: int, *, has_rate: bool) -> float:
    """Return the least logarithm of a factor that is a fault, whatever the error."""
    if has_rate:
        return LEAST_BEYOND_RATE
    # of a healthy node
    beyond_others = test.critical_value * USUAL_SPREAD * math.sqrt(nodes / (nodes - 1))
    return max(LEAST_EFFECT, beyond_others)


def _explanations(components: Iterable[Component], nodes: int) -> list[Explanation]:
    """Return no fault, each single fault, and all two faults that can be told from others."""
    singles = [(component,) for component in components]
    explanations: list[Explanation] = [(), *singles]
    for (first,), (second,) in combinations(singles, 2):
        if _are_separable(first, second, nodes):
            explanations.append((first, second))
    return explanations


def _fit_all(measured: _Pairs, columns: _Columns, nodes: int, *, has_rate: bool) -> _Fits:
    """Fit all explanations, with enlarged errors if even the best one does not explain the measurements within them."""
    explanations = _explanations(columns, nodes)
    fits = {
        explanation: _fit(measured, columns, explanation, has_rate=has_rate)
        for explanation in explanations
    }
    closest = min(fits.values(), key=lambda fit: fit.chi_squared)
    if not closest.chi_squared > closest.freedom > 0:
        return fits
    enlarged = measured._replace(
        errors=measured.errors * math.sqrt(closest.chi_squared / closest.freedom)
    )
    return {
        explanation: _fit(enlarged, columns, explanation, has_rate=has_rate)
        for explanation in explanations
    }


def _judged(
    test: SlownessTest, fits: _Fits, components: Iterable[Component], least: float
) -> tuple[JudgedEffect, ...]:
    """Return the effects of components, each of them fitted as the only fault."""
    judged = []
    for component in components:
        fit = fits[component,]
        effect = float(fit.effects[0])
        error = float(fit.errors[0])
        threshold = max(least, test.critical_value * error)
        judged.append(judged_effect(component, "screen", effect, error, threshold))
    return tuple(judged)


def _decide(test: SlownessTest, fits: _Fits, least: float) -> tuple[Fault, ...]:
    """Return the faults of the explanations that fit best; none if they hardly fit better than a healthy machine."""
    chi_squared: dict[Explanation, float] = {}
    for explanation, fit in fits.items():
        if not explanation or fit.effects.min() > least:
            chi_squared[explanation] = fit.chi_squared + (TWO_FAULTS if len(explanation) > 1 else 0)
    best = min(chi_squared, key=chi_squared.__getitem__)
    if chi_squared[()] - chi_squared[best] <= test.critical_value**2:
        return ()
    candidates = [
        explanation
        for explanation, value in chi_squared.items()
        if value < chi_squared[best] + ALIKE
    ]
    return _named(test, fits, best, candidates)


def _named(
    test: SlownessTest, fits: _Fits, best: Explanation, candidates: Sequence[Explanation]
) -> tuple[Fault, ...]:
    """Return what all candidates contain as faults, and what only some of them contain as candidates of a further one.

    A candidate that contains nothing further is enough: then there may be no further fault.
    """
    common = set(best).intersection(*candidates)
    explanation = best
    if tuple(common) in candidates:
        explanation = tuple(common)
    fit = fits[explanation]
    certain: list[Fault] = []
    uncertain: list[Fault] = []
    for component, effect, error in zip(
        explanation, fit.effects.tolist(), fit.errors.tolist(), strict=True
    ):
        faults = certain if component in common else uncertain
        faults.append(test.fault(component, effect, error))
    if not uncertain:
        return tuple(certain)
    further = []
    for candidate in candidates:
        further.append(tuple(part for part in candidate if part not in common))
    return (*certain, replace(uncertain[0], candidates=tuple(further)))


def _medians(measured: Transfers, usual: float) -> _Pairs:
    """Return the medians of pairs over sweeps, beyond the logarithm of a usual time."""
    partners = measured.partners
    pairs = list(combinations(range(partners.shape[1]), 2))
    values = []
    errors = []
    noises = []
    mean = measured.both - usual
    half_difference = (measured.sent - measured.received) / 2
    node_error = SLOWER_OF_TWO * USUAL_SPREAD
    for transfers in (mean, half_difference):
        medians = []
        residuals = []
        for first, second in pairs:
            is_pair = partners[:, first] == second
            times_of_pair = transfers[is_pair, first]
            middle = median(times_of_pair)
            medians.append(middle)
            residuals.append(times_of_pair - middle)
        noise = robust_deviation(np.concatenate(residuals))
        noises.append(noise)
        values.append(medians)
        noise_error = MEDIAN_ERROR * noise / math.sqrt(SWEEPS)
        errors.append([math.hypot(noise_error, node_error)])
    return _Pairs(pairs, np.array(values), np.array(errors), noises[0])


def _columns(pairs: list[Pair], nodes: int) -> dict[Component, Floats]:
    """Return what a component adds to the mean and to the half difference of pairs, [2, pairs], if its effect is 1."""
    columns = {}
    nothing = np.zeros(len(pairs))
    for node in range(nodes):
        is_first = np.array([float(node == first) for first, _ in pairs])
        is_second = np.array([float(node == second) for _, second in pairs])
        touched = is_first + is_second
        sign = is_first - is_second
        both = Component("node", (node,))
        send = Component("send", (node,))
        receive = Component("receive", (node,))
        columns[both] = np.array([touched, nothing])
        columns[send] = np.array([touched, sign]) / 2
        columns[receive] = np.array([touched, -sign]) / 2
    for pair, touched in zip(pairs, np.eye(len(pairs)), strict=True):
        columns[Component("link", pair)] = np.array([touched, nothing])
    return columns


def _are_separable(first: Component, second: Component, nodes: int) -> bool:
    """Return whether measuring all pairs can tell two faults from one fault, and from any other two."""
    kinds = {first.kind, second.kind}
    if nodes <= MOST_NODES_OF_RATE:
        return kinds == {"node"}
    if "link" in kinds:
        return kinds == {"link"} or set(first.where).isdisjoint(second.where)
    return first.where != second.where or "node" not in kinds


def _fit(
    measured: _Pairs, columns: _Columns, explanation: Explanation, *, has_rate: bool
) -> _Fitted:
    """Fit an explanation. The pair of two faulty nodes is left out: it is as slow as the slower one of them."""
    pairs = len(measured.pairs)
    count = len(explanation)
    weights = np.isfinite(measured.values) / measured.errors  # 0 for pairs without a time
    parts = [columns[component] for component in explanation]
    if count == 2 and pairs == 3:
        # of three nodes two are slow: every pair contains one
        parts = [np.minimum(parts[0] + parts[1], 1)]
    elif count == 2:
        where = (*explanation[0].where, *explanation[1].where)
        if where in measured.pairs:
            weights[:, measured.pairs.index(where)] = 0
    shared_terms = 0
    if not has_rate:
        shared_terms = 1
        parts.insert(0, np.array([np.ones(pairs), np.zeros(pairs)]))
    rows = [(part * weights).ravel() for part in parts]
    matrix = np.array(rows).reshape(-1, weights.size).T
    values = (np.nan_to_num(measured.values) * weights).ravel()
    inverse = np.linalg.pinv(matrix)
    fitted = inverse @ values
    fitted_errors = np.sqrt((inverse**2).sum(1))
    residuals = values - matrix @ fitted
    chi_squared = float((residuals**2).sum())
    freedom = int(np.count_nonzero(weights)) - matrix.shape[1]
    effects = np.resize(fitted[shared_terms:], count)  # of three nodes both have the same one
    errors = np.resize(fitted_errors[shared_terms:], count)
    return _Fitted(chi_squared, freedom, effects, errors)
