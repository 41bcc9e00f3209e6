"""The measured times of each choice, by setting and size: the input of making and of judging a table."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

import numpy as np

from hpccoll.analysis.round_comparison import is_clear_lead, round_statistics
from hpccoll.analysis.setting import Choice, Conditions, Setting, machine_name, recorded_mpi_version
from hpccoll.cases.case import PYTHON
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import collective
from hpccoll.schedule.collective import AUTO, NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Results, Row, RowKey, Run
from hpccoll.store.statistics import RoundStatistics, median_ratio

RoundOfCall: TypeAlias = tuple[CallKey, str, int]
"""A round: the call, the id of its run, and its number in that run."""


@dataclass(frozen=True, slots=True)
class ChoiceTime:
    """The time of a choice at one size."""

    seconds: float  # the median; for several runs or calls the geometric mean of their medians
    # its relative uncertainty: half its 95 % interval, or half the spread between runs if that is
    # more
    noise: float
    # each round that measured it
    rounds: Mapping[RoundOfCall, RoundStatistics] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "ChoiceTime":
        """Return the time of a choice whose rows are of one size."""
        medians = np.array([row.median_s for row in rows])
        seconds = float(np.exp(np.log(medians).mean()))
        noises = [0.0, float(np.ptp(medians)) / 2 / seconds]
        rounds: dict[RoundOfCall, RoundStatistics] = {}
        for row in rows:
            if row.interval:
                low, high = row.interval
                noises.append((high - low) / 2 / seconds)
            key = CallKey.of(row)
            for (run, number), statistics in round_statistics(row).items():
                if statistics.median:
                    rounds[key, run, number] = statistics
        return cls(seconds, max(noises), rounds)

    @property
    def has_interval(self) -> bool:
        """Whether a round has a 95 % interval: without any, nothing is clear."""
        return bool(self._intervals)

    @property
    def _intervals(self) -> list[tuple[float, float]]:
        return [statistics.interval for statistics in self.rounds.values() if statistics.interval]

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the 95 % intervals of all rounds; 0 and infinity without any."""
        intervals = self._intervals
        lows = [low for low, _ in intervals]
        highs = [high for _, high in intervals]
        return min(lows, default=0.0), max(highs, default=inf)

    def ratio_noise(self, other: "ChoiceTime") -> float:
        """Return the relative uncertainty of the ratio to another time.

        If both were measured in two rounds or more, it is half the spread of their ratios over
        these rounds: whatever slows the machine for a while slows both. Otherwise the noises of the
        two add as independent values.
        """
        ratios = list(self.round_ratios(other).values())
        if len(ratios) > 1:
            return float(np.ptp(np.log(ratios))) / 2
        return float(np.hypot(self.noise, other.noise))

    def ratio(self, other: "ChoiceTime") -> float:
        """Return the ratio of this time to another.

        It is the median of the ratios over common rounds; without common rounds it is the ratio of
        the medians.
        """
        ratios = list(self.round_ratios(other).values())
        if not ratios:
            ratios = [self.seconds / other.seconds]
        return median_ratio(ratios)

    def round_ratios(self, other: "ChoiceTime") -> dict[RoundOfCall, float]:
        """Return the ratio of this time to another in each round that measured both."""
        common = self._common_rounds(other)
        return {key: mine.median / theirs.median for key, mine, theirs in common}

    def clearly_faster(self, other: "ChoiceTime") -> bool:
        """Return whether this time is clearly shorter than another, in all rounds that measured both."""
        pairs = [(mine, theirs) for _, mine, theirs in self._common_rounds(other)]
        return is_clear_lead(pairs)

    def _common_rounds(
        self, other: "ChoiceTime"
    ) -> Iterator[tuple[RoundOfCall, RoundStatistics, RoundStatistics]]:
        """Yield each round that measured both, with what it measured of this time and of the other one."""
        for key, mine in self.rounds.items():
            theirs = other.rounds.get(key)
            if theirs is not None:
                yield key, mine, theirs

    def shares_launch(self, other: "ChoiceTime") -> bool:
        """Return whether one launch measured both."""
        launches = {run for _, run, _ in self.rounds}
        return any(run in launches for _, run, _ in other.rounds)


def comparable_seconds(times: Mapping[Choice, ChoiceTime]) -> dict[Choice, float]:
    """Return the seconds of each choice at one size as if all had been measured in the rounds of the fastest.

    A round that was slow for all choices thus does not count against those that were measured in
    it.
    """
    fastest = min(times.values(), key=lambda time: time.seconds)
    seconds = {}
    for choice, time in times.items():
        seconds[choice] = fastest.seconds * time.ratio(fastest)
    return seconds


Curves = Mapping[Choice, Mapping[int, ChoiceTime]]
"""The time of each choice at each requested size in bytes."""


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The measurements of one setting."""

    curves: Curves  # the times of each choice
    rows: Mapping[RowKey, Choice]  # the choice of each row, in the order of runs
    conditions: Conditions  # the machine, the MPI library and the executor
    oversubscribed: bool = False  # whether there were more ranks than cores
    # the times of the algorithm ``auto`` by requested size in bytes; it is not a choice, because it
    # runs one
    auto: Mapping[int, ChoiceTime] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row], conditions: Conditions) -> "MeasuredSetting":
        """Return the measurements of the rows of a setting."""
        rows_of_choice: dict[Choice, list[Row]] = defaultdict(list)
        rows_of_auto: list[Row] = []
        choice_of_row: dict[RowKey, Choice] = {}
        for row in rows:
            if row.algorithm == AUTO:
                rows_of_auto.append(row)
                continue
            choice = Choice.of(row)
            choice_of_row[row.key] = choice
            rows_of_choice[choice].append(row)
        curves = {
            choice: _curve(rows_of_choice[choice]) for choice in sorted(rows_of_choice, key=str)
        }
        is_oversubscribed = any(row.oversubscribed for row in rows)
        return cls(curves, choice_of_row, conditions, is_oversubscribed, _curve(rows_of_auto))

    @property
    def runs(self) -> tuple[str, ...]:
        run_ids = dict.fromkeys(run_id for _, run_id, _ in self.rows)
        return tuple(run_ids)

    @property
    def sizes(self) -> list[int]:
        """All sizes in bytes, ascending."""
        sizes: set[int] = set()
        for curve in self.curves.values():
            sizes.update(curve)
        return sorted(sizes)

    def times_at(self, size: int) -> dict[Choice, ChoiceTime]:
        """Return the times of the choices that were measured at ``size``."""
        times = {}
        for choice, curve in self.curves.items():
            if size in curve:
                times[choice] = curve[size]
        return times


def _curve(rows: Iterable[Row]) -> dict[int, ChoiceTime]:
    """Return the times of one choice by requested size in bytes, ascending."""
    by_size: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_size[row.requested_bytes].append(row)
    return {size: ChoiceTime.of(rows_of_size) for size, rows_of_size in sorted(by_size.items())}


def measured_settings(results: Results) -> dict[Setting, MeasuredSetting]:
    """Return the measurements among which a table can choose: those of ``rows_by_setting`` without ``auto``.

    Raises:
        BadInputError: if a setting was measured on several machines, with several MPI libraries or
            by both executors.
    """
    grouped = rows_by_setting(results)
    by_setting: dict[Setting, list[Conditions]] = defaultdict(list)
    for setting, conditions in grouped:
        by_setting[setting].append(conditions)
    for setting, several in by_setting.items():
        if len(several) > 1:
            labels = [
                ", ".join((conditions.label, *conditions.words[3:])) for conditions in several
            ]
            expected = f"results of one machine, MPI library and executor for {setting.label}"
            raise BadInputError("PATHS", "; ".join(sorted(labels)), expected)
    settings = {}
    for (setting, conditions), rows in grouped.items():
        settings[setting] = MeasuredSetting.of(rows, conditions)
    return settings


def rows_by_setting(results: Results) -> dict[tuple[Setting, Conditions], list[Row]]:
    """Return the rows among which a table can choose, and those of ``auto`` next to them, by setting and conditions.

    They are ours, or, without any, those of PICO. Training steps and single ranks are left out, and
    so are settings in which nothing but ``auto`` was measured. A call of the library that has one
    buffer stands in both placements.
    """
    results = results.choosable.without_workloads
    runs = {run.run_id: run for run in results.runs}
    rows: dict[tuple[Setting, Conditions], list[Row]] = defaultdict(list)
    for row in results.rows:
        if not row.may_answer or row.status != "ok":
            continue
        run = runs.get(row.run_id)
        if run and run.rank_loss:
            continue
        rows[Setting.of(row), _conditions(row, run)].append(row)
    candidates = {}
    for (setting, conditions), own_rows in rows.items():
        other_placement = replace(setting, in_place=not setting.in_place)
        shared = _shared_rows(rows.get((other_placement, conditions), ()))
        members = [*own_rows, *shared]
        if any(row.algorithm != AUTO for row in members):
            candidates[setting, conditions] = members
    return candidates


def _conditions(row: Row, run: Run | None) -> Conditions:
    machine = mpi = ""
    if run:
        machine = machine_name(run.machine, run.provenance)
        mpi = recorded_mpi_version(run.provenance)
    return Conditions(machine, mpi, row.executor or PYTHON, row.kind, row.rule)


def _shared_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of a placement that belong to the other one, too: calls of the library with one buffer."""
    for row in rows:
        if row.algorithm == NATIVE and collective(row.collective).one_buffer:
            yield replace(row, in_place=not row.in_place)
