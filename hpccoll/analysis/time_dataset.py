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
from hpccoll.store.raw_results import Attempt, RankLocation, RawResults
from hpccoll.store.result_files import read_raw
from hpccoll.store.rows import Row, unit_of
from hpccoll.store.schema import COLUMNS

_PER_ITERATION = ("min_ns", "median_ns", "max_ns", "span_ns", "mean_ns", "slowest_rank")
_COORDINATES = (
    "case_id", "job", "collective", "algorithm", "transport", "device", "dtype", "op", "in_place", "mapping", "root",
    "params", "variant", "bytes", "ranks", "nodes", "executor", "kind", "status", "timing", "rule",
)  # fmt: skip
"""The columns of rows that are coordinates of their times."""

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
    program: str  # of a training step, its operations and computations as JSON; empty for other rows

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
        return np.array([starts[clocks == clock].min() for clock in clocks])


def read_row_times(path: Path, run_ids: Collection[str], rows: Sequence[Row]) -> Iterator[RowTimes]:
    """Yield the raw times of timed rows, in their order.

    If the job of the file has ended since, the raw file replaces the journal. Of its launches only ``run_ids``, which
    were read for the rows, count.

    Raises:
        BadInputError: if the file cannot be read or no longer holds the rows.
    """
    raw = read_raw(path, {row.case_id for row in rows})
    attempts = {attempt.run_id: (attempt, outcomes) for attempt, outcomes in raw.attempts if attempt.run_id in run_ids}
    opened = RawResults(path=raw.path, job=raw.job, attempts=[*attempts.values()])
    for row in rows:
        launches = {number: run_id for number, run_id in enumerate(row.round_run_ids, 1) if run_id is not None}
        history = next(opened.histories(row.case_id), None)
        if history is None or history.outcome.times is None or not launches.items() <= history.runs.items():
            raise UnusableError("path", f"{format_value(str(path))} has changed since it was opened; open it again")
        of_rounds = {number: attempts[run_id][0] for number, run_id in launches.items()}
        yield RowTimes(history.outcome.times.in_memory(), of_rounds, history.outcome.program or "")


def time_dataset(rows: Sequence[Row], times: Sequence[RowTimes | None], *, per_rank: bool) -> xr.Dataset:
    """Return the raw times of rows, padded with NaN to the longest round; a row without times has NaN only."""
    timed = [(case, row_times) for case, row_times in enumerate(times) if row_times]
    rounds = max((len(row.round_medians_s) for row in rows), default=0)
    shape = len(rows), rounds, _most_iterations(timed)
    measured = {name: np.full(shape, np.nan) for name in ("time_s", *_PER_ITERATION)}
    iterations = np.zeros(shape[:2], np.int64)
    numbers = np.zeros(shape[:2], np.int64)
    run_ids = np.full(shape[:2], "", object)
    for case, row_times in timed:
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
    strides = np.array([row_times.times.rank_stride if row_times else 0 for row_times in times], np.int64)
    dataset = xr.Dataset(
        {name: _variable(name, values, "case", "round", "iteration") for name, values in measured.items()},
        {
            **{name: _variable(name, _column(name, rows), "case") for name in _COORDINATES},
            "rank_stride": _variable("rank_stride", strides, "case"),
            "round": _variable("round", np.arange(1, rounds + 1), "round"),
            "iterations": _variable("iterations", iterations, "case", "round"),
            "run_id": _variable("run_id", run_ids, "case", "round"),
            "attempt": _variable("attempt", numbers, "case", "round"),
        },
    )
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
    kept = [np.arange(each.times.start_ns.shape[1]) * each.times.rank_stride for _, each in timed]
    ranks = np.unique(np.concatenate([np.empty(0, np.int64), *kept]))
    times = {name: np.full((*shape, len(ranks)), np.nan) for name in ("start_ns", "end_ns", "device_ns")}
    places = {name: np.full((*shape[:2], len(ranks)), -1) for name in ("zero_ns", "node", "clock")}
    hosts = np.full((*shape[:2], len(ranks)), "", object)
    events = max((each.times.event_ns.shape[2] for _, each in timed if each.times.event_ns.size), default=0)
    event_ns, programs = np.full((*shape, len(ranks), events), np.nan), np.full(shape[0], "", object)
    for (case, each), of_case in zip(timed, kept, strict=True):
        columns, programs[case] = np.searchsorted(ranks, of_case), each.program
        for number, attempt, mask in each.rounds():
            place, n = (case, number - 1), int(mask.sum())
            zero = each.zero_ns(attempt, mask)
            times["start_ns"][place][:n, columns] = each.times.start_ns[mask] - zero
            times["end_ns"][place][:n, columns] = each.times.end_ns[mask] - zero
            if len(each.times.device_ns):
                times["device_ns"][place][:n, columns] = each.times.device_ns[mask]
            if each.times.event_ns.size:
                of_round = each.times.event_ns[mask]
                since = np.where(of_round < 0, np.nan, of_round - zero[:, None])
                event_ns[place][:n, columns, : since.shape[2]] = since
            locations = each.locations(attempt)
            places["zero_ns"][place][columns] = zero
            places["node"][place][columns] = [location.node for location in locations]
            places["clock"][place][columns] = [location.clock for location in locations]
            hosts[place][columns] = [location.host for location in locations]
    dims = "case", "round", "iteration", "rank"
    variables = {name: _variable(name, values, *dims) for name, values in times.items()}
    coordinates = {name: _variable(name, values, "case", "round", "rank") for name, values in places.items()}
    coordinates |= {"rank": _variable("rank", ranks, "rank"), "host": _variable("host", hosts, "case", "round", "rank")}
    if events:
        variables["event_ns"] = _variable("event_ns", event_ns, *dims, "event")
        coordinates["program"] = _variable("program", programs, "case")
    return xr.Dataset(variables, coordinates)


def _variable(name: str, values: Any, *dims: str) -> xr.Variable:
    about = {"long_name": _MEANINGS.get(name), "units": unit_of(name)}
    return xr.Variable(dims, values, {key: text for key, text in about.items() if text})


def _column(name: str, rows: Iterable[Row]) -> NDArray[Any]:
    """Return a column of the rows in types that files can hold: absent text is empty, and an absent root is -1."""
    values = [getattr(row, name) for row in rows]
    if name == "params":
        values = [json.dumps(dict(value), sort_keys=True) for value in values]
    elif name == "root":
        values = [-1 if value is None else value for value in values]
    dtype = {"in_place": np.bool_, "root": np.int64, "bytes": np.int64, "ranks": np.int64, "nodes": np.int64}
    return np.array(["" if value is None else value for value in values], dtype.get(name, object))
