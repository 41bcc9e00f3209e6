"""The results below some paths as pandas frames, which lead to the raw times; ``hpccoll.open`` returns them."""

import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from hpccoll.analysis.time_dataset import RowTimes, read_row_times, time_dataset
from hpccoll.common.errors import BadInputError, UnusableError, did_you_mean, format_value
from hpccoll.store.load_results import read_results
from hpccoll.store.plain_values import plain_value
from hpccoll.store.rows import ROW_COLUMNS, RULES, Gap, Results, Row, RowKey, Run, unit_of
from hpccoll.store.workload_figures import workload_figures

PathLike = str | os.PathLike[str]

_DTYPES: dict[object, str] = {
    int: "int64",
    int | None: "Int64",
    float | None: "float64",
    bool: "bool",
    bool | None: "boolean",
    str: "string",
    str | None: "string",
}
"""The dtype of a column by the type of the field; a column of any other type holds Python objects."""

_COMPARISON_DTYPES = {
    **dict.fromkeys(("verdict", "case_id", "case", "collective", "algorithm"), "string"),
    "requested_bytes": "int64",
    "in_place": "bool",
    "ranks": "int64",
    "nodes": "int64",
    **dict.fromkeys(("old_s", "new_s", "factor", "low", "high", "p_value"), "float64"),
    "reason": "string",
}
"""The columns of a comparison."""

_KEY = ["job", "run_id", "case_id"]
"""The columns that identify a row."""


class ResultFrame(pd.DataFrame):
    """A frame whose columns may hold mappings and lists, and which can be written as Parquet all the same."""

    @property
    def _constructor(self) -> type["ResultFrame"]:
        """What pandas calls for selections of the frame: they can be written, too."""
        return ResultFrame

    def to_parquet(self, *arguments: Any, **options: Any) -> bytes | None:
        """Write the frame as ``pandas.DataFrame.to_parquet`` does; mappings and lists become JSON text.

        The columns are those of ``hpccoll export --format parquet``.
        """
        plain = pd.DataFrame(self)
        for name, dtype in plain.dtypes.items():
            if dtype == "object":
                plain[name] = plain[name].map(plain_value).astype("string")
        written: bytes | None = plain.to_parquet(*arguments, **options)
        return written


def open_results(paths: Iterable[PathLike | Iterable[PathLike]], rule: str) -> "ResultSet":
    """Read the results below ``paths``; see ``hpccoll.open``."""
    if rule not in RULES:
        raise BadInputError("rule", rule, RULES)
    # A notebook may change its working directory.
    absolute: list[Path] = []
    for entry in paths:
        entries = [entry] if isinstance(entry, str | os.PathLike) else entry
        absolute += (Path(path).expanduser().absolute() for path in entries)
    results = read_results(absolute, rule)
    for remark in (*results.damaged, *results.notes):
        warnings.warn(remark, stacklevel=3)  # the line that called hpccoll.open
    return ResultSet(results)


class ResultSet:
    """The results below some paths, joined over jobs and their attempts.

    Args:
        results: the rows, runs and gaps; ``times`` reads the raw times from their files.

    Attributes:
        rows: one row for each case, with the columns of ``hpccoll export``; their units are in
            ``rows.attrs["units"]``.
        runs: one row for each launch; each value of its provenance has a column of its own, such as
            ``mpi.version``.
        missing: the planned cases without a usable result, with the reason.
        skipped: the cases that planning or their job left out on purpose, with the reason.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._positions: dict[RowKey, int] = {}
        for position, row in enumerate(results.rows):
            self._positions[row.key] = position
        self.rows: pd.DataFrame = _frame(Row, results.rows, ROW_COLUMNS).rename_axis("case")
        units: dict[str, str] = {}
        for name in ROW_COLUMNS:
            unit = unit_of(name)
            if unit:
                units[name] = unit
        self.rows.attrs["units"] = units
        self.runs: pd.DataFrame = _run_frame(results.runs)
        self.missing: pd.DataFrame = _gap_frame(results.missing)
        self.skipped: pd.DataFrame = _gap_frame(results.skipped)

    def __repr__(self) -> str:
        lengths = []
        for name in ("rows", "runs", "missing", "skipped"):
            frame = getattr(self, name)
            lengths.append(f"{len(frame)} {name}")
        return f"<hpccoll.ResultSet: {', '.join(lengths)}>"

    def times(
        self, cases: "pd.DataFrame | pd.Series | str | None" = None, *, per_rank: bool = True
    ) -> xr.Dataset:
        """Return the raw times of cases, as results/FILES.md describes them; only these are read from their files.

        The dimensions are ``case`` (the index of ``rows``), ``round``, ``iteration`` in the round,
        and ``rank``. Absent times are NaN. The median of ``time_s`` over ``iteration``, and then
        over ``round``, is ``median_s`` of the row.

        A case with more than 2^22 samples has the times of every ``rank_stride``-th rank only, and
        a warning says so. Variables without the dimension ``rank`` are of all workers nevertheless.

        Args:
            cases: a selection of ``rows``, a single one of them, or a ``case_id`` [all rows].
            per_rank: whether variables with the dimension ``rank`` are included.

        Raises:
            BadInputError: if a case is not among the rows, or if its file has changed since.
        """
        positions = self._select(cases)
        rows = [self._results.rows[position] for position in positions]
        times = self._read_times(rows)
        largest_stride = 1
        for row_times in times:
            if row_times:
                largest_stride = max(largest_stride, row_times.times.rank_stride)
        if per_rank and largest_stride > 1:
            warnings.warn(
                "of some cases only every n-th rank has times: n is rank_stride", stacklevel=2
            )
        return time_dataset(rows, times, per_rank=per_rank).assign_coords(case=positions)

    def timeline(self, case: "pd.DataFrame | pd.Series | str") -> pd.DataFrame:
        """Return when each part of a training step was ready, began and ended, in seconds since the start of the step.

        One row is an operation, or a computation, of a rank; times are medians over all iterations.
        A computation has no ``ready_s``. The times of each iteration are ``times(case).event_ns``.

        Args:
            case: a row of ``rows``, or a ``case_id``.

        Raises:
            BadInputError: if several rows or none are selected, or the row is not a measured
                training step.
        """
        positions = self._select(case)
        if len(positions) != 1:
            raise UnusableError("case", f"one row is needed, and {len(positions)} are selected")
        row = self._results.rows[positions[0]]
        (read,) = self._read_times([row])
        figures = workload_figures(row.collective)
        timeline = None
        if read and figures:
            timeline = figures.timeline(read.times, read.program, row.ranks)
        if timeline is None:
            raise UnusableError("case", f"{row.case_id} is not a measured training step")
        return pd.DataFrame(list(timeline.median_over_iterations().parts()))

    def compare(self, old: "ResultSet", tolerance: float = 0.05) -> pd.DataFrame:
        """Compare these results with those of an older run, as ``hpccoll compare`` does.

        One row is a case, the worst first. ``factor`` is the new time over the old one, with the 95
        % interval from ``low`` to ``high``; ``verdict`` is regression, wrong, missing, improvement,
        undecided, unchanged or new. Of the frame's ``attrs``, ``changes`` holds what else changed,
        with the old and the new value, and ``loads`` what disturbed the old and the new run, None
        if nothing did.

        Args:
            old: the results of the older run.
            tolerance: the smallest change that matters: 0.05 is five per cent.

        Raises:
            BadInputError: if the results have no case in common, or the tolerance is not a share
                between 0 and 1.
        """
        from hpccoll.judge.run_comparison import (  # scipy takes a fifth of a second to import
            check_tolerance,
            compare,
        )

        check_tolerance(tolerance, "tolerance")
        compared = compare(old._results, self._results, tolerance)  # noqa: SLF001 - of this class
        rows = []
        for held in compared.cases:
            row = {"verdict": held.verdict.value}
            rows.append(row | held.to_json())
        frame = pd.DataFrame(rows, columns=list(_COMPARISON_DTYPES)).astype(_COMPARISON_DTYPES)
        described = compared.to_json()
        frame.attrs["changes"] = described["changes"]
        frame.attrs["loads"] = described["loads"]
        return frame

    def _select(self, cases: "pd.DataFrame | pd.Series | str | None") -> list[int]:
        """Return the positions of selected rows; of all rows without a selection."""
        if cases is None:
            return list(range(len(self._results.rows)))
        if isinstance(cases, str):
            return self._positions_of_case(cases)
        frame = cases.to_frame().T if isinstance(cases, pd.Series) else cases
        if not set(_KEY) <= set(frame.columns):
            raise UnusableError(
                "cases", f"the columns {', '.join(_KEY)} are needed to find the rows"
            )
        positions = []
        for key in dict.fromkeys(frame[_KEY].itertuples(index=False, name=None)):
            if key not in self._positions:
                raise UnusableError(
                    "cases", f"no row has this job, run_id and case_id: {format_value(key)}"
                )
            positions.append(self._positions[key])
        return positions

    def _positions_of_case(self, wanted: str) -> list[int]:
        """Return the positions of the rows of a case, by its case_id."""
        positions = []
        for position, row in enumerate(self._results.rows):
            if row.case_id == wanted:
                positions.append(position)
        if not positions:
            hint = did_you_mean(wanted, {row.case_id for row in self._results.rows})
            raise BadInputError("cases", wanted, f"{hint}the case_id of a row is needed")
        return positions

    def _read_times(self, rows: Sequence[Row]) -> list[RowTimes | None]:
        """Return the times of each row, None if it was not timed; each file is opened once."""
        paths: dict[tuple[str, str], Path] = {}
        runs_of_file: defaultdict[Path, set[str]] = defaultdict(set)
        for run in self._results.runs:
            path = Path(run.path)
            paths[run.job, run.run_id] = path
            runs_of_file[path].add(run.run_id)
        timed: defaultdict[Path, list[Row]] = defaultdict(list)
        for row in rows:
            if row.rounds:
                timed[paths[row.job, row.run_id]].append(row)
        times: dict[RowKey, RowTimes] = {}
        for path, rows_of_file in timed.items():
            keys = [row.key for row in rows_of_file]
            read = read_row_times(path, runs_of_file[path], rows_of_file)
            times |= zip(keys, read, strict=True)
        return [times.get(row.key) for row in rows]


def _frame(
    kind: type[Row | Run | Gap], items: Sequence[object], names: Iterable[str] | None = None
) -> pd.DataFrame:
    """Return a frame with a column for each field of a dataclass, in the order of ``names`` if they are given."""
    dtypes = {field.name: _DTYPES.get(field.type, "object") for field in fields(kind)}
    columns = {}
    for name in names or dtypes:
        values = [getattr(item, name) for item in items]
        columns[name] = pd.Series(values, dtype=dtypes[name])
    return ResultFrame(columns)


def _gap_frame(gaps: Sequence[Gap]) -> pd.DataFrame:
    return _frame(Gap, gaps).rename(columns={"case": "case_id"})


def _run_frame(runs: Sequence[Run]) -> pd.DataFrame:
    settings = ("environment", "communicator")
    names = [field.name for field in fields(Run) if field.name not in ("provenance", *settings)]
    nested = []
    for run in runs:
        variables = {name: dict(getattr(run, name)) for name in settings}
        nested.append({**run.provenance, **variables})
    return pd.concat([_frame(Run, runs, names), pd.json_normalize(nested)], axis=1)
