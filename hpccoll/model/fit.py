"""Fit: what messages and folds cost, from what was measured beside everything else in the same run."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from hpccoll.model.machine import Link, Machine
from hpccoll.model.observations import Observation

LEAST_SIZES = 3
"""Two sizes always lie on a line."""

OFF = 1.25
"""How many times as long as the line, or as short, a size takes that does not lie on it."""


def fit_link(times: Iterable[tuple[int, float]]) -> Link:
    """Return the link whose alpha + n beta is closest to ``times``, pairs of the bytes n and the seconds of a message.

    The sum of the relative errors is the least there is (least absolute deviations), so that small messages count as
    much as large ones. Sizes that are OFF the line, where a protocol changes or a meter lets a burst pass, are left out
    of a second fit, and named, unless they are more than half of them.
    """
    sizes, seconds = (np.array(column, float) for column in zip(*sorted(times), strict=True))
    alpha, beta = _line(sizes, seconds)
    off = np.abs(np.log(seconds / (alpha + sizes * beta))) > math.log(OFF)
    if 2 * off.sum() > len(sizes) or (~off).sum() < LEAST_SIZES:
        off[:] = False
    alpha, beta = _line(sizes[~off], seconds[~off])
    times_as_long = seconds / (alpha + sizes * beta)
    outside = {int(n): float(ratio) for n, ratio in zip(sizes[off], times_as_long[off], strict=True)}
    return Link(alpha, beta, len(sizes), outside)


def _line(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return alpha and beta, neither below 0, for which the relative errors have the least sum: a linear program."""
    scale = np.array([seconds.min(), seconds.max() / sizes.max()])
    lines = np.stack([1 / seconds, sizes / seconds], axis=1) * scale
    error = np.eye(len(sizes))  # of each time: no less than the line is away from 1, on either side
    found = linprog(
        np.concatenate([[0, 0], np.ones(len(sizes))]),
        A_ub=np.block([[lines, -error], [-lines, -error]]),
        b_ub=np.concatenate([np.ones(len(sizes)), -np.ones(len(sizes))]),
    )
    if found.x is None:
        raise ArithmeticError(f"no line fits {sizes.tolist()} bytes in {seconds.tolist()} s: {found.message}")
    return float(found.x[0] * scale[0]), float(found.x[1] * scale[1])


def fit(observed: Sequence[Observation]) -> Machine:
    """Return the machine that ``observed`` tells of.

    A link is fitted to half the round trip of ``send_recv``, by ``ping_pong`` where that was measured and else by the
    library's own calls; of several pairs of ranks on a tier to the median. Gamma is the median of what an algorithm
    took longer than another that declares as many rounds and bytes, on the same ranks, for the bytes that it folds
    more, such as the reduce-scatter and the all-gather of a ring: where bytes take longer than rounds, and 0 at least.
    """
    trips: dict[tuple[str, bool], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in observed:
        if one.collective == "send_recv" and one.tier:
            trips[one.tier, one.algorithm is None][one.nbytes].append(one.seconds / 2)
    links = {}
    for (tier, _), times in sorted(trips.items(), reverse=True):  # our own ping-pong last: it stays
        if len(times) >= LEAST_SIZES:
            links[tier] = fit_link((nbytes, median(each)) for nbytes, each in times.items())
    folds = [gamma for twins in _twins(observed, Machine(links)) for gamma in _gammas(twins)]
    return Machine(links, max(0.0, median(folds)) if folds else 0.0, len(folds))


def _twins(observed: Iterable[Observation], machine: Machine) -> Iterable[list[Observation]]:
    """Return groups of observations that differ in what they fold alone."""
    alike: dict[object, list[Observation]] = defaultdict(list)
    for one in observed:
        cost, link = one.cost, machine.links.get(one.tier or "")
        if cost is None or link is None or one.call.peer is not None:
            continue
        if cost.rounds * link.alpha_s < one.nbytes * cost.sent * link.beta_s:
            alike[one.layout, one.dtype, one.nbytes, round(cost.rounds, 6), round(cost.sent, 6)].append(one)
    return alike.values()


def _gammas(twins: Sequence[Observation]) -> Iterable[float]:
    """Yield the seconds a folded byte, from those that fold nothing and those that do, the fastest of each kind."""
    fastest: dict[float, float] = {}
    for one in twins:
        folded = one.cost.reduced if one.cost else 0.0
        fastest[folded] = min(one.seconds, fastest.get(folded, one.seconds))
    for folded, seconds in fastest.items():
        if folded and 0.0 in fastest:
            yield (seconds - fastest[0.0]) / (folded * twins[0].nbytes)
