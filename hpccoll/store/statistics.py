"""Statistics: from the raw times of a case to its median and confidence interval."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import LEAST_ITERATIONS, LOOPS_OF_PROGRAMS, SINGLE, Case
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.median_interval import (
    interval_ranks,
    median_in_seconds,
    median_interval,
    median_of_sorted,
)
from hpccoll.store.rows import MEAN, Interval


def median_ratio(ratios: Iterable[float]) -> float:
    """Return the median of at least one ratio, taken over logarithms: inverting all ratios inverts the median.

    For an even number it is the geometric mean of the two middle ratios.
    """
    return math.exp(median(map(math.log, ratios)))


def percentile(values: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """Return the nearest-rank percentile ``q`` (in per cent), which is one of the values."""
    return float(np.sort(values)[max(0, math.ceil(q / 100 * len(values)) - 1)])


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """The median of one round in seconds and its interval."""

    median: float
    interval: Interval

    @classmethod
    def from_samples(cls, seconds: NDArray[np.float64]) -> "RoundStatistics":
        median, low, high = median_interval(seconds)
        if len(seconds) < LEAST_ITERATIONS:
            return cls(median, None)
        return cls(median, (low, high))

    @classmethod
    def of_mean(cls, seconds: NDArray[np.float64]) -> "RoundStatistics":
        """Return the mean of a round in place of its median; no interval of it is known."""
        return cls(float(seconds.mean()), None)


def combine_rounds(rounds: Sequence[RoundStatistics]) -> RoundStatistics:
    """Return the median of the rounds' medians and its 95 % confidence interval.

    A round is one sample of the state of the machine, however many iterations it has. The interval
    spans the rounds' intervals from the lowest to the highest end. From 9 rounds on it drops as
    many of the lowest and highest ends as ``interval_ranks`` drops samples, so that one noisy round
    does not widen it.
    """
    first, last = interval_ranks(len(rounds))
    intervals = [statistics.interval for statistics in rounds if statistics.interval]
    median = median_of_sorted(sorted(statistics.median for statistics in rounds))
    if len(intervals) < len(rounds):
        return RoundStatistics(median, None)
    lows, highs = (sorted(ends) for ends in zip(*intervals, strict=True))
    return RoundStatistics(median, (lows[first], highs[last]))


def rule_of(case: Case, times: CaseTimes | None, requested: str) -> str:
    """Return the rule for the time of an operation: ``requested``, unless the case has no other than its own."""
    if case.timing in LOOPS_OF_PROGRAMS:
        return MEAN
    has_span = times is None or len(times.span_ns) > 0
    if requested == "span" and case.timing == SINGLE and has_span:
        return "span"
    return "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStatistics:
    """The statistics of the times of a case, in seconds per operation but for ``skew_s``."""

    iterations: int  # over all rounds
    rounds: Mapping[int, RoundStatistics]  # by the number of the round
    combined: RoundStatistics  # those of the case, over all rounds
    p99_s: float
    # the median over iterations of how far apart ranks of one clock start; None if unknown
    skew_s: float | None
    # the median over iterations of the slowest GPU's time; None if a GPU has no events
    device_s: float | None


def time_statistics(
    times: CaseTimes, numbers: Iterable[int], rule: str, operations: int
) -> TimeStatistics:
    """Return the statistics of the times of a case.

    Args:
        times: the times of all rounds.
        numbers: the numbers of the rounds, ascending.
        rule: the rule for the time of an operation; see ``rule_of``.
        operations: the number of operations in an iteration.
    """
    seconds = _seconds_by_rule(times, rule) / operations
    summarise = RoundStatistics.of_mean if rule == MEAN else RoundStatistics.from_samples
    rounds = {number: summarise(seconds[times.round == number]) for number in numbers}
    device_s = median_in_seconds(times.device_max_ns)
    return TimeStatistics(
        iterations=len(times.max_ns),
        rounds=rounds,
        combined=combine_rounds(list(rounds.values())),
        p99_s=percentile(seconds, 99),
        skew_s=median_in_seconds(times.skew_ns),
        device_s=None if device_s is None else device_s / operations,
    )


def _seconds_by_rule(times: CaseTimes, rule: str) -> NDArray[np.float64]:
    """Return the time of each iteration; all ranks of a prediction end at once, and it has no mean."""
    by_rule = {"max": times.max_ns, "span": times.span_ns, MEAN: times.mean_ns}
    nanoseconds = by_rule[rule]
    if not len(nanoseconds):
        nanoseconds = times.max_ns
    seconds: NDArray[np.float64] = nanoseconds / 1e9
    return seconds
