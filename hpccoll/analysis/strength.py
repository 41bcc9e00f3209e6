"""How strong the evidence for a choice is, in a word: the one definition, for pages, terminals, tables and maps.

| word | what it takes, besides what the words above it take |
| --- | --- |
| none | nothing |
| weak | another choice to compare with; 95 % intervals; a clear size; a median gain over native |
| fair | clear at half of the compared sizes; a gain beyond the noise of the rounds; 3 rounds; a core for each rank |
| strong | clear at every compared size; 5 comparisons; a gain of 1.05x in every round; an otherwise idle machine |

``CONDITIONS`` is this table for programs. At a size the choice is clear if it is clearly faster
than every other choice, or than native while no other is clearly faster than it
(``round_comparison.is_clear_lead``). What is native, or was not compared with native, has no gain,
and needs none.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from hpccoll.analysis.round_comparison import RoundKey
from hpccoll.cases.case import LEAST_ITERATIONS
from hpccoll.store.host_load import busy_hosts
from hpccoll.store.rows import Results

Strength: TypeAlias = Literal["none", "weak", "fair", "strong"]

STRENGTHS: tuple[Strength, ...] = get_args(Strength)
"""The words, ascending."""

ADVISED: tuple[Strength, ...] = ("fair", "strong")
"""The strengths with which a choice is advised."""

MIN_ROUNDS = 3
"""Rounds from which on evidence is fair: with three or more, a median tolerates one disturbed round."""

MIN_AGREEMENTS = 5
"""Comparisons, one for each round of each size, that a strong choice wins: equal choices do so once
in 2^5 = 32 times, which is less than 5 % (a sign test). With three rounds that takes two sizes."""

NOTICEABLE = 1.05
"""The least gain of a round from which on evidence is strong: another launch easily differs by a few per cent."""


def exceeds_noise_of_launches(factor: float, least: float) -> bool:
    """Return whether the times of two launches differ by more than noise.

    Args:
        factor: the longer time over the shorter one.
        least: the same ratio by those ends of both 95 % intervals that are closest.
    """
    return least > 1 and factor >= NOTICEABLE


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as long native takes in a range of sizes, and its ends by round.

    The factor is the geometric mean, over the sizes, of the median over the rounds. Each round
    deviates from it by the geometric mean, over the sizes that the round measured, of its ratio
    over the median. An end is the factor times the lowest or the highest deviation; the deviation
    is 1 if all rounds are on one side of the medians. The factor thus lies between its ends; if
    every round measured every size, the ends are the geometric means of the rounds of the least and
    of the most gain.
    """

    factor: float
    low: float | None  # None if fewer than two rounds measured both
    high: float | None  # likewise

    @classmethod
    def of(cls, sizes: Collection[tuple[float, Iterable[tuple[RoundKey, float]]]]) -> "Gain":
        """Return the gain, from how many times as long native takes at one size or more.

        Args:
            sizes: for each size the median of the ratios of the rounds, and these; a round has one
                for each call.
        """
        over_medians: dict[RoundKey, list[float]] = defaultdict(list)
        for median, ratios in sizes:
            for key, ratio in ratios:
                over_medians[key].append(ratio / median)
        factor = _mean_ratio([median for median, _ in sizes])
        deviations = list(map(_mean_ratio, over_medians.values()))
        if len(deviations) < 2:
            return cls(factor, None, None)
        low = factor * min(1.0, *deviations)
        high = factor * max(1.0, *deviations)
        return cls(factor, low, high)

    @property
    def exceeds_noise(self) -> bool:
        """Whether every round shows a gain, and half the spread of the rounds, as a ratio, is smaller than it."""
        if self.low is None or self.high is None:
            return self.factor > 1
        return self.low > 1 and self.high / self.low < self.factor**2

    @property
    def is_noticeable(self) -> bool:
        """Whether the gain of every round is."""
        least = self.factor if self.low is None else self.low
        return least >= NOTICEABLE


def _mean_ratio(ratios: Collection[float]) -> float:
    """Return the geometric mean."""
    return math.exp(fmean(map(math.log, ratios)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the strength of a choice in a range of sizes, or at one size, follows from."""

    compared: int  # the sizes at which another choice was measured, too
    clear: int  # those of them at which the choice is clear
    rounds: int  # the fewest rounds of such a size in which a launch measured it and another choice
    # its gain over native; None for native itself, and where native was not measured
    gain: Gain | None
    has_intervals: bool = True  # whether times have 95 % intervals
    oversubscribed: bool = False  # whether there were more ranks than cores
    busy: bool = False  # whether something else used the machine in one of the compared rounds

    @property
    def strength(self) -> Strength:
        failed = [
            STRENGTHS.index(condition.strength)
            for condition in CONDITIONS
            if not condition.holds(self)
        ]
        lowest = min(failed, default=len(STRENGTHS))
        return STRENGTHS[lowest - 1]

    @property
    def next_strength(self) -> Strength:
        """The strength above its own; that of the strongest is its own."""
        place = STRENGTHS.index(self.strength)
        strongest = len(STRENGTHS) - 1
        return STRENGTHS[min(place + 1, strongest)]

    @property
    def missing(self) -> tuple[str, ...]:
        """What it lacks for the next strength, in words; empty if it is strong."""
        target = self.next_strength
        needed = (condition for condition in CONDITIONS if condition.strength == target)
        return tuple(condition.text for condition in needed if not condition.holds(self))


@dataclass(frozen=True, slots=True)
class Condition:
    """What evidence must have for a strength."""

    strength: Strength
    text: str  # what that is, for people
    holds: Callable[[Evidence], bool]


CONDITIONS = (
    Condition("weak", "another choice to compare with", lambda e: e.compared > 0),
    Condition(
        "weak",
        f"95 % intervals ({LEAST_ITERATIONS} iterations in a round)",
        lambda e: e.has_intervals,
    ),
    Condition("weak", "a clear lead at one size", lambda e: e.clear > 0),
    Condition("weak", "a median gain over native", lambda e: e.gain is None or e.gain.factor > 1),
    Condition("fair", "a clear lead at half of the sizes", lambda e: 2 * e.clear >= e.compared),
    Condition(
        "fair",
        "a gain beyond the noise of the rounds",
        lambda e: e.gain is None or e.gain.exceeds_noise,
    ),
    Condition("fair", f"{MIN_ROUNDS} rounds", lambda e: e.rounds >= MIN_ROUNDS),
    Condition("fair", "a core for each rank", lambda e: not e.oversubscribed),
    Condition("strong", "a clear lead at every size", lambda e: e.clear == e.compared),
    Condition(
        "strong",
        f"{MIN_AGREEMENTS} won rounds over all sizes",
        lambda e: e.clear * e.rounds >= MIN_AGREEMENTS,
    ),
    Condition(
        "strong",
        f"a gain of {NOTICEABLE}x in every round",
        lambda e: e.gain is None or e.gain.is_noticeable,
    ),
    Condition("strong", "an otherwise idle machine", lambda e: not e.busy),
)
"""The conditions of each strength; it has those of the weaker ones, too."""


def busy_runs(results: Results) -> frozenset[str]:
    """Return the ids of the runs during which something else used the machine."""
    busy = (run for run in results.runs if busy_hosts(run.provenance))
    return frozenset(run.run_id for run in busy)


def requirements(strength: Strength) -> tuple[str, ...]:
    """Return what a strength takes besides what the weaker ones take, in words."""
    return tuple(condition.text for condition in CONDITIONS if condition.strength == strength)
