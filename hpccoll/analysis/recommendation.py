"""A recommendation: the choice by size in one setting, how much faster than native it is, and how sure that is."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.measured_choices import MeasuredSetting
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.schedule import collective
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

MeasuredCall: TypeAlias = tuple[Setting, CallKey, str]
"""A setting of both placements; the executor, kind and rule of its results; and the id of the run."""


def measured_call(row: Row) -> MeasuredCall:
    """Return the call of a row that a recommendation may be for."""
    return replace(Setting.of(row), in_place=None), CallKey.of(row).only("executor", "kind", "rule"), row.run_id


Verdict: TypeAlias = Literal["clear", "tie", "behind", "alone"]
"""How sure a choice is at a size: clearly the fastest; not clearly faster or slower than another; clearly slower than
another, by less than ranges of their own would cost; the only choice."""


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """How sure the choice is at one size."""

    nbytes: int  # the size S, in bytes
    choice: Choice
    seconds: float  # its median time
    # the fastest of the other choices that leave the verdict open, or of all if it is clear; None without one
    runner_up: Choice | None
    lead: float | None  # the time of the runner-up over that of the choice, round by round; None without a runner-up
    verdict: Verdict  # how sure the choice is
    # whether the choice is clearly faster than native; None for native, and if native was not measured
    beats_native: bool | None = None


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as long native takes: the geometric mean over the sizes of a range."""

    factor: float  # its median over the rounds
    low: float | None  # that of the round in which it is least; None if fewer than two rounds measured both
    high: float | None  # that of the round in which it is most, likewise

    @property
    def exceeds_noise(self) -> bool:
        """Whether every round shows a gain, and half the spread of the rounds, as a ratio, is smaller than it."""
        if self.low is None or self.high is None:
            return self.factor > 1
        return self.low > 1 and self.high / self.low < self.factor**2


@dataclass(frozen=True, slots=True)
class RecommendedRange:
    """A range of sizes with its choice."""

    sizes: ChoiceRange  # the range
    verdicts: tuple[SizeVerdict, ...]  # how sure the choice is at each measured size of the range
    gain: Gain | None  # the gain over native; None for native itself, and where native was not measured

    @property
    def choice(self) -> Choice:
        """The choice."""
        return self.sizes.choice

    def count(self, *verdicts: Verdict) -> int:
        """Return the number of sizes with one of ``verdicts``."""
        return sum(each.verdict in verdicts for each in self.verdicts)

    @property
    def is_compared(self) -> bool:
        """Whether another choice was measured at one of its sizes."""
        return self.count("alone") < len(self.verdicts)

    @property
    def is_advice(self) -> bool:
        """Whether people should use the choice: the one condition of every sentence that advises.

        At half or more of the sizes with several choices it is clearly the fastest, or clearly faster than native; and
        its gain over native, if it has one, exceeds the noise of the rounds.
        """
        compared = len(self.verdicts) - self.count("alone")
        clear = sum(each.verdict == "clear" or bool(each.beats_native) for each in self.verdicts)
        return 0 < compared <= 2 * clear and (self.gain is None or self.gain.exceeds_noise)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to use in one setting."""

    setting: Setting  # the setting; its ``in_place`` is None if one set of ranges serves both placements
    measured: MeasuredSetting  # the measurements, of both placements in that case
    ranges: tuple[RecommendedRange, ...]  # the ranges of sizes, ascending

    @property
    def has_one_buffer(self) -> bool:
        """Whether only calls of the library were measured, whose one buffer serves both placements."""
        calls = all(choice.algorithm == NATIVE for choice in self.choices) and not self.measured.auto
        return calls and self.setting.in_place is True and collective(self.setting.collective).one_buffer

    @property
    def calls(self) -> list[MeasuredCall]:
        """The calls that it is for, in each of its runs."""
        conditions = self.measured.conditions
        key = CallKey(executor=conditions.executor, kind=conditions.kind, rule=conditions.rule)
        return [(replace(self.setting, in_place=None), key, run) for run in self.measured.runs]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All choices that were measured."""
        return tuple(self.measured.curves)

    @property
    def is_compared(self) -> bool:
        """Whether several choices were measured at one size or more."""
        return any(of_range.is_compared for of_range in self.ranges)

    @property
    def has_intervals(self) -> bool:
        """Whether a time has a 95 % interval: without any, nothing is clear."""
        times = (time for curve in self.measured.curves.values() for time in curve.values())
        return any(each.interval for time in times for each in time.rounds.values())

    @property
    def verdicts(self) -> dict[int, SizeVerdict]:
        """How sure the choice is, by measured size in bytes."""
        return {each.nbytes: each for of_range in self.ranges for each in of_range.verdicts}
