"""Confront: what was measured beside what the model says, and the sizes from which one algorithm overtakes another."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from hpccoll.model.machine import PLACES, Machine
from hpccoll.model.observations import Observation
from hpccoll.model.simulate import simulate
from hpccoll.schedule import Cut

SIMULATED = 64
"""The most ranks for which a schedule without a declared cost is simulated: seconds for each size."""

SAME = 1e-9
"""What two times may be apart, relative, and be the same: sums of the same costs in another order are."""


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
class Overtaking:
    """Which of two algorithms is faster for large vectors, and from which size on, as one side has it.

    Args:
        overtaker: the faster one at the largest size at which they differ; None where they take the same throughout.
        sizes: in bytes, where they cross; none where the overtaker is ahead throughout, several where they cross again.
    """

    overtaker: str | None
    sizes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Two algorithms that cross, by the model or measured: each side says for itself which way."""

    pair: tuple[str, str]
    modelled: Overtaking
    measured: Overtaking


def confront(observed: Iterable[Observation], machine: Machine) -> list[Confronted]:
    """Return every observation with what the model says of it."""
    return [Confronted(one, *_said(one, machine)) for one in observed]


def _said(one: Observation, machine: Machine) -> tuple[float | None, str]:
    if reason := _silent(one, machine):
        return None, reason
    if one.cost and one.tier:
        return machine.seconds(one.cost, one.nbytes, one.tier), "modelled"
    slices = one.call.slices(one.algorithm, one.layout, **one.own) if one.algorithm else ()
    lanes = len(slices) * int(one.params.get("channels", 1))
    count = one.call.collective.elements(one.nbytes, 1, one.layout.workers)
    cut = Cut(one.call, count, slices[0].units, lanes, 1)
    return simulate(slices, cut, machine, int(one.params.get("window", 1))), "simulated"


def _silent(one: Observation, machine: Machine) -> str | None:
    """Return why the model says nothing of an observation."""
    lacking = " or ".join(PLACES[tier] for tier in sorted(one.tiers - machine.links.keys()))
    reasons = {
        "what the library does is not known": one.algorithm is None,
        "one rank sends no messages": one.layout.workers == 1,
        "the ports of aggregators are not those of workers, and no ping-pong tells of them": one.layout.aggregators,
        f"the run has no ping-pong {lacking} (a sweep's 'pairs: all' has all there are)": lacking,
        f"it declares no cost for ranks that are not equally far apart, and {SIMULATED} are the most to simulate": (
            one.layout.ranks > SIMULATED and not (one.cost and one.tier)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def curves(confronted: Iterable[Confronted]) -> dict[str, dict[int, Confronted]]:
    """Return of every algorithm the faster placement at each size; what the model is silent on is left out.

    Args:
        confronted: of one work, so that what shares a name and a size differs in its placement alone.
    """
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
        found = Crossing((a, b), _overtaking(a, b, modelled), _overtaking(a, b, measured))
        if found.modelled.sizes or found.measured.sizes:
            yield found


def _overtaking(a: str, b: str, behind: Mapping[int, float]) -> Overtaking:
    """Return which of two overtakes where.

    Args:
        a: one of them.
        b: the other one.
        behind: by size, the logarithm of the time of ``a`` over that of ``b``. Where it changes its sign is
            interpolated over log sizes; what is ahead after a tie is so from the tie on.
    """
    leads = {n: log if abs(log) > SAME else 0.0 for n, log in sorted(behind.items())}
    last, sizes = 0.0, []
    for n, m in pairwise(leads):
        last = leads[n] or last
        if last * leads[m] < 0:
            sizes.append(math.exp(math.log(n) + (math.log(m) - math.log(n)) * leads[n] / (leads[n] - leads[m])))
    end = next((lead for lead in reversed(leads.values()) if lead), 0.0)
    return Overtaking(b if end > 0 else a if end < 0 else None, tuple(sizes))
