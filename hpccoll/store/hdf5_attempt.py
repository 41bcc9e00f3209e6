"""The HDF5 group of an attempt: a dataset for each column of the schema, and attributes for the whole attempt."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import Case
from hpccoll.common.records import from_builtins
from hpccoll.store.case_times import OF_TRAINING, PER_RANK, CaseTimes, StoredTimes, TimesOfRanks
from hpccoll.store.plausibility import ImplausibleError, check_rank_times
from hpccoll.store.rank_values import RankValues
from hpccoll.store.raw_results import Attempt, Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, RANK_RESULT_COLUMNS, RESULT_COLUMNS, Column
from hpccoll.store.sealed_file import (
    COMPRESSION,
    attach_scales,
    create_scales,
    create_text,
    stored_object,
)

_OF_CASES = tuple(column for column in COLUMNS if len(column.dims) > 1)
"""The columns with several values for each case."""
_PER_ITERATION = tuple(column for column in _OF_CASES if column.dims == ("case", "iteration"))
_PER_RANK_OR_NODE = tuple(column for column in _OF_CASES if "iteration" not in column.dims)
_ATTEMPT_ATTRIBUTES = tuple(
    field.name
    for field in fields(Attempt)
    if field.name not in ("places", "ports", "provenance", "evidence")
)
_SUMMARIES = frozenset({"skew_ns", "device_max_ns"})
"""The columns that follow from the times of the ranks, where a file of an earlier release lacks them."""
_NOT_IN_OLDER_FILES = {column.name for column in (*RESULT_COLUMNS, *RANK_RESULT_COLUMNS)}.union(
    OF_TRAINING, _SUMMARIES
)
"""The columns that a file may lack: those of results, which later releases add; their entries are then absent."""
_GROWING = frozenset({"case", "iteration", "event"})
"""The dimensions whose size is known when all cases are written."""
EVIDENCE_DATASET = "evidence_json"
"""The dataset of the evidence from logs; only attempts that read logs have it."""
MAX_COLUMN_BYTES = 1 << 22
"""Columns up to this size are read whole; larger ones case by case."""
MAX_CHUNK_VALUES = 1 << 23
"""The most values of a chunk, 64 MiB: HDF5 has a chunk in memory as a whole, and before 2.0 none of 4 GiB."""
CHUNK_ITERATIONS = 32, 256
"""The fewest and the most iterations of a chunk, where those of later cases are not known yet."""
MAX_CHUNK_RANKS = 1 << 10
"""The most ranks of a chunk: the chunks of ranks that are not kept are not stored."""
PACKED = "kept_ranks_first"
"""The attribute of groups where entry k along ``rank`` has the times of the k-th rank that is kept;
in files of earlier releases it has those of rank k."""


class AttemptWriter:
    """Writes an attempt into an empty group: its cases one after the other, and in the end what all of them share.

    Args:
        group: the group.
        attempt: the attempt; what is known of it only in the end may be missing.
        iterations: how many iterations of a case are in one chunk [those of the first case, within
            CHUNK_ITERATIONS].
    """

    def __init__(self, group: Any, attempt: Attempt, iterations: int | None = None) -> None:
        self._group = group
        self._iterations = iterations
        self._fixed = {
            "rank": attempt.ranks,
            "node_number": len({location.node for location in attempt.places}),
            "port": len(attempt.ports or [""]),
        }
        self._most = dict.fromkeys(_GROWING, 1)
        group.attrs[PACKED] = True
        self._datasets: dict[str, Any] = {}

    def write(self, number: int, outcome: Outcome) -> None:
        """Write the values of the case with this number, whose times are in memory."""
        values_by_name = _case_values(outcome)
        if outcome.times is not None:
            values_by_name |= _values_of(outcome.times.kept.read())
        self._grow("case", number + 1)
        self._grow("iteration", values_by_name["iterations"])
        for column in _OF_CASES:
            values = _to_array(column, values_by_name.get(column.name, ()))
            # counters, a common clock, GPU events: what a case lacks stays absent
            if not values.size:
                continue
            if "event" in column.dims:
                self._grow("event", values.shape[-1])
            dataset = self._dataset(column)
            dataset[(number, *map(slice, values.shape))] = values

    def finish(self, attempt: Attempt, outcomes: Sequence[Outcome]) -> None:
        """Write what is known of the whole attempt, whose cases have all been written."""
        self._write_attributes(attempt)
        tables: dict[str, Sequence[Mapping[str, Any]]] = {
            "case": [_case_values(outcome) for outcome in outcomes],
            "rank": [asdict(place) for place in attempt.places],
            "port": [{"port_name": name} for name in attempt.ports or [""]],
        }
        self._most["case"] = len(outcomes)
        create_scales(self._group, {**self._most, **self._fixed})
        for column in COLUMNS:
            if len(column.dims) == 1:
                rows = tables[column.dims[0]]
                values = [row[column.name] for row in rows]
                dataset = _create_dataset(self._group, column, data=_to_array(column, values))
            else:
                dataset = self._dataset(column)
                dataset.resize(self._shape(column))
            attach_scales(self._group, dataset, column.dims)

    def _write_attributes(self, attempt: Attempt) -> None:
        """Write the attributes of the group, and the evidence, which may be too long for one."""
        attributes = self._group.attrs
        for name in _ATTEMPT_ATTRIBUTES:
            value = getattr(attempt, name)
            attributes[name] = -1 if value is None else value
        attributes["provenance_json"] = json.dumps(attempt.provenance, indent=1, sort_keys=True)
        if attempt.evidence is not None:  # a dataset, because an attribute holds at most 64 KiB
            text = json.dumps(attempt.evidence, indent=1, sort_keys=True)
            meaning = "JSON: the evidence in the library's own logs of an untimed pass"
            create_text(self._group, EVIDENCE_DATASET, text, meaning)

    def _grow(self, dimension: str, size: int) -> None:
        self._most[dimension] = max(self._most[dimension], size)

    def _shape(self, column: Column) -> tuple[int, ...]:
        sizes = {**self._most, **self._fixed}
        return tuple(sizes[dimension] for dimension in column.dims)

    def _dataset(self, column: Column) -> Any:
        """Return the dataset of a column, with room for what is to be written."""
        shape = self._shape(column)
        dataset = self._datasets.get(column.name)
        if dataset is None:
            longest = tuple(
                None if dimension in _GROWING else self._fixed[dimension]
                for dimension in column.dims
            )
            dataset = _create_dataset(
                self._group,
                column,
                shape=shape,
                maxshape=longest,
                chunks=self._chunk(column),
                fillvalue=column.absent,
                **COMPRESSION,
            )
            self._datasets[column.name] = dataset
        if dataset.shape != shape:
            dataset.resize(shape)
        return dataset

    def _chunk(self, column: Column) -> tuple[int, ...]:
        """Return the shape of a chunk, which has one case, and at most MAX_CHUNK_RANKS ranks and MAX_CHUNK_VALUES."""
        shape = self._shape(column)
        if "iteration" not in column.dims:
            return 1, *shape[1:]
        least, most = CHUNK_ITERATIONS
        iterations = self._iterations or min(most, max(least, self._most["iteration"]))
        ranks = tuple(min(size, MAX_CHUNK_RANKS) for size in shape[2:3])
        shape_of_iteration = ranks + shape[3:]
        most_iterations = max(1, MAX_CHUNK_VALUES // math.prod(shape_of_iteration))
        return 1, min(iterations, most_iterations), *shape_of_iteration


def _create_dataset(group: Any, column: Column, **options: Any) -> Any:
    is_text = column.dtype == "str"
    dtype = h5py.string_dtype() if is_text else _dtype(column)
    dataset = group.create_dataset(column.name, dtype=dtype, **options)
    dataset.attrs["long_name"] = column.meaning
    if column.unit:
        dataset.attrs["units"] = column.unit
    if column.absent is not None and not is_text:
        dataset.attrs["missing_value"] = np.array(column.absent, dataset.dtype)
    return dataset


_DTYPES: Mapping[str, Any] = {"str": object, "bool": np.uint8, "maybe": np.int8}
"""The types of stored values that differ from those of the schema."""


def _dtype(column: Column) -> Any:
    return _DTYPES.get(column.dtype, column.dtype)


def _to_array(column: Column, values: Any) -> NDArray[Any]:
    """Return values, which may be nested if they are floats, with the absent value of the column for None."""
    if isinstance(values, np.ndarray) or column.dtype == "float64":
        return np.asarray(values, _dtype(column))  # None becomes nan
    stored = [column.absent if value is None else value for value in values]
    return np.array(stored, _dtype(column))


def _values_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _case_values(outcome: Outcome) -> dict[str, Any]:
    """Return the values of an outcome by the names of their columns."""
    case = outcome.case
    times = outcome.times
    values = {**_values_of(case), **_values_of(outcome)}
    values["case_id"] = case.id
    for name in _REQUESTED:
        values[f"requested_{name}"] = getattr(case, name)
    values["requested_params"] = _to_json(case.params)
    values["params"] = _to_json(outcome.params)
    values["counters"] = None if outcome.counters is None else json.dumps(dict(outcome.counters))
    if times is None:
        values["iterations"] = 0
        values["rank_stride"] = None
    else:
        values |= _values_of(times)
        values["iterations"] = len(times.max_ns)
    return values


def _to_json(params: Mapping[str, Any]) -> str:
    return json.dumps(dict(params), sort_keys=True)


_REQUESTED = ("bytes", "ranks", "nodes", "mapping", "timing")
"""The fields of a case whose columns begin with ``requested_``."""


@dataclass(frozen=True, slots=True)
class StoredCase:
    """Where the times of the ranks of a case lie in the group of its attempt."""

    number: int  # the number of the case
    iterations: int
    rank_stride: int
    has_events: bool  # whether it is a training step


Load: TypeAlias = Callable[[StoredCase, Callable[[TimesOfRanks], None]], TimesOfRanks]
"""Reads the times of the ranks of a case, and has them checked."""


def read_attempt(
    group: Any, file_bytes: int, load: Load, case_ids: Collection[str] | None = None
) -> tuple[Attempt, list[Outcome]]:
    """Read an attempt of a file of ``file_bytes``, and the outcomes of its cases, or of the given ones.

    The times of the ranks are not read: ``load`` does so when they are asked for.
    """
    read = [column for column in COLUMNS if column.name not in PER_RANK]
    lengths: dict[str, int] = {}
    columns = {}
    for column in read:
        for dimension in column.dims:
            if dimension not in lengths:
                lengths[dimension] = len(group[dimension])
        columns[column.name] = _column(group, column, lengths, file_bytes)
    attempt = _read_attributes(group, columns, file_bytes)
    clocks = [place.clock for place in attempt.places]
    has_summaries = all(name in group for name in _SUMMARIES)
    outcomes = []
    values_of_case = CaseValues(columns)
    for number, case_id in enumerate(columns["case_id"]):
        if case_ids is not None and case_id not in case_ids:
            continue
        outcome = from_builtins(values_of_case.outcome(number), Outcome)
        times = _read_times(columns, number, values_of_case.scalars)
        if times is not None:
            stored = StoredCase(number, len(times.max_ns), times.rank_stride, bool(outcome.program))
            if not has_summaries:
                rank_times = read_rank_times(group, file_bytes, stored, ("start_ns", "device_ns"))
                times = replace(times, kept=rank_times).summarised(clocks)
            check = partial(check_rank_times, times=times, program=outcome.program, attempt=attempt)
            times = replace(times, kept=StoredTimes(partial(load, stored, check)))
        cpu_s = columns["cpu_s"][number]
        is_known = ~np.isnan(cpu_s)
        _set_arrays(outcome, times=times, cpu_s=cpu_s[is_known], **values_of_case.of_ranks(number))
        outcomes.append(outcome)
    return attempt, outcomes


def _read_attributes(group: Any, columns: Mapping[str, Any], file_bytes: int) -> Attempt:
    """Read an attempt without its outcomes, given its columns by name."""
    attributes = {name: _to_python(group.attrs[name]) for name in _ATTEMPT_ATTRIBUTES}
    if attributes["ranks_per_node"] == -1:
        attributes["ranks_per_node"] = None
    ranks = range(len(group["rank"]))
    attributes["places"] = [_place_of_rank(columns, rank) for rank in ranks]
    attributes["ports"] = list(filter(None, columns["port_name"]))
    attributes["provenance"] = json.loads(group.attrs["provenance_json"])
    if EVIDENCE_DATASET in group:
        dataset = stored_object(group, EVIDENCE_DATASET, file_bytes)
        attributes["evidence"] = json.loads(dataset.asstr()[()])
    return from_builtins(attributes, Attempt)


def _place_of_rank(columns: Mapping[str, Any], rank: int) -> dict[str, Any]:
    return {field.name: _to_python(columns[field.name][rank]) for field in fields(RankLocation)}


def _set_arrays(outcome: Outcome, **arrays: Any) -> None:
    """Set the arrays of an outcome that nobody has seen yet: a copy of all its other fields takes longer."""
    for name, values in arrays.items():
        object.__setattr__(outcome, name, values)


def _column(group: Any, column: Column, lengths: Mapping[str, int], file_bytes: int) -> Any:
    """Return the values of a column, by row: as an array, or as a dataset if it is large.

    ``lengths`` are those of the dimensions.
    """
    absent = np.array(False if column.absent is None else column.absent, _dtype(column))
    shape = tuple(lengths[dimension] for dimension in column.dims)
    nothing = np.broadcast_to(absent, shape)  # no memory for each case and rank
    if column.name in _NOT_IN_OLDER_FILES and column.name not in group:
        return nothing
    dataset = _checked_dataset(group, column, shape, file_bytes)
    if column.dtype == "str":
        return dataset.asstr()[:]
    if dataset.chunks is not None and not dataset.id.get_num_chunks():
        return nothing
    if len(column.dims) == 1 or dataset.nbytes <= MAX_COLUMN_BYTES:
        return dataset[:]
    return dataset


def _checked_dataset(group: Any, column: Column, shape: tuple[int, ...], file_bytes: int) -> Any:
    """Return the dataset of a column.

    Raises:
        ImplausibleError: if its shape is not that of its dimensions.
    """
    dataset = stored_object(group, column.name, file_bytes)
    if dataset.shape != shape:
        raise ImplausibleError(f"{column.name} has the shape {dataset.shape}")
    return dataset


def read_rank_times(
    group: Any, file_bytes: int, stored: StoredCase, names: Collection[str] = PER_RANK
) -> TimesOfRanks:
    """Read the times of the ranks of a case, or only those with these ``names``."""
    kept_ranks = math.ceil(len(group["rank"]) / stored.rank_stride)
    kept = slice(kept_ranks)
    if not group.attrs.get(PACKED):
        kept = slice(None, None, stored.rank_stride)
    times: dict[str, NDArray[np.int64]] = {}
    for column in _OF_CASES:
        if column.name not in names or (column.name == "event_ns" and not stored.has_events):
            continue
        shape = tuple(len(group[dimension]) for dimension in column.dims)
        dataset = _checked_dataset(group, column, shape, file_bytes)
        if not dataset.id.get_num_chunks():
            continue
        values = dataset[stored.number, : stored.iterations, kept]
        if column.name == "event_ns":  # the file has room for the largest program
            has_event = (values >= 0).any(axis=(0, 1))
            values = values[..., : int(has_event.sum())]
        if column.name != "device_ns" or (values >= 0).all():
            times[column.name] = values
    return TimesOfRanks(**times)


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


class CaseValues:
    """The values of the cases of an attempt, for the fields of their outcomes.

    Args:
        columns: the columns of the attempt, by name.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.scalars: dict[str, list[Any]] = {}
        for column in COLUMNS:
            if column.dims == ("case",):
                self.scalars[column.name] = _decoded(column, columns[column.name])
        self._of_ranks: dict[Column, Any] = {}
        self._of_nodes: dict[Column, Any] = {}
        for column in _PER_RANK_OR_NODE:
            values = columns[column.name]
            if column.name == "cpu_s" or _is_absent(column, values):
                continue
            if column in RANK_RESULT_COLUMNS:
                self._of_ranks[column] = values
            else:
                self._of_nodes[column] = values

    def of_ranks(self, number: int) -> dict[str, Any]:
        """Return the values that some ranks of a case have, by the names of their fields."""
        values_by_name = {}
        for column, values_of_cases in self._of_ranks.items():
            values = np.array(values_of_cases[number])  # a view would keep the values of all cases
            is_known = ~_are_absent(column, values)
            if is_known.any():
                values_by_name[column.name] = RankValues(values, is_known)
        return values_by_name

    def outcome(self, number: int) -> dict[str, Any]:
        """Return the values of an outcome, without its arrays, by the names of their fields."""
        scalars = {name: values[number] for name, values in self.scalars.items()}
        case = {name: scalars[name] for name in _SCALARS_OF_CASE}
        case |= {name: scalars[f"requested_{name}"] for name in _REQUESTED}
        case["params"] = json.loads(scalars["requested_params"])
        values = {name: scalars[name] for name in _SCALARS_OF_OUTCOME}
        for column, values_of_cases in self._of_nodes.items():
            values[column.name] = _values_or_empty(column, values_of_cases[number])
        values["case"] = case
        values["params"] = json.loads(scalars["params"])
        values["counters"] = json.loads(scalars["counters"]) if scalars["counters"] else None
        return values


_NAMES_OF_SCALARS = frozenset(column.name for column in COLUMNS if column.dims == ("case",))
_SCALARS_OF_OUTCOME = tuple(
    field.name for field in fields(Outcome) if field.name in _NAMES_OF_SCALARS
)
_SCALARS_OF_CASE = tuple(field.name for field in fields(Case) if field.name in _NAMES_OF_SCALARS)


def _decoded(column: Column, values: NDArray[Any]) -> list[Any]:
    """Return the values of a column of cases; None for an absent one."""
    decoded: list[Any] = values.tolist()
    if column.dtype == "str":
        return _each_once(decoded)
    if column.dtype == "bool":
        return [bool(value) for value in decoded]
    # only nan differs from itself
    present = [None if value == column.absent or value != value else value for value in decoded]  # noqa: PLR0124
    if column.dtype == "maybe":
        return [None if value is None else bool(value) for value in present]
    return present


def _each_once(texts: Sequence[str]) -> list[str | None]:
    """Return texts, None for an empty one. Equal texts are the same object, because most cases have the same."""
    first: dict[str, str] = {}
    shared: list[str | None] = []
    for text in texts:
        text_in_memory = first.setdefault(text, text)
        shared.append(text_in_memory or None)
    return shared


def _is_absent(column: Column, values: Any) -> bool:
    """Return whether a column in memory has no value; one that is large is not read for this."""
    if not isinstance(values, np.ndarray):
        return False
    if not any(values.strides):  # one value stands for all
        values = values.flat[:1]
    return bool(_are_absent(column, values).all())


def _are_absent(column: Column, values: NDArray[Any]) -> NDArray[np.bool]:
    absent: NDArray[np.bool] = (values == column.absent) | np.isnan(values)
    return absent


def _values_or_empty(column: Column, values: NDArray[Any]) -> list[Any]:
    """Return values as nested lists with None for absent ones; an empty list if all are absent."""
    is_absent = _are_absent(column, values)
    if is_absent.all():
        return []
    objects = values.astype(object)
    objects[is_absent] = None
    return list(objects.tolist())


def _read_times(
    columns: Mapping[str, Any], number: int, scalars: Mapping[str, Sequence[Any]]
) -> CaseTimes | None:
    """Return the times of a case without those of its ranks; None if it was not timed."""
    n = scalars["iterations"][number]
    if not n:
        return None
    times: dict[str, Any] = {}
    for column in _PER_ITERATION:
        values = columns[column.name][number, :n]
        has_values = values >= 0
        # A loss may be nan in some iterations.
        is_recorded = has_values.any() if column.name in OF_TRAINING else has_values.all()
        if column.name not in _OPTIONAL or is_recorded:
            times[column.name] = values
    return CaseTimes(rank_stride=scalars["rank_stride"][number], kept=_NO_RANKS, **times)


_NO_RANKS = TimesOfRanks()
_OPTIONAL = frozenset(column.name for column in _PER_ITERATION) - {"max_ns", "round"}
"""The columns of iterations that a case may lack."""
