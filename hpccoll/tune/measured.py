"""What was measured, as a table is made of and judged by: the time of every choice, by setting and size."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpccoll.choices.setting import Setting, call_of
from hpccoll.choices.table import Choice
from hpccoll.errors import BadInputError
from hpccoll.schedule import collective
from hpccoll.schedule.promise import AUTO
from hpccoll.store.rows import Results, Row, Run


@dataclass(frozen=True, slots=True)
class Time:
    """How long a choice took at a size.

    Args:
        seconds: the median; of several runs the geometric mean of theirs.
        noise: what it may be off by, relative: half its 95 % interval, or half of what runs are apart if that is more.
        rounds: the medians of the rounds of one run.
    """

    seconds: float
    noise: float
    rounds: tuple[float, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Time":
        medians = np.array([row.median_s for row in rows])
        seconds = float(np.exp(np.log(medians).mean()))
        within = [((row.ci_high_s or 0.0) - (row.ci_low_s or 0.0)) / 2 / seconds for row in rows]
        rounds = tuple(filter(None, rows[0].round_medians_s)) if len(rows) == 1 else ()
        return cls(seconds, max(*within, float(np.ptp(medians)) / 2 / seconds, 0.0), rounds)

    def unsure(self, other: "Time") -> float:
        """Return what the ratio to another time may be off by, relative.

        Of rounds in which both took their turn it is half of what their ratios are apart: what slows a machine for a
        while slows both. Without such rounds the noises of the two add up as those of independent values.
        """
        if len(self.rounds) == len(other.rounds) > 1:
            return float(np.ptp(np.log(self.rounds) - np.log(other.rounds))) / 2
        return float(np.hypot(self.noise, other.noise))


Curves = Mapping[Choice, Mapping[int, Time]]
"""The time of each choice at each size that was asked for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in one setting, and in which runs."""

    curves: Curves
    runs: tuple[str, ...]

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
    for row in results.rows:
        if row.status == "ok" and not row.wrong and not row.floor and row.algorithm != AUTO and row.median_s:
            rows[_setting(row)].append(row)
    for setting, found in rows.items():
        _check_alike(setting, (runs[row.run_id] for row in found))
    return {setting: _measured(found) for setting, found in rows.items()}


def _setting(row: Row) -> Setting:
    return Setting(
        **call_of(row.collective, row.op, row.dtype, row.root, row.params, row.ranks),
        device=row.device, in_place=row.in_place, ranks=row.ranks, nodes=row.nodes,
        ranks_per_node=row.ranks_per_node, racks=row.racks, mapping=row.mapping, aggregators=row.aggregators,
        variant=row.variant,
    )  # fmt: skip


def _measured(rows: Sequence[Row]) -> Measured:
    alike: dict[Choice, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        alike[_choice(row)][row.requested_bytes].append(row)
    curves = {
        choice: {size: Time.of(found) for size, found in sorted(alike[choice].items())}
        for choice in sorted(alike, key=str)
    }
    return Measured(curves, tuple(dict.fromkeys(row.run_id for row in rows)))


def _choice(row: Row) -> Choice:
    arguments = collective(row.collective).arguments
    own = {name: value for name, value in row.params.items() if name not in arguments}
    return Choice(row.algorithm, row.transport, tuple(sorted(own.items())))


def library(run: Run) -> str:
    """Return the MPI library of a run in its own words."""
    mpi = run.provenance.get("mpi")
    return str(mpi.get("version", "")) if isinstance(mpi, Mapping) else ""


def _check_alike(setting: Setting, runs: Iterable[Run]) -> None:
    conditions = sorted({f"{run.machine} with {library(run) or 'an unknown MPI'}" for run in runs})
    if len(conditions) > 1:
        raise BadInputError(
            "PATHS", "; ".join(conditions), f"results of one machine and one MPI library for {setting.words}"
        )


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean of at least one ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))
