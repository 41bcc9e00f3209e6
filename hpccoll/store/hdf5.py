"""Raw files: HDF5 files that are written whole and then renamed into place; h5py, xarray and h5dump read them.

In a damaged index or heap HDF5 may loop for ever or take all memory. Therefore it opens only files whose bytes are
those that were written, by a digest of them, the seal: a text in a dataset near the beginning of the file.
"""

import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from hpccoll.cases.case import Job
from hpccoll.common.errors import BadInputError, UnusableError, format_value
from hpccoll.common.files import open_regular
from hpccoll.common.records import LAST_OF_SCHEMA_1, from_builtins, outdated
from hpccoll.common.version import __version__
from hpccoll.store.durable_files import is_locked, replacing_file
from hpccoll.store.hdf5_attempt import read_attempt, stored_object, write_attempt
from hpccoll.store.plausibility import ImplausibleError, check_plausible
from hpccoll.store.raw_results import Attempt, Failure, RawResults
from hpccoll.store.schema import SCHEMA, VERSION

_ATTEMPT_PREFIX = "attempt_"

MEASURE_ANEW = "to measure its job anew, move it away"
RAW_FILES = "raw files (*.h5) or a directory that holds some, which hpccoll sweep, run --out and import write"
"""What to do with a raw file that cannot be read, and what to name instead of any other file."""

LIBVER = ("v110", "v110")
"""The format of HDF5 1.10, whose metadata have checksums: in older formats a flipped bit can make the library hang."""


def write_raw_file(raw: RawResults, path: Path) -> None:
    """Write ``raw`` in memory, then to a temporary file, and rename that to ``path`` once it is on disk.

    Raises:
        ImplausibleError: if the reader would refuse ``raw``; nothing is written.
    """
    check_plausible(raw)
    image = io.BytesIO()  # HDF5 ends the process by a signal when it closes a file on a full disk
    with h5py.File(image, "w", libver=LIBVER) as file:
        _write_content(file, raw)
    with replacing_file(path) as unfinished:
        unfinished.write_bytes(image.getbuffer())
        seal(unfinished)


def _write_content(file: Any, raw: RawResults) -> None:
    _reserve_seal(file)
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
        records = [json.dumps(asdict(failure)) for failure in raw.failures]
        dataset = file.create_dataset("failures", data=records, dtype=h5py.string_dtype())
        dataset.make_scale("failure")
        dataset.attrs["long_name"] = "JSON: the failure notes of ranks whose attempt ended"
    for attempt, outcomes in raw.attempts:
        if outcomes:
            write_attempt(file.create_group(f"{_ATTEMPT_PREFIX}{attempt.number}"), attempt, outcomes)


class OpenElsewhereError(UnusableError):
    """A file that another process has open for writing."""


def check_replaceable(path: Path, content: str, is_ours: Callable[[Attempt], bool]) -> None:
    """Check that a command whose files hold ``content``, of attempts that are ``is_ours``, may write one to ``path``.

    Raises:
        BadInputError: if it holds anything else, or another process has it open for writing.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        attempts = [attempt for attempt, _ in read_raw_file(path).attempts]
        replaceable = bool(attempts) and all(map(is_ours, attempts))
    except OpenElsewhereError:
        raise
    except BadInputError:
        replaceable = False
    if not replaceable:
        raise BadInputError("--out", str(path), f"a new file, or one of {content}: it holds something else")


@contextmanager
def _open_raw_file(path: Path) -> Iterator[Any]:
    """Open a raw file; HDF5 opens it only if its bytes are those that were written.

    Raises:
        BadInputError: if the file is not HDF5, is truncated or has another schema, or if another process has it open
            for writing; also for errors within the block.
    """
    try:
        with open_regular(path, "path") as opened:
            _check_not_open_elsewhere(opened, path)
            if not check_seal(opened):
                why = f"is of schema 1 (do: read it by pip install {LAST_OF_SCHEMA_1}), or another program wrote it"
                raise UnusableError("path", f"{format_value(str(path))} has no seal: it {why}")
        with h5py.File(path, "r", locking=False) as file:  # some file systems have no locks; files are replaced whole
            _check_schema(file, path)
            yield file
    except _UNREADABLE as error:
        if isinstance(error, BadInputError) and error.key == "path":
            raise
        if _LOCK_FAILED in str(error):
            why = "HDF5 cannot lock it; do: unset HDF5_USE_FILE_LOCKING"
            raise UnusableError("path", f"{format_value(str(path))} cannot be read: {why}") from None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = f"{format_value(str(path))} is no whole raw file of hpccoll: {reason.strip()}"
        remedy = MEASURE_ANEW if path.suffix == ".h5" else f"do: name {RAW_FILES}"
        raise UnusableError("path", f"{problem}; {remedy}") from None


def _check_schema(file: Any, path: Path) -> None:
    schema, version = (str(file.attrs.get(name, "none")) for name in ("schema", "schema_version"))
    if schema == SCHEMA and version.startswith("1."):
        raise outdated(path, "path")
    if (schema, version) != (SCHEMA, VERSION):
        raise BadInputError("path", str(path), f"schema {SCHEMA} {VERSION}, it has {schema} {version}")


_UNREADABLE = (
    OSError, RuntimeError, KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError,
    NotImplementedError,
)  # fmt: skip
"""The exceptions that h5py raises if bytes of a file are missing or wrong."""

_LOCK_FAILED = "unable to lock file"
"""What HDF5 says if the file system has no locks, and the user demands them (H5FD_sec2_lock)."""


def _check_not_open_elsewhere(file: IO[bytes], path: Path) -> None:
    """Refuse a file that another process has open for writing: it is not damaged, and changes meanwhile.

    The superblock of a file that is open for writing has a mark, which a killed process leaves (HDF5 File Format
    Specification 3.0, II.A: bit 0 of the file consistency flags).
    """
    file.seek(0)
    head = file.read(12)
    is_marked = head.startswith(SIGNATURE) and len(head) == 12 and head[8] >= 3 and head[11] & 1
    if is_marked or is_locked(file):
        killed = ", or, if none has it, clear the mark of a killed one by h5clear -s" if is_marked else ""
        why = f"another process has it open for writing, such as a notebook; do: close it there{killed}"
        raise OpenElsewhereError("path", f"{format_value(str(path))} cannot be read: {why}")


def read_raw_file(path: Path, case_ids: Collection[str] | None = None) -> RawResults:
    """Read a raw file, or only the outcomes of some cases of one that was read before.

    Raises:
        BadInputError: if the file cannot be read, or its content differs from what was written or is implausible.
    """
    with _open_raw_file(path) as file:
        job_json = str(file.attrs["job_json"])
        if file.attrs["job_sha256"] != hashlib.sha256(job_json.encode()).hexdigest():
            raise ImplausibleError("its job was changed after it was written: job_sha256 differs")
        size = path.stat().st_size
        names = [name for name in file if name.startswith(_ATTEMPT_PREFIX)]
        attempts = [read_attempt(stored_object(file, name, size), size, case_ids) for name in names]
        raw = RawResults(
            path=path, job=Job.from_json(job_json), attempts=sorted(attempts, key=lambda pair: pair[0].number)
        )
        if "failures" in file:
            records = stored_object(file, "failures", size).asstr()[:]
            raw.failures = [from_builtins(json.loads(record), Failure) for record in records]
        if case_ids is None:
            check_plausible(raw)
        return raw


SEAL_DATASET = "bytes_sha256"
"""The dataset of the root group that holds the seal."""

_TEXT = b"SHA-256 of all bytes of this file but these 64 digits: "
_DIGITS = 64
_HEAD_BYTES = 1 << 16
"""The seal is within the first bytes of a file, because it is written first."""

SIGNATURE = b"\x89HDF\r\n\x1a\n"


class IntegrityError(ValueError):
    """The bytes of a file are not those that were written."""


def _reserve_seal(file: Any) -> None:
    dataset = file.create_dataset(SEAL_DATASET, data=np.bytes_(_TEXT + b"0" * _DIGITS))
    dataset.attrs["long_name"] = "the seal; a file that was changed is refused"


def seal(path: Path) -> None:
    """Write the digest of a closed file into its reserved dataset."""
    with path.open("rb+") as file:
        position, _, digest = _digest(file)
        file.seek(position)
        file.write(digest)


def check_seal(file: IO[bytes]) -> bool:
    """Check the bytes of a file against its seal, and return False if it has none, as files of schema 1.10 and earlier.

    Raises:
        IntegrityError: if they differ, or the file is not HDF5.
    """
    file.seek(0)
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise IntegrityError("the signature of HDF5 is missing")
    try:
        _, sealed, digest = _digest(file)
    except ValueError:
        return False
    if sealed == digest:
        return True
    raise IntegrityError(
        'its bytes differ from its seal: it was damaged, or a program changed it (h5py: open it with "r", not "r+" or '
        '"a"); bring back a copy'
    )


def _digest(file: IO[bytes]) -> tuple[int, bytes, bytes]:
    """Return the position of the digits of the seal, the digits there, and those of the bytes of the file.

    Raises:
        ValueError: if there is no seal.
    """
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    position = head.index(_TEXT) + len(_TEXT)
    digest = hashlib.sha256(head[:position] + head[position + _DIGITS :])
    while block := file.read(1 << 20):
        digest.update(block)
    return position, head[position : position + _DIGITS], digest.hexdigest().encode()
