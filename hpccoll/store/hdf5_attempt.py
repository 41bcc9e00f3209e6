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
from hpccoll.store.case_times import OF_TRAINING
from hpccoll.store.plausibility import ImplausibleError
from hpccoll.store.raw_results import Attempt, Outcome, RankLocation
from hpccoll.store.schema import COLUMNS, RANK_RESULT_COLUMNS, RESULT_COLUMNS, Column
from hpccoll.store.sealed_file import COMPRESSION, attach_scales, create_scales, create_text, stored_object

_PER_RANK_OR_NODE = tuple(each for each in COLUMNS if len(each.dims) > 1 and "iteration" not in each.dims)
_ATTEMPT_ATTRIBUTES = tuple(
    field.name for field in fields(Attempt) if field.name not in ("places", "ports", "provenance", "evidence")
)
_NOT_IN_OLDER_FILES = {column.name for column in (*RESULT_COLUMNS, *RANK_RESULT_COLUMNS)}.union(OF_TRAINING)
"""The columns that a file may lack: those of results, which later releases add; their entries are then absent."""
EVIDENCE_DATASET = "evidence_json"
"""The dataset of the evidence from logs; only attempts that read logs have it."""
MAX_COLUMN_BYTES = 1 << 28
"""Columns up to this size are read whole; larger ones case by case."""
MAX_CHUNK_VALUES = 1 << 23
"""The most values of a chunk, 64 MiB: HDF5 has a chunk in memory as a whole, and before 2.0 none of 4 GiB."""


def write_attempt(group: Any, attempt: Attempt, outcomes: Sequence[Outcome]) -> None:
    """Write an attempt and the outcomes of its cases into an empty group."""
    for name in _ATTEMPT_ATTRIBUTES:
        value = getattr(attempt, name)
        group.attrs[name] = -1 if value is None else value
    group.attrs["provenance_json"] = json.dumps(attempt.provenance, indent=1, sort_keys=True)
    if attempt.evidence is not None:  # a dataset, because an attribute holds at most 64 KiB
        text = json.dumps(attempt.evidence, indent=1, sort_keys=True)
        create_text(group, EVIDENCE_DATASET, text, "JSON: the evidence in the library's own logs of an untimed pass")
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "case": [_case_values(outcome) for outcome in outcomes],
        "rank": [asdict(place) for place in attempt.places],
        "port": [{"port_name": name} for name in attempt.ports or [""]],
    }
    sizes = {
        "case": len(outcomes),
        "iteration": max((row["iterations"] for row in tables["case"]), default=0) or 1,
        "rank": attempt.ranks,
        "node_number": len({location.node for location in attempt.places}),
        "port": len(tables["port"]),
        "event": max((outcome.times.event_ns.shape[2] for outcome in outcomes if outcome.times), default=0) or 1,
    }
    create_scales(group, sizes)
    for column in COLUMNS:
        if len(column.dims) == 1:
            values = [row[column.name] for row in tables[column.dims[0]]]
            dataset = _create_dataset(group, column, data=_to_array(column, values))
        else:
            shape = [sizes[dim] for dim in column.dims]
            dataset = _create_dataset(
                group, column, shape=shape, chunks=_chunks(shape), fillvalue=column.absent, **COMPRESSION
            )
            for number, row in enumerate(tables["case"]):
                _write_case(dataset, column, number, row)
        attach_scales(group, dataset, column.dims)


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


def _dtype(column: Column) -> Any:
    return {"str": object, "bool": np.uint8, "maybe": np.int8}.get(column.dtype, column.dtype)


def _to_array(column: Column, values: Any) -> NDArray[Any]:
    """Return values, which may be nested if they are floats, with the absent value of the column for None."""
    if isinstance(values, np.ndarray) or column.dtype == "float64":
        return np.asarray(values, _dtype(column))  # None becomes nan
    return np.array([column.absent if value is None else value for value in values], _dtype(column))


def _write_case(dataset: Any, column: Column, number: int, row: Mapping[str, Any]) -> None:
    """Write the values of one case; what it lacks stays absent: counters, a common clock, GPU events, ranks."""
    values = _to_array(column, row.get(column.name, ()))
    if values.size:
        place = [slice(size) for size in values.shape]
        if column.dims[1:3] == ("iteration", "rank"):
            place[1] = slice(None, None, row["rank_stride"])
        dataset[(number, *place)] = values


def _values_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _case_values(outcome: Outcome) -> dict[str, Any]:
    """Return the values of an outcome by the names of their columns."""
    case, times = outcome.case, outcome.times
    return {
        **_values_of(case),
        **_values_of(outcome),
        "case_id": case.id,
        **{f"requested_{name}": getattr(case, name) for name in _REQUESTED},
        "requested_params": json.dumps(dict(case.params), sort_keys=True),
        "params": json.dumps(dict(outcome.params), sort_keys=True),
        "counters": None if outcome.counters is None else json.dumps(dict(outcome.counters)),
        "iterations": 0 if times is None else len(times.max_ns),
        "rank_stride": None,
        **({} if times is None else _values_of(times)),
    }


_REQUESTED = ("bytes", "ranks", "nodes", "mapping", "timing")
"""The fields of a case whose columns begin with ``requested_``."""


def read_attempt(group: Any, file_bytes: int, case_ids: Collection[str] | None = None) -> tuple[Attempt, list[Outcome]]:
    """Read an attempt of a file of ``file_bytes``, and the outcomes of its cases, or of the given ones."""
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        shape = tuple(len(group[dim]) for dim in column.dims)
        if column.name in _NOT_IN_OLDER_FILES and column.name not in group:
            absent = np.array(False if column.absent is None else column.absent, _dtype(column))
            columns[column.name] = np.broadcast_to(absent, shape)  # no memory for each case and rank
            continue
        dataset = stored_object(group, column.name, file_bytes)
        if dataset.shape != shape:
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
        {field.name: _to_python(columns[field.name][rank]) for field in fields(RankLocation)}
        for rank in range(len(group["rank"]))
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
    row: dict[str, Any] = {
        column.name: _decode_value(column, _to_python(columns[column.name][number]))
        for column in COLUMNS
        if column.dims == ("case",)
    }
    row |= {column.name: _values_or_empty(column, columns[column.name][number]) for column in _PER_RANK_OR_NODE}
    case = {field.name: row[field.name] for field in fields(Case) if field.name in row}
    case |= {name: row[f"requested_{name}"] for name in _REQUESTED}
    cpu_s = columns["cpu_s"][number]
    return {
        **{field.name: row[field.name] for field in fields(Outcome) if field.name in row},
        "case": {**case, "params": json.loads(row["requested_params"])},
        "params": json.loads(row["params"]),
        "counters": json.loads(row["counters"]) if row["counters"] else None,
        "cpu_s": cpu_s[~np.isnan(cpu_s)],
        "times": _times_values(columns, number, row),
    }


def _values_or_empty(column: Column, values: NDArray[Any]) -> list[Any]:
    """Return values as nested lists with None for absent ones; an empty list if all are absent."""
    is_absent = (values == column.absent) | np.isnan(values)
    known = values.astype(object)
    known[is_absent] = None
    return [] if is_absent.all() else known.tolist()


def _times_values(columns: Mapping[str, Any], number: int, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of the fields of the times of a case; None if it was not timed."""
    n, stride = row["iterations"], row["rank_stride"]
    if not n:
        return None
    times: dict[str, Any] = {"rank_stride": stride}
    for column in COLUMNS:
        if column.dims[:2] == ("case", "iteration") and (column.name != "event_ns" or row["program"]):
            place = (number, slice(n), slice(None, None, stride))[: len(column.dims)]
            values = columns[column.name][place]
            if column.name == "event_ns":  # the file has room for the largest program
                values = values[..., : int((values >= 0).any(axis=(0, 1)).sum())]
            known = np.any if column.name in OF_TRAINING else np.all  # a loss may be nan in some iterations
            if column.name not in ("span_ns", "mean_ns", "device_ns", *OF_TRAINING) or known(values >= 0):
                times[column.name] = values
    return times
