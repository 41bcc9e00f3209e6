"""What to use: for each setting the choice by size, how much faster than native it is, and how sure that is."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Literal, TypeAlias

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.choice_times import ComparedTime, choice_times
from hpccoll.analysis.measured_choices import (
    ChoiceTime,
    MeasuredSetting,
    comparable_seconds,
    measured_settings,
    rows_by_setting,
)
from hpccoll.analysis.round_comparison import RoundKey
from hpccoll.analysis.row_labels import tier_label
from hpccoll.analysis.setting import Choice, Conditions, Setting
from hpccoll.analysis.size_ranges import SizeRanges, choose_ranges
from hpccoll.analysis.strength import ADVISED, Evidence, Gain, Strength, busy_runs
from hpccoll.cases.transport_table import SHARED_GPU_CHOICES
from hpccoll.schedule import collective
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results, Row

Verdict: TypeAlias = Literal["clear", "tie", "behind", "alone"]
"""How sure a choice is at a size: clearly the fastest; not clearly faster or slower than another;
clearly slower than another, by less than ranges of their own would cost; the only choice."""


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """How sure the choice is at one size."""

    nbytes: int  # the size S, in bytes
    choice: Choice
    seconds: float  # its median time
    # the fastest of the other choices that leave the verdict open, or of all if it is clear; None
    # without one
    runner_up: Choice | None
    # the time of the runner-up over that of the choice, round by round; None without a runner-up
    lead: float | None
    verdict: Verdict  # how sure the choice is
    # whether the choice is clearly faster than native; None for native, and if native was not
    # measured
    beats_native: bool | None = None
    # native's time over that of the choice, round by round; None for native, and if native was not
    # measured
    over_native: float | None = None
    # the fewest rounds in which a launch measured the choice and another one; 0 if none did
    rounds: int = 0

    @property
    def is_clear(self) -> bool:
        """Whether the choice is clearly the fastest, or clearly faster than native while no other is faster."""
        if self.verdict == "tie":
            return bool(self.beats_native)
        return self.verdict == "clear"


@dataclass(frozen=True, slots=True)
class RecommendedRange:
    """A range of sizes with its choice."""

    sizes: ChoiceRange  # the range
    verdicts: tuple[SizeVerdict, ...]  # how sure the choice is at each measured size of the range
    evidence: Evidence  # how strong the evidence is, with the gain over native

    @property
    def choice(self) -> Choice:
        return self.sizes.choice

    def count(self, *verdicts: Verdict) -> int:
        """Return the number of sizes with one of ``verdicts``."""
        return sum(size.verdict in verdicts for size in self.verdicts)

    @property
    def strength(self) -> Strength:
        """How strong the evidence for the choice is."""
        return self.evidence.strength

    @property
    def is_advice(self) -> bool:
        """Whether people should use the choice: the one condition of every sentence that advises."""
        return self.strength in ADVISED

    @property
    def is_compared(self) -> bool:
        """Whether another choice was measured at one of its sizes."""
        return self.evidence.compared > 0


@dataclass(frozen=True, slots=True)
class AutoResult:
    """How fast ``auto``, which runs the choices of a table, was compared with native."""

    sizes: tuple[int, ...]  # the sizes at which both were measured, in bytes, ascending
    gain: Gain
    slower: int  # the number of sizes at which native is clearly faster
    evidence: Evidence


@dataclass(frozen=True)  # without slots, because cached_property needs a __dict__
class Recommendation:
    """What to use in one setting."""

    # the setting; its ``in_place`` is None if one set of ranges serves both placements
    setting: Setting
    measured: MeasuredSetting  # the measurements, of both placements in that case
    ranges: tuple[RecommendedRange, ...]  # the ranges of sizes, ascending
    auto: AutoResult | None  # how fast ``auto`` was; None unless native and ``auto`` were measured

    @property
    def has_one_buffer(self) -> bool:
        """Whether only calls of the library were measured, whose one buffer serves both placements."""
        if self.measured.auto or self.setting.in_place is not True:
            return False
        only_calls = all(choice.algorithm == NATIVE for choice in self.choices)
        return only_calls and collective(self.setting.collective).one_buffer

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(self.measured.curves)

    @property
    def is_compared(self) -> bool:
        """Whether several choices were measured at one size or more."""
        return any(recommended.is_compared for recommended in self.ranges)

    @cached_property
    def verdicts(self) -> dict[int, SizeVerdict]:
        """How sure the choice is, by measured size in bytes."""
        verdicts: dict[int, SizeVerdict] = {}
        for chosen in self.ranges:
            verdicts |= {verdict.nbytes: verdict for verdict in chosen.verdicts}
        return verdicts

    @cached_property
    def times(self) -> dict[int, dict[Choice, ComparedTime]]:
        """What ``choice_times`` returns: a table of each chart that the setting is in has it."""
        chosen = {size: verdict.choice for size, verdict in self.verdicts.items()}
        return choice_times(self.measured, chosen)

    def largest_ratio(self, choices: Collection[Choice], sizes: Iterable[int]) -> float:
        """Return how many times as long the slowest of some choices takes as the fastest, at the worst of ``sizes``."""
        largest = 1.0
        for size in sizes:
            times = {
                choice: time
                for choice, time in self.measured.times_at(size).items()
                if choice in choices
            }
            if times:
                seconds = comparable_seconds(times).values()
                largest = max(largest, max(seconds) / min(seconds))
        return largest

    @cached_property
    def named(self) -> frozenset[Choice | None]:
        names: set[Choice | None] = set()
        for verdict in self.verdicts.values():
            names |= {verdict.choice, verdict.runner_up}
        return frozenset(names)


class Advice:
    """What to use, by some results: each part is computed once, when a command first needs it."""

    def __init__(self, results: Results) -> None:
        self.results = results

    @cached_property
    def settings(self) -> dict[Setting, MeasuredSetting]:
        """The settings for a table; see ``measured_settings`` for its error."""
        return measured_settings(self.results)

    @cached_property
    def placements(self) -> "tuple[Recommendation, ...]":
        """What ``recommend_placements`` returns."""
        return recommend_placements(self.results)

    @cached_property
    def recommendations(self) -> "tuple[Recommendation, ...]":
        """What ``recommend`` returns."""
        return _of_report(self.results, self.placements)


def recommend(results: Results) -> tuple[Recommendation, ...]:
    """Return what to use in every measured setting, separately for each machine, MPI library and executor.

    Tables of ``hpccoll tune`` and reports both come from here, so that they agree. A placement in
    which nothing but calls of the library with one buffer were measured has no recommendation of
    its own if the other placement has one, because that is compared with these calls, too. If
    ``rank_pairs`` has a finding for a group of pairs of ranks, these pairs have no recommendations
    either.
    """
    return _of_report(results, recommend_placements(results))


def _of_report(
    results: Results, placements: Iterable[Recommendation]
) -> tuple[Recommendation, ...]:
    recommendations = _without_many_pairs(results, placements)
    settings = set()
    for recommendation in recommendations:
        settings.add((recommendation.setting, recommendation.measured.conditions))
    kept = []
    for recommendation in recommendations:
        other_placement = (
            _other_placement(recommendation.setting),
            recommendation.measured.conditions,
        )
        if not (recommendation.has_one_buffer and other_placement in settings):
            kept.append(recommendation)
    return tuple(kept)


def _without_many_pairs(
    results: Results, placements: Iterable[Recommendation]
) -> list[Recommendation]:
    """Return the recommendations but those of pairs of ranks for which a finding on their tier answers.

    It has the pairs of a choice at the smallest size, if these are several: see
    ``rank_pairs.pair_findings``.
    """
    tiers = {row.key: tier_label(row) for row in results.rows}
    calls = defaultdict[tuple[Setting, Conditions], list[tuple[str, Recommendation]]](list)
    for recommendation in placements:
        first_row = next(iter(recommendation.measured.rows))
        call = recommendation.setting.of_any_pair, recommendation.measured.conditions
        calls[call].append((tiers[first_row], recommendation))
    kept: list[Recommendation] = []
    for members in calls.values():
        answered = _tiers_of_many_pairs(members)
        kept += (recommendation for tier, recommendation in members if tier not in answered)
    return kept


def _tiers_of_many_pairs(members: Sequence[tuple[str, Recommendation]]) -> set[str]:
    """Return the tiers in which several pairs measured a choice at the smallest size."""
    smallest = min(recommendation.measured.sizes[0] for _, recommendation in members)
    pairs: Counter[tuple[str, Choice]] = Counter()
    for tier, recommendation in members:
        for choice in recommendation.measured.times_at(smallest):
            pairs[tier, choice] += 1
    return {tier for (tier, _), count in pairs.items() if count > 1}


def recommend_placements(results: Results) -> tuple[Recommendation, ...]:
    """Return what ``recommend`` does, and a recommendation for every other measured placement.

    A table needs these, because a case is looked up with its placement.
    """
    busy = busy_runs(results)
    placements: dict[tuple[Setting, Conditions], list[tuple[Setting, list[Row]]]] = defaultdict(
        list
    )
    for (setting, conditions), rows in rows_by_setting(results).items():
        call = replace(setting, in_place=None)
        placements[call, conditions].append((setting, rows))
    recommendations: list[Recommendation] = []
    for (call, conditions), rows_of_placements in placements.items():
        recommendations += _recommend(call, conditions, rows_of_placements, busy)
    return tuple(recommendations)


def ranges_by_setting(
    recommendations: Sequence[Recommendation],
) -> dict[tuple[Setting, int], RecommendedRange]:
    """Return the range of each setting, of one placement, and measured size in bytes.

    The ranges of a single placement serve the other one, too, if calls of the library have one
    buffer.
    """
    settings = {recommendation.setting for recommendation in recommendations}
    ranges: dict[tuple[Setting, int], RecommendedRange] = {}
    for recommendation in recommendations:
        setting = recommendation.setting
        is_alone = (
            collective(setting.collective).one_buffer and _other_placement(setting) not in settings
        )
        serves_both = setting.in_place is None or is_alone
        for in_place in (False, True) if serves_both else (setting.in_place,):
            placed = replace(setting, in_place=in_place)
            for chosen in recommendation.ranges:
                sizes = [(placed, verdict.nbytes) for verdict in chosen.verdicts]
                ranges |= dict.fromkeys(sizes, chosen)
    return ranges


def _other_placement(setting: Setting) -> Setting:
    return replace(setting, in_place=not setting.in_place)


def _recommend(
    call: Setting,
    conditions: Conditions,
    placements: Sequence[tuple[Setting, list[Row]]],
    busy: Collection[str],
) -> list[Recommendation]:
    """Return a recommendation for each placement of a call, or one for both if that costs little more."""
    all_measured: list[MeasuredSetting] = []
    costs: list[float] = []
    separate: list[Recommendation] = []
    for setting, rows in placements:
        measured = MeasuredSetting.of(rows, conditions)
        ranges = choose_ranges(measured)
        all_measured.append(measured)
        costs.append(ranges.cost)
        separate.append(_recommendation(setting, measured, ranges, busy))
    common_choices = set(all_measured[0].curves).intersection(
        *(measured.curves for measured in all_measured)
    )
    same_sizes = all_measured[0].sizes == all_measured[-1].sizes
    has_one_buffer = any(recommendation.has_one_buffer for recommendation in separate)
    if len(placements) == 1 or not common_choices or not same_sizes or has_one_buffer:
        return separate
    joint = choose_ranges(*all_measured)
    if joint.cost > fmean(costs) + joint.price:
        return separate
    all_rows = list(chain.from_iterable(rows for _, rows in placements))
    return [_recommendation(call, MeasuredSetting.of(all_rows, conditions), joint, busy)]


def _recommendation(
    setting: Setting, measured: MeasuredSetting, chosen: SizeRanges, busy: Collection[str]
) -> Recommendation:
    ranges = tuple(_recommended_range(measured, sizes, busy) for sizes in chosen.ranges)
    return Recommendation(setting, measured, ranges, _auto_result(measured, busy))


def _recommended_range(
    measured: MeasuredSetting, sizes: ChoiceRange, busy: Collection[str]
) -> RecommendedRange:
    choice = sizes.choice
    verdicts: list[SizeVerdict] = []
    own_times: list[ChoiceTime] = []
    pairs: list[tuple[ChoiceTime, ChoiceTime]] = []  # the choice and another one, at one size
    native_pairs: list[tuple[ChoiceTime, ChoiceTime]] = []  # native and the choice
    for size in sizes.sizes:
        times = measured.times_at(size)
        if choice not in times:
            continue
        own_time = times[choice]
        own_times.append(own_time)
        verdicts.append(_verdict(size, choice, times))
        pairs += ((own_time, time) for rival, time in times.items() if rival != choice)
        native = None if choice.is_native else _native_time(times)
        if native:
            native_pairs.append((native, own_time))
    compared = [verdict for verdict in verdicts if verdict.verdict != "alone"]
    clear_sizes = sum(verdict.is_clear for verdict in compared)
    fewest_rounds = min((verdict.rounds for verdict in compared), default=0)
    has_intervals = any(time.has_interval for time in own_times)
    evidence = Evidence(
        compared=len(compared),
        clear=clear_sizes,
        rounds=fewest_rounds,
        gain=_gain(native_pairs),
        has_intervals=has_intervals,
        oversubscribed=measured.oversubscribed,
        busy=_any_busy(pairs, busy),
    )
    return RecommendedRange(sizes, tuple(verdicts), evidence)


def _auto_result(measured: MeasuredSetting, busy: Collection[str]) -> AutoResult | None:
    sizes: list[int] = []
    pairs: list[tuple[ChoiceTime, ChoiceTime]] = []  # native and auto, at each size
    for size, auto in measured.auto.items():
        native = _native_time(measured.times_at(size))
        if native:
            sizes.append(size)
            pairs.append((native, auto))
    gain = _gain(pairs)
    if gain is None:
        return None
    faster = slower = 0
    rounds = []
    has_intervals = False
    for native, auto in pairs:
        faster += auto.clearly_faster(native)
        slower += native.clearly_faster(auto)
        rounds.append(len(_common_rounds(native, auto)))
        has_intervals = has_intervals or auto.has_interval
    evidence = Evidence(
        compared=len(pairs),
        clear=faster,
        rounds=min(rounds),
        gain=gain,
        has_intervals=has_intervals,
        oversubscribed=measured.oversubscribed,
        busy=_any_busy(pairs, busy),
    )
    return AutoResult(tuple(sizes), gain, slower, evidence)


def _verdict(nbytes: int, choice: Choice, times: dict[Choice, ChoiceTime]) -> SizeVerdict:
    seconds = comparable_seconds(times)
    chosen = times[choice]
    rivals = sorted(times.keys() - {choice}, key=lambda rival: (seconds[rival], rival.label))
    if not rivals:
        return SizeVerdict(nbytes, choice, chosen.seconds, None, None, "alone")
    faster = [rival for rival in rivals if times[rival].clearly_faster(chosen)]
    undecided = [rival for rival in rivals if not chosen.clearly_faster(times[rival])]
    verdict: Verdict = "clear"
    if faster:
        verdict = "behind"
    elif undecided:
        verdict = "tie"
    runner_up = (faster or undecided or rivals)[0]
    beats_native = over_native = None
    native = None if choice.is_native else _native_time(times)
    if native:
        native_times = [time for rival, time in times.items() if rival.is_native]
        beats_native = all(map(chosen.clearly_faster, native_times))
        over_native = native.ratio(chosen)
    common_rounds = [len(_common_rounds(chosen, times[rival])) for rival in rivals]
    return SizeVerdict(
        nbytes=nbytes,
        choice=choice,
        seconds=chosen.seconds,
        runner_up=runner_up,
        lead=times[runner_up].ratio(chosen),
        verdict=verdict,
        beats_native=beats_native,
        over_native=over_native,
        rounds=min(filter(None, common_rounds), default=0),
    )


def _native_time(times: Mapping[Choice, ChoiceTime]) -> ChoiceTime | None:
    """Return the time of the fastest of the library's own calls at a size; None without one."""
    native = [choice for choice in times if choice.is_native]
    if not native:
        return None
    seconds = comparable_seconds(times)
    return times[min(native, key=seconds.__getitem__)]


def _common_rounds(first: ChoiceTime, second: ChoiceTime) -> set[RoundKey]:
    """Return the rounds of launches that measured both, in one placement or in both."""
    return {(run, number) for _, run, number in first.round_ratios(second)}


def _any_busy(pairs: Iterable[tuple[ChoiceTime, ChoiceTime]], busy: Collection[str]) -> bool:
    """Return whether one of the runs ``busy`` measured a round in which the times of a pair are compared."""
    for first, second in pairs:
        runs = {run for run, _ in _common_rounds(first, second)}
        if not runs.isdisjoint(busy):
            return True
    return False


def _gain(pairs: Sequence[tuple[ChoiceTime, ChoiceTime]]) -> Gain | None:
    """Return the gain over native, from the times of native and of the choice at each size; None without any."""
    if not pairs:
        return None
    sizes = []
    for native, chosen in pairs:
        ratios = []
        for (_, run, number), ratio in native.round_ratios(chosen).items():
            ratios.append(((run, number), ratio))
        sizes.append((native.ratio(chosen), ratios))
    return Gain.of(sizes)


def lone_rank_reason(rows: Sequence[Row]) -> str:
    """Return why no advice follows from rows of single ranks, and what two ranks need; empty for any other rows."""
    if not rows or any(row.exchanges_data for row in rows):
        return ""
    remedy = "start the same command on two ranks (mpiexec -n 2; of a sweep file, ranks: [2])"
    if any(row.device == "cuda" for row in rows):
        remedy += f", with a GPU for each; on one GPU, one of: {'; '.join(SHARED_GPU_CHOICES)}"
    return f"one rank exchanges nothing, and no advice follows from its times; do: {remedy}"
