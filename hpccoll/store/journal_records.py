"""Encoding and decoding of journal records: the events of a job as JSON.

The records of the job and of an attempt are written twice, because all others depend on them.
"""

import base64
import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import Case, Job
from hpccoll.common.errors import UnusableError, format_value
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.json_lines import ChainEnd, Line, read_json_lines
from hpccoll.store.plausibility import ImplausibleError, OutcomeCheck, check_attempt, check_types
from hpccoll.store.raw_results import Attempt, DamagedLine, Failure, Outcome, RankLocation, RawResults

Record = Mapping[str, Any]

COPIES = 2
"""The number of copies of the records of the job and of each attempt."""

_ARRAYS = tuple(field.name for field in dataclasses.fields(CaseTimes) if field.name != "rank_stride")


def first_records(job: Job, earlier: RawResults | None) -> Iterator[Record]:
    """Yield the records of the job and of the content of an earlier raw file or journal."""
    yield from [{"job": json.loads(job.to_json())}] * COPIES
    for attempt, outcomes in earlier.attempts if earlier else ():
        yield from attempt_records(attempt)
        yield from (outcome_record(outcome, attempt) for outcome in outcomes)
    yield from ({"failure": dataclasses.asdict(failure)} for failure in (earlier.failures if earlier else ()))
    yield from ({"start": case_id} for case_id in (earlier.started if earlier else ()))


def attempt_records(attempt: Attempt) -> list[Record]:
    """Return the records of a new attempt."""
    return [{"attempt": dataclasses.asdict(attempt)}] * COPIES


def outcome_record(outcome: Outcome, attempt: Attempt) -> Record:
    """Return the record of a case's outcome in a round of ``attempt``."""
    return {"outcome": _encode_outcome(outcome), "number": attempt.number}


def read_records(path: Path, *, is_running: bool) -> tuple[RawResults, ChainEnd]:
    """Read the records of a journal; ``damage`` of the result lists its damaged, missing and moved lines.

    Args:
        path: the path of the journal.
        is_running: True if a process is writing the journal, whose first and last line may then be incomplete.

    Returns:
        The results, and the end of the chain, where the next record follows.

    Raises:
        OSError: if the file cannot be read.
        BadInputError: if the file is not a journal, or both records of its job are damaged.
    """
    lines = read_json_lines(path)
    before: list[Line] = []
    damage: list[str] = []
    for line in lines:
        before.append(line)
        try:
            reader = _JournalReader(path, _read_job(line))
            break
        except _UNREADABLE as error:
            damage += [_describe_damage(line, error)] * (line.record is None or "job" in line.record)
    else:
        why = "; ".join(damage[:2]) or "it is empty"
        remedy = "to measure its job anew, move it away"
        raise UnusableError(
            "path", f"{format_value(str(path))} is no journal of hpccoll that names its job: {why}; {remedy}"
        )
    for line in chain(before, lines):
        reader.read(line)
    raw = reader.raw
    raw.is_running = is_running
    if is_running and line.truncated:
        reader.truncated.pop()
    if reader.truncated:
        raw.notes.append(f"as by a kill, lines were cut short: {', '.join(map(str, reader.truncated[:9]))}")
    return raw, reader.end()


def _read_job(line: Line) -> Job:
    job = Job.from_json(json.dumps((line.record or {})["job"]))
    check_types(job)
    if not line.after:
        raise ImplausibleError("an earlier version of hpccoll wrote it")
    return job


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, MemoryError, zlib.error)
"""The exceptions that decoding of a wrong record raises."""


def _describe_damage(line: Line, error: BaseException, where: str = "") -> str:
    why = (str(error) or type(error).__name__) if line.record else "its checksum is wrong"
    return f"line {line.number}{where} is damaged: {why}"


class _JournalReader:
    """A reader of journals, line by line.

    Args:
        path: the path of the journal.
        job: the job of the journal.
    """

    def __init__(self, path: Path, job: Job) -> None:
        self.raw, self._check = RawResults(path=path, job=job), OutcomeCheck(job)
        self.truncated: list[int] = []
        """The numbers of the truncated lines."""
        self._started_case: str | None = None
        """The case that started last and has no outcome yet."""
        self._numbers: dict[str, int] = {}
        """The numbers of the whole lines by their checksums."""
        self._last, self._damaged, self._after_damage = ChainEnd().checksum, 0, False
        """The checksum of the last whole line, the number of unreadable lines, and whether the last line is damaged."""
        self._written = -1
        """The number of lines that were written, according to the first line; -1 without a first line."""

    def end(self) -> ChainEnd:
        """Return the end of the chain; lines that are missing at the end are added to the damage."""
        found = len(self._numbers) + self._damaged
        if self._written < 0 and not self.raw.is_running:
            self._lose("its first line, which has the number of the others, is missing or damaged")
        elif found < self._written:
            self._lose(f"{self._written - found} of the {self._written} lines that were written are missing")
        return ChainEnd(self._last, max(found, self._written))

    def read(self, line: Line) -> None:
        """Add the record of a line to the results, or its damage if it cannot be decoded."""
        if line.truncated:
            self.truncated.append(line.number)
            return
        record = line.record or {}
        if "lines" in record:
            self._written = int(record["lines"])
            if line.number > 1:
                self._lose(f"line {line.number} belongs at the beginning: lines are repeated or in another order")
            return
        if line.checksum in self._numbers:
            self._lose(f"line {line.number} repeats line {self._numbers[line.checksum]}")
            return
        follows = self._follows(line)
        decoders: Mapping[str, Callable[[Record], None]] = {
            "job": lambda _: None, "attempt": self._read_attempt, "start": self._read_start,
            "outcome": self._read_outcome, "provenance": self._read_provenance,
            "failure": lambda record: self.raw.failures.append(parse_failure(record["failure"])),
        }  # fmt: skip
        try:
            (name,) = decoders.keys() & record.keys()
            decoders[name](record)
        except _UNREADABLE as error:
            where = f" (after the start of {self._started_case})" if self._started_case else ""
            self._lose(_describe_damage(line, error, where), self._started_case)
            self._damaged += follows  # a line at a wrong place may come again at its own
            self._numbers.pop(line.checksum, None)

    def _follows(self, line: Line) -> bool:
        """Return whether a line follows the last one in the chain, and add what that tells to the damage."""
        if line.record is None:
            self._after_damage = True
            return line.number > 1
        follows = line.after == self._last or self._after_damage
        if not follows:
            place = self._numbers.get(line.after)
            gap = f"belongs behind line {place}" if place else "does not follow the line before it in the file"
            self._lose(f"line {line.number} {gap}: lines are missing or in another order")
        self._last, self._after_damage = line.checksum, False
        self._numbers[line.checksum] = line.number
        return follows

    def _lose(self, description: str, case_id: str | None = None) -> None:
        """Add damage; most likely the outcome of the case that started last is lost, and it did not end the job."""
        self.raw.damage.append(DamagedLine(case_id, description))
        if self._started_case in self.raw.started:
            self.raw.started.remove(self._started_case)
        self._started_case = None

    def _read_attempt(self, record: Record) -> None:
        fields = record["attempt"]
        locations = tuple(RankLocation(**location) for location in fields["places"])
        attempt = Attempt(**{**fields, "places": locations, "ports": tuple(fields.get("ports", ()))})
        check_attempt(attempt)
        if attempt.number not in (known.number for known, _ in self.raw.attempts):  # skips the second copy
            self.raw.attempts.append((attempt, []))
        self._started_case = None

    def _read_provenance(self, record: Record) -> None:
        attempt = self.raw.attempts[-1][0]
        if record["number"] != attempt.number:
            raise ImplausibleError(f"its attempt, {record['number']}, is not the last one")
        more = dict(record["provenance"])
        check_attempt(dataclasses.replace(attempt, provenance={**attempt.provenance, **more}))
        self.raw.add_provenance(more)

    def _read_start(self, record: Record) -> None:
        self._started_case = str(record["start"])
        self.raw.started.append(self._started_case)

    def _read_outcome(self, record: Record) -> None:
        attempt = self.raw.attempts[-1][0]
        if record["number"] != attempt.number:
            raise ImplausibleError(f"its attempt, {record['number']}, is not the last one")
        outcome = _decode_outcome(record["outcome"])
        self._check(attempt, outcome)
        self.raw.record(outcome)
        self._started_case = None


def parse_failure(fields: Record) -> Failure:
    """Return the failure of a record.

    Raises:
        TypeError: if the record is not a failure.
        ImplausibleError: if a field has a wrong type.
    """
    failure = Failure(**fields)
    check_types(failure)
    return failure


def _pack(values: NDArray[Any]) -> dict[str, object]:
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 1)).decode()
    return {"dtype": values.dtype.str, "shape": values.shape, "data": data}


def _unpack(packed: dict[str, Any]) -> NDArray[Any]:
    """Return an array; a wrong shape allocates no more memory than the packed data need."""
    dtype, shape, data = np.dtype(packed["dtype"]), packed["shape"], base64.b64decode(packed["data"])
    size = dtype.itemsize * math.prod(shape)
    if dtype.kind not in "iuf":
        raise ImplausibleError(f"its values are of the type {dtype}")
    return np.frombuffer(zlib.decompressobj().decompress(data, size + 1), dtype).reshape(shape)


def _encode_outcome(outcome: Outcome) -> dict[str, object]:
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    times: dict[str, object] | None = None
    if outcome.times is not None:
        times = {name: _pack(getattr(outcome.times, name)) for name in _ARRAYS}
        times["rank_stride"] = outcome.times.rank_stride
    return {**fields, "case": dataclasses.asdict(outcome.case), "times": times, "cpu_s": _pack(outcome.cpu_s)}


def _decode_outcome(fields: dict[str, Any]) -> Outcome:
    times = fields["times"]
    if times is not None:
        arrays = {name: _unpack(times[name]) for name in _ARRAYS}
        times = CaseTimes(rank_stride=times["rank_stride"], **arrays)
    return Outcome(**{**fields, "case": Case(**fields["case"]), "times": times, "cpu_s": _unpack(fields["cpu_s"])})
