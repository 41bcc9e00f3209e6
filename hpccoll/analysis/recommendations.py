"""What to use: for each setting the choice by size, how much faster than native it is, and how sure that is."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeAlias

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.measured_choices import ChoiceTime, MeasuredSetting, comparable_seconds, rows_by_setting
from hpccoll.analysis.setting import Choice, Conditions, Setting
from hpccoll.analysis.size_ranges import SizeRanges, choose_ranges
from hpccoll.cases.transport_table import SHARED_GPU_CHOICES
from hpccoll.schedule import collective
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results, Row
from hpccoll.store.statistics import median_ratio

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
    def choices(self) -> tuple[Choice, ...]:
        return tuple(self.measured.curves)

    @property
    def is_compared(self) -> bool:
        """Whether several choices were measured at one size or more."""
        return any(of_range.is_compared for of_range in self.ranges)

    @property
    def has_intervals(self) -> bool:
        """Whether a time has a 95 % interval: without any, nothing is clear."""
        return any(time.has_interval for curve in self.measured.curves.values() for time in curve.values())

    @property
    def verdicts(self) -> dict[int, SizeVerdict]:
        """How sure the choice is, by measured size in bytes."""
        return {each.nbytes: each for of_range in self.ranges for each in of_range.verdicts}

    @property
    def named(self) -> frozenset[Choice | None]:
        return frozenset(choice for each in self.verdicts.values() for choice in (each.choice, each.runner_up))


def recommend(results: Results) -> tuple[Recommendation, ...]:
    """Return what to use in every measured setting, separately for each machine, MPI library and executor.

    Tables of ``hpccoll tune`` and reports both come from here, so that they agree. A placement in which nothing but
    calls of the library with one buffer were measured has no recommendation of its own if the other placement has one,
    because that is compared with these calls, too. Neither has any of several pairs of ranks: see ``rank_pairs``.
    """
    found = _without_many_pairs(recommend_placements(results))
    settings = {(each.setting, each.measured.conditions) for each in found}
    return tuple(
        each
        for each in found
        if not (each.has_one_buffer and (_other_placement(each.setting), each.measured.conditions) in settings)
    )


def _without_many_pairs(found: Iterable[Recommendation]) -> list[Recommendation]:
    several = defaultdict[tuple[Setting, Conditions], list[Recommendation]](list)
    for each in found:
        several[each.setting.of_any_pair, each.measured.conditions].append(each)
    return [members[0] for members in several.values() if len(members) == 1]


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
