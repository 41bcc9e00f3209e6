"""Journal records: the events of a job as JSON."""

import base64
import math
import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.case import Job
from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import open_regular
from hpccoll.common.records import from_builtins, outdated, to_builtins
from hpccoll.store.case_times import PER_RANK, StoredTimes, TimesOfRanks
from hpccoll.store.checksummed_lines import (
    ChainEnd,
    JsonObject,
    Line,
    RecordPlace,
    parse_line,
    read_json_lines,
)
from hpccoll.store.plausibility import (
    ImplausibleError,
    OutcomeCheck,
    check_attempt,
    check_rank_times,
)
from hpccoll.store.raw_results import Attempt, DamagedLine, Failure, Outcome, RawResults
from hpccoll.store.schema import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """An event of a job: one of its fields."""

    lines: str | None = None  # of the first line only, the number of the others
    version: str | None = None  # of the first line only, the version of the schema
    job: Job | None = None  # the job; the first event
    attempt: Attempt | None = None  # a new attempt
    start: str | None = None  # the id of a case that starts
    outcome: Outcome | None = None  # the outcome of a case in a round of the attempt ``number``
    # what is known of the attempt ``number`` only at its end
    provenance: Mapping[str, Any] | None = None
    number: int | None = None  # the attempt of an outcome or of provenance
    failure: Failure | None = None  # why a case failed or an attempt ended

    def encode(self) -> JsonObject:
        """Return the record as JSON, without absent fields; the times of ranks are among those of their case."""
        record = self
        if self.outcome is not None and self.outcome.times is not None:
            record = replace(
                self, outcome=replace(self.outcome, times=self.outcome.times.in_memory())
            )
        values = {
            name: value for name, value in to_builtins(record, _pack).items() if value is not None
        }
        times = values.get("outcome", {}).get("times")
        if times:
            times |= times.pop("kept")
        return values


class JournalBytes:
    """The bytes of a journal, by which the times of ranks are read when they are asked for.

    With ``stays_open``, as in the process that writes it, they can also be read after the journal
    was removed.
    """

    def __init__(self, path: Path, *, stays_open: bool = False) -> None:
        self._path = path
        self._descriptor: int | None = None
        if stays_open:  # not a copy of a descriptor with a lock: the lock would outlive the journal
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)

    def stored(
        self, place: RecordPlace, checksum: str, check: Callable[[TimesOfRanks], None]
    ) -> StoredTimes:
        """Return the times of the ranks in the outcome at ``place``, to be checked when they are read."""
        return StoredTimes(partial(self._load, place, checksum, check))

    def _load(
        self, place: RecordPlace, checksum: str, check: Callable[[TimesOfRanks], None]
    ) -> TimesOfRanks:
        """Read them.

        Raises:
            UnusableError: if the journal has changed.
        """
        try:
            line = parse_line(self._read(place))
            if line.record is None or line.checksum != checksum:
                raise ImplausibleError("its line differs")
            packed = line.record["outcome"]["times"]
            times = TimesOfRanks(**{name: _unpack(None, packed[name]) for name in PER_RANK})
            check(times)
        except (OSError, *_UNREADABLE) as error:
            why = f"it has changed since it was opened, or is damaged ({error}); open it again"
            raise UnusableError(
                "path", f"{format_value(str(self._path))} cannot be read: {why}"
            ) from None
        return times

    def _read(self, place: RecordPlace) -> bytes:
        if self._descriptor is None:
            with open_regular(self._path, "path") as file:
                return _read_fully(file.fileno(), place)
        return _read_fully(self._descriptor, place)


def _read_fully(descriptor: int, place: RecordPlace) -> bytes:
    """Return the bytes at a place of a file; fewer at its end."""
    content = bytearray()
    while part := os.pread(descriptor, place.size - len(content), place.offset + len(content)):
        content += part
    return bytes(content)


COPIES = 2
"""The number of copies of the records of the job and of each attempt, on which all others depend."""


def all_records(job: Job, earlier: RawResults | None) -> Iterator[JournalRecord]:
    """Yield the records of a job and of the content of an earlier raw file or journal."""
    yield from [JournalRecord(job=job)] * COPIES
    for attempt, outcomes in earlier.attempts if earlier else ():
        yield from [JournalRecord(attempt=attempt)] * COPIES
        yield from (JournalRecord(outcome=outcome, number=attempt.number) for outcome in outcomes)
    yield from (JournalRecord(failure=failure) for failure in (earlier.failures if earlier else ()))
    yield from (JournalRecord(start=case_id) for case_id in (earlier.started if earlier else ()))


def read_records(
    path: Path, source: JournalBytes, *, is_running: bool
) -> tuple[RawResults, ChainEnd]:
    """Read the records of a journal; ``damage`` of the result lists its damaged, missing and moved lines.

    Args:
        path: the path of the journal.
        source: reads the times of ranks, which stay in the journal until then.
        is_running: True if a process is writing the journal, whose first and last line may then be
            incomplete.

    Returns:
        The results, and the end of the chain, where the next record follows.

    Raises:
        OSError: if the file cannot be read.
        BadInputError: if the file is not a journal, is of schema 1, or both records of its job are
            damaged.
    """
    lines = read_json_lines(path)
    before: list[Line] = []
    why = "it is empty"
    for line in lines:
        before.append(line)
        try:
            record = _decode(line)
        except _UNREADABLE as error:
            why = _describe_damage(line, error)
            continue
        if record.lines is not None and record.version != VERSION:
            raise outdated(path, "path")
        if record.job is not None and line.after:
            reader = _JournalReader(path, record.job, source)
            break
    else:
        remedy = "to measure its job anew, move it away"
        raise UnusableError(
            "path",
            f"{format_value(str(path))} is not a journal of hpccoll that names its job: {why}; {remedy}",
        )
    for line in chain(before, lines):
        reader.read(line)
    raw = reader.raw
    raw.is_running = is_running
    if is_running and line.truncated:
        reader.truncated.pop()
    if reader.truncated:
        raw.notes.append(
            f"as by a kill, lines were cut short: {', '.join(map(str, reader.truncated[:9]))}"
        )
    return raw, reader.end()


def _decode(line: Line) -> JournalRecord:
    """Return the record of a line; its times of ranks are still packed, see ``_times_of_line``."""
    if line.record is None:
        raise ImplausibleError("its checksum is wrong")
    values = line.record
    times = (values.get("outcome") or {}).get("times")
    if times:
        summary = {name: value for name, value in times.items() if name not in PER_RANK}
        values = {
            **values,
            "outcome": {**values["outcome"], "times": {**summary, "kept": TimesOfRanks()}},
        }
    return from_builtins(values, JournalRecord, decode=_unpack)


_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
    zlib.error,
)
"""The exceptions that decoding of a wrong record raises."""


def _describe_damage(line: Line, error: BaseException, where: str = "") -> str:
    return f"line {line.number}{where} is damaged: {str(error) or type(error).__name__}"


class _JournalReader:
    def __init__(self, path: Path, job: Job, source: JournalBytes) -> None:
        self._source = source
        self.raw, self._check = RawResults(path=path, job=job), OutcomeCheck(job)
        self.truncated: list[int] = []
        """The numbers of the truncated lines."""
        self._started_case: str | None = None
        """The case that started last and has no outcome yet."""
        self._numbers: dict[str, int] = {}
        """The numbers of the whole lines by their checksums."""
        self._last = ChainEnd().checksum
        self._damaged = 0
        self._after_damage = False
        """The checksum of the last whole line, the number of unreadable lines, and whether the last line is damaged."""
        self._written = -1
        """The number of lines that were written, according to the first line; -1 without a first line."""

    def end(self) -> ChainEnd:
        """Return the end of the chain; lines that are missing at the end are added to the damage."""
        lines = len(self._numbers) + self._damaged
        if self._written < 0 and not self.raw.is_running:
            self._lose("its first line, which has the number of the others, is missing or damaged")
        elif lines < self._written:
            self._lose(
                f"{self._written - lines} of the {self._written} lines that were written are missing"
            )
        return ChainEnd(self._last, max(lines, self._written))

    def read(self, line: Line) -> None:
        """Add the record of a line to the results, or its damage if it cannot be decoded."""
        if line.truncated:
            self.truncated.append(line.number)
            return
        if line.record and "lines" in line.record:
            self._written = int(line.record["lines"])
            if line.number > 1:
                self._lose(
                    f"line {line.number} belongs at the beginning: lines are repeated or in another order"
                )
            return
        if line.checksum in self._numbers:
            self._lose(f"line {line.number} repeats line {self._numbers[line.checksum]}")
            return
        follows = self._follows(line)
        try:
            self._add(_decode(line), line)
        except _UNREADABLE as error:
            where = f" (after the start of {self._started_case})" if self._started_case else ""
            self._lose(_describe_damage(line, error, where), self._started_case)
            self._damaged += follows  # a line at a wrong place may come again at its own
            self._numbers.pop(line.checksum, None)

    def _add(self, record: JournalRecord, line: Line) -> None:
        if record.attempt is not None:
            check_attempt(record.attempt)
            # skips the second copy
            if record.attempt.number not in (earlier.number for earlier, _ in self.raw.attempts):
                self.raw.attempts.append((record.attempt, []))
            self._started_case = None
        elif record.start is not None:
            self._started_case = record.start
            self.raw.started.append(record.start)
        elif record.failure is not None:
            self.raw.failures.append(record.failure)
        elif record.job is None:
            attempt = self.raw.attempts[-1][0] if self.raw.attempts else None
            if attempt is None or record.number != attempt.number:
                raise ImplausibleError(f"its attempt, {record.number}, is not the last one")
            if record.outcome is not None:
                outcome = self._with_times(record.outcome, attempt, line)
                self._check(attempt, outcome)
                self.raw.record(outcome)
                self._started_case = None
            elif record.provenance is not None:
                self.raw.add_provenance(record.provenance)

    def _with_times(self, outcome: Outcome, attempt: Attempt, line: Line) -> Outcome:
        """Return the outcome of a line with the times of its ranks, which stay in the file."""
        if outcome.times is None or line.record is None:
            return outcome
        packed, times = line.record["outcome"]["times"], outcome.times
        if "skew_ns" not in packed:  # an earlier release wrote the line
            ranks = TimesOfRanks(**{name: _unpack(None, packed[name]) for name in PER_RANK})
            times = replace(times, kept=ranks).summarised([place.clock for place in attempt.places])
        check = partial(check_rank_times, times=times, program=outcome.program, attempt=attempt)
        kept = self._source.stored(line.place, line.checksum, check)
        return replace(outcome, times=replace(times, kept=kept))

    def _follows(self, line: Line) -> bool:
        """Return whether a line follows the last one in the chain, and add what that tells to the damage."""
        if line.record is None:
            self._after_damage = True
            return line.number > 1
        follows = line.after == self._last or self._after_damage
        if not follows:
            place = self._numbers.get(line.after)
            gap = (
                f"belongs behind line {place}"
                if place
                else "does not follow the line before it in the file"
            )
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


def _pack(values: NDArray[Any]) -> JsonObject:
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 1)).decode()
    return {"dtype": values.dtype.str, "shape": values.shape, "data": data}


def _unpack(_kind: object, packed: Any) -> Any:
    """Return an array; a wrong shape allocates no more memory than the packed data need."""
    if isinstance(packed, TimesOfRanks):
        return packed
    dtype = np.dtype(packed["dtype"])
    shape = packed["shape"]
    data = base64.b64decode(packed["data"])
    size = dtype.itemsize * math.prod(shape)
    if dtype.kind not in "iuf":
        raise ImplausibleError(f"its values are of the type {dtype}")
    return np.frombuffer(zlib.decompressobj().decompress(data, size + 1), dtype).reshape(shape)
