"""How other programs find slow nodes, as published, on a simulated machine: rules that ``diagnose`` is compared with.

ClusterKit measures all pairs; Google's Cluster Health Scanner (CHS) random pairs, and suspects
again; NVIDIA's Cluster Readiness Engine (CRE) groups, which it halves. CHS and CRE compare with a
share of the nominal rate, which is given to them exactly here; no user knows it so well.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
from simulated_machine import SECONDS, SimulatedMachine

from hpccoll.diagnosis.matchings import beside_healthy, random_matchings
from hpccoll.diagnosis.robust_statistics import robust_deviation
from hpccoll.diagnosis.slot_records import Component, Slots

Found = tuple[set[Component], int]
"""What a rule accuses, and after how many slots."""


def clusterkit(machine: SimulatedMachine, tolerance: float = 0.93) -> Found:
    """Measure all pairs, and three times more those below a share of the best; a node is bad with all partners."""
    partners = random_matchings(machine.nodes, machine.nodes - 1, machine.rng)
    bad = np.ones(partners.shape, bool)
    for _ in range(4):
        times = measured(machine, partners)
        bad &= ~(times <= np.nanmin(times) - math.log(tolerance))
    return nodes(np.flatnonzero(bad.all(0))), len(partners) + 3 * math.ceil(len(partners) / 2)


def median_and_deviations(machine: SimulatedMachine, deviations: float = 3) -> Found:
    """Measure all pairs three times, and list those whose least time exceeds the median by some deviations (MAD)."""
    partners = random_matchings(machine.nodes, machine.nodes - 1, machine.rng)
    times = np.min([measured(machine, partners) for _ in range(3)], 0)
    slot, one = np.nonzero(times > np.nanmedian(times) + deviations * robust_deviation(times))
    ends = np.sort(np.stack([one, partners[slot, one]]), axis=0)
    return {Component("link", pair) for pair in zip(*ends.tolist(), strict=True)}, 3 * len(partners)


def two_passes(machine: SimulatedMachine, share: float) -> Found:
    """Measure random pairs, and suspects once more beside a node that passed (CHS)."""
    limit = -math.log(share)
    first = measured(machine, random_matchings(machine.nodes, 1, machine.rng))[0]
    passed = np.flatnonzero(first <= limit)
    suspects = np.flatnonzero(first > limit)[: len(passed)]
    if not suspects.size:
        return set(), 1
    again = measured(machine, beside_healthy(suspects, passed, machine.racks * 0, 1, machine.rng))[
        0
    ]
    return nodes(suspects[again[suspects] > limit]), 2


def halving(machine: SimulatedMachine, share: float, size: int = 8) -> Found:
    """Measure rings of groups, and halves of those that fail; a single node twice beside one that passed (CRE)."""

    def fails(group: np.ndarray) -> bool:
        around, rng = machine.environment, machine.rng
        times = np.maximum(machine.send[group], machine.receive[np.roll(group, -1)])
        times = times + rng.normal(0, around.noise, len(group))
        spikes = (rng.random(len(group)) < around.spikes) * rng.exponential(0.5, len(group))
        return bool((times + spikes).max() > -math.log(share))

    groups = np.array_split(machine.rng.permutation(machine.nodes), max(2, machine.nodes // size))
    failed = [fails(group) for group in groups]
    passed = [node for group, bad in zip(groups, failed, strict=True) if not bad for node in group]
    todo = [group for group, bad in zip(groups, failed, strict=True) if bad and passed]
    found, slots = [], 3
    while todo:
        halves = [half for group in todo for half in np.array_split(group, 2)]
        single = [half for half in halves if len(half) == 1]
        found += [
            one
            for one in single
            if all(fails(np.append(one, machine.rng.choice(passed))) for _ in range(2))
        ]
        todo = [half for half in halves if len(half) > 1 and fails(half)]
        slots += 1
    return nodes(int(one[0]) for one in found), slots


def measured(machine: SimulatedMachine, partners: np.ndarray) -> np.ndarray:
    """Return the logarithms of the mean times of pairs over the usual one, [slots, nodes]."""
    times = np.log(machine.measure(Slots(partners, "screen")) / SECONDS)
    return (times + np.take_along_axis(times, partners, 1)) / 2


def nodes(numbers: Iterable[int]) -> set[Component]:
    return {Component("node", (int(number),)) for number in numbers}


ALL_PAIRS = "ClusterKit", "median + 3 MAD"
"""The rules that measure all pairs."""

RULES: dict[str, Callable[[SimulatedMachine], Found]] = {
    "ClusterKit": clusterkit,
    "median + 3 MAD": median_and_deviations,
    "CHS, 79 %": lambda machine: two_passes(machine, 0.79),
    "CHS, 90 %": lambda machine: two_passes(machine, 0.90),
    "CRE, 90 %": lambda machine: halving(machine, 0.90),
    "CRE, 95 %": lambda machine: halving(machine, 0.95),
}
