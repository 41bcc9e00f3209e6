"""Validation: measured and predicted times, and the sizes from which one algorithm overtakes another."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from hpccoll.model.machine import TIER_LABELS, MachineModel
from hpccoll.model.observations import Observation
from hpccoll.model.simulate import simulate
from hpccoll.schedule import Cut

MAX_SIMULATED_RANKS = 64
"""The most ranks to simulate for a schedule without a declared cost: that takes seconds for each size."""

TOLERANCE = 1e-9
"""The relative difference up to which two times are equal: sums in another order differ by rounding."""


@dataclass(frozen=True, slots=True)
class Validated:
    """An observation and its prediction.

    Args:
        observation: the observation.
        seconds: the predicted time; None without a prediction.
        kind: ``modelled`` by the declared cost, ``simulated``, or the reason for neither.
    """

    observation: Observation
    seconds: float | None
    kind: str

    @property
    def ratio(self) -> float | None:
        """Measured over modelled."""
        return self.observation.seconds / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Overtaking:
    """Which of two algorithms is faster for large vectors, and from which size on, by the model or as measured.

    Args:
        overtaker: the faster one at the largest size at which they differ; None if they never differ.
        sizes: the sizes in bytes at which they cross; none if one is always faster, several if they cross again.
    """

    overtaker: str | None
    sizes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two algorithms that cross, by the model or as measured."""

    pair: tuple[str, str]
    modelled: Overtaking
    measured: Overtaking


def validate(observations: Iterable[Observation], machine: MachineModel) -> list[Validated]:
    """Return every observation with its prediction."""
    return [Validated(one, *_predict(one, machine)) for one in observations]


def _predict(one: Observation, machine: MachineModel) -> tuple[float | None, str]:
    if reason := _unmodelled_reason(one, machine):
        return None, reason
    if one.cost and one.tier:
        return machine.seconds(one.cost, one.nbytes, one.tier), "modelled"
    slices = one.call.slices(one.algorithm, one.layout, **one.own_parameters) if one.algorithm else ()
    lanes = len(slices) * int(one.params.get("channels", 1))
    count = one.call.collective.elements(one.nbytes, 1, one.layout.workers)
    cut = Cut(one.call, count, slices[0].units, lanes, 1)
    return simulate(slices, cut, machine, int(one.params.get("window", 1))), "simulated"


def _unmodelled_reason(one: Observation, machine: MachineModel) -> str | None:
    """Return the reason why the model predicts nothing for an observation, or None."""
    lacking = " or ".join(TIER_LABELS[tier] for tier in sorted(one.tiers - machine.links.keys()))
    reasons = {
        "the algorithm of the library is unknown": one.algorithm is None,
        "one rank sends no messages": one.layout.workers == 1,
        "the ports of aggregators differ from those of workers, and no ping-pong measures them": one.layout.aggregators,
        f"the run has no ping-pong {lacking} (a sweep's 'pairs: all' has all there are)": lacking,
        f"it declares no cost for ranks at unequal distances, and at most {MAX_SIMULATED_RANKS} ranks are simulated": (
            one.layout.ranks > MAX_SIMULATED_RANKS and not (one.cost and one.tier)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def curves(validated: Iterable[Validated]) -> dict[str, dict[int, Validated]]:
    """Return the faster placement of every algorithm at each size, without observations that have no prediction.

    Args:
        validated: observations of one work: those of one name and size differ in their placement only.
    """
    fastest: dict[str, dict[int, Validated]] = defaultdict(dict)
    for one in validated:
        if one.seconds is not None:
            best = fastest[one.observation.name].setdefault(one.observation.nbytes, one)
            if one.observation.seconds < best.observation.seconds:
                fastest[one.observation.name][one.observation.nbytes] = one
    return {name: dict(sorted(curve.items())) for name, curve in fastest.items()}


def crossings(validated: Iterable[Validated]) -> Iterator[Crossing]:
    """Yield the pairs of curves that cross, by the model or as measured."""
    for (a, first), (b, second) in combinations(curves(validated).items(), 2):
        sizes = sorted(first.keys() & second.keys())
        if len(sizes) < 2:
            continue
        modelled = {n: math.log((first[n].seconds or 1) / (second[n].seconds or 1)) for n in sizes}
        measured = {n: math.log(first[n].observation.seconds / second[n].observation.seconds) for n in sizes}
        crossing = Crossing((a, b), _overtaking(a, b, modelled), _overtaking(a, b, measured))
        if crossing.modelled.sizes or crossing.measured.sizes:
            yield crossing


def _overtaking(a: str, b: str, behind: Mapping[int, float]) -> Overtaking:
    """Return which of two algorithms overtakes the other, and at which sizes.

    Args:
        a: the first algorithm.
        b: the second algorithm.
        behind: by size, the logarithm of the time of ``a`` over that of ``b``. Its changes of sign are interpolated
            over log sizes; after a tie, the faster one overtakes at the tie.
    """
    leads = {n: log if abs(log) > TOLERANCE else 0.0 for n, log in sorted(behind.items())}
    last, sizes = 0.0, []
    for n, m in pairwise(leads):
        last = leads[n] or last
        if last * leads[m] < 0:
            sizes.append(math.exp(math.log(n) + (math.log(m) - math.log(n)) * leads[n] / (leads[n] - leads[m])))
    end = next((lead for lead in reversed(leads.values()) if lead), 0.0)
    return Overtaking(b if end > 0 else a if end < 0 else None, tuple(sizes))
