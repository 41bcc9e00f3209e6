"""The fit of a machine model to the measurements of one run: the costs of messages and of folded bytes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from hpccoll.model.machine import Link, MachineModel
from hpccoll.model.observations import Observation

MIN_SIZES = 3
"""The fewest sizes to fit: two sizes always lie on a line."""

OUTLIER_FACTOR = 1.25
"""The ratio to the fitted line, or its inverse, from which a size is an outlier."""


def fit_link(times: Iterable[tuple[int, float]]) -> Link:
    """Return the link whose alpha + n beta is closest to ``times``, pairs of the bytes n and the seconds of a message.

    The sum of the relative errors is minimal (least absolute deviations), so that small messages count as
    much as large ones. Outliers, where a protocol changes or a meter lets a burst pass, are left out of a second fit
    and listed, unless they are more than half of the sizes.
    """
    sizes, seconds = (np.array(column, float) for column in zip(*sorted(times), strict=True))
    alpha, beta = _line(sizes, seconds)
    off = np.abs(np.log(seconds / (alpha + sizes * beta))) > math.log(OUTLIER_FACTOR)
    if 2 * off.sum() > len(sizes) or (~off).sum() < MIN_SIZES:
        off[:] = False
    alpha, beta = _line(sizes[~off], seconds[~off])
    times_as_long = seconds / (alpha + sizes * beta)
    outside = {int(n): float(ratio) for n, ratio in zip(sizes[off], times_as_long[off], strict=True)}
    return Link(alpha, beta, len(sizes), outside)


def _line(sizes: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return alpha and beta, both >= 0, that minimise the sum of relative errors, by a linear program."""
    scale = np.array([seconds.min(), seconds.max() / sizes.max()])
    lines = np.stack([1 / seconds, sizes / seconds], axis=1) * scale
    error = np.eye(len(sizes))  # of each time: no less than the line is away from 1, on either side
    solution = linprog(
        np.concatenate([[0, 0], np.ones(len(sizes))]),
        A_ub=np.block([[lines, -error], [-lines, -error]]),
        b_ub=np.concatenate([np.ones(len(sizes)), -np.ones(len(sizes))]),
    )
    if solution.x is None:
        raise ArithmeticError(f"no line fits {sizes.tolist()} bytes in {seconds.tolist()} s: {solution.message}")
    return float(solution.x[0] * scale[0]), float(solution.x[1] * scale[1])


def fit(observations: Sequence[Observation]) -> MachineModel:
    """Return the machine model fitted to the observations.

    A link is fitted to half the round trip of ``send_recv``: of ``ping_pong`` if that was measured, else of the
    library's own calls; with several pairs of ranks on a tier, to their median. Gamma is the median extra time per
    folded byte of an algorithm over another that declares as many rounds and bytes on the same ranks, such as the
    reduce-scatter and the all-gather of a ring, at sizes where bytes take longer than rounds; it is at least 0.
    """
    trips: dict[tuple[str, bool], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in observations:
        if one.collective == "send_recv" and one.tier:
            trips[one.tier, one.algorithm is None][one.nbytes].append(one.seconds / 2)
    links = {}
    for (tier, _), times in sorted(trips.items(), reverse=True):  # our own ping-pong last: it stays
        if len(times) >= MIN_SIZES:
            links[tier] = fit_link((nbytes, median(each)) for nbytes, each in times.items())
    folds = [gamma for twins in _twins(observations, MachineModel(links)) for gamma in _gammas(twins)]
    return MachineModel(links, max(0.0, median(folds)) if folds else 0.0, len(folds))


def _twins(observations: Iterable[Observation], machine: MachineModel) -> Iterable[list[Observation]]:
    """Return groups of observations that differ only in the bytes that they fold."""
    alike: dict[object, list[Observation]] = defaultdict(list)
    for one in observations:
        cost, link = one.cost, machine.links.get(one.tier or "")
        if cost is None or link is None or one.call.peer is not None:
            continue
        if cost.rounds * link.alpha_s < one.nbytes * cost.sent * link.beta_s:
            alike[one.layout, one.dtype, one.nbytes, round(cost.rounds, 6), round(cost.sent, 6)].append(one)
    return alike.values()


def _gammas(twins: Sequence[Observation]) -> Iterable[float]:
    """Yield the seconds per folded byte, from the fastest that folds nothing and the fastest that folds."""
    fastest: dict[float, float] = {}
    for one in twins:
        folded = one.cost.reduced if one.cost else 0.0
        fastest[folded] = min(one.seconds, fastest.get(folded, one.seconds))
    for folded, seconds in fastest.items():
        if folded and 0.0 in fastest:
            yield (seconds - fastest[0.0]) / (folded * twins[0].nbytes)
