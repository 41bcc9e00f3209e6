"""How fast a variant of the library's own call is beside the default one, where nothing else was measured.

Variants run in launches of their own, because their environments differ. Their ratio includes what
differs between launches, and is therefore no evidence for a choice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from hpccoll.analysis.measured_choices import ChoiceTime
from hpccoll.analysis.recommendations import Recommendation
from hpccoll.analysis.strength import exceeds_noise_of_launches

DEFAULT_VARIANTS = None, "default"
"""The names of the variant with the library's defaults."""


@dataclass(frozen=True, slots=True)
class VariantGain:
    """The time of the default variant over that of another one."""

    factor: float  # the geometric mean over the sizes that both measured
    low: float  # that of the size of the least gain
    high: float  # that of the size of the most
    # whether the launches may differ as much at every size; None without 95 % intervals
    within_noise: bool | None


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
            pairs = _timed_pairs(default, recommendation)
            if pairs:
                return _gain(pairs)
    return None


def is_one_of_variants(
    recommendation: Recommendation, recommendations: Iterable[Recommendation]
) -> bool:
    """Return whether another variant of the call was measured in the same setting, and nothing else in this one."""
    if len(recommendation.choices) != 1:
        return False
    for candidate in recommendations:
        is_own_variant = candidate.setting.variant == recommendation.setting.variant
        if not is_own_variant and _are_alike(candidate, recommendation):
            return True
    return False


def _are_alike(default: Recommendation, recommendation: Recommendation) -> bool:
    """Return whether two recommendations differ in their variant only."""
    with_variant = replace(default.setting, variant=recommendation.setting.variant)
    same_setting = with_variant == recommendation.setting
    return same_setting and default.measured.conditions == recommendation.measured.conditions


def _timed_pairs(
    default: Recommendation, recommendation: Recommendation
) -> list[tuple[ChoiceTime, ChoiceTime]]:
    """Return the times of the default and of the variant at each size that both measured, of the same choice."""
    pairs = []
    for nbytes, verdict in recommendation.verdicts.items():
        by_default = default.verdicts.get(nbytes)
        if by_default and by_default.choice == verdict.choice:
            default_time = default.measured.times_at(nbytes)[verdict.choice]
            own_time = recommendation.measured.times_at(nbytes)[verdict.choice]
            pairs.append((default_time, own_time))
    return pairs


def _gain(pairs: Sequence[tuple[ChoiceTime, ChoiceTime]]) -> VariantGain:
    ratios = [default_time.seconds / own_time.seconds for default_time, own_time in pairs]
    within_noise = None
    if all(time.has_interval for pair in pairs for time in pair):
        within_noise = not any(_is_clear(*pair) for pair in pairs)
    return VariantGain(geometric_mean(ratios), min(ratios), max(ratios), within_noise)


def _is_clear(first: ChoiceTime, second: ChoiceTime) -> bool:
    """Return whether two launches differ by more than noise."""
    slower, faster = first, second
    if first.seconds < second.seconds:
        slower, faster = second, first
    slower_low, _ = slower.ends
    _, faster_high = faster.ends
    return exceeds_noise_of_launches(slower.seconds / faster.seconds, slower_low / faster_high)
