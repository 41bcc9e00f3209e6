"""The journal: what a job has done so far, a line of JSON for each event, safe on disk before the next case begins.

It lies beside the raw file that is to be (``NAME.h5.journal``), is undeclared to the workflow, and is what a later
attempt goes on from. A line that was cut short by a crash is dropped.
"""

import base64
import dataclasses
import fcntl
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.case import Case, Job
from hpccoll.errors import BadInputError
from hpccoll.store.raw import Attempt, Failure, Outcome, Place, Raw, Times


def journal_path(raw_file: Path) -> Path:
    return raw_file.with_name(raw_file.name + ".journal")


class Journal:
    """The journal of the attempt that is running; kept open and locked by rank 0."""

    def __init__(self, raw_file: Path, job: Job, earlier: Raw | None = None) -> None:
        """Open or create the journal; a new one takes over what an ``earlier``, partial raw file holds.

        Raises:
            BadInputError: where it cannot be written, belongs to another job, or is being written by another process.
        """
        self.path = journal_path(raw_file)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab+")
        except OSError as error:
            raise BadInputError("--out", str(raw_file), f"a path that can be written ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInputError("--out", str(raw_file), "a file that no other process is writing") from None
        self._drop_torn_line()
        if self.path.stat().st_size == 0:
            append(self.path, {"job": json.loads(job.to_json())})
            for attempt, outcomes in earlier.attempts if earlier else ():
                append(self.path, {"attempt": dataclasses.asdict(attempt)})
                for outcome in outcomes:
                    append(self.path, {"outcome": _encode(outcome)})
        self.raw = read_journal(self.path)
        check_same_job(self.raw, job, raw_file)

    def _drop_torn_line(self) -> None:
        text = self.path.read_bytes()
        self._file.truncate(text.rfind(b"\n") + 1)

    def begin(self, attempt: Attempt) -> None:
        append(self.path, {"attempt": dataclasses.asdict(attempt)})
        self.raw.attempts.append((attempt, []))

    def start(self, case: Case) -> None:
        append(self.path, {"start": case.id})

    def record(self, outcome: Outcome) -> None:
        append(self.path, {"outcome": _encode(outcome)})
        self.raw.attempts[-1][1].append(outcome)

    def close(self, *, remove: bool) -> None:
        """Close the journal, and remove it where all that it holds is in the raw file."""
        if remove:
            self.path.unlink()
        self._file.close()


def check_same_job(raw: Raw, job: Job, raw_file: Path) -> None:
    """See that what is there was measured for the same job.

    Raises:
        BadInputError: where it was not; nothing is overwritten.
    """
    if raw.job.sha256 != job.sha256:
        raise BadInputError("--out", str(raw_file), f"a new file: this one holds another job ({raw.job.name})")


def append(path: Path, event: dict[str, object]) -> None:
    """Append an event in one write, on disk when this returns; any rank may say its last words so."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(event).encode() + b"\n")
        os.fsync(file.fileno())


def failure_event(failure: Failure) -> dict[str, object]:
    return {"failure": dataclasses.asdict(failure)}


def read_journal(path: Path) -> Raw:
    """Read a journal, whole or cut short.

    Raises:
        BadInputError: where it is no journal.
    """
    raw: Raw | None = None
    try:
        for line in path.read_bytes().split(b"\n")[:-1]:
            event: dict[str, Any] = json.loads(line)
            if "job" in event:
                raw = Raw(path=path, job=Job.from_json(json.dumps(event["job"])))
                continue
            assert raw is not None
            if "attempt" in event:
                raw.attempts.append((_attempt(event["attempt"]), []))
            elif "start" in event:
                raw.started.append(event["start"])
            elif "outcome" in event:
                raw.attempts[-1][1].append(_decode(event["outcome"]))
            elif "failure" in event:
                raw.failures.append(Failure(**event["failure"]))
    except OSError as error:
        raise BadInputError("path", str(path), f"a readable file ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise BadInputError("path", str(path), f"a journal of hpccoll ({error})") from None
    if raw is None:
        raise BadInputError("path", str(path), "a journal of hpccoll (it is empty)")
    return raw


def _attempt(fields: dict[str, Any]) -> Attempt:
    return Attempt(**{**fields, "places": tuple(Place(**place) for place in fields["places"])})


def _pack(values: NDArray[Any]) -> dict[str, object]:
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 1)).decode()
    return {"dtype": values.dtype.str, "shape": values.shape, "data": data}


def _unpack(packed: dict[str, Any]) -> NDArray[Any]:
    data = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(data, packed["dtype"]).reshape(packed["shape"])


def _encode(outcome: Outcome) -> dict[str, object]:
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    times = None
    if outcome.times is not None:
        arrays = {f.name: getattr(outcome.times, f.name) for f in dataclasses.fields(Times)}
        times = {name: _pack(value) if isinstance(value, np.ndarray) else value for name, value in arrays.items()}
    return {**fields, "case": dataclasses.asdict(outcome.case), "times": times, "cpu_s": _pack(outcome.cpu_s)}


def _decode(fields: dict[str, Any]) -> Outcome:
    times = fields["times"]
    if times is not None:
        times = Times(**{name: _unpack(v) if isinstance(v, dict) else v for name, v in times.items()})
    return Outcome(**{**fields, "case": Case(**fields["case"]), "times": times, "cpu_s": _unpack(fields["cpu_s"])})
