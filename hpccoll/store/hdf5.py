"""Raw files: written once, whole, and renamed into place; read by h5py, xarray, h5dump and anything else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py

from hpccoll import __version__
from hpccoll.case import Job
from hpccoll.errors import BadInputError
from hpccoll.store.disk import sync
from hpccoll.store.hdf5_attempt import read_attempt, write_attempt
from hpccoll.store.raw import Failure, Raw
from hpccoll.store.schema import SCHEMA, VERSION

_ATTEMPT = "attempt_"


def write(raw: Raw, path: Path) -> None:
    """Write ``raw`` to ``path``: complete on disk under another name first, then renamed."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with h5py.File(unfinished, "w") as file:
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
        if raw.failures:
            words = [json.dumps(asdict(failure)) for failure in raw.failures]
            dataset = file.create_dataset("failures", data=words, dtype=h5py.string_dtype())
            dataset.make_scale("failure")
            dataset.attrs["long_name"] = "JSON: what ranks had to say when a case ended their attempt"
        for attempt, outcomes in raw.attempts:
            if outcomes:
                write_attempt(file.create_group(f"{_ATTEMPT}{attempt.number}"), attempt, outcomes)
    sync(unfinished)
    unfinished.replace(path)
    sync(path.parent)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a raw file of a schema that can be read.

    Raises:
        BadInputError: where it is no HDF5 file, cut short, or of another schema; also for what is found in it.
    """
    try:
        with h5py.File(path, "r") as file:
            _check_schema(file, path)
            yield file
    except BadInputError:
        raise
    except (OSError, RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        # h5py raises any of these where bytes of a file are missing or wrong.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInputError("path", str(path), f"a whole raw file of hpccoll ({reason.strip()})") from None


def _check_schema(file: Any, path: Path) -> None:
    schema, version = str(file.attrs.get("schema", "none")), str(file.attrs.get("schema_version", ""))
    if schema != SCHEMA or version.partition(".")[0] != VERSION.partition(".")[0]:
        raise BadInputError("path", str(path), f"schema {SCHEMA} {VERSION}, it has {schema} {version}")


def complete(path: Path) -> bool:
    """Return whether a raw file holds every case of its job.

    Raises:
        BadInputError: where it cannot be read.
    """
    with _opened(path) as file:
        return bool(file.attrs["status"] == "complete")


def read(path: Path) -> Raw:
    """Read a raw file.

    Raises:
        BadInputError: where it cannot be read.
    """
    with _opened(path) as file:
        raw = Raw(path=path, job=Job.from_json(file.attrs["job_json"]))
        raw.attempts = [read_attempt(group) for name, group in file.items() if name.startswith(_ATTEMPT)]
        words = file["failures"].asstr()[:] if "failures" in file else ()
        raw.failures = [Failure(**json.loads(failure)) for failure in words]
    raw.attempts.sort(key=lambda pair: pair[0].number)
    return raw
