"""Validation: measured times that the fit has not seen, and predicted ones; what choosing by the model costs."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count, pairwise
from statistics import geometric_mean

import numpy as np

from hpccoll.analysis.held_out_regret import held_out_regret
from hpccoll.model.machine import TIER_LABELS, Machine
from hpccoll.model.observations import Observation
from hpccoll.model.simulation import simulate
from hpccoll.schedule import Cut, itemsize, out_of_place

TOLERANCE = 1e-9
"""The relative difference up to which two times are equal: sums in another order differ by rounding."""


@dataclass(frozen=True, slots=True)
class Validated:
    """An observation and its prediction."""

    observation: Observation
    seconds: float | None  # the predicted time; None without a prediction
    reason: str = ""  # why there is no prediction
    held_out: bool = True  # whether the fit has not seen it

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.observation.seconds / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Errors:
    """How far measured times are from predicted ones."""

    cases: int
    ratio_median: float  # the median of measured over predicted
    error_median: float  # the median of the relative errors
    error_p90: float  # their 90th percentile
    ratio_p5: float  # the 5th percentile of measured over predicted
    ratio_p95: float  # the 95th percentile

    @classmethod
    def of(cls, validated: Iterable[Validated]) -> "Errors | None":
        """Return the errors of the observations that have a prediction; None without any."""
        ratios = np.array([one.ratio for one in validated if one.ratio], float)
        if not len(ratios):
            return None
        (low, middle, high), errors = np.percentile(ratios, (5, 50, 95)), np.percentile(np.abs(ratios - 1), (50, 90))
        return cls(len(ratios), *map(float, (middle, *errors, low, high)))


@dataclass(frozen=True, slots=True)
class Regret:
    """What choosing the algorithm by the model costs: measured time of the choice over that of the best."""

    choices: int  # the number of settings, each a work at a size
    mean: float  # the geometric mean over them; noise makes it too large
    most: float  # the largest
    held_out: float  # the lower estimate of the mean, by cross-validation over rounds; the mean itself without rounds

    @property
    def text(self) -> str:
        """The sentence: the mean, with the lower estimate if they differ."""
        mean, least = f"{self.mean:.3f}", f"{self.held_out:.3f}"
        noise = "" if mean == least else f" at most, {least} at least, because of noise"
        return (
            f"choosing by the model costs {mean} times the best measured time{noise} (geometric mean of {self.choices} "
            f"settings; the largest {self.most:.2f})"
        )

    @classmethod
    def of(cls, validated: Iterable[Validated]) -> "Regret | None":
        """Return the regret over all works and sizes with several algorithms; None without any."""
        settings: dict[object, list[Validated]] = defaultdict(list)
        for one in validated:
            if one.seconds:
                settings[one.observation.work, one.observation.nbytes].append(one)
        costs = [_cost(each) for each in settings.values() if len({one.observation.name for one in each}) > 1]
        if not costs:
            return None
        most, least = zip(*costs, strict=True)
        return cls(len(costs), geometric_mean(most), max(most), geometric_mean(least))


def _cost(setting: Sequence[Validated]) -> tuple[float, float]:
    """Return the regret at one size of one work, and its lower estimate."""
    chosen = min(range(len(setting)), key=lambda place: setting[place].seconds or math.inf)
    cost = setting[chosen].observation.seconds / min(one.observation.seconds for one in setting)
    rounds = {place: dict(enumerate(one.observation.rounds_s)) for place, one in enumerate(setting)}
    least = held_out_regret(rounds, chosen)
    return cost, cost if least is None else min(max(1.0, least), cost)


@dataclass(frozen=True, slots=True)
class Overtaking:
    """Which of two algorithms is faster for large vectors, and from which size on, by the model or as measured."""

    overtaker: str | None  # the faster one at the largest size at which they differ; None if they never differ
    # the sizes in bytes at which they cross; none if one is always faster, several if they cross again
    sizes: tuple[float, ...]
    largest: int  # the largest size at which both are known


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two algorithms that cross, by the model or as measured."""

    pair: tuple[str, str]
    modelled: Overtaking
    measured: Overtaking


def validate(
    observed: Sequence[Observation], machine: Machine, fitted: Iterable[Observation] = (),
    progress: Callable[[], object] = lambda: None,
) -> list[Validated]:  # fmt: skip
    """Return every observation with its prediction, and whether the machine was fitted to it."""
    seen, validated = {id(one) for one in fitted}, []
    for one in observed:
        reason = _unpredicted_reason(one, machine)
        seconds = None if reason else predicted_seconds(one, machine)
        validated.append(Validated(one, seconds, reason, id(one) not in seen))
        progress()
    return validated


def count_progress(progress: Callable[[int, int], object] | None, total: int) -> Callable[[], object]:
    """Return the function that reports, each time it is called, that one more of all is done."""
    done = count(1)
    return lambda: progress and progress(next(done), total)


def predicted_seconds(one: Observation, machine: Machine) -> float:
    """Return the predicted time of what was observed."""
    if one.algorithm is None:
        raise ValueError("the library's own algorithm has no schedule")
    slices = one.call.slices(one.algorithm, one.layout, **one.own_parameters)
    if not one.call.collective.in_place:
        slices = tuple(out_of_place(one.call, each) for each in slices)
    lanes = len(slices) * int(one.params.get("channels", 1))
    size = itemsize(one.dtype)
    cut = Cut(
        one.call, one.call.collective.elements(one.nbytes, size, one.layout.workers), slices[0].units, lanes, size
    )
    return simulate(slices, cut, machine, int(one.params.get("window", 1)), one.dtype).seconds


def _unpredicted_reason(one: Observation, machine: Machine) -> str:
    lacking = " or ".join(TIER_LABELS[tier] for tier in sorted(one.tiers - machine.tiers.keys()))
    reasons = {
        "the algorithm of the library is unknown": one.algorithm is None,
        "one rank sends no messages": one.layout.workers == 1,
        "copies on a rank are not modelled": int(one.params.get("copies", 0)) > 0,
        f"the run has no ping-pong {lacking} (a sweep's 'pairs: all' has all there are)": lacking,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def curves_by_algorithm(validated: Iterable[Validated]) -> dict[str, dict[int, Validated]]:
    """Return the faster placement of every algorithm at each size, without observations that have no prediction."""
    fastest: dict[str, dict[int, Validated]] = defaultdict(dict)
    for one in validated:
        if one.seconds is not None:
            best = fastest[one.observation.name].setdefault(one.observation.nbytes, one)
            if one.observation.seconds < best.observation.seconds:
                fastest[one.observation.name][one.observation.nbytes] = one
    return {name: dict(sorted(curve.items())) for name, curve in fastest.items()}


def find_crossings(validated: Iterable[Validated]) -> Iterator[Crossing]:
    """Yield the pairs of curves_by_algorithm that cross, by the model or as measured."""
    for (a, first), (b, second) in combinations(curves_by_algorithm(validated).items(), 2):
        sizes = sorted(first.keys() & second.keys())
        if len(sizes) < 2:
            continue
        modelled = {n: math.log((first[n].seconds or 1) / (second[n].seconds or 1)) for n in sizes}
        measured = {n: _measured_lead(first[n].observation, second[n].observation) for n in sizes}
        crossing = Crossing((a, b), overtaking(a, b, modelled), overtaking(a, b, measured))
        if crossing.modelled.sizes or crossing.measured.sizes:
            yield crossing


def _measured_lead(one: Observation, other: Observation) -> float:
    """Return the logarithm of the time of one over that of another; 0, a tie, if their rounds disagree on the sign."""
    rounds = [mine / theirs for mine, theirs in zip(one.rounds_s, other.rounds_s, strict=False)]
    if rounds and min(rounds) <= 1 <= max(rounds):
        return 0.0
    return math.log(one.seconds / other.seconds)


def overtaking(a: str, b: str, behind: Mapping[int, float]) -> Overtaking:
    """Return which of two algorithms overtakes the other, and at which sizes.

    ``behind`` is by size the logarithm of the time of ``a`` over that of ``b``. Its changes of sign are interpolated
    over log sizes; after a tie, the faster one overtakes at the tie.
    """
    leads = {n: log if abs(log) > TOLERANCE else 0.0 for n, log in sorted(behind.items())}
    last, sizes = 0.0, []
    for n, m in pairwise(leads):
        last = leads[n] or last
        if last * leads[m] < 0:
            sizes.append(math.exp(math.log(n) + (math.log(m) - math.log(n)) * leads[n] / (leads[n] - leads[m])))
    end = next((lead for lead in reversed(leads.values()) if lead), 0.0)
    return Overtaking(b if end > 0 else a if end < 0 else None, tuple(sizes), max(leads))
