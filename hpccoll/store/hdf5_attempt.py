"""The HDF5 group of an attempt: a dataset for each column of the schema, and attributes for the whole attempt."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import Case
from hpccoll.common.records import from_builtins
from hpccoll.store.plausibility import ImplausibleError
from hpccoll.store.raw_results import Attempt, Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, RANK_RESULT_COLUMNS, Column

_PER_ITERATION = ("min_ns", "median_ns", "max_ns", "span_ns", "slowest_rank")
_PER_NODE = ("wire_sent", "wire_received", "port_sent", "port_received")
_PER_RANK_OR_NODE = ("cpu_s", *_PER_NODE, *(column.name for column in RANK_RESULT_COLUMNS))
_ATTEMPT_ATTRIBUTES = tuple(
    field.name for field in fields(Attempt) if field.name not in ("places", "ports", "provenance", "evidence")
)
_LOCATION = tuple(field.name for field in fields(RankLocation))
EVIDENCE_DATASET = "evidence_json"
"""The dataset of the evidence from logs; only attempts that read logs have it."""
MAX_COLUMN_BYTES = 1 << 28
"""Columns up to this size are read whole; larger ones case by case."""
MAX_COMPRESSION_RATIO = 1100
"""The maximum ratio of the size of a chunk to its compressed size; deflate reaches 1032."""
MAX_CHUNK_VALUES = 1 << 23
"""The most values of a chunk, 64 MiB: HDF5 has a chunk in memory as a whole, and before 2.0 none of 4 GiB."""
_COMPRESSION = {"compression": "gzip", "compression_opts": 4, "shuffle": True, "fletcher32": True}


def write_attempt(group: Any, attempt: Attempt, outcomes: Sequence[Outcome]) -> None:
    """Write an attempt and the outcomes of its cases into an empty group."""
    for name in _ATTEMPT_ATTRIBUTES:
        value = getattr(attempt, name)
        group.attrs[name] = -1 if value is None else value
    group.attrs["provenance_json"] = json.dumps(attempt.provenance, indent=1, sort_keys=True)
    if attempt.evidence is not None:  # a dataset, because an attribute holds at most 64 KiB
        text = json.dumps(attempt.evidence, indent=1, sort_keys=True)
        dataset = group.create_dataset(EVIDENCE_DATASET, data=text, dtype=h5py.string_dtype())
        dataset.attrs["long_name"] = "JSON: the evidence in the library's own logs of an untimed pass"
    sizes = {
        "case": len(outcomes),
        "iteration": max(1, *(_iterations(outcome) for outcome in outcomes), 1),
        "rank": attempt.ranks,
        "node_number": len({location.node for location in attempt.places}),
        "port": max(1, len(attempt.ports)),
        "event": max((outcome.times.event_ns.shape[2] for outcome in outcomes if outcome.times), default=0) or 1,
    }
    for name, size in sizes.items():
        scale = group.create_dataset(name, data=np.arange(size))
        scale.make_scale(name)
        scale.attrs["long_name"] = name
    tables: dict[str, Sequence[Mapping[str, object]]] = {
        "case": [_case_values(outcome) for outcome in outcomes],
        "rank": [asdict(place) for place in attempt.places],
        "port": [{"port_name": name} for name in attempt.ports or [""]],
    }
    for column in COLUMNS:
        if len(column.dims) == 1:
            values = [row[column.name] for row in tables[column.dims[0]]]
            dataset = _create_dataset(group, column, data=_column_array(column, values))
        else:
            shape = [sizes[dim] for dim in column.dims]
            dataset = _create_dataset(
                group, column, shape=shape, chunks=_chunks(shape), fillvalue=column.absent, **_COMPRESSION
            )
            for number, outcome in enumerate(outcomes):
                _write_case(dataset, column, number, outcome)
        for axis, dim in enumerate(column.dims):
            dataset.dims[axis].attach_scale(group[dim])


def _chunks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a chunk: a case, or some of its iterations if it is larger than MAX_CHUNK_VALUES."""
    of_iteration = math.prod(shape[2:])
    return 1, min(shape[1], max(1, MAX_CHUNK_VALUES // of_iteration)), *shape[2:]


def _create_dataset(group: Any, column: Column, **options: Any) -> Any:
    text = column.dtype == "str"
    dataset = group.create_dataset(column.name, dtype=h5py.string_dtype() if text else _dtype(column), **options)
    dataset.attrs["long_name"] = column.meaning
    if column.unit:
        dataset.attrs["units"] = column.unit
    if column.absent is not None and not text:
        dataset.attrs["missing_value"] = np.array(column.absent, dataset.dtype)
    return dataset


def _column_array(column: Column, values: Sequence[object]) -> NDArray[Any]:
    return np.array([column.absent if value is None else value for value in values], _dtype(column))


def _write_case(dataset: Any, column: Column, number: int, outcome: Outcome) -> None:
    """Write the row of one case; values that it does not write stay absent."""
    if column.name in _PER_RANK_OR_NODE:
        values = _nested_array(column, getattr(outcome, column.name))
        if values.size:  # empty if the hosts have no port counters
            dataset[number, : len(values)] = values
    elif outcome.times is not None:
        times = getattr(outcome.times, column.name)
        n = len(times)  # 0 without a common clock or GPU events
        if not n:
            return
        if column.dims == ("case", "iteration"):
            dataset[number, :n] = times
        elif column.dims[-1] == "event":
            dataset[number, :n, :: outcome.times.rank_stride, : times.shape[2]] = times
        else:
            dataset[number, :n, :: outcome.times.rank_stride] = times


def _nested_array(column: Column, values: Any) -> NDArray[Any]:
    """Return nested values with the absent value of a column for None."""
    if column.dtype == "float64":
        return np.array(values, np.float64)  # None becomes nan
    return _column_array(column, values)


def _dtype(column: Column) -> Any:
    return {"str": object, "bool": np.uint8, "maybe": np.int8}.get(column.dtype, column.dtype)


def _iterations(outcome: Outcome) -> int:
    return 0 if outcome.times is None else len(outcome.times.max_ns)


def _case_values(outcome: Outcome) -> dict[str, object]:
    """Return the values of an outcome for the columns that have one value per case, by column name."""
    case = outcome.case
    return {
        **{field.name: getattr(case, field.name) for field in fields(Case)},
        **{field.name: getattr(outcome, field.name) for field in fields(Outcome)},
        "case_id": case.id,
        "requested_bytes": case.bytes,
        "requested_ranks": case.ranks,
        "requested_nodes": case.nodes,
        "requested_mapping": case.mapping,
        "requested_timing": case.timing,
        "requested_params": json.dumps(dict(case.params), sort_keys=True),
        "params": json.dumps(dict(outcome.params), sort_keys=True),
        "counters": None if outcome.counters is None else json.dumps(dict(outcome.counters)),
        "iterations": _iterations(outcome),
        "rank_stride": None if outcome.times is None else outcome.times.rank_stride,
    }


def stored_object(group: Any, name: str, file_bytes: int) -> Any:
    """Return a member of a group whose values are in this file.

    Raises:
        ImplausibleError: if it is a link, lies in another file, or is larger than this file can hold.
    """
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ImplausibleError(f"{name!r:.200} is a link to elsewhere")
    item = group[name]
    if isinstance(item, h5py.Dataset):
        at_once = item.nbytes if item.chunks is None else item.nbytes // max(1, len(item))
        limit = file_bytes if item.chunks is None else MAX_COMPRESSION_RATIO * file_bytes
        if item.is_virtual or item.external or at_once > limit:
            raise ImplausibleError(f"{name!r:.200} has {item.nbytes} bytes, and its file {file_bytes}")
    return item


def read_attempt(group: Any, file_bytes: int, case_ids: Collection[str] | None = None) -> tuple[Attempt, list[Outcome]]:
    """Read an attempt of a file of ``file_bytes``, and the outcomes of its cases, or of the given ones."""
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        dataset = stored_object(group, column.name, file_bytes)
        if dataset.shape != tuple(len(group[dim]) for dim in column.dims):
            raise ImplausibleError(f"{column.name} has the shape {dataset.shape}")
        if column.dtype == "str":
            columns[column.name] = dataset.asstr()[:]
        else:  # both index by row; rows of skipped cases are not even stored
            whole = len(column.dims) == 1 or (case_ids is None and dataset.nbytes <= MAX_COLUMN_BYTES)
            columns[column.name] = dataset[:] if whole else dataset
    attributes = {name: _to_python(group.attrs[name]) for name in _ATTEMPT_ATTRIBUTES}
    if attributes["ranks_per_node"] == -1:
        attributes["ranks_per_node"] = None
    attributes["places"] = [
        {name: _to_python(columns[name][rank]) for name in _LOCATION} for rank in range(len(group["rank"]))
    ]
    attributes["ports"] = [*filter(None, columns["port_name"])]
    attributes["provenance"] = json.loads(group.attrs["provenance_json"])
    if EVIDENCE_DATASET in group:
        attributes["evidence"] = json.loads(stored_object(group, EVIDENCE_DATASET, file_bytes).asstr()[()])
    selected = (number for number, name in enumerate(columns["case_id"]) if case_ids is None or name in case_ids)
    outcomes = [
        from_builtins(_outcome_values(columns, number), Outcome, decode=lambda _kind, value: value)
        for number in selected
    ]
    return from_builtins(attributes, Attempt), outcomes


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _decode_value(column: Column, value: object) -> object:
    if column.dtype != "bool" and (value == column.absent or value != value):  # noqa: PLR0124  only nan differs from itself
        return None
    return bool(value) if column.dtype in ("bool", "maybe") else value


def _outcome_values(columns: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return the values of the fields of an outcome."""
    row: dict[str, Any] = {
        column.name: _decode_value(column, _to_python(columns[column.name][number]))
        for column in COLUMNS
        if column.dims == ("case",)
    }
    case = {field.name: row[field.name] for field in fields(Case) if field.name in row}
    case |= {name: row[f"requested_{name}"] for name in ("bytes", "ranks", "nodes", "mapping", "timing")}
    values = {field.name: row[field.name] for field in fields(Outcome) if field.name in row}
    values |= {name: _values_or_empty(columns[name][number]) for name in _PER_NODE}
    values |= {each.name: _values_or_empty(columns[each.name][number], each.absent) for each in RANK_RESULT_COLUMNS}
    cpu_s = columns["cpu_s"][number]
    return {
        **values,
        "case": {**case, "params": json.loads(row["requested_params"])},
        "params": json.loads(row["params"]),
        "counters": json.loads(row["counters"]) if row["counters"] else None,
        "cpu_s": cpu_s[~np.isnan(cpu_s)],
        "times": _times_values(columns, number, row),
    }


def _values_or_empty(values: NDArray[Any], absent: object = None) -> list[Any]:
    """Return values as nested lists with None for absent ones, nan or ``absent``; an empty list if all are absent."""
    return [] if ((values == absent) | np.isnan(values)).all() else _nested_lists(values.tolist(), absent)


def _nested_lists(values: Sequence[Any], absent: object) -> list[Any]:
    return [
        _nested_lists(v, absent) if isinstance(v, list) else None if v == absent or np.isnan(v) else v for v in values
    ]


def _times_values(columns: Mapping[str, Any], number: int, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of the fields of the times of a case; None if it was not timed."""
    n, stride = row["iterations"], row["rank_stride"]
    if not n:
        return None
    per_iteration = {name: columns[name][number, :n] for name in (*_PER_ITERATION, "round")}
    if (per_iteration["span_ns"] < 0).any():
        per_iteration["span_ns"] = np.empty(0, np.int64)
    kept = {name: columns[name][number, :n, ::stride] for name in ("start_ns", "end_ns", "device_ns")}
    if (kept["device_ns"] < 0).any():
        kept["device_ns"] = np.empty((0, 0), np.int64)
    events = columns["event_ns"][number, :n, ::stride] if row["program"] else np.empty((0, 0, 0), np.int64)
    count = int((events >= 0).any(axis=(0, 1)).sum())  # those of the case: the file has room for the largest one
    kept["event_ns"] = events[..., :count] if count else np.empty((0, 0, 0), np.int64)
    return {**per_iteration, **kept, "rank_stride": stride}
