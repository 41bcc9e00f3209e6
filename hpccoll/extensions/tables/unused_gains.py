"""What algorithms of a library gain, or may gain, where its table keeps the default, and why it keeps that.

A table replaces the default only by what is clearly faster in every call that it cannot tell apart.
A report compares medians: an algorithm may have the shorter one everywhere, and no place in the
table.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import geometric_mean
from typing import Literal, TypeAlias

from hpccoll.analysis.measured_choices import ChoiceTime, MeasuredSetting
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.strength import NOTICEABLE, exceeds_noise_of_launches

Reason: TypeAlias = Literal["noise", "other calls", "range"]
"""Why a table keeps the default: the intervals leave open whether the algorithm is faster; it gains
little in calls that the table cannot tell apart from those in which it is; or it is clearly faster,
and the range of its sizes has another best choice."""

Times: TypeAlias = Mapping[Choice, ChoiceTime]
"""The times of the choices of a setting at one size."""


@dataclass(frozen=True, slots=True)
class UnusedGain:
    """What an algorithm gains, or may gain, at sizes at which the table keeps the default."""

    algorithm: str  # by the library's name
    reason: Reason
    # by size in bytes, ascending, the time of the default over its own: the geometric mean over the
    # settings that the table cannot tell apart; below 1 the default was measured to be faster
    gains: Mapping[int, float]

    @property
    def measured_gains(self) -> list[float]:
        """The gains at the sizes at which it was measured to be faster, by more than launches easily differ."""
        return [gain for gain in self.gains.values() if gain >= NOTICEABLE]


def unused_gains(
    settings: Sequence[MeasuredSetting], native: Choice, default_sizes: Sequence[int]
) -> Iterator[UnusedGain]:
    """Yield what algorithms gain, or may gain, at the sizes at which a table keeps the default.

    Args:
        settings: what was measured of the calls that the table cannot tell apart.
        native: the choice that is the default.
        default_sizes: the sizes in bytes, ascending.
    """
    gains = defaultdict[tuple[Choice, Reason], dict[int, float]](dict)
    for size in default_sizes:
        cases = _compared_cases(settings, native, size)
        for choice in _common_choices(cases, native):
            reason = _reason([_Gain.of(times[native], times[choice]) for times in cases])
            if reason:
                ratios = [times[native].seconds / times[choice].seconds for times in cases]
                gains[choice, reason][size] = geometric_mean(ratios)
    for (choice, reason), gain_of_size in gains.items():
        yield UnusedGain(choice.name, reason, gain_of_size)


def _compared_cases(settings: Sequence[MeasuredSetting], native: Choice, size: int) -> list[Times]:
    """Return the times at a size of each setting that has the default there, and another choice."""
    cases: list[Times] = []
    for setting in settings:
        times = setting.times_at(size)
        if native in times and len(times) > 1:
            cases.append(times)
    return cases


def _common_choices(cases: Sequence[Times], native: Choice) -> list[Choice]:
    """Return the choices besides the default that all cases have."""
    choices = dict.fromkeys(chain.from_iterable(cases))
    return [
        choice for choice in choices if choice != native and all(choice in times for times in cases)
    ]


@dataclass(frozen=True, slots=True)
class _Gain:
    """The time of the default over that of an algorithm in one case."""

    factor: float
    low: float  # from the ends of both intervals that are closest

    @classmethod
    def of(cls, default: ChoiceTime, chosen: ChoiceTime) -> "_Gain":
        default_low, _ = default.ends
        _, high = chosen.ends
        return cls(default.seconds / chosen.seconds, default_low / high)

    @property
    def is_noticeable(self) -> bool:
        return self.factor >= NOTICEABLE

    @property
    def is_clear(self) -> bool:
        return exceeds_noise_of_launches(self.factor, self.low)


def _reason(gains: Sequence[_Gain]) -> Reason | None:
    """Return why an algorithm with these gains, one of each case, is not used; None if it gains nothing."""
    if all(gain.is_clear for gain in gains):
        return "range"
    if all(gain.is_noticeable for gain in gains):
        return "noise"
    mean = geometric_mean(gain.factor for gain in gains)
    return "other calls" if mean >= NOTICEABLE else None
