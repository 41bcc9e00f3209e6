"""What was measured, as a table is made of and judged by: the time of every choice, by setting and size."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hpccoll.errors import BadInputError
from hpccoll.schedule import collective
from hpccoll.schedule.collective import AUTO
from hpccoll.store.rows import Results, Row, Run
from hpccoll.store.statistics import median_ratio
from hpccoll.tuning.setting import Setting, call_of
from hpccoll.tuning.table import Choice, conditions, library

Turn: TypeAlias = tuple[object, str, int]
"""A call (its type of elements, op and root), the run that measured it, and the number of the round in that."""


@dataclass(frozen=True, slots=True)
class Time:
    """How long a choice took at a size.

    Args:
        seconds: the median; of several runs or calls the geometric mean of theirs.
        noise: what it may be off by, relative: half its 95 % interval, or half of what runs are apart if that is more.
        turns: the median of each round.
    """

    seconds: float
    noise: float
    turns: Mapping[Turn, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Time":
        medians = np.array([row.median_s for row in rows])
        seconds = float(np.exp(np.log(medians).mean()))
        within = [((row.ci_high_s or 0.0) - (row.ci_low_s or 0.0)) / 2 / seconds for row in rows]
        turns: dict[Turn, float] = {
            ((row.dtype, row.op, row.root), run, number): median
            for row in rows
            for number, (median, run) in enumerate(zip(row.round_medians_s, row.round_run_ids, strict=True), 1)
            if median and run
        }
        return cls(seconds, max(*within, float(np.ptp(medians)) / 2 / seconds, 0.0), turns)

    def unsure(self, other: "Time") -> float:
        """Return what the ratio to another time may be off by, relative.

        Of rounds in which both took their turn it is half of what their ratios are apart: what slows a machine for a
        while slows both. Without several of them the noises of the two add up as those of independent values.
        """
        both = self.turns.keys() & other.turns.keys()
        if len(both) > 1:
            return float(np.ptp(np.log([self.turns[turn] / other.turns[turn] for turn in both]))) / 2
        return float(np.hypot(self.noise, other.noise))

    def over(self, other: "Time") -> float:
        """Return how many times as long as another this is.

        The median of the ratios in the rounds in which both took a turn; where there is none, the ratio of the medians.
        """
        both = self.turns.keys() & other.turns.keys()
        return median_ratio([self.turns[turn] / other.turns[turn] for turn in both] or [self.seconds / other.seconds])

    def beside(self, other: "Time") -> bool:
        """Return whether a launch measured both."""
        return bool({run for _, run, _ in self.turns} & {run for _, run, _ in other.turns})


def side_by_side(there: Mapping[Choice, Time]) -> dict[Choice, float]:
    """Return the seconds of each choice at a size as if all had taken their turns in the rounds of the fastest.

    A round that was slow for all who took a turn in it then says nothing against those who took it.
    """
    least = min(there.values(), key=lambda time: time.seconds)
    return {choice: least.seconds * time.over(least) for choice, time in there.items()}


Curves = Mapping[Choice, Mapping[int, Time]]
"""The time of each choice at each size that was asked for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in one setting, in which runs, and on what machine with what MPI library."""

    curves: Curves
    runs: tuple[str, ...]
    conditions: str = ""

    @property
    def sizes(self) -> list[int]:
        """All sizes, ascending."""
        return sorted({size for curve in self.curves.values() for size in curve})


def measured(results: Results) -> dict[Setting, Measured]:
    """Return what can be chosen among: right and whole results of algorithms. A floor and ``auto`` are none.

    Raises:
        BadInputError: where a setting was measured on several machines or with several MPI libraries.
    """
    runs = {run.run_id: run for run in results.runs}
    rows: dict[Setting, list[Row]] = defaultdict(list)
    for row in (row for row in results.rows if not runs[row.run_id].left_behind):
        if row.status == "ok" and not row.wrong and not row.floor and row.algorithm != AUTO and row.median_s:
            rows[_setting(row)].append(row)
    where = {setting: _conditions(setting, (runs[row.run_id] for row in found)) for setting, found in rows.items()}
    return {setting: _measured(found, where[setting]) for setting, found in rows.items()}


def _setting(row: Row) -> Setting:
    return Setting(
        **call_of(row.collective, row.op, row.dtype, row.root, row.params, row.ranks),
        device=row.device, in_place=row.in_place, ranks=row.ranks, nodes=row.nodes,
        ranks_per_node=row.ranks_per_node, racks=row.racks, mapping=row.mapping, aggregators=row.aggregators,
        variant=row.variant,
    )  # fmt: skip


def _measured(rows: Sequence[Row], where: str) -> Measured:
    alike: dict[Choice, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        alike[_choice(row)][row.requested_bytes].append(row)
    curves = {
        choice: {size: Time.of(found) for size, found in sorted(alike[choice].items())}
        for choice in sorted(alike, key=str)
    }
    return Measured(curves, tuple(dict.fromkeys(row.run_id for row in rows)), where)


def _choice(row: Row) -> Choice:
    arguments = collective(row.collective).arguments
    own = {name: value for name, value in row.params.items() if name not in arguments}
    return Choice(row.algorithm, row.transport, tuple(sorted(own.items())))


def _conditions(setting: Setting, runs: Iterable[Run]) -> str:
    there = sorted({conditions(run.machine, library(run.provenance)) for run in runs})
    if len(there) > 1:
        raise BadInputError(
            "PATHS", "; ".join(there), f"results of one machine and one MPI library for {setting.words}"
        )
    return there[0]


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of at least one ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))
