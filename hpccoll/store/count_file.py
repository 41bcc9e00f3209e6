"""The file of a counted job."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll.common.records import from_builtins, to_builtins
from hpccoll.store.counted_job import (
    CALLS,
    CallKind,
    CountedGroup,
    CountedJob,
    CountedLaunch,
    CountedRank,
)
from hpccoll.store.sealed_file import (
    COUNT,
    IntegrityError,
    attach_scales,
    create_scales,
    create_text,
    open_sealed,
    stored_object,
    write_sealed,
)

TABLES: dict[str, tuple[type[Any], str]] = {
    "launches": (CountedLaunch, "the programs that were launched with MPI"),
    "ranks": (CountedRank, "the processes"),
    "groups": (CountedGroup, "the communicators, those of the same ranks together"),
    "kinds": (CallKind, "the kinds of calls"),
}
"""The tables in JSON, and what each lists; the names of their datasets end with ``_json``."""

COLUMNS: dict[str, tuple[str, str]] = {
    "kind": ("", "number of the kind of the calls, in kinds_json"),
    "rank": ("", "number of the process, in ranks_json"),
    "calls": ("", "how often it called"),
    "bytes": ("B", "S, summed over the calls"),
    "seconds": ("s", "time in the calls, after the barriers"),
    "waiting_s": ("s", "time in the barriers before the calls"),
    "least_bytes": ("B", "the smallest S"),
    "most_bytes": ("B", "the largest S"),
}
"""The unit and the meaning of each column of the calls."""


def write_counted_job(job: CountedJob, path: Path) -> None:
    """Write a counted job, whole or not at all.

    Raises:
        OSError: if the file cannot be written.
    """
    write_sealed(path, COUNT, lambda file: _write_content(file, job))


def _write_content(file: Any, job: CountedJob) -> None:
    file.attrs.update(
        command=job.command,
        exit_code=job.exit_code,
        began=job.began,
        wall_s=job.wall_s,
        barrier=job.barrier,
    )
    for name, (_, meaning) in TABLES.items():
        text = json.dumps(to_builtins(list(getattr(job, name))), indent=1)
        create_text(file, f"{name}_json", text, f"JSON: {meaning}")
    create_text(
        file, "damaged_json", json.dumps(list(job.damaged)), "JSON: files that could not be read"
    )
    create_scales(file, {"entry": len(job.calls)})
    for name, (unit, meaning) in COLUMNS.items():
        dataset = file.create_dataset(name, data=job.calls[name])
        dataset.attrs["long_name"] = meaning
        if unit:
            dataset.attrs["units"] = unit
        attach_scales(file, dataset, ("entry",))


def read_counted_job(path: Path) -> CountedJob:
    """Read a counted job, the same that was written.

    Raises:
        BadInputError: if the file cannot be read, holds something else, or contradicts itself.
    """
    with open_sealed(path, COUNT) as file:
        size = path.stat().st_size

        def text(name: str) -> Any:
            return json.loads(stored_object(file, f"{name}_json", size).asstr()[()])

        tables: dict[str, Any] = {}
        for name, (record, _) in TABLES.items():
            tables[name] = from_builtins(text(name), list[record])  # type: ignore[valid-type]
        calls = np.zeros(len(stored_object(file, "kind", size)), CALLS)
        for name in COLUMNS:
            values = stored_object(file, name, size)
            if len(values) != len(calls):
                raise IntegrityError("its columns differ in length")
            calls[name] = values[:]
        job = CountedJob(
            command=str(file.attrs["command"]),
            exit_code=int(file.attrs["exit_code"]),
            began=str(file.attrs["began"]),
            wall_s=float(file.attrs["wall_s"]),
            barrier=bool(file.attrs["barrier"]),
            calls=calls,
            damaged=from_builtins(text("damaged"), list[str]),
            **tables,
        )
        _check_numbers(job)
        return job


def _check_numbers(job: CountedJob) -> None:
    """Raise IntegrityError if a number of a kind, a process, a group or a launch is out of range."""
    _check_below(job.kinds, job.calls["kind"].tolist())
    _check_below(job.ranks, job.calls["rank"].tolist())
    groups = []
    for kind in job.kinds:
        groups.append(kind.group)
    launches = []
    for rank in job.ranks:
        launches.append(rank.launch)
    for group in job.groups:
        launches.append(group.launch)
    _check_below(job.groups, groups)
    _check_below(job.launches, launches)


def _check_below(listed: Sequence[object], numbers: Sequence[int]) -> None:
    lowest = min(numbers, default=0)
    highest = max(numbers, default=-1)
    if lowest < 0 or highest >= len(listed):
        raise IntegrityError("its calls name what it does not list")
