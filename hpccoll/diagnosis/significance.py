"""When an effect is a fault: the threshold, the slots that it takes, and the chance of a false alarm."""

import math
from dataclasses import dataclass
from statistics import NormalDist

from hpccoll.diagnosis.robust_statistics import MEDIAN_ERROR, QUARTILE_ERROR
from hpccoll.diagnosis.slot_records import Component, Fault, JudgedEffect, Purpose

LEAST_EFFECT = 0.03
"""The least logarithm of a factor that is a fault: healthy nodes differ by 1 %, and less than 3 % matters little."""

LEAST_BEYOND_RATE = 0.05
"""The least logarithm of a factor beyond an expected time, which is not as exact as a comparison."""

MUCH_BEYOND_RATE = math.log(1.2)
"""The logarithm of a factor beyond an expected time from which on all nodes are slow for certain.
Headers and gaps take 5 % of the rate of a wire (TCP with an MTU of 1500), and a library as much
again."""

USUAL_SPREAD = 0.01
"""The standard deviation of healthy nodes, as a logarithm, where there are too few to estimate it."""

NODES = 0.005
LINKS = 0.003
RACKS = 0.002
"""The chance that any node, link or rack of a healthy machine is accused: 1 % together."""

RETEST_SLOTS = 12, 36
"""The fewest and the most slots of a test. With 9 slots a node of 64 that is slow by 5 % is found
in a quarter of the diagnoses; with as many as the noise asks for, which is 23, in 94 %."""

FOUND = 0.9
"""The share of diagnoses that find the smallest effect that is named."""

NORMAL = NormalDist()
REACH = NORMAL.inv_cdf(0.975)
"""The standard errors from an effect to the ends of its 95 % interval."""


@dataclass(frozen=True, slots=True)
class SlownessTest:
    """A test whether some of many components are slow; the least p-value counts, so that comparisons multiply it."""

    false_alarm: float  # the chance that it accuses any of them on a healthy machine
    comparisons: float

    @property
    def critical_value(self) -> float:
        """Return the standard errors that an effect must exceed."""
        false_alarm_of_one = self.false_alarm / max(self.comparisons, 1)
        return -NORMAL.inv_cdf(false_alarm_of_one)

    def slots(self, noise: float, controls: int, screened: float = 0.0) -> int:
        """Return the slots after which the critical value is LEAST_EFFECT, or a third of the least screened one.

        Args:
            noise: the standard deviation of the logarithm of the time of a pair.
            controls: the pairs in a slot that it is compared with.
            screened: that least effect, a logarithm.
        """
        fewest, most = RETEST_SLOTS
        threshold = max(LEAST_EFFECT, screened / 3)
        needed = (self.critical_value * effect_error(noise, 1, controls) / threshold) ** 2
        return min(max(math.ceil(needed), fewest), most)

    def threshold(self, error: float) -> float:
        """Return the logarithm of the factor from which on an effect with a standard error is a fault."""
        return max(LEAST_EFFECT, self.critical_value * error)

    def smallest_effect(self, error: float) -> float:
        """Return the logarithm of the factor that exceeds the threshold in FOUND of the tests."""
        return smallest_found(self.threshold(error), error)

    def fault(self, component: Component, effect: float, error: float) -> Fault:
        """Return a fault with an effect, the logarithm of a factor."""
        deviations = float(effect) / max(float(error), 1e-12)
        chance = self.comparisons * NORMAL.cdf(-deviations)
        factor, low, high = _with_interval(float(effect), float(error))
        return Fault(component, factor, low, high, min(float(chance), 1.0))


def judged_effect(
    component: Component, purpose: Purpose, effect: float, error: float, threshold: float
) -> JudgedEffect:
    """Return an effect with its threshold, all of them given as logarithms of factors."""
    factor, low, high = _with_interval(effect, error)
    return JudgedEffect(component, purpose, factor, low, high, math.exp(threshold))


def _with_interval(effect: float, error: float) -> tuple[float, float, float]:
    """Return the factor of an effect, and the ends of its 95 % interval."""
    reach = REACH * error
    return math.exp(effect), math.exp(effect - reach), math.exp(effect + reach)


def effect_error(noise: float, slots: int, controls: float) -> float:
    """Return the standard error of the effect of a node in a test.

    It is the lower quartile over slots of what its pair takes beyond the median of the controls in
    the slot, less the median of the same of controls.
    """
    variance = (1 + 2 * MEDIAN_ERROR**2 / controls) / slots
    return QUARTILE_ERROR * noise * math.sqrt(variance)


def smallest_found(threshold: float, error: float) -> float:
    """Return the effect that exceeds a threshold in FOUND of the measurements with a standard error."""
    return threshold + NORMAL.inv_cdf(FOUND) * error
