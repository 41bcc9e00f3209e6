"""Confront: what was measured beside what the model says, and the sizes from which one algorithm overtakes another."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from hpccoll.model.machine import PLACES, Machine
from hpccoll.model.observe import Observation
from hpccoll.model.simulate import simulate
from hpccoll.schedule import Cut

SIMULATED = 64
"""The most ranks for which a schedule without a declared cost is simulated: seconds for each size."""


@dataclass(frozen=True, slots=True)
class Confronted:
    """An observation and what the model says of it.

    Args:
        observed: what was measured.
        seconds: what the model says; None where it says nothing.
        kind: ``modelled`` by the declared cost, ``simulated``, or why neither.
    """

    observed: Observation
    seconds: float | None
    kind: str

    @property
    def ratio(self) -> float | None:
        """Measured over modelled."""
        return self.observed.seconds / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class Crossing:
    """Of two algorithms the one that is faster for large vectors, and from which size on, in bytes.

    A side is empty where the two do not cross in the range of sizes, and has several sizes where they cross again.
    """

    overtaker: str
    overtaken: str
    modelled: tuple[float, ...]
    measured: tuple[float, ...]


def confront(observed: Iterable[Observation], machine: Machine) -> list[Confronted]:
    """Return every observation with what the model says of it."""
    return [Confronted(one, *_said(one, machine)) for one in observed]


def _said(one: Observation, machine: Machine) -> tuple[float | None, str]:
    if reason := _silent(one, machine):
        return None, reason
    if one.cost and one.tier:
        return machine.seconds(one.cost, one.nbytes, one.tier), "modelled"
    slices = one.promise.slices(one.algorithm, one.layout, **one.own) if one.algorithm else ()
    lanes = len(slices) * int(one.params.get("channels", 1))
    count = one.promise.collective.elements(one.nbytes, 1, one.layout.workers)
    cut = Cut(one.promise, count, slices[0].units, lanes, 1)
    return simulate(slices, cut, machine, int(one.params.get("window", 1))), "simulated"


def _silent(one: Observation, machine: Machine) -> str | None:
    """Return why the model says nothing of an observation."""
    lacking = " or ".join(PLACES[tier] for tier in sorted(one.tiers - machine.links.keys()))
    reasons = {
        "what the library does is not known": one.algorithm is None,
        "one rank sends no messages": one.layout.workers == 1,
        "the ports of aggregators are not those of workers, and no ping-pong tells of them": one.layout.aggregators,
        f"the run has no ping-pong {lacking}": lacking,
        f"it declares no cost for ranks that are not equally far apart, and {SIMULATED} are the most to simulate": (
            one.layout.ranks > SIMULATED and not (one.cost and one.tier)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def curves(confronted: Iterable[Confronted]) -> dict[str, dict[int, Confronted]]:
    """Return of every algorithm the faster placement at each size; what the model is silent on is left out."""
    found: dict[str, dict[int, Confronted]] = defaultdict(dict)
    for one in confronted:
        if one.seconds is not None:
            best = found[one.observed.name].setdefault(one.observed.nbytes, one)
            if one.observed.seconds < best.observed.seconds:
                found[one.observed.name][one.observed.nbytes] = one
    return {name: dict(sorted(curve.items())) for name, curve in found.items()}


def crossings(confronted: Iterable[Confronted]) -> Iterator[Crossing]:
    """Yield where the curves of one collective cross, by the model or measured; pairs that never do are left out."""
    for (a, first), (b, second) in combinations(curves(confronted).items(), 2):
        sizes = sorted(first.keys() & second.keys())
        if len(sizes) < 2:
            continue
        modelled = {n: math.log((first[n].seconds or 1) / (second[n].seconds or 1)) for n in sizes}
        measured = {n: math.log(first[n].observed.seconds / second[n].observed.seconds) for n in sizes}
        if _crossed(modelled) or _crossed(measured):
            over, under = (b, a) if modelled[sizes[-1]] > 0 else (a, b)
            yield Crossing(over, under, _crossed(modelled), _crossed(measured))


def _crossed(leads: Mapping[int, float]) -> tuple[float, ...]:
    """Return the sizes at which the logarithm of a ratio of times changes its sign, interpolated over log sizes."""
    return tuple(
        math.exp(math.log(n) + (math.log(m) - math.log(n)) * leads[n] / (leads[n] - leads[m]))
        for n, m in pairwise(sorted(leads))
        if leads[n] * leads[m] < 0
    )
