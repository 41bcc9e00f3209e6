"""The regret of a tune table: the time of its choices over that of the best choices, in results not used to make it.

Noise makes it too large; a lower estimate (hpccoll/analysis/held_out_regret.py) says by how much at
most.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import TypedDict

from hpccoll.analysis.choice_table import TableEntry, TuneTable
from hpccoll.analysis.held_out_regret import held_out_regret
from hpccoll.analysis.measured_choices import (
    ChoiceTime,
    MeasuredSetting,
    comparable_seconds,
    measured_settings,
)
from hpccoll.analysis.recommendations import lone_rank_reason
from hpccoll.analysis.setting import Choice, Setting
from hpccoll.common.errors import BadInputError
from hpccoll.common.records import to_builtins
from hpccoll.common.units import format_size
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results


class SizeRegretJson(TypedDict):
    """The regret at one size, as JSON has it."""

    bytes: int
    choice: str
    seconds: float
    best: str
    best_seconds: float
    regret: float  # the time of the choice over that of the best
    held_out: float
    unsure: float
    unpaired: bool
    beyond: bool
    default_regret: float | None
    chosen_for_nodes: int | None


class SingleChoiceJson(TypedDict):
    """The best of the choices that serve all sizes."""

    choice: str
    geometric_mean: float


class SettingRegretJson(TypedDict):
    """The regrets of a setting."""

    setting: Setting
    geometric_mean: float
    held_out: float
    fixed: SingleChoiceJson | None
    sizes: list[SizeRegretJson]


class TableJudgementJson(TypedDict):
    """The regrets of a table, as JSON has them."""

    geometric_mean: float
    held_out: float
    settings: list[SettingRegretJson]
    unjudged: list[str]
    strange: list[str]


@dataclass(frozen=True, slots=True)
class SizeRegret:
    """The regret at one size of one setting."""

    setting: Setting
    nbytes: int  # the size S, in bytes
    choice: Choice  # the choice of the table
    seconds: float  # its time, comparable with that of the best
    best: Choice  # the best choice in these results
    best_seconds: float  # the time of the best
    held_out: float  # the lower estimate of the regret, by cross-validation over rounds
    # whether no launch measured both: the regret then includes differences between launches
    unpaired: bool = False
    noise: float = 0.0  # the relative uncertainty of the regret
    extrapolated: bool = False  # whether the size lies outside those from which the table was made
    # the time of the library's own choice; None if it was not measured
    default_seconds: float | None = None
    # the nodes that the choice was made for; None if these are the nodes of the setting
    chosen_for_nodes: int | None = None

    @property
    def regret(self) -> float:
        """The time of the choice over that of the best: 1 if it is the best; noise may make it too large."""
        return self.seconds / self.best_seconds

    @property
    def default_regret(self) -> float | None:
        """The time of the library's own choice over that of the best; None if it was not measured."""
        return None if self.default_seconds is None else self.default_seconds / self.best_seconds

    @property
    def is_significant(self) -> bool:
        """Whether the best is faster by more than the noise; one algorithm under two names never is."""
        if self.choice == self.best:
            return False
        return math.log(self.regret) > self.noise

    def to_json(self) -> SizeRegretJson:
        return {
            "bytes": self.nbytes,
            "choice": self.choice.label,
            "seconds": self.seconds,
            "best": self.best.label,
            "best_seconds": self.best_seconds,
            "regret": self.regret,
            "held_out": self.held_out,
            "unsure": self.noise,
            "unpaired": self.unpaired,
            "beyond": self.extrapolated,
            "default_regret": self.default_regret,
            "chosen_for_nodes": self.chosen_for_nodes,
        }


@dataclass(frozen=True, slots=True)
class TableJudgement:
    """The regrets of a table."""

    regrets: tuple[SizeRegret, ...]  # the regret at each judged size
    unjudged: tuple[str, ...]  # sentences about settings and sizes that could not be judged
    # sentences about settings whose machine, MPI library or executor is not that of the table, and
    # about results from which the table was made
    other_conditions: tuple[str, ...] = ()
    # for each setting, the best of the choices that serve all sizes, and the geometric mean of its
    # regrets
    single_choices: Mapping[Setting, tuple[Choice, float]] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return geometric_mean(regret.regret for regret in self.regrets)

    def regrets_of_default(self) -> tuple[float, ...]:
        """Return the regret of the library's own choice at each judged size that it was measured at."""
        measured: list[float] = []
        for regret in self.regrets:
            if regret.default_regret is not None:
                measured.append(regret.default_regret)
        return tuple(measured)

    @property
    def held_out(self) -> float:
        return geometric_mean(regret.held_out for regret in self.regrets)

    def by_setting(self) -> Iterator[tuple[Setting, list[SizeRegret], float, float]]:
        """Yield each setting with its regrets, their geometric mean, and that of their lower estimates."""
        regrets_of: dict[Setting, list[SizeRegret]] = defaultdict(list)
        for regret in self.regrets:
            regrets_of[regret.setting].append(regret)
        for setting, regrets in regrets_of.items():
            mean = geometric_mean(regret.regret for regret in regrets)
            held_out = geometric_mean(regret.held_out for regret in regrets)
            yield setting, regrets, mean, held_out

    def to_json(self) -> TableJudgementJson:
        settings: list[SettingRegretJson] = []
        for setting, regrets, mean, held_out in self.by_setting():
            fixed: SingleChoiceJson | None = None
            if setting in self.single_choices:
                choice, single_mean = self.single_choices[setting]
                fixed = {"choice": choice.label, "geometric_mean": single_mean}
            settings.append(
                {
                    "setting": to_builtins(setting),
                    "geometric_mean": mean,
                    "held_out": held_out,
                    "fixed": fixed,
                    "sizes": [regret.to_json() for regret in regrets],
                }
            )
        return {
            "geometric_mean": self.mean,
            "held_out": self.held_out,
            "settings": settings,
            "unjudged": list(self.unjudged),
            "strange": list(self.other_conditions),
        }


def judge_table(table: TuneTable, results: Results) -> TableJudgement:
    """Return the regrets of ``table`` in ``results``.

    Raises:
        BadInputError: if nothing in the results can be judged.
    """
    regrets: list[SizeRegret] = []
    unjudged: list[str] = []
    single_choices: dict[Setting, tuple[Choice, float]] = {}
    other_conditions: dict[str, None] = {}
    measured_runs = {row.run_id for row in results.rows}
    if any(run.run_id in measured_runs for run in table.runs):
        same_results = (
            "the table was made from these results, so that noise makes its choices look too good"
        )
        other_conditions[same_results] = None
    for setting, measured in measured_settings(results).items():
        entry = table.find(setting) or table.of_fewer_nodes(setting)
        if entry is None:
            unjudged.append(f"{setting.label}: the table has no choice for it")
            continue
        made_on = table.conditions(entry)
        conditions = measured.conditions.label
        if made_on and conditions not in made_on:
            other_conditions[
                f"the table was made on {' and '.join(made_on)}, and these results on {conditions}"
            ] = None
        seconds, reasons = _comparable_sizes(measured, entry)
        for size, seconds_of_choice in seconds.items():
            regrets.append(
                _size_regret(setting, entry, size, measured.times_at(size), seconds_of_choice)
            )
        single_choice = _best_single_choice(seconds)
        if single_choice:
            single_choices[setting] = single_choice
        unjudged += (f"{setting.label}: {reason}" for reason in reasons)
    if not regrets:
        reason = "; ".join(unjudged) or lone_rank_reason(results.ours.rows) or "no rows"
        raise BadInputError(
            "PATHS", reason, "results in which choices of the table were measured next to others"
        )
    return TableJudgement(tuple(regrets), tuple(unjudged), tuple(other_conditions), single_choices)


def _comparable_sizes(
    measured: MeasuredSetting, entry: TableEntry
) -> tuple[dict[int, Mapping[Choice, float]], list[str]]:
    """Return the seconds of all choices at each size that can be judged, and why the other sizes cannot."""
    seconds: dict[int, Mapping[Choice, float]] = {}
    not_judged: dict[str, list[int]] = defaultdict(list)
    for size in measured.sizes:
        times = measured.times_at(size)
        choice = entry.range_of(size).choice
        if choice not in times:
            not_judged[f"{choice.label} was not measured"].append(size)
        elif len(times) == 1:
            not_judged[f"only {choice.label} was measured"].append(size)
        else:
            seconds[size] = comparable_seconds(times)
    reasons = [
        f"{why} at {', '.join(map(format_size, sizes))}" for why, sizes in not_judged.items()
    ]
    return seconds, reasons


def _size_regret(
    setting: Setting,
    entry: TableEntry,
    size: int,
    times: Mapping[Choice, ChoiceTime],
    seconds: Mapping[Choice, float],
) -> SizeRegret:
    choice = entry.range_of(size).choice
    best = min(seconds, key=seconds.__getitem__)
    chosen_time = times[choice]
    best_time = times[best]
    medians = {}
    for measured, time in times.items():
        medians[measured] = {key: round_times.median for key, round_times in time.rounds.items()}
    held_out = max(1.0, held_out_regret(medians, choice) or 1.0)
    noise = 0.0
    if choice != best:
        noise = chosen_time.ratio_noise(best_time)
    least, most = entry.measured_limits
    is_inside = least <= size <= most
    return SizeRegret(
        setting=setting,
        nbytes=size,
        choice=choice,
        seconds=seconds[choice],
        best=best,
        best_seconds=seconds[best],
        held_out=min(held_out, seconds[choice] / seconds[best]),
        unpaired=not chosen_time.shares_launch(best_time),
        noise=noise,
        extrapolated=not is_inside,
        default_seconds=_default_seconds(seconds),
        chosen_for_nodes=entry.setting.nodes if entry.setting.nodes != setting.nodes else None,
    )


def _default_seconds(seconds: Mapping[Choice, float]) -> float | None:
    """Return the time of the library's own call; None if it was not measured."""
    own_calls = filter(_is_own_call, seconds)
    return min(map(seconds.__getitem__, own_calls), default=None)


def _is_own_call(choice: Choice) -> bool:
    """Return whether a choice is the library's own call, under whatever name of it."""
    return choice.algorithm == NATIVE


def _best_single_choice(
    seconds: Mapping[int, Mapping[Choice, float]],
) -> tuple[Choice, float] | None:
    """Return the best choice that serves all sizes, and its mean regret; None with fewer than two sizes or choices."""
    if len(seconds) < 2:
        return None
    common = set.intersection(*map(set, seconds.values()))
    if len(common) < 2:
        return None
    means = {}
    for choice in sorted(common, key=str):
        means[choice] = geometric_mean(
            times[choice] / min(times.values()) for times in seconds.values()
        )
    return min(means.items(), key=lambda item: item[1])
