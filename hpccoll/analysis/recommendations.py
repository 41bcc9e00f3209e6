"""What to use: for each setting the choice by size, how much faster than native it is, and how sure that is."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.conditions import Conditions
from hpccoll.analysis.measured_choices import (
    ChoiceTime,
    MeasuredSetting,
    comparable_seconds,
    rows_by_setting,
)
from hpccoll.analysis.recommendation import Gain, Recommendation, RecommendedRange, SizeVerdict, Verdict
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.analysis.size_ranges import SizeRanges, choose_ranges
from hpccoll.cases.transport_table import SHARED_GPU_CHOICES
from hpccoll.schedule import collective
from hpccoll.store.rows import Results, Row
from hpccoll.store.statistics import median_ratio


def recommend(results: Results) -> tuple[Recommendation, ...]:
    """Return what to use in every measured setting, separately for each machine, MPI library and executor.

    Tables of ``hpccoll tune`` and reports both come from here, so that they agree. A placement in which nothing but
    calls of the library with one buffer were measured has no recommendation of its own if the other placement has one,
    because that is compared with these calls, too.
    """
    found = recommend_placements(results)
    settings = {(each.setting, each.measured.conditions) for each in found}
    return tuple(
        each
        for each in found
        if not (each.has_one_buffer and (_other_placement(each.setting), each.measured.conditions) in settings)
    )


def recommend_placements(results: Results) -> tuple[Recommendation, ...]:
    """Return what ``recommend`` does, and a recommendation for every other measured placement.

    A table needs these, because a case is looked up with its placement.
    """
    placements: dict[tuple[Setting, Conditions], list[tuple[Setting, list[Row]]]] = defaultdict(list)
    for (setting, conditions), rows in rows_by_setting(results).items():
        placements[replace(setting, in_place=None), conditions].append((setting, rows))
    return tuple(
        recommendation
        for (call, conditions), several in placements.items()
        for recommendation in _recommend(call, conditions, several)
    )


def verdicts_by_setting(recommendations: Sequence[Recommendation]) -> dict[tuple[Setting, int], SizeVerdict]:
    """Return how sure the choice is for each setting, of one placement, and size in bytes with several choices.

    The verdicts of a single placement serve the other one, too, if calls of the library have one buffer.
    """
    settings = {each.setting for each in recommendations}
    verdicts: dict[tuple[Setting, int], SizeVerdict] = {}
    for each in recommendations:
        alone = collective(each.setting.collective).one_buffer and _other_placement(each.setting) not in settings
        for in_place in (False, True) if each.setting.in_place is None or alone else (each.setting.in_place,):
            setting = replace(each.setting, in_place=in_place)
            verdicts |= {(setting, size): of for size, of in each.verdicts.items() if of.verdict != "alone"}
    return verdicts


def _other_placement(setting: Setting) -> Setting:
    return replace(setting, in_place=not setting.in_place)


def _recommend(
    call: Setting, conditions: Conditions, placements: Sequence[tuple[Setting, list[Row]]]
) -> list[Recommendation]:
    """Return one recommendation for both placements, or one for each."""
    measured = [MeasuredSetting.of(rows, conditions) for _, rows in placements]
    chosen = [choose_ranges(each) for each in measured]
    separate = [
        _recommendation(setting, each, ranges)
        for (setting, _), each, ranges in zip(placements, measured, chosen, strict=True)
    ]
    common = set.intersection(*(set(each.curves) for each in measured))
    shareable = common and measured[0].sizes == measured[-1].sizes and not any(each.has_one_buffer for each in separate)
    if len(measured) > 1 and shareable:
        joint = choose_ranges(*measured)
        if joint.cost <= fmean(each.cost for each in chosen) + joint.price:
            both = MeasuredSetting.of([row for _, rows in placements for row in rows], conditions)
            return [_recommendation(call, both, joint)]
    return separate


def _recommendation(setting: Setting, measured: MeasuredSetting, chosen: SizeRanges) -> Recommendation:
    ranges = (
        RecommendedRange(
            sizes=each,
            verdicts=tuple(
                _verdict(size, each.choice, measured.times_at(size))
                for size in each.sizes
                if each.choice in measured.times_at(size)
            ),
            gain=_gain(measured, each),
        )
        for each in chosen.ranges
    )
    return Recommendation(setting, measured, tuple(ranges))


def _verdict(nbytes: int, choice: Choice, times: dict[Choice, ChoiceTime]) -> SizeVerdict:
    seconds = comparable_seconds(times)
    others = sorted(times.keys() - {choice}, key=lambda other: (seconds[other], other.label))
    if not others:
        return SizeVerdict(nbytes, choice, times[choice].seconds, None, None, "alone")
    faster = [other for other in others if times[other].clearly_faster(times[choice])]
    open_ones = [other for other in others if not times[choice].clearly_faster(times[other])]
    verdict: Verdict = "behind" if faster else "tie" if open_ones else "clear"
    rival = (faster or open_ones or others)[0]
    lead = times[rival].ratio(times[choice])
    native = [time for other, time in times.items() if other.is_native]
    beats = None if choice.is_native or not native else all(times[choice].clearly_faster(time) for time in native)
    return SizeVerdict(nbytes, choice, times[choice].seconds, rival, lead, verdict, beats)


def _gain(measured: MeasuredSetting, chosen: ChoiceRange) -> Gain | None:
    """Return the gain of a choice over the fastest of the library's own calls; None for such a call, or without one."""
    if chosen.choice.is_native:
        return None
    of_sizes: list[float] = []
    of_rounds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for size in chosen.sizes:
        times = measured.times_at(size)
        seconds = comparable_seconds(times)
        native = min((choice for choice in times if choice.is_native), key=seconds.__getitem__, default=None)
        if native is None or chosen.choice not in times:
            continue
        of_sizes.append(math.log(times[native].ratio(times[chosen.choice])))
        for (_, run, number), ratio in times[native].round_ratios(times[chosen.choice]).items():
            of_rounds[run, number].append(math.log(ratio))
    if not of_sizes:
        return None
    if len(of_rounds) < 2:
        return Gain(math.exp(fmean(of_sizes)), None, None)
    rounds = [math.exp(fmean(logs)) for logs in of_rounds.values()]
    return Gain(median_ratio(rounds), min(rounds), max(rounds))


def lone_rank_reason(rows: Sequence[Row]) -> str:
    """Return why no advice follows from rows of single ranks, and what two ranks need; empty for any other rows."""
    if not rows or any(row.exchanges_data for row in rows):
        return ""
    on_gpus = any(row.device == "cuda" for row in rows)
    needs = f", with a GPU for each; on one GPU, one of: {'; '.join(SHARED_GPU_CHOICES)}" if on_gpus else ""
    remedy = f"start the same command on two ranks (mpiexec -n 2; of a sweep file, ranks: [2]){needs}"
    return f"one rank exchanges nothing, and no advice follows from its times; do: {remedy}"
