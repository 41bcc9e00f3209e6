"""The shift of a case between two runs, by the medians of rounds, or between several runs and a further one.

Iterations of a round are correlated, so that the unit is the round: its median is one sample.
Shifts are differences of the logarithms of round medians. A case has few rounds, and its own
variance says little; the variances of all cases of both runs say how large they usually are. Each
is therefore shrunk towards that common value, as much as the spread of the variances allows
(moderated t-statistics): if all cases are alike, their variance is pooled. Where cases differ, a
case that scatters more than others keeps its own variance: noise of machines comes in bursts, and
some cases have more.

Runs of one sweep on one machine differ by more than the rounds of a run: buffers, ranks and links
are placed anew, and what makes a run slow makes all of its cases slow. The logarithm of the time of
a case in a run is therefore the sum of that of the case, an effect of the run, which its cases
share, and one of the case in the run. The effect of a run is the median over cases of their
deviations, which single cases that changed do not move; its variance has as many degrees of freedom
as there are runs but one. What is left is each case's own, and its variance moderated as above. The
variance of a further run is the sum of both, with the degrees of freedom of Satterthwaite's
approximation.

G. Smyth: Linear models and empirical Bayes methods for assessing differential expression in
microarray experiments, Statistical Applications in Genetics and Molecular Biology 3 (2004), article
3, section 6.2. Y. Benjamini, Y. Hochberg: Controlling the false discovery rate, Journal of the
Royal Statistical Society B 57 (1995) 289-300. F. E. Satterthwaite: An approximate distribution of
estimates of variance components, Biometrics Bulletin 2 (1946) 110-114.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
FALSE_DISCOVERIES = 0.05
"""The expected part of the changes found that are none."""

MAX_LOG = 700.0
"""The exponential of a larger number is beyond the range of doubles."""

MEDIAN_VARIANCE = math.pi / 2
"""The variance of a median of many normal samples over that of their mean."""

VARIANCE_FLOOR = 1e-12
"""A variance of logarithms below the resolution of clocks."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The shift of a case."""

    # the new time over the old one: the ratio of the geometric means of round medians
    factor: float
    low: float  # the lower end of its 95 % interval
    high: float  # the upper end
    # the probability of a factor so far from 1 without a change, adjusted for the number of cases
    p_value: float
    deviation: float  # the standard deviation of the logarithm of a round median, moderated
    freedom: float  # its degrees of freedom

    def rounds_to_decide(self, tolerance: float) -> int:
        """Return about how many rounds of each run decide whether a change exceeds the tolerance, such as 0.05."""
        distance = abs(abs(math.log(self.factor)) - math.log1p(tolerance))
        # a shift near the tolerance would need any number
        half = max(distance, math.log1p(tolerance) / 4)
        quantile = float(half_width(self.freedom))
        return math.ceil(2 * (quantile * self.deviation / half) ** 2)


def shifts(old: Sequence[Sequence[float]], new: Sequence[Sequence[float]]) -> list[Shift | None]:
    """Return the shift of every case; None without a round in one of the runs, or with one round in all of them.

    ``old`` and ``new`` are the medians of the rounds of each case in seconds, [case][round].
    """
    usable: list[int] = []
    freedom: list[float] = []
    squares: list[float] = []
    estimates: list[float] = []
    samples: list[float] = []
    for case, (old_rounds, new_rounds) in enumerate(zip(old, new, strict=True)):
        if not len(old_rounds) or not len(new_rounds):
            continue
        before = np.log(old_rounds)
        after = np.log(new_rounds)
        usable.append(case)
        freedom.append(len(before) + len(after) - 2)
        squares.append(_squared_deviations(before) + _squared_deviations(after))
        estimates.append(after.mean() - before.mean())
        samples.append(1 / len(before) + 1 / len(after))
    by_case: list[Shift | None] = [None] * len(old)
    if not any(freedom):
        return by_case
    variance, degrees = moderated(np.array(squares), np.array(freedom, float))
    shifts_of_usable = shifts_of_estimates(
        np.array(estimates), variance, np.array(samples), degrees
    )
    for case, shift in zip(usable, shifts_of_usable, strict=True):
        by_case[case] = shift
    return by_case


def _squared_deviations(values: Floats) -> float:
    deviations = values - values.mean()
    return float((deviations**2).sum())


def shifts_of_estimates(
    estimates: Floats, variance: Floats, samples: Floats, degrees: Floats
) -> list[Shift]:
    """Return the shift of every case, with its interval and its p-value.

    Args:
        estimates: the differences of the logarithms.
        variance: the variance of a sample.
        samples: what the variance of a sample is multiplied with to be that of the estimate: 1/n +
            1/m.
        degrees: the degrees of freedom of the variance.
    """
    widths = np.sqrt(variance * samples)
    statistics = np.abs(estimates) / widths
    two_sided = np.asarray(2 * special.stdtr(degrees, -statistics))
    half = half_width(degrees) * widths
    columns = (
        _exponential(estimates),
        _exponential(estimates - half),
        _exponential(estimates + half),
        benjamini_hochberg(two_sided),
        np.sqrt(variance),
        degrees,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Shift(*values) for values in rows]


def _exponential(logs: Floats) -> Floats:
    return np.exp(np.clip(logs, -MAX_LOG, MAX_LOG))


def half_width(degrees: Floats | float) -> Floats:
    """Return half the width of an interval of ``CONFIDENCE`` in standard errors: the quantile of Student's t.

    From scipy.special, for scipy.stats takes half a second to import, and every report would.
    """
    return np.asarray(special.stdtrit(degrees, (1 + CONFIDENCE) / 2))


def moderated(squares: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the moderated variance of each case, and its degrees of freedom.

    Args:
        squares: the sum of the squared deviations of each case.
        freedom: its degrees of freedom; cases without any get the common variance.
    """
    total = float(freedom.sum())
    has_freedom = freedom > 0
    own_freedom = freedom[has_freedom]
    prior, prior_freedom = _prior(squares[has_freedom] / own_freedom, own_freedom)
    if math.isinf(prior_freedom):  # no more spread than chance makes: all cases share one variance
        pooled = max(float(squares.sum()) / total, VARIANCE_FLOOR)
        return np.full(len(squares), pooled), np.full(len(squares), total)
    degrees = prior_freedom + freedom
    variance = (prior_freedom * prior + squares) / degrees
    own = np.divide(squares, freedom, out=np.zeros(len(squares)), where=has_freedom)
    larger = np.maximum(variance, own)
    return np.maximum(larger, VARIANCE_FLOOR), np.minimum(degrees, total)


def _prior(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the common variance and its degrees of freedom, from the spread of the variances of cases.

    The logarithm of a variance with d degrees of freedom has the mean log(s^2) + digamma(d/2) -
    log(d/2) and the variance trigamma(d/2); what its spread has beyond that is trigamma of half the
    degrees of the prior.
    """
    halves = freedom / 2
    logs = np.log(np.maximum(variances, VARIANCE_FLOOR))
    corrected = logs - special.digamma(halves) + np.log(halves)
    mean = corrected.mean()
    if len(logs) < 2:
        return float(np.exp(mean)), math.inf
    spread = ((corrected - mean) ** 2).sum() / (len(logs) - 1)
    excess = float(spread - special.polygamma(1, halves).mean())
    if excess <= 0:
        return float(np.exp(mean)), math.inf
    half = _inverse_trigamma(excess)
    log_common = mean + special.digamma(half) - np.log(half)
    return float(np.exp(log_common)), 2 * half


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value, by Newton's iteration on 1 / trigamma, which is nearly linear."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Return p-values adjusted for their number, so that rejecting those below q has a false discovery rate of q."""
    count = len(p_values)
    order = np.argsort(p_values)[::-1]
    scaled = p_values[order] * count / np.arange(count, 0, -1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum.accumulate(np.minimum(scaled, 1.0))
    return adjusted


LEAST_SIMILAR = 4
"""The fewest cases whose median is what a run has in common for all of them; with three, bounds of
three runs held one more in 90 % of simulations, and not in 95 %."""

ALIKE = 1.5
"""Neighbouring sizes whose times differ by less than this factor are disturbed alike: the latency sets both."""


def _similar(sizes: Sequence[int], middle: Floats) -> list[list[int]]:
    """Return the numbers of cases of similar sizes, the largest first.

    Neighbouring sizes are together until they are LEAST_SIMILAR cases, and as long as they take
    about as long.

    Args:
        sizes: the size of each case in bytes.
        middle: the logarithm of its time.
    """
    cases_of_size: dict[int, list[int]] = defaultdict(list)
    for number, size in enumerate(sizes):
        cases_of_size[size].append(number)
    groups: list[list[int]] = []
    before = math.inf
    for size in sorted(cases_of_size, reverse=True):
        cases = cases_of_size[size]
        typical = float(np.median(middle[cases]))
        takes_as_long = abs(before - typical) < math.log(ALIKE)
        if groups and (takes_as_long or len(groups[-1]) < LEAST_SIMILAR):
            groups[-1] += cases
        else:
            groups.append(cases)
        before = typical
    if len(groups) > 1 and len(groups[-1]) < LEAST_SIMILAR:
        smallest = groups.pop()
        groups[-1] += smallest
    return groups


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The spread of runs."""

    middle: Floats  # the logarithm of the time of each case, the mean over runs
    variance: Floats  # the variance of one run of each case
    degrees: Floats  # its degrees of freedom
    runs: int  # the number of runs

    @classmethod
    def of(cls, times: Sequence[Sequence[float]], sizes: Sequence[int] = ()) -> "RunSpread":
        """Return the spread of at least two runs, from the seconds of each case in each run: [case][run].

        What disturbs a run disturbs cases of similar sizes alike: a busy CPU multiplies the times
        of small messages and adds little to those that the wire sets. Without ``sizes``, those of
        the cases, all are similar.
        """
        logs = np.log(np.array(times, float))
        middle = logs.mean(axis=1)
        runs = logs.shape[1]
        deviations = logs - middle[:, None]
        common_deviations = np.zeros(logs.shape)
        sharers = np.ones(len(logs))  # how many cases share the common deviation of each case
        groups = _similar(sizes or [0] * len(logs), middle)
        for cases in groups:
            if len(cases) > 1:
                shared = np.median(deviations[cases], axis=0)
                common_deviations[cases] = shared - shared.mean()
                sharers[cases] = len(cases)
        # a median over cases takes some of their freedom
        share = np.where(sharers > 1, 1 - 1 / sharers, 1.0)
        own_squares = ((deviations - common_deviations) ** 2).sum(axis=1)
        own, own_degrees = moderated(own_squares, (runs - 1) * share)
        chance = np.zeros(len(logs))  # what the median has of the cases' own
        for cases in groups:
            chance[cases] = MEDIAN_VARIANCE * own[cases].mean() / len(cases)
        common_variance = (common_deviations**2).sum(axis=1) / (runs - 1)
        common = np.maximum(common_variance - chance, 0.0)
        variance = own + common
        inverse_degrees = common**2 / (runs - 1) + own**2 / own_degrees
        degrees = variance**2 / inverse_degrees
        return cls(middle, variance, degrees, runs)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The ends of the 95 % prediction interval of one more run, in seconds, of each case."""
        deviation = np.sqrt(self.variance * (1 + 1 / self.runs))
        half = half_width(self.degrees) * deviation
        return np.exp(self.middle - half), np.exp(self.middle + half)

    def shifts(self, times: Sequence[float]) -> list[Shift]:
        """Return how far a further run is from the others, from its seconds of each case."""
        estimates = np.log(times) - self.middle
        samples = np.full(len(self.middle), 1 + 1 / self.runs)
        return shifts_of_estimates(estimates, self.variance, samples, self.degrees)
