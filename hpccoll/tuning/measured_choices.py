"""The measured times of each choice, by setting and size: the input of making and of judging a table."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hpccoll.errors import BadInputError
from hpccoll.schedule import collective
from hpccoll.schedule.collective import AUTO
from hpccoll.spec.case import PYTHON
from hpccoll.store.rows import Results, Row, Run
from hpccoll.store.statistics import median_ratio
from hpccoll.tuning.setting import Setting, call_fields
from hpccoll.tuning.table import Choice, describe_conditions, mpi_version

RoundKey: TypeAlias = tuple[object, str, int]
"""A round: the call (element type, op and root), the id of the run that measured it, and its number in that run."""


@dataclass(frozen=True, slots=True)
class ChoiceTime:
    """The time of a choice at one size.

    Args:
        seconds: the median; for several runs or calls the geometric mean of their medians.
        noise: its relative uncertainty: half its 95 % interval, or half the spread between runs if that is more.
        rounds: the median of each round, in seconds.
    """

    seconds: float
    noise: float
    rounds: Mapping[RoundKey, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "ChoiceTime":
        medians = np.array([row.median_s for row in rows])
        seconds = float(np.exp(np.log(medians).mean()))
        half_intervals = [((row.ci_high_s or 0.0) - (row.ci_low_s or 0.0)) / 2 / seconds for row in rows]
        rounds: dict[RoundKey, float] = {
            ((row.dtype, row.op, row.root), run, number): median
            for row in rows
            for number, (median, run) in enumerate(zip(row.round_medians_s, row.round_run_ids, strict=True), 1)
            if median and run
        }
        return cls(seconds, max(*half_intervals, float(np.ptp(medians)) / 2 / seconds, 0.0), rounds)

    def ratio_noise(self, other: "ChoiceTime") -> float:
        """Return the relative uncertainty of the ratio to another time.

        If both were measured in two rounds or more, it is half the spread of their ratios over these rounds: whatever
        slows the machine for a while slows both. Otherwise the noises of the two add as independent values.
        """
        common = self.rounds.keys() & other.rounds.keys()
        if len(common) > 1:
            return float(np.ptp(np.log([self.rounds[each] / other.rounds[each] for each in common]))) / 2
        return float(np.hypot(self.noise, other.noise))

    def ratio(self, other: "ChoiceTime") -> float:
        """Return the ratio of this time to another.

        It is the median of the ratios over common rounds; without common rounds it is the ratio of the medians.
        """
        common = self.rounds.keys() & other.rounds.keys()
        ratios = [self.rounds[each] / other.rounds[each] for each in common]
        return median_ratio(ratios or [self.seconds / other.seconds])

    def shares_launch(self, other: "ChoiceTime") -> bool:
        """Return whether one launch measured both."""
        return bool({run for _, run, _ in self.rounds} & {run for _, run, _ in other.rounds})


def comparable_seconds(times: Mapping[Choice, ChoiceTime]) -> dict[Choice, float]:
    """Return the seconds of each choice at one size as if all had been measured in the rounds of the fastest.

    A round that was slow for all choices thus does not count against those that were measured in it.
    """
    fastest = min(times.values(), key=lambda time: time.seconds)
    return {choice: fastest.seconds * time.ratio(fastest) for choice, time in times.items()}


Curves = Mapping[Choice, Mapping[int, ChoiceTime]]
"""The time of each choice at each requested size in bytes."""


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The measurements of one setting.

    Args:
        curves: the times of each choice.
        runs: the ids of the runs.
        executor: the executor.
        conditions: the machine, the MPI library and the executor, for people.
    """

    curves: Curves
    runs: tuple[str, ...]
    executor: str = PYTHON
    conditions: str = ""

    @property
    def sizes(self) -> list[int]:
        """All sizes in bytes, ascending."""
        return sorted({size for curve in self.curves.values() for size in curve})

    def times_at(self, size: int) -> dict[Choice, ChoiceTime]:
        """Return the times of the choices that were measured at ``size``."""
        return {choice: curve[size] for choice, curve in self.curves.items() if size in curve}


def measured_settings(results: Results) -> dict[Setting, MeasuredSetting]:
    """Return the measurements among which a table can choose: complete and correct ones, without floors and ``auto``.

    Raises:
        BadInputError: if a setting was measured on several machines, with several MPI libraries or by both executors.
    """
    runs = {run.run_id: run for run in results.runs}
    rows: dict[Setting, list[Row]] = defaultdict(list)
    for row in (row for row in results.rows if not runs[row.run_id].rank_loss):
        if row.status == "ok" and not row.wrong and not row.floor and row.algorithm != AUTO and row.median_s:
            rows[_setting(row)].append(row)
    conditions = {setting: _single_conditions(setting, of_setting, runs) for setting, of_setting in rows.items()}
    return {setting: _measured_setting(of_setting, conditions[setting]) for setting, of_setting in rows.items()}


def _setting(row: Row) -> Setting:
    return Setting(
        **call_fields(row.collective, row.op, row.dtype, row.root, row.params, row.ranks),
        device=row.device, in_place=row.in_place, ranks=row.ranks, nodes=row.nodes,
        ranks_per_node=row.ranks_per_node, racks=row.racks, mapping=row.mapping, aggregators=row.aggregators,
        variant=row.variant,
    )  # fmt: skip


def _measured_setting(rows: Sequence[Row], conditions: str) -> MeasuredSetting:
    grouped: dict[Choice, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        grouped[_choice(row)][row.requested_bytes].append(row)
    curves = {
        choice: {size: ChoiceTime.of(of_size) for size, of_size in sorted(grouped[choice].items())}
        for choice in sorted(grouped, key=str)
    }
    return MeasuredSetting(curves, tuple(dict.fromkeys(row.run_id for row in rows)), _executor(rows[0]), conditions)


def _choice(row: Row) -> Choice:
    arguments = collective(row.collective).arguments
    parameters = {name: value for name, value in row.params.items() if name not in arguments}
    return Choice(row.algorithm, row.transport, tuple(sorted(parameters.items())))


def _executor(row: Row) -> str:
    return row.executor or PYTHON


def _single_conditions(setting: Setting, rows: Iterable[Row], runs: Mapping[str, Run]) -> str:
    conditions = sorted(
        {
            describe_conditions(run.machine, mpi_version(run.provenance), _executor(row))
            for row in rows
            for run in [runs[row.run_id]]
        }
    )
    if len(conditions) > 1:
        raise BadInputError(
            "PATHS", "; ".join(conditions), f"results of one machine, MPI library and executor for {setting.label}"
        )
    return conditions[0]


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of at least one ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))
