"""The times of all choices of a setting at every size, next to the fastest of the size."""

from collections.abc import Mapping
from dataclasses import dataclass

from hpccoll.analysis.measured_choices import ChoiceTime, MeasuredSetting, comparable_seconds
from hpccoll.analysis.setting import Choice
from hpccoll.store.rows import Interval
from hpccoll.store.statistics import combine_rounds


@dataclass(frozen=True, slots=True)
class ComparedTime:
    """The time of a choice at one size."""

    seconds: float  # the median
    factor: float  # that over the fastest choice of the size, round by round
    interval: Interval  # its ends in seconds, around those of all rounds; None without one
    chosen: bool  # whether the recommendation has it at this size


def choice_times(
    measured: MeasuredSetting, chosen: Mapping[int, Choice]
) -> dict[int, dict[Choice, ComparedTime]]:
    """Return the times of all choices by size in bytes, ascending; those of a size are sorted, the fastest first.

    ``chosen`` has the recommended choice of each size.
    """
    times = {}
    for size in measured.sizes:
        times[size] = _compared(measured.times_at(size), chosen.get(size))
    return times


def _compared(
    times: Mapping[Choice, ChoiceTime], chosen: Choice | None
) -> dict[Choice, ComparedTime]:
    seconds = comparable_seconds(times)
    fastest = min(seconds.values())
    compared = {}
    for choice in sorted(times, key=seconds.__getitem__):
        time = times[choice]
        interval = combine_rounds(list(time.rounds.values())).interval
        factor = seconds[choice] / fastest
        compared[choice] = ComparedTime(time.seconds, factor, interval, choice == chosen)
    return compared
