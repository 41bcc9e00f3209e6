"""The journal: what a job has done so far, a line of JSON for each event, safe on disk before the next round of a case.

It lies beside the raw file that is to be (``NAME.h5.journal``), is undeclared to the workflow, and is what a later
attempt goes on from. An event begins a new line and is written at once: one that a crash has cut short is no JSON, does
not spoil the next, and is passed over. The first one says which job it is.

Rank 0 alone writes the journal, for appends from several nodes are not whole on every file system. What ranks have to
say at their end is in a file for each of them beside it (``NAME.h5.words-3``), also lines of JSON.
"""

import base64
import dataclasses
import errno
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.case import Case, Job
from hpccoll.errors import BadInputError, no_file
from hpccoll.store.disk import lock_alone, locked, sync
from hpccoll.store.raw import Attempt, Failure, Outcome, Place, Raw
from hpccoll.store.same import check_same_job
from hpccoll.store.times import Times

_FIRST = b'\n{"job"'
_ARRAYS = tuple(field.name for field in dataclasses.fields(Times) if field.name != "rank_stride")


def journal_path(raw_file: Path) -> Path:
    return raw_file.with_name(raw_file.name + ".journal")


def told_path(raw_file: Path) -> Path:
    """Return the file that says that the last launch was told to end: a script starts nothing more then."""
    return raw_file.with_name(raw_file.name + ".told-to-end")


class Journal:
    """The journal of the attempt that is running; kept open and locked by rank 0."""

    def __init__(self, raw_file: Path, job: Job, earlier: Raw | None = None) -> None:
        """Open or create the journal; a new one takes over what an ``earlier``, partial raw file holds.

        Raises:
            BadInputError: where it cannot be written, belongs to another job, or is being written by another process.
        """
        self.raw_file, self.path, self._reserve = raw_file, journal_path(raw_file), _reserve_path(raw_file)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab+")
            sync(self.path.parent)
        except OSError as error:
            raise no_file("--out", raw_file, error, "written") from None
        try:
            if not lock_alone(self._file):
                raise BadInputError("--out", str(raw_file), "a file that no other process writes")  # noqa: TRY301
            if not begun(self.path):
                self._file.truncate(0)
                append(self.path, _first_event(job, earlier))
            told_path(raw_file).unlink(missing_ok=True)
            self._reserve.write_bytes(b" " * RESERVE)
            self.raw = read_journal(self.path)
            check_same_job(self.raw, job, raw_file)
        except OSError as error:
            self._file.close()
            raise no_file("--out", raw_file, error, "written") from None
        except BaseException:
            self._file.close()
            raise

    def begin(self, attempt: Attempt) -> None:
        append(self.path, {"attempt": dataclasses.asdict(attempt)})
        self.raw.attempts.append((attempt, []))

    def start(self, case: Case) -> None:
        append(self.path, {"start": case.id})
        self.raw.started.append(case.id)

    def record(self, outcome: Outcome) -> None:
        append(self.path, {"outcome": _encode(outcome)})
        self.raw.record(outcome)

    def end(self, reason: str, rank: int = 0) -> None:
        """Say why this attempt ends before its last case, and at which rank that lies; at 0 where it was told to."""
        failure = Failure(case_id="", rank=rank, message=reason, attempt=self.raw.attempts[-1][0].number)
        append(self.path, {"failure": dataclasses.asdict(failure)})
        self.raw.failures.append(failure)
        if self.raw.told_to_end:
            told_path(self.raw_file).touch()

    def close(self, *, remove: bool) -> None:
        """Close the journal, and remove it where all that it holds is in the raw file."""
        self._reserve.unlink(missing_ok=True)
        if remove:
            self.path.unlink(missing_ok=True)
            forget_words(self.raw_file)
        self._file.close()


def append(path: Path, event: dict[str, object]) -> None:
    """Append an event in one write, on disk when this returns."""
    with path.open("ab", buffering=0) as file:
        file.write(b"\n" + json.dumps(event).encode())
        os.fsync(file.fileno())


RESERVE = 16384
"""Bytes kept aside for last words: a full file system is one of the reasons for them."""


def _reserve_path(raw_file: Path) -> Path:
    return raw_file.with_name(raw_file.name + ".reserve")


LAUNCHER = -1
"""The rank of last words that are the launcher's."""


def leave_word(raw_file: Path, failure: Failure) -> None:
    """Put last words beside the journal of ``raw_file``, into a file of this rank's alone."""
    speaker = "launch" if failure.rank == LAUNCHER else failure.rank
    path = raw_file.with_name(f"{raw_file.name}.words-{speaker}")
    try:
        append(path, dataclasses.asdict(failure))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _reserve_path(raw_file).unlink(missing_ok=True)
        append(path, dataclasses.asdict(failure))


def forget_words(raw_file: Path, speaker: str = "*") -> None:
    """Remove the last words of earlier attempts, of everyone or of ``launch``."""
    for path in raw_file.parent.glob(f"{raw_file.name}.words-{speaker}"):
        path.unlink(missing_ok=True)


def last_words(raw_file: Path) -> list[Failure]:
    """Return what ranks and the launcher had to say at their end."""
    paths = sorted(raw_file.parent.glob(f"{raw_file.name}.words-*"))
    return [Failure(**event) for path in paths for event in _events(path)]


def begun(path: Path) -> bool:
    """Return whether a journal says which job it is of; the process that created it may have ended before that."""
    with path.open("rb") as file:
        ours = _FIRST.startswith(file.read(len(_FIRST)))
    return not ours or "job" in next(_events(path), {})


def _first_event(job: Job, earlier: Raw | None) -> dict[str, object]:
    attempts = [
        {"attempt": dataclasses.asdict(attempt), "outcomes": [_encode(outcome) for outcome in outcomes]}
        for attempt, outcomes in (earlier.attempts if earlier else ())
    ]
    failures = [dataclasses.asdict(failure) for failure in (earlier.failures if earlier else ())]
    return {"job": json.loads(job.to_json()), "attempts": attempts, "failures": failures}


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:  # one at a time: they may hold gigabytes
            try:
                yield json.loads(line)
            except ValueError:  # cut short, or the empty line that the first event ends
                continue


def read_journal(path: Path) -> Raw:
    """Read a journal, whole or cut short.

    Raises:
        BadInputError: where it is no journal.
    """
    try:
        events = _events(path)
        first = next(events)
        with path.open() as file:
            at_work = locked(file)
        raw = Raw(path=path, job=Job.from_json(json.dumps(first["job"])), at_work=at_work)
        raw.attempts += [(_attempt(a["attempt"]), [*map(_decode, a["outcomes"])]) for a in first["attempts"]]
        raw.failures += [Failure(**failure) for failure in first.get("failures", ())]
        for event in events:
            if "attempt" in event:
                raw.attempts.append((_attempt(event["attempt"]), []))
            elif "start" in event:
                raw.started.append(event["start"])
            elif "outcome" in event:
                raw.record(_decode(event["outcome"]))
            elif "failure" in event:
                raw.failures.append(Failure(**event["failure"]))
        raw.failures += last_words(path.with_suffix(""))
    except OSError as error:
        raise no_file("path", path, error) from None
    except StopIteration:
        raise BadInputError("path", str(path), "a journal of hpccoll (it is empty)") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, zlib.error) as error:
        raise BadInputError("path", str(path), f"a journal of hpccoll ({type(error).__name__}: {error})") from None
    return raw


def _attempt(fields: dict[str, Any]) -> Attempt:
    places = tuple(Place(**place) for place in fields["places"])
    return Attempt(**{**fields, "places": places, "ports": tuple(fields.get("ports", ()))})


def _pack(values: NDArray[Any]) -> dict[str, object]:
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 1)).decode()
    return {"dtype": values.dtype.str, "shape": values.shape, "data": data}


def _unpack(packed: dict[str, Any]) -> NDArray[Any]:
    data = zlib.decompress(base64.b64decode(packed["data"]))
    return np.frombuffer(data, packed["dtype"]).reshape(packed["shape"])


def _encode(outcome: Outcome) -> dict[str, object]:
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    times: dict[str, object] | None = None
    if outcome.times is not None:
        times = {name: _pack(getattr(outcome.times, name)) for name in _ARRAYS}
        times["rank_stride"] = outcome.times.rank_stride
    return {**fields, "case": dataclasses.asdict(outcome.case), "times": times, "cpu_s": _pack(outcome.cpu_s)}


def _decode(fields: dict[str, Any]) -> Outcome:
    times = fields["times"]
    if times is not None:
        arrays = {name: _unpack(times[name]) for name in _ARRAYS if name in times}
        arrays.setdefault("round", np.ones(len(arrays["max_ns"]), np.uint8))  # journals before 1.3 had one
        times = Times(rank_stride=times["rank_stride"], **arrays)
    return Outcome(**{**fields, "case": Case(**fields["case"]), "times": times, "cpu_s": _unpack(fields["cpu_s"])})
