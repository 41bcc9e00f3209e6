"""The raw times of rows as an xarray dataset, whose variables are named as the columns of raw files."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Attempt, CaseHistory, RankLocation, RawResults
from hpccoll.store.result_files import read_raw
from hpccoll.store.rows import Row, unit_of
from hpccoll.store.schema import COLUMNS

_PER_ITERATION = ("min_ns", "median_ns", "max_ns", "span_ns", "mean_ns", "slowest_rank")
_COORDINATES = (
    "case_id",
    "job",
    "collective",
    "algorithm",
    "transport",
    "device",
    "dtype",
    "op",
    "in_place",
    "mapping",
    "root",
    "params",
    "variant",
    "bytes",
    "ranks",
    "nodes",
    "executor",
    "kind",
    "status",
    "timing",
    "rule",
)
"""The columns of rows that are coordinates of their times."""
_DTYPES = {
    "in_place": np.bool_,
    "root": np.int64,
    "bytes": np.int64,
    "ranks": np.int64,
    "nodes": np.int64,
}
"""The types of coordinates that are not text."""

_MEANINGS = {
    **{column.name: column.meaning for column in COLUMNS},
    "time_s": "the time of one operation, by the rule in rule",
    "start_ns": "start of the operation by the rank's clock, since zero_ns",
    "end_ns": "end of the operation by the rank's clock, since zero_ns",
    "event_ns": "times of the operations and computations of a training step, as in program, since zero_ns",
    "zero_ns": "first start of the round by the rank's clock",
    "round": "the round of the case, from 1",
    "iterations": "timed iterations of the round",
    "run_id": "the launch that measured the round",
    "attempt": "the number of this launch in its job",
    "rank": "the rank, as the launcher numbered it",
    "ranks": "workers",
}


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The raw times of a row."""

    times: CaseTimes  # the times of all rounds in the file
    attempts: Mapping[int, Attempt]  # the attempt that measured each round of the row
    # of a training step, its operations and computations as JSON; empty for other rows
    program: str

    def rounds(self) -> Iterator[tuple[int, Attempt, NDArray[np.bool_]]]:
        """Yield each round of the row, its attempt, and which iterations belong to it."""
        for number, attempt in self.attempts.items():
            yield number, attempt, self.times.round == number

    def locations(self, attempt: Attempt) -> Sequence[RankLocation]:
        """Return the locations of the ranks whose times are kept."""
        return attempt.places[:: self.times.rank_stride]

    def zero_ns(self, attempt: Attempt, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the first start of a round by the clock of each kept rank: times since then are exact as floats."""
        starts = self.times.start_ns[mask].min(axis=0)
        clocks = np.array([location.clock for location in self.locations(attempt)])
        first_starts = [starts[clocks == clock].min() for clock in clocks]
        return np.array(first_starts)


def read_row_times(path: Path, run_ids: Collection[str], rows: Sequence[Row]) -> Iterator[RowTimes]:
    """Yield the raw times of timed rows, in their order.

    If the job of the file has ended since, the raw file replaces the journal. Only the launches
    ``run_ids``, which were read for the rows, count.

    Raises:
        BadInputError: if the file cannot be read or no longer holds the rows.
    """
    raw = read_raw(path, {row.case_id for row in rows})
    read = [(attempt, outcomes) for attempt, outcomes in raw.attempts if attempt.run_id in run_ids]
    by_run = {attempt.run_id: (attempt, outcomes) for attempt, outcomes in read}
    opened = RawResults(path=raw.path, job=raw.job, attempts=list(by_run.values()))
    for row in rows:
        launches = {
            number: run_id
            for number, run_id in enumerate(row.round_run_ids, 1)
            if run_id is not None
        }
        histories = opened.histories(row.case_id)
        history = next((history for history in histories if _is_of(row, history)), None)
        if (
            history is None
            or history.outcome.times is None
            or not launches.items() <= history.runs.items()
        ):
            raise UnusableError(
                "path", f"{format_value(str(path))} has changed since it was opened; open it again"
            )
        attempts: dict[int, Attempt] = {}
        for number, run_id in launches.items():
            attempt, _ = by_run[run_id]
            attempts[number] = attempt
        yield RowTimes(history.outcome.times.in_memory(), attempts, history.outcome.program or "")


def _is_of(row: Row, history: CaseHistory) -> bool:
    """Return whether a row is that of a history: launches of other programs may have the same case."""
    return not row.imported or history.attempt.run_id == row.run_id


def time_dataset(
    rows: Sequence[Row], times: Sequence[RowTimes | None], *, per_rank: bool
) -> xr.Dataset:
    """Return the raw times of rows, padded with NaN to the longest round; a row without times has NaN only."""
    timed = [(case, row_times) for case, row_times in enumerate(times) if row_times]
    rounds = max((len(row.round_medians_s) for row in rows), default=0)
    shape = len(rows), rounds, _most_iterations(timed)
    measured = {name: np.full(shape, np.nan) for name in ("time_s", *_PER_ITERATION)}
    iterations = np.zeros(shape[:2], np.int64)
    numbers = np.zeros(shape[:2], np.int64)
    run_ids = np.full(shape[:2], "", object)
    strides = np.zeros(len(rows), np.int64)
    for case, row_times in timed:
        strides[case] = row_times.times.rank_stride
        for number, attempt, mask in row_times.rounds():
            place = case, number - 1
            iterations[place] = mask.sum()
            numbers[place] = attempt.number
            run_ids[place] = attempt.run_id
            for name in _PER_ITERATION:
                values = getattr(row_times.times, name)
                if len(values):  # not without a common clock
                    measured[name][place][: iterations[place]] = values[mask]
        row = rows[case]
        duration_ns = measured[f"{row.rule or 'max'}_ns"][case]
        measured["time_s"][case] = duration_ns / 1e9 / (row.operations or 1)
    coordinates = {name: _variable(name, _column(name, rows), "case") for name in _COORDINATES}
    coordinates |= {
        "rank_stride": _variable("rank_stride", strides, "case"),
        "round": _variable("round", np.arange(1, rounds + 1), "round"),
        "iterations": _variable("iterations", iterations, "case", "round"),
        "run_id": _variable("run_id", run_ids, "case", "round"),
        "attempt": _variable("attempt", numbers, "case", "round"),
    }
    variables = {
        name: _variable(name, values, "case", "round", "iteration")
        for name, values in measured.items()
    }
    dataset = xr.Dataset(variables, coordinates)
    return dataset.merge(_rank_dataset(timed, shape)) if per_rank else dataset


def _most_iterations(timed: Sequence[tuple[int, RowTimes]]) -> int:
    """Return the iterations of the longest round; 0 without any."""
    longest = 0
    for _, row_times in timed:
        for _, _, mask in row_times.rounds():
            longest = max(longest, int(mask.sum()))
    return longest


def _rank_dataset(timed: Sequence[tuple[int, RowTimes]], shape: tuple[int, int, int]) -> xr.Dataset:
    """Return the times and the locations of each rank that any case keeps.

    ``timed`` are the times of cases with their positions; ``shape`` is [case, round, iteration].
    """
    ranks_of_case: dict[int, NDArray[np.int64]] = {}
    events = 0
    for case, row_times in timed:
        times = row_times.times
        ranks_of_case[case] = np.arange(times.start_ns.shape[1]) * times.rank_stride
        if times.event_ns.size:
            events = max(events, times.event_ns.shape[2])
    ranks = np.unique(np.concatenate([np.empty(0, np.int64), *ranks_of_case.values()]))
    arrays = _RankArrays.of(shape, len(ranks), events)
    for case, row_times in timed:
        columns = np.searchsorted(ranks, ranks_of_case[case])
        arrays.fill(case, row_times, columns)
    return arrays.dataset(ranks)


@dataclass(frozen=True, slots=True)
class _RankArrays:
    """The times and the locations of ranks, each as [case, round, ..., rank]; NaN or -1 where a case has none."""

    times: dict[str, NDArray[np.float64]]  # [case, round, iteration, rank]
    locations: dict[str, NDArray[np.int64]]  # [case, round, rank]
    hosts: NDArray[np.object_]  # [case, round, rank]
    event_ns: NDArray[np.float64]  # [case, round, iteration, rank, event]
    programs: NDArray[np.object_]  # [case]

    @classmethod
    def of(cls, shape: tuple[int, int, int], ranks: int, events: int) -> "_RankArrays":
        cases, rounds, _ = shape
        return cls(
            times={
                name: np.full((*shape, ranks), np.nan)
                for name in ("start_ns", "end_ns", "device_ns")
            },
            locations={
                name: np.full((cases, rounds, ranks), -1) for name in ("zero_ns", "node", "clock")
            },
            hosts=np.full((cases, rounds, ranks), "", object),
            event_ns=np.full((*shape, ranks, events), np.nan),
            programs=np.full(cases, "", object),
        )

    def fill(self, case: int, row_times: RowTimes, columns: NDArray[np.int64]) -> None:
        """Write the times of a case to the columns of its ranks."""
        self.programs[case] = row_times.program
        recorded = row_times.times
        if (
            not recorded.start_ns.size
        ):  # another program measured the longest of each iteration only
            return
        for number, attempt, mask in row_times.rounds():
            place = case, number - 1
            iterations = int(mask.sum())
            zero = row_times.zero_ns(attempt, mask)
            self.times["start_ns"][place][:iterations, columns] = recorded.start_ns[mask] - zero
            self.times["end_ns"][place][:iterations, columns] = recorded.end_ns[mask] - zero
            if len(recorded.device_ns):
                self.times["device_ns"][place][:iterations, columns] = recorded.device_ns[mask]
            if recorded.event_ns.size:
                event_ns = recorded.event_ns[mask]
                since = np.where(event_ns < 0, np.nan, event_ns - zero[:, None])
                self.event_ns[place][:iterations, columns, : since.shape[2]] = since
            locations = row_times.locations(attempt)
            self.locations["zero_ns"][place][columns] = zero
            self.locations["node"][place][columns] = [location.node for location in locations]
            self.locations["clock"][place][columns] = [location.clock for location in locations]
            self.hosts[place][columns] = [location.host for location in locations]

    def dataset(self, ranks: NDArray[np.int64]) -> xr.Dataset:
        dims = "case", "round", "iteration", "rank"
        variables = {name: _variable(name, values, *dims) for name, values in self.times.items()}
        coordinates: dict[str, xr.Variable] = {}
        for name, values in self.locations.items():
            coordinates[name] = _variable(name, values, "case", "round", "rank")
        coordinates["rank"] = _variable("rank", ranks, "rank")
        coordinates["host"] = _variable("host", self.hosts, "case", "round", "rank")
        if self.event_ns.shape[-1]:
            variables["event_ns"] = _variable("event_ns", self.event_ns, *dims, "event")
            coordinates["program"] = _variable("program", self.programs, "case")
        return xr.Dataset(variables, coordinates)


def _variable(name: str, values: Any, *dims: str) -> xr.Variable:
    attributes = {"long_name": _MEANINGS.get(name), "units": unit_of(name)}
    return xr.Variable(dims, values, {key: text for key, text in attributes.items() if text})


def _column(name: str, rows: Iterable[Row]) -> NDArray[Any]:
    """Return a column of the rows in types that files can hold: absent text is empty, and an absent root is -1."""
    absent = -1 if name == "root" else ""
    values: list[Any] = []
    for row in rows:
        value = getattr(row, name)
        if name == "params":
            value = json.dumps(dict(value), sort_keys=True)
        values.append(absent if value is None else value)
    return np.array(values, _DTYPES.get(name, object))
