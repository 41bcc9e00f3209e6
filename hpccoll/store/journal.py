"""The journal of a job: one record per event, each on disk before the next round of a case begins.

``NAME.h5.journal`` lies next to the raw file ``NAME.h5`` until that is complete. The workflow does
not declare it; the next attempt resumes from it. Each line has its own checksum and that of the
line before it (checksummed_lines.py): damaged, missing, repeated and moved lines are reported, and
what was lost is measured again.

Only rank 0 writes the journal, because not every file system keeps appends from several nodes
whole. Ranks that fail write their failure notes to files of their own (``NAME.h5.failure-3``), also
as JSON lines.
"""

import dataclasses
import errno
import glob
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from hpccoll.cases.case import Case, Job
from hpccoll.common.errors import BadInputError, file_error, writing
from hpccoll.common.files import open_regular
from hpccoll.common.records import from_builtins
from hpccoll.store.checksummed_lines import ChainEnd, RecordPlace, append_records, read_json_lines
from hpccoll.store.durable_files import (
    append_bytes,
    is_locked,
    open_without_links,
    remove_unfinished,
    replacing_file,
    try_lock,
    write_new,
)
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.journal_records import (
    COPIES,
    JournalBytes,
    JournalRecord,
    all_records,
    read_records,
)
from hpccoll.store.plausibility import check_rank_times
from hpccoll.store.raw_results import Attempt, Failure, Outcome, RawResults

SYNC_S = 1.0
"""The seconds of measurements that a crash of the host may cost; that of a process costs none."""


def journal_path(raw_file: Path) -> Path:
    # a directory has no name: it is refused later
    return raw_file.parent / f"{raw_file.name}.journal"


def interrupted_marker_path(raw_file: Path) -> Path:
    """Return the marker file of an interrupted launch; job scripts start no further launch if it exists."""
    return raw_file.parent / f"{raw_file.name}.interrupted"


class Journal:
    """The journal of the running attempt; rank 0 keeps it open and locked."""

    def __init__(self, raw_file: Path, job: Job, earlier: RawResults | None = None) -> None:
        """Open or create the journal; a new journal starts with the content of an ``earlier``, partial raw file.

        Raises:
            BadInputError: if it cannot be written, belongs to another job, or another process
                writes it.
        """
        self.raw_file = raw_file
        self.path = journal_path(raw_file)
        self._reserve = _reserve_path(raw_file)
        self._synced_s = -SYNC_S  # when records were last on disk, all of them
        with writing(raw_file), ExitStack() as on_error:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = on_error.enter_context(_open_locked(self.path, raw_file))
            if not os.fstat(self._file.fileno()).st_size:
                # locked before it gets its name
                with self._file, replacing_file(self.path) as unfinished:
                    self._file = on_error.enter_context(_open_locked(unfinished, raw_file))
                    self._write_all(job, earlier)
            interrupted_marker_path(raw_file).unlink(missing_ok=True)
            write_new(self._reserve, b" " * RESERVE_BYTES)
            remove_unfinished(self.path)
            remove_unfinished(raw_file)
            self._bytes = JournalBytes(self.path, stays_open=True)
            self.raw, self._end = _read(self.path, self._bytes, is_writer=True)
            check_same_job(self.raw, job, raw_file)
            on_error.pop_all()

    def _write_all(self, job: Job, earlier: RawResults | None) -> None:
        """Write the records of a new journal, one in memory at a time."""
        end = ChainEnd()
        self._file.write(end.first_line)
        for record in all_records(job, earlier):
            line, end = end.encode([record.encode()])
            self._file.write(line)
        self._file.seek(0)
        self._file.write(end.first_line)
        self._file.flush()

    def _append(self, *records: JournalRecord) -> RecordPlace:
        """Append records, and then write the number of records into the first line, unless that is missing.

        They outlive this process at once, and a crash of the host once the next record comes SYNC_S
        after the last one that was waited for: a disk may take as long as several small cases.

        Returns:
            Where they are in the file.
        """
        lines, end = self._end.encode(record.encode() for record in records)
        # behind the newline
        place = RecordPlace(os.fstat(self._file.fileno()).st_size + 1, len(lines) - 1)
        is_due = time.monotonic() >= self._synced_s + SYNC_S
        append_bytes(self.path, lines, sync=is_due)
        if is_due:
            self._synced_s = time.monotonic()
        self._end, file = end, self._file.fileno()
        if os.pread(file, 1, len(end.first_line)) == b"\n":
            os.pwrite(file, end.first_line, 0)
        return place

    def begin(self, attempt: Attempt) -> None:
        self._append(*[JournalRecord(attempt=attempt)] * COPIES)
        self.raw.begin(attempt)

    def add_provenance(self, facts: Mapping[str, object]) -> None:
        self._append(JournalRecord(provenance=facts, number=self.raw.attempts[-1][0].number))
        self.raw.add_provenance(facts)

    def start(self, case: Case) -> None:
        self._append(JournalRecord(start=case.id))
        self.raw.start(case)

    def record(self, outcome: Outcome) -> None:
        """Record the outcome of a case in a round; the times of its ranks leave the memory."""
        attempt = self.raw.attempts[-1][0]
        place = self._append(JournalRecord(outcome=outcome, number=attempt.number))
        if outcome.times is not None:
            check = partial(
                check_rank_times,
                times=outcome.times.of_no_rank(),
                program=outcome.program,
                attempt=attempt,
            )
            kept = self._bytes.stored(place, self._end.checksum, check)
            outcome = replace(outcome, times=replace(outcome.times, kept=kept))
        self.raw.record(outcome)

    def end(self, reason: str, rank: int = 0) -> None:
        """Record why this attempt ends before its last case, and the rank at fault; rank 0 if it was interrupted."""
        failure = Failure(
            case_id="", rank=rank, message=reason, attempt=self.raw.attempts[-1][0].number
        )
        self._append(JournalRecord(failure=failure))
        self.raw.failures.append(failure)
        if self.raw.interrupted:
            write_new(interrupted_marker_path(self.raw_file), b"")

    def close(self, *, remove: bool) -> None:
        """Close the journal, which may be closed already; ``remove`` it if the raw file holds all of its content."""
        self._reserve.unlink(missing_ok=True)
        if remove:
            self.path.unlink(missing_ok=True)
            remove_failure_notes(self.raw_file)
        elif not self._file.closed:
            os.fsync(self._file.fileno())
        self._file.close()


def _open_locked(path: Path, raw_file: Path) -> IO[bytes]:
    """Open and lock a file, which is created if it does not exist.

    Raises:
        OSError: if it cannot be opened; a symbolic link at ``path`` is not followed.
        BadInputError: if another process holds the lock, or has just replaced the file.
    """
    file = os.fdopen(open_without_links(str(path), os.O_RDWR | os.O_CREAT), "rb+")
    if try_lock(file) and os.path.samestat(os.fstat(file.fileno()), path.stat()):
        return file
    file.close()
    raise BadInputError("--out", str(raw_file), "a file that no other process writes")


RESERVE_BYTES = 16384
"""Bytes reserved for failure notes, because a full file system may be the reason of the failure."""


def _reserve_path(raw_file: Path) -> Path:
    return raw_file.parent / f"{raw_file.name}.reserve"


LAUNCHER_RANK = -1
"""The rank in failure notes of the launcher."""


def write_failure_note(raw_file: Path, failure: Failure) -> None:
    """Append a failure note to the file of this rank, or of the launcher, next to ``raw_file``."""
    author = "launch" if failure.rank == LAUNCHER_RANK else failure.rank
    path = raw_file.with_name(f"{raw_file.name}.failure-{author}")
    try:
        append_records(path, dataclasses.asdict(failure))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _reserve_path(raw_file).unlink(missing_ok=True)
        append_records(path, dataclasses.asdict(failure))


def _failure_notes(raw_file: Path, author: str = "*") -> list[Path]:
    return list(raw_file.parent.glob(f"{glob.escape(raw_file.name)}.failure-{author}"))


def remove_failure_notes(raw_file: Path, author: str = "*") -> None:
    """Remove the failure notes of earlier attempts, of all authors or of ``launch``."""
    for path in _failure_notes(raw_file, author):
        path.unlink(missing_ok=True)


def read_failure_notes(raw_file: Path) -> list[Failure]:
    """Return the failure notes of ranks and the launcher; damaged lines are ignored, because notes only explain."""
    failures = []
    for line in (
        line
        for path in sorted(_failure_notes(raw_file))
        if path.is_file()
        for line in read_json_lines(path)
    ):
        with suppress(ValueError):
            failures.append(from_builtins(line.record, Failure))
    return failures


def has_records(path: Path) -> bool:
    """Return False if there is no journal or it is empty: its process may have ended before the first record."""
    return path.exists() and path.stat().st_size > 0


def read_journal(path: Path, *, is_writer: bool = False) -> RawResults:
    """Read a journal, which this process may write; ``damage`` of the result lists its damaged lines.

    Raises:
        BadInputError: if the file is not a journal, is of schema 1, or both records of its job are
            damaged.
    """
    return _read(path, JournalBytes(path), is_writer=is_writer)[0]


def _read(path: Path, source: JournalBytes, *, is_writer: bool) -> tuple[RawResults, ChainEnd]:
    try:
        with open_regular(path, "path") as file:
            is_running = not is_writer and is_locked(file)
        raw, end = read_records(path, source, is_running=is_running)
        raw.failures += read_failure_notes(path.with_suffix(""))
    except OSError as error:
        raise file_error("path", path, error) from None
    return raw, end
