"""The journal: what a job has done so far, a record for each event, safe on disk before the next round of a case.

It lies beside the raw file that is to be (``NAME.h5.journal``), is undeclared to the workflow, and is what a later
attempt goes on from. Each line has its own checksum (records.py): one that is damaged is passed over and reported, and
what it held is measured again.

Rank 0 alone writes the journal, for appends from several nodes are not whole on every file system. What ranks have to
say at their end is in a file for each of them beside it (``NAME.h5.words-3``), also of records.
"""

import dataclasses
import errno
import glob
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from hpccoll.errors import BadInputError, file_error
from hpccoll.files import open_regular
from hpccoll.spec.case import Case, Job
from hpccoll.store.durable_files import (
    is_locked,
    lock_exclusively,
    open_without_links,
    remove_unfinished,
    replacing_file,
    write_new,
)
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.journal_records import attempt_records, first_records, outcome_record, parse_failure, read_records
from hpccoll.store.json_lines import append_records, encode_line, has_checksum_lines, read_json_lines
from hpccoll.store.raw import Attempt, DamagedLine, Failure, Outcome, RawResults


def journal_path(raw_file: Path) -> Path:
    return raw_file.parent / f"{raw_file.name}.journal"  # also of a directory, which has no name: it is refused later


def interrupted_marker_path(raw_file: Path) -> Path:
    """Return the file that says that the last launch was told to end: a script starts nothing more then."""
    return raw_file.parent / f"{raw_file.name}.told-to-end"


class Journal:
    """The journal of the attempt that is running; kept open and locked by rank 0."""

    def __init__(self, raw_file: Path, job: Job, earlier: RawResults | None = None) -> None:
        """Open or create the journal; a new one takes over what an ``earlier``, partial raw file holds.

        Raises:
            BadInputError: where it cannot be written, belongs to another job, or is being written by another process.
        """
        self.raw_file, self.path, self._reserve = raw_file, journal_path(raw_file), _reserve_path(raw_file)
        self._carried: list[DamagedLine] = []  # of a journal of an earlier version, which is written anew
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened(job, earlier)
        except OSError as error:
            raise file_error("--out", raw_file, error, "written") from None
        try:
            interrupted_marker_path(raw_file).unlink(missing_ok=True)
            write_new(self._reserve, b" " * RESERVE_BYTES)
            remove_unfinished(self.path)
            remove_unfinished(raw_file)
            self.raw = read_journal(self.path, is_writer=True)
            self.raw.damage[:0] = self._carried
            check_same_job(self.raw, job, raw_file)
        except OSError as error:
            self._file.close()
            raise file_error("--out", raw_file, error, "written") from None
        except BaseException:
            self._file.close()
            raise

    def _opened(self, job: Job, earlier: RawResults | None) -> IO[bytes]:
        """Return the locked file of the journal, which then is whole, and of this version."""
        file = _open_locked(self.path, self.raw_file)
        empty = not os.fstat(file.fileno()).st_size
        if not empty and has_checksum_lines(self.path):
            return file
        with file:
            if not empty:
                earlier = read_journal(self.path, is_writer=True)
                check_same_job(earlier, job, self.raw_file)
                self._carried = earlier.damage
            return self._created(job, earlier)

    def _created(self, job: Job, earlier: RawResults | None) -> IO[bytes]:
        """Write a journal, which is whole, and locked, before it has its name."""
        with ExitStack() as undone:
            with replacing_file(self.path) as unfinished:
                file = undone.enter_context(_open_locked(unfinished, self.raw_file))
                file.writelines(map(encode_line, first_records(job, earlier)))
                file.flush()
            undone.pop_all()
        return file

    def begin(self, attempt: Attempt) -> None:
        append_records(self.path, *attempt_records(attempt))
        self.raw.attempts.append((attempt, []))

    def start(self, case: Case) -> None:
        append_records(self.path, {"start": case.id})
        self.raw.started.append(case.id)

    def record(self, outcome: Outcome) -> None:
        append_records(self.path, outcome_record(outcome, self.raw.attempts[-1][0]))
        self.raw.record(outcome)

    def end(self, reason: str, rank: int = 0) -> None:
        """Say why this attempt ends before its last case, and at which rank that lies; at 0 where it was told to."""
        failure = Failure(case_id="", rank=rank, message=reason, attempt=self.raw.attempts[-1][0].number)
        append_records(self.path, {"failure": dataclasses.asdict(failure)})
        self.raw.failures.append(failure)
        if self.raw.interrupted:
            write_new(interrupted_marker_path(self.raw_file), b"")

    def close(self, *, remove: bool) -> None:
        """Close the journal, and remove it where all that it holds is in the raw file."""
        self._reserve.unlink(missing_ok=True)
        if remove:
            self.path.unlink(missing_ok=True)
            remove_failure_notes(self.raw_file)
        self._file.close()


def _open_locked(path: Path, raw_file: Path) -> IO[bytes]:
    """Open a file of ours, which is made where there is none, and lock it.

    Raises:
        OSError: where it cannot be opened; a symbolic link in its place is not followed.
        BadInputError: where another process holds it, or has just put another file in its place.
    """
    file = os.fdopen(open_without_links(str(path), os.O_RDWR | os.O_CREAT), "rb+")
    if lock_exclusively(file) and os.path.samestat(os.fstat(file.fileno()), path.stat()):
        return file
    file.close()
    raise BadInputError("--out", str(raw_file), "a file that no other process writes")


RESERVE_BYTES = 16384
"""Bytes kept aside for last words: a full file system is one of the reasons for them."""


def _reserve_path(raw_file: Path) -> Path:
    return raw_file.parent / f"{raw_file.name}.reserve"


LAUNCHER_RANK = -1
"""The rank of last words that are the launcher's."""


def write_failure_note(raw_file: Path, failure: Failure) -> None:
    """Put last words beside the journal of ``raw_file``, into a file of this rank's alone."""
    speaker = "launch" if failure.rank == LAUNCHER_RANK else failure.rank
    path = raw_file.with_name(f"{raw_file.name}.words-{speaker}")
    try:
        append_records(path, dataclasses.asdict(failure))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _reserve_path(raw_file).unlink(missing_ok=True)
        append_records(path, dataclasses.asdict(failure))


def remove_failure_notes(raw_file: Path, speaker: str = "*") -> None:
    """Remove the last words of earlier attempts, of everyone or of ``launch``."""
    for path in raw_file.parent.glob(f"{glob.escape(raw_file.name)}.words-{speaker}"):
        path.unlink(missing_ok=True)


def read_failure_notes(raw_file: Path) -> list[Failure]:
    """Return what ranks and the launcher had to say at their end; a damaged line of theirs only explained."""
    paths = sorted(raw_file.parent.glob(f"{glob.escape(raw_file.name)}.words-*"))
    found = []
    for line in (line for path in paths if path.is_file() for line in read_json_lines(path)):
        with suppress(TypeError, ValueError):
            found.append(parse_failure(line.record or {}))
    return found


def has_records(path: Path) -> bool:
    """Return whether a journal says which job it is of: the process that created it may have ended before that."""
    return path.stat().st_size > 0


def read_journal(path: Path, *, is_writer: bool = False) -> RawResults:
    """Read a journal; what is damaged of it is in ``damage``.

    Args:
        path: of the journal.
        is_writer: whether this process is the one that writes it.

    Raises:
        BadInputError: where it is no journal, or the lines that name its job are damaged.
    """
    try:
        with open_regular(path, "path") as file:
            is_running = not is_writer and is_locked(file)
        raw = read_records(path, is_running=is_running)
        raw.failures += read_failure_notes(path.with_suffix(""))
    except OSError as error:
        raise file_error("path", path, error) from None
    return raw
