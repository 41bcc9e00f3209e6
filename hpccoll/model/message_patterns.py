"""The patterns of messages to which a machine is fitted, and their times by size.

Pairs of ranks, several pairs at once, trains, and twins: a reduce-scatter and an all-gather that
differ in folding.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import NamedTuple

import numpy as np

from hpccoll.model.machine import TIER_LABELS, Cpus
from hpccoll.model.observations import Observation
from hpccoll.schedule import Layout

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
    # how many pairs share a port, an uplink or the memory of a node, as the tier says
    sharing: int = 1
    pairs: int = 1  # how many pairs there are
    messages: int = 1  # of a train
    copies: int = 0  # of a train, before each message


def pattern_of(observation: Observation) -> tuple[Pattern, float] | None:
    """Return the pattern of an observation, and what its time is divided by; None if it is another collective's."""
    tier = observation.tier
    if observation.collective not in ("send_recv", "bidirectional", "multi_pair") or tier is None:
        return None
    if observation.algorithm:
        name = observation.algorithm.name
    else:
        name = "ping_pong" if observation.collective == "send_recv" else "exchange"
    if name == "train":
        messages, copies = (int(observation.params[key]) for key in ("messages", "copies"))
        return Pattern("train", tier, messages=messages, copies=copies), 1
    pairs = observation.call.concurrent or 1
    sharing = _pairs_sharing(observation.layout, pairs, tier)
    if name == "ping_pong":
        return Pattern("half_trip", tier, sharing, pairs), 2
    return Pattern("exchange", tier, sharing, pairs), 1


def _pairs_sharing(layout: Layout, pairs: int, tier: str) -> int:
    """Return how many pairs, of the first ranks of each half, share a node; or a rack, if they cross racks."""
    if pairs == 1:
        return 1
    place = layout.rack if tier == "fabric" else layout.node
    half = layout.workers // 2
    busiest = [max(Counter(place[first : first + pairs]).values()) for first in (0, half)]
    return max(busiest)


@dataclass(frozen=True)
class Measurements:
    """The patterns and twins of a run, ready to be fitted again with other rounds."""

    # the observations of each pattern, with what their times are divided by; those of messages that
    # are waited for one by one are of the fewest ranks to a CPU
    patterns: Mapping[Pattern, Sequence[tuple[Observation, float]]]
    # ping-pongs of each tier that a rank has a CPU for in other observations, and shared it in
    # these
    sharing_cpus: Mapping[str, Sequence[tuple[Observation, float]]]
    # observations of reduce-scatters and all-gathers that differ in folding only, by dtype
    twins: Mapping[str, Sequence[tuple[Observation, Observation]]]

    @classmethod
    def of(cls, observed: Sequence[Observation]) -> "Measurements":
        """Return the patterns and twins among observations."""
        patterns: dict[Pattern, list[tuple[Observation, float]]] = defaultdict(list)
        for observation in observed:
            pattern_and_divisor = pattern_of(observation)
            if pattern_and_divisor:
                pattern, divisor = pattern_and_divisor
                patterns[pattern].append((observation, divisor))
        sharing_cpus = {}
        for pattern, measured in patterns.items():
            ours = [pair for pair in measured if pair[0].algorithm]
            chosen = ours or measured  # our own messages are those that schedules consist of
            least = _fewest_to_a_cpu(observation for observation, _ in chosen)
            if pattern == Pattern("half_trip", pattern.tier) and least == 1:
                sharing_cpus[pattern.tier] = [pair for pair in chosen if pair[0].cpu_share > 1]
            if pattern.name != "exchange":
                chosen = [pair for pair in chosen if pair[0].cpu_share == least]
            patterns[pattern] = chosen
        return cls(patterns, sharing_cpus, _reduction_pairs(observed))

    def tiers(self) -> list[str]:
        """Return the tiers that have enough ping-pongs."""
        return [tier for tier in TIER_LABELS if len(self._sizes_of_ping_pongs(tier)) >= MIN_SIZES]

    def _sizes_of_ping_pongs(self, tier: str) -> set[int]:
        ping_pongs = self.patterns.get(Pattern("half_trip", tier), ())
        return {observation.nbytes for observation, _ in ping_pongs}

    def used(self) -> tuple[Observation, ...]:
        """Return all observations of patterns and twins."""
        used: list[Observation] = []
        for measured in (*self.patterns.values(), *self.sharing_cpus.values()):
            used += [observation for observation, _ in measured]
        for pairs in self.twins.values():
            used += chain.from_iterable(pairs)
        return tuple(used)

    def slowdowns(self, contention: float) -> dict[str, float]:
        """Return how many times as long the works of a ping-pong of each tier took because ranks shared CPUs."""
        cpus = Cpus(1, contention=contention)
        slowdowns = {}
        for tier in self.tiers():
            first, _ = self.patterns[Pattern("half_trip", tier)][0]
            slowdowns[tier] = cpus.slowdown(first.cpu_share)
        return slowdowns

    def curves(self, draw: np.random.Generator | None = None) -> dict[Pattern, Curve]:
        """Return the time of every pattern by size: the median over placements, of all rounds or those drawn."""
        curves = {}
        for pattern, measured in self.patterns.items():
            seconds = defaultdict(list)
            for observation, divisor in measured:
                seconds[observation.nbytes].append(drawn_seconds(observation, draw) / divisor)
            curves[pattern] = {nbytes: median(times) for nbytes, times in sorted(seconds.items())}
        return curves


def drawn_seconds(observation: Observation, draw: np.random.Generator | None) -> float:
    """Return the time of an observation, of all its rounds or of as many that are drawn."""
    if draw is None or len(observation.rounds_s) < 2:
        return observation.seconds
    return float(np.median(draw.choice(observation.rounds_s, len(observation.rounds_s))))


def _fewest_to_a_cpu(observed: Iterable[Observation]) -> float:
    """Return the fewest ranks to a CPU at which enough sizes to fit were observed; the fewest, if none are enough."""
    sizes = defaultdict(set)
    for observation in observed:
        sizes[observation.cpu_share].add(observation.nbytes)
    return min(sizes, key=lambda share: (len(sizes[share]) < MIN_SIZES, share))


def _reduction_pairs(
    observed: Sequence[Observation],
) -> dict[str, list[tuple[Observation, Observation]]]:
    """Return pairs of a reduce-scatter and an all-gather of one algorithm, size, layout, dtype and placement."""

    def setting(observation: Observation) -> tuple[object, ...]:
        return (
            observation.name,
            observation.layout,
            observation.nbytes,
            observation.dtype,
            observation.in_place,
        )

    gathers = {
        setting(observation): observation
        for observation in observed
        if observation.collective == "all_gather"
    }
    twins = defaultdict(list)
    for observation in observed:
        if (
            observation.collective != "reduce_scatter"
            or not observation.algorithm
            or observation.nbytes < LARGE
        ):
            continue
        gather = gathers.get(setting(observation))
        if gather:
            twins[observation.dtype].append((observation, gather))
    return dict(twins)
