"""Raw files: written once, whole, and renamed into place; read by h5py, xarray, h5dump and anything else."""

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from hpccoll import __version__
from hpccoll.case import Case, Job
from hpccoll.errors import BadInputError
from hpccoll.store.raw import Attempt, Outcome, Place, Raw, Times
from hpccoll.store.schema import COLUMNS, SCHEMA, VERSION, Column

_PER_ITERATION = ("min_ns", "median_ns", "max_ns", "span_ns", "slowest_rank")
_OF_ATTEMPT = tuple(field.name for field in fields(Attempt) if field.name not in ("places", "provenance"))


def write(raw: Raw, path: Path) -> None:
    """Write ``raw`` to ``path``: complete on disk under another name first, then renamed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with h5py.File(partial, "w") as file:
        file.attrs.update(
            schema=SCHEMA,
            schema_version=VERSION,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            hpccoll_version=__version__,
            status="complete" if raw.complete else "partial",
            job=raw.job.name,
            job_sha256=raw.job.sha256,
            job_json=raw.job.to_json(),
        )
        for attempt, outcomes in raw.attempts:
            if outcomes:
                _write_attempt(file.create_group(f"attempt_{attempt.number}"), attempt, outcomes)
    for place, flags in ((partial, os.O_RDWR), (path.parent, os.O_RDONLY)):
        if place is not partial:
            partial.replace(path)
        descriptor = os.open(place, flags)
        os.fsync(descriptor)
        os.close(descriptor)


def _write_attempt(group: Any, attempt: Attempt, outcomes: Sequence[Outcome]) -> None:
    sizes = {
        "case": len(outcomes),
        "iteration": max(1, *(0 if o.times is None else len(o.times.max_ns) for o in outcomes), 1),
        "rank": attempt.ranks,
    }
    for name in _OF_ATTEMPT:
        value = getattr(attempt, name)
        group.attrs[name] = -1 if value is None else value
    group.attrs["provenance_json"] = json.dumps(attempt.provenance, indent=1, sort_keys=True)
    for name, size in sizes.items():
        scale = group.create_dataset(name, data=np.arange(size))
        scale.make_scale(name)
        scale.attrs["long_name"] = name
    for column in COLUMNS:
        values = _values(column, sizes, attempt, outcomes)
        text = column.dtype == "str"
        packing = {} if text or len(column.dims) == 1 else {
            "compression": "gzip", "compression_opts": 4, "shuffle": True, "chunks": (1, *values.shape[1:]),
        }
        dataset = group.create_dataset(column.name, data=values, dtype=h5py.string_dtype() if text else None, **packing)
        for axis, dim in enumerate(column.dims):
            dataset.dims[axis].attach_scale(group[dim])
        dataset.attrs["long_name"] = column.meaning
        if column.unit:
            dataset.attrs["units"] = column.unit
        if column.absent is not None and not text:
            dataset.attrs["missing_value"] = np.array(column.absent, values.dtype)


def _values(column: Column, sizes: dict[str, int], attempt: Attempt, outcomes: Sequence[Outcome]) -> NDArray[Any]:
    """Return the whole of a column, absent values filled in."""
    if column.dims == ("rank",):
        return np.array([getattr(place, column.name) for place in attempt.places], _dtype(column))
    if column.dims == ("case",):
        cells = [_cell(column, outcome) for outcome in outcomes]
        return np.array([column.absent if cell is None else cell for cell in cells], _dtype(column))
    values = np.full([sizes[dim] for dim in column.dims], column.absent, _dtype(column))
    for row, outcome in zip(values, outcomes, strict=True):
        if column.name == "cpu_s":
            row[: len(outcome.cpu_s)] = outcome.cpu_s
        elif outcome.times is not None:
            times = getattr(outcome.times, column.name)
            if times.ndim == 2:
                row[: len(times), :: outcome.times.rank_stride] = times
            else:
                row[: len(times)] = times
    return values


def _dtype(column: Column) -> Any:
    return {"str": object, "bool": np.uint8}.get(column.dtype, column.dtype)


def _cell(column: Column, outcome: Outcome) -> object:
    special: dict[str, object] = {
        "case_id": outcome.case.id,
        "requested_bytes": outcome.case.bytes,
        "requested_params": json.dumps(dict(outcome.case.params), sort_keys=True),
        "params": json.dumps(dict(outcome.params), sort_keys=True),
        "iterations": 0 if outcome.times is None else len(outcome.times.max_ns),
        "rank_stride": None if outcome.times is None else outcome.times.rank_stride,
    }
    if column.name in special:
        return special[column.name]
    return getattr(outcome, column.name) if hasattr(outcome, column.name) else getattr(outcome.case, column.name)


def read(path: Path) -> Raw:
    """Read a raw file.

    Raises:
        BadInputError: where it is no HDF5 file, cut short, or of another schema.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise BadInputError("path", str(path), f"a raw file of hpccoll: {reason}") from None
    with file:
        schema, version = file.attrs.get("schema"), str(file.attrs.get("schema_version", ""))
        if schema != SCHEMA or version.split(".")[0] != VERSION.split(".")[0]:
            raise BadInputError("path", str(path), f"schema {SCHEMA} {VERSION}, it has {schema or 'none'} {version}")
        try:
            raw = Raw(path=path, job=Job.from_json(file.attrs["job_json"]))
            raw.attempts = [_read_attempt(group) for group in file.values()]
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise BadInputError("path", str(path), f"a whole raw file of hpccoll ({error})") from None
    raw.attempts.sort(key=lambda pair: pair[0].number)
    return raw


def _read_attempt(group: Any) -> tuple[Attempt, list[Outcome]]:
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        dataset = group[column.name]
        columns[column.name] = dataset.asstr()[:] if column.dtype == "str" else dataset[:]
    ranks = [
        Place(**{f.name: _python(columns[f.name][rank]) for f in fields(Place)}) for rank in range(len(group["rank"]))
    ]
    about = {name: _python(group.attrs[name]) for name in _OF_ATTEMPT}
    about["ranks_per_node"] = None if about["ranks_per_node"] == -1 else about["ranks_per_node"]
    attempt = Attempt(**about, places=tuple(ranks), provenance=json.loads(group.attrs["provenance_json"]))
    return attempt, [_outcome(columns, number) for number in range(len(group["case"]))]


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _outcome(columns: dict[str, Any], number: int) -> Outcome:
    def cell(column: Column) -> Any:
        value = _python(columns[column.name][number])
        if column.dtype == "bool":
            return bool(value)
        return None if value == column.absent else value

    row = {column.name: cell(column) for column in COLUMNS if column.dims == ("case",)}
    row["converged"] = None if row["converged"] is None else bool(row["converged"])
    case = {field.name: row[field.name] for field in fields(Case) if field.name in row}
    case |= {"bytes": row["requested_bytes"], "params": json.loads(row["requested_params"])}
    own = {field.name: row[field.name] for field in fields(Outcome) if field.name in row}
    own["params"] = json.loads(row["params"])
    n, stride = row["iterations"], row["rank_stride"] or 1
    times = None
    if n:
        per_iteration = {name: columns[name][number, :n] for name in _PER_ITERATION}
        if (per_iteration["span_ns"] < 0).any():
            per_iteration["span_ns"] = np.empty(0, np.int64)
        kept = {name: columns[name][number, :n, ::stride] for name in ("start_ns", "end_ns")}
        times = Times(**per_iteration, **kept, rank_stride=stride)
    cpu_s = columns["cpu_s"][number]
    return Outcome(case=Case(**case), times=times, **own, cpu_s=cpu_s[~np.isnan(cpu_s)])
