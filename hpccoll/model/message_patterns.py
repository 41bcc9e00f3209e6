"""The patterns of messages to which a machine is fitted, and their times by size.

Pairs of ranks, several pairs at once, trains, and twins: a reduce-scatter and an all-gather that differ in folding.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from hpccoll.model.machine import TIER_LABELS, Cpus
from hpccoll.model.observations import Observation

Curve = dict[int, float]
"""Seconds by the bytes of a message."""

MIN_SIZES = 3
"""The fewest sizes to fit: two sizes always lie on a line."""

LARGE = 65536
"""The bytes from which the time of a message is that of its bytes."""


class Pattern(NamedTuple):
    """What ranks did, and where."""

    name: str  # ``half_trip`` (half of a ping-pong), ``exchange``, or ``train``
    tier: str  # the tier that the messages cross
    sharing: int = 1  # how many pairs share a port, an uplink or the memory of a node, as the tier says
    pairs: int = 1  # how many pairs there are
    messages: int = 1  # of a train
    copies: int = 0  # of a train, before each message


def pattern_of(one: Observation) -> tuple[Pattern, float] | None:
    """Return the pattern of an observation, and what its time is divided by; None if it is another collective's."""
    if one.collective not in ("send_recv", "bidirectional", "multi_pair") or one.tier is None:
        return None
    name = one.algorithm.name if one.algorithm else {"send_recv": "ping_pong"}.get(one.collective, "exchange")
    if name == "train":
        messages, copies = (int(one.params[key]) for key in ("messages", "copies"))
        return Pattern("train", one.tier, messages=messages, copies=copies), 1
    pairs = one.call.concurrent or 1
    place = one.layout.rack if one.tier == "fabric" else one.layout.node
    half = one.layout.workers // 2
    sharing = max(max(Counter(place[first : first + pairs]).values()) for first in (0, half)) if pairs > 1 else 1
    if name == "ping_pong":
        return Pattern("half_trip", one.tier, sharing, pairs), 2
    return Pattern("exchange", one.tier, sharing, pairs), 1


@dataclass(frozen=True)
class Measurements:
    """The patterns and twins of a run, ready to be fitted again with other rounds."""

    # the observations of each pattern, with what their times are divided by; those of messages that are waited for one
    # by one are of the fewest ranks to a CPU
    patterns: Mapping[Pattern, Sequence[tuple[Observation, float]]]
    # ping-pongs of each tier that a rank has a CPU for in other observations, and shared it in these
    sharing_cpus: Mapping[str, Sequence[tuple[Observation, float]]]
    # observations of reduce-scatters and all-gathers that differ in folding only, by dtype
    twins: Mapping[str, Sequence[tuple[Observation, Observation]]]

    @classmethod
    def of(cls, observed: Sequence[Observation]) -> "Measurements":
        patterns: dict[Pattern, list[tuple[Observation, float]]] = defaultdict(list)
        for one in observed:
            if found := pattern_of(one):
                patterns[found[0]].append((one, found[1]))
        ours = {pattern for pattern, each in patterns.items() if any(one.algorithm for one, _ in each)}
        for pattern in ours:  # our own messages are those that schedules consist of
            patterns[pattern] = [pair for pair in patterns[pattern] if pair[0].algorithm]
        sharing_cpus = {}
        for pattern, each in patterns.items():
            least = _fewest_to_a_cpu(one for one, _ in each)
            if pattern == Pattern("half_trip", pattern.tier) and least == 1:
                sharing_cpus[pattern.tier] = [pair for pair in each if pair[0].cpu_share > 1]
            if pattern.name != "exchange":
                patterns[pattern] = [pair for pair in each if pair[0].cpu_share == least]
        return cls(patterns, sharing_cpus, {dtype: list(pairs) for dtype, pairs in _reduction_pairs(observed).items()})

    def tiers(self) -> list[str]:
        """Return the tiers that have enough ping-pongs."""
        sizes = {
            key.tier: {one.nbytes for one, _ in each}
            for key, each in self.patterns.items()
            if key == Pattern("half_trip", key.tier)
        }
        return [tier for tier in TIER_LABELS if len(sizes.get(tier, ())) >= MIN_SIZES]

    def used(self) -> tuple[Observation, ...]:
        """Return all observations of patterns and twins."""
        twins = [one for pairs in self.twins.values() for pair in pairs for one in pair]
        return (*(one for each in (*self.patterns.values(), *self.sharing_cpus.values()) for one, _ in each), *twins)

    def slowdowns(self, contention: float) -> dict[str, float]:
        """Return how many times as long the works of a ping-pong of each tier took because ranks shared CPUs."""
        cpus = Cpus(1, contention=contention)
        return {tier: cpus.slowdown(self.patterns[Pattern("half_trip", tier)][0][0].cpu_share) for tier in self.tiers()}

    def curves(self, draw: np.random.Generator | None = None) -> dict[Pattern, Curve]:
        """Return the time of every pattern by size: the median over placements, of all rounds or those drawn."""
        curves = {}
        for pattern, each in self.patterns.items():
            seconds = defaultdict(list)
            for one, divisor in each:
                seconds[one.nbytes].append(drawn_seconds(one, draw) / divisor)
            curves[pattern] = {nbytes: median(times) for nbytes, times in sorted(seconds.items())}
        return curves


def drawn_seconds(one: Observation, draw: np.random.Generator | None) -> float:
    """Return the time of an observation, of all its rounds or of as many that are drawn."""
    if draw is None or len(one.rounds_s) < 2:
        return one.seconds
    return float(np.median(draw.choice(one.rounds_s, len(one.rounds_s))))


def _fewest_to_a_cpu(observed: Iterable[Observation]) -> float:
    """Return the fewest ranks to a CPU at which enough sizes to fit were observed; the fewest, if none are enough."""
    sizes = defaultdict(set)
    for one in observed:
        sizes[one.cpu_share].add(one.nbytes)
    return min(sizes, key=lambda share: (len(sizes[share]) < MIN_SIZES, share))


def _reduction_pairs(observed: Sequence[Observation]) -> dict[str, list[tuple[Observation, Observation]]]:
    """Return pairs of a reduce-scatter and an all-gather of one algorithm, size, layout, dtype and placement."""

    def setting(one: Observation) -> tuple[object, ...]:
        return one.name, one.layout, one.nbytes, one.dtype, one.in_place

    gathers = {setting(one): one for one in observed if one.collective == "all_gather"}
    twins = defaultdict(list)
    for one in observed:
        other = gathers.get(setting(one))
        if one.collective == "reduce_scatter" and other and one.algorithm and one.nbytes >= LARGE:
            twins[one.dtype].append((one, other))
    return twins
