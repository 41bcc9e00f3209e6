"""The spread of runs of one sweep, and how far a further run is from them.

Runs on one machine differ by more than the rounds of a run: buffers, ranks and links are placed anew, and what makes a
run slow makes all of its cases slow. The logarithm of the time of a case in a run is therefore the sum of that of the
case, an effect of the run, which its cases share, and one of the case in the run. The effect of a run is the median
over cases of their deviations, which single cases that changed do not move; its variance has as many degrees of freedom
as there are runs but one. What is left is each case's own, and its variance moderated over cases as in ``shift``. The
variance of a further run is the sum of both, with the degrees of freedom of Satterthwaite's approximation.

F. E. Satterthwaite: An approximate distribution of estimates of variance components, Biometrics Bulletin 2 (1946)
110-114.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.analysis.shift import Floats, Shift, half_width, moderated, shifts_of_estimates

MEDIAN_VARIANCE = math.pi / 2
"""The variance of a median of many normal samples over that of their mean."""


@dataclass(frozen=True, slots=True)
class RunSpread:
    """The spread of runs."""

    middle: Floats  # the logarithm of the time of each case, the mean over runs
    variance: Floats  # the variance of one run of each case
    degrees: Floats  # its degrees of freedom
    runs: int  # the number of runs

    @classmethod
    def of(cls, times: Sequence[Sequence[float]]) -> "RunSpread":
        """Return the spread of at least two runs, from the seconds of each case in each run: [case][run]."""
        logs = np.log(np.array(times, float))
        cases, runs = logs.shape
        middle = logs.mean(axis=1)
        deviations = logs - middle[:, None]
        of_run = np.median(deviations, axis=0)
        of_run -= of_run.mean()
        share = (1 - 1 / cases) if cases > 1 else 1.0  # a median over cases takes some of their freedom
        own_squares = ((deviations - of_run) ** 2).sum(axis=1) if cases > 1 else (deviations**2).sum(axis=1)
        own, own_degrees = moderated(own_squares, np.full(cases, (runs - 1) * share))
        common = 0.0
        if cases > 1:
            chance = MEDIAN_VARIANCE * float(own.mean()) / cases  # what the median has of the cases' own
            common = max(float((of_run**2).sum()) / (runs - 1) - chance, 0.0)
        variance = own + common
        degrees = variance**2 / (common**2 / (runs - 1) + own**2 / own_degrees)
        return cls(middle, variance, degrees, runs)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The ends of the 95 % prediction interval of one more run, in seconds, of each case."""
        half = half_width(self.degrees) * np.sqrt(self.variance * (1 + 1 / self.runs))
        return np.exp(self.middle - half), np.exp(self.middle + half)

    def shifts(self, times: Sequence[float]) -> list[Shift]:
        """Return how far a further run is from the others, from its seconds of each case."""
        samples = np.full(len(self.middle), 1 + 1 / self.runs)
        return shifts_of_estimates(np.log(times) - self.middle, self.variance, samples, self.degrees)
