"""How fast a variant of the library's own call is beside the default one, where nothing else was measured.

Variants run in launches of their own, because their environments differ. Their ratio includes what
differs between launches, and is therefore no evidence for a choice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import geometric_mean

from hpccoll.analysis.recommendations import Recommendation

DEFAULT_VARIANTS = None, "default"
"""The names of the variant with the library's defaults."""


@dataclass(frozen=True, slots=True)
class VariantGain:
    """The time of the default variant over that of another one."""

    factor: float  # the geometric mean over the sizes that both measured
    low: float  # that of the size of the least gain
    high: float  # that of the size of the most


def variant_gain(
    recommendation: Recommendation, recommendations: Iterable[Recommendation]
) -> VariantGain | None:
    """Return the gain of the library's own call over that of the default variant, in the same setting.

    None for the default variant itself, if another choice was measured, or if no size was measured
    in both.
    """
    if recommendation.setting.variant in DEFAULT_VARIANTS or len(recommendation.choices) != 1:
        return None
    for default in recommendations:
        if default.setting.variant in DEFAULT_VARIANTS and _are_alike(default, recommendation):
            ratios = _ratios(default, recommendation)
            if ratios:
                return VariantGain(geometric_mean(ratios), min(ratios), max(ratios))
    return None


def _are_alike(default: Recommendation, recommendation: Recommendation) -> bool:
    """Return whether two recommendations differ in their variant only."""
    with_variant = replace(default.setting, variant=recommendation.setting.variant)
    same_setting = with_variant == recommendation.setting
    return same_setting and default.measured.conditions == recommendation.measured.conditions


def _ratios(default: Recommendation, recommendation: Recommendation) -> list[float]:
    """Return the time of the default over that of the variant at each size, of the same choice."""
    ratios = []
    for nbytes, verdict in recommendation.verdicts.items():
        by_default = default.verdicts.get(nbytes)
        if by_default and by_default.choice == verdict.choice:
            ratios.append(by_default.seconds / verdict.seconds)
    return ratios
