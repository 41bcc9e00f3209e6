"""Sealed files: HDF5 files that are written whole and then renamed into place; h5py, xarray and h5dump read them.

In a damaged index or heap HDF5 may loop for ever or take all memory. Therefore it opens only files
whose bytes are those that were written, by a digest of them, the seal: a text in a dataset near the
beginning of the file.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from hpccoll.common.errors import BadInputError, UnusableError, format_value
from hpccoll.common.files import open_regular
from hpccoll.common.records import LAST_OF_SCHEMA_1, outdated
from hpccoll.common.version import __version__
from hpccoll.store.checked_seals import is_checked, remember_checked, seal_key
from hpccoll.store.durable_files import UnfinishedFile, is_locked
from hpccoll.store.schema import SCHEMA, VERSION

RAW_FILES = "raw files (*.h5) or a directory that holds some, which hpccoll sweep, run --out and import write"
"""What to name instead of any other file."""

LIBVER = ("v110", "v110")
"""The format of HDF5 1.10, whose metadata have checksums: in older formats a flipped bit can make the library hang."""


@dataclass(frozen=True, slots=True)
class FileSchema:
    """What a sealed file holds."""

    name: str
    version: str
    content: str  # a noun
    commands: str  # which read it
    remedy: str  # what to do with a file that cannot be read
    elsewhere: str  # what to name instead of any other file


RAW = FileSchema(
    SCHEMA,
    VERSION,
    "raw file",
    "hpccoll report, export, status",
    "to measure its job anew, move it away",
    RAW_FILES,
)
DIAGNOSIS = FileSchema(
    "hpccoll-diagnosis",
    "1.0",
    "diagnosis",
    "hpccoll diagnose --report",
    "to diagnose anew, name another --out",
    "files of hpccoll diagnose --out, or a directory that holds some",
)
COUNT = FileSchema(
    "hpccoll-count",
    "1.0",
    "count of a program's collectives",
    "hpccoll count, tune --for",
    "to count anew, name another --out",
    "a file of hpccoll count",
)
SCHEMAS: Mapping[str, FileSchema] = {schema.name: schema for schema in (RAW, DIAGNOSIS, COUNT)}


class OtherContentError(UnusableError):
    """A whole sealed file that holds something else."""


class OpenElsewhereError(UnusableError):
    """A file that another process has open for writing."""


class DiskFile(io.RawIOBase):
    """A file for HDF5 to write to, whose writes never fail: what the disk does not take is in memory.

    HDF5 ends the process by a signal when it closes a file on a full disk. ``failure`` is the first
    error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.failure: OSError | None = None
        self._file = path.open("rb+", buffering=0)
        self._position = 0
        self._not_on_disk: list[tuple[int, bytes]] = []

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        content = bytes(data)
        if self.failure is None:
            try:
                self._write_to_disk(content)
            except OSError as error:
                self.failure = error
        if self.failure is not None:
            self._not_on_disk.append((self._position, content))
        self._position += len(content)
        return len(content)

    def _write_to_disk(self, content: bytes) -> None:
        self._file.seek(self._position)
        rest = memoryview(content)
        while rest:  # a nearly full disk accepts a part; the next write raises the error
            rest = rest[self._file.write(rest) :]

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        begin, size = self._position, min(len(view), max(0, self._end - self._position))
        view[:size] = os.pread(self._file.fileno(), size, begin).ljust(size, b"\0")
        for start, content in self._not_on_disk:
            first, last = max(start, begin), min(start + len(content), begin + size)
            if first < last:
                view[first - begin : last - begin] = content[first - start : last - start]
        self._position += size
        return size

    def truncate(self, size: int | None = None) -> int:
        end = self._position if size is None else size
        try:
            self._file.truncate(end)
        except OSError as error:
            self.failure = self.failure or error
        return end

    @property
    def _end(self) -> int:
        ends = (start + len(content) for start, content in self._not_on_disk)
        return max([os.fstat(self._file.fileno()).st_size, *ends])

    def close(self) -> None:
        self._file.close()
        super().close()


class SealedWriter:
    """A sealed file that is being written, under another name until it is whole.

    Attributes:
        root: the root group.

    Raises:
        OSError: if the file cannot be created.
    """

    def __init__(self, path: Path, schema: FileSchema) -> None:
        self._unfinished = UnfinishedFile(path)
        self._disk = DiskFile(self._unfinished.path)
        self.root = h5py.File(self._disk, "w", libver=LIBVER)
        _reserve_seal(self.root)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        self.root.attrs.update(
            schema=schema.name,
            schema_version=schema.version,
            created=created,
            hpccoll_version=__version__,
        )

    def check_disk(self) -> None:
        """Raise the OSError of the first write that has failed."""
        if self._disk.failure is not None:
            raise self._disk.failure

    def finish(self) -> None:
        """Seal the file, and give it its name once it is on disk.

        Raises:
            OSError: if the disk has not taken all of it; ``discard`` removes the rest.
        """
        self.root.close()
        self.check_disk()
        self._disk.close()
        seal(self._unfinished.path)
        self._unfinished.replace()

    def discard(self) -> None:
        """Close and remove the file, unless it has its name."""
        if self.root:
            self.root.close()
        self._disk.close()
        self._unfinished.remove()


def write_sealed(path: Path, schema: FileSchema, write: Callable[[Any], None]) -> None:
    """Write a file under a temporary name, and rename that to ``path`` once it is on disk.

    Args:
        path: the file, which is replaced.
        schema: what it holds.
        write: writes the content into the root group.

    Raises:
        OSError: if the file cannot be written.
    """
    writer = SealedWriter(path, schema)
    try:
        write(writer.root)
        writer.finish()
    finally:
        writer.discard()


@contextmanager
def open_sealed(path: Path, schema: FileSchema) -> Iterator[Any]:
    """Open a file; HDF5 opens it only if its bytes are those that were written.

    Raises:
        OtherContentError: if it is of another schema.
        BadInputError: if the file is not HDF5, is truncated or of another version, or if another
            process has it open for writing; also for errors within the block.
    """
    try:
        with open_regular(path, "path") as opened:
            _check_not_open_elsewhere(opened, path)
            _check_seal_once(opened, path)
        with _open_for_reading(path) as file:
            _check_schema(file, path, schema)
            yield file
    except _UNREADABLE as error:
        if isinstance(error, BadInputError) and error.key == "path":
            raise
        if _LOCK_FAILED in str(error):
            why = "HDF5 cannot lock it; do: unset HDF5_USE_FILE_LOCKING"
            raise UnusableError(
                "path", f"{format_value(str(path))} cannot be read: {why}"
            ) from None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = f"{format_value(str(path))} is not a whole {schema.content} of hpccoll: {reason.strip()}"
        remedy = schema.remedy if path.suffix == ".h5" else f"do: name {schema.elsewhere}"
        raise UnusableError("path", f"{problem}; {remedy}") from None


def _check_seal_once(file: IO[bytes], path: Path) -> None:
    """Check the seal of an open file, unless this user has checked it and the file has not changed since."""
    before = os.fstat(file.fileno())
    key = seal_key(path, before)
    if is_checked(key):
        return
    if not check_seal(file):
        why = f"is of schema 1 (do: read it by pip install {LAST_OF_SCHEMA_1}), or another program wrote it"
        raise UnusableError("path", f"{format_value(str(path))} has no seal: it {why}")
    if seal_key(path, os.fstat(file.fileno())) == key:
        remember_checked(key, before)


def _open_for_reading(path: Path) -> Any:
    """Open a file without a lock: some file systems have none, and files are replaced whole.

    If this process has it open already, as a notebook by h5py, HDF5 demands the same way of locking
    again.
    """
    for locking in (False, True):
        try:
            return h5py.File(path, "r", locking=locking)
        except OSError as error:
            if _OTHER_LOCKING not in str(error):
                raise
    return h5py.File(path, "r", locking="best-effort")


def _check_schema(file: Any, path: Path, schema: FileSchema) -> None:
    name, version = (str(file.attrs.get(name, "none")) for name in ("schema", "schema_version"))
    if name == SCHEMA and version.startswith("1."):
        raise outdated(path, "path")
    if name != schema.name and (actual := SCHEMAS.get(name)):
        raise OtherContentError(
            "path",
            f"{format_value(str(path))} is a {actual.content}, and no {schema.content}; do: {actual.commands}",
        )
    if (name, version) != (schema.name, schema.version):
        raise BadInputError(
            "path", str(path), f"schema {schema.name} {schema.version}, it has {name} {version}"
        )


_UNREADABLE = (
    OSError,
    RuntimeError,
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    NotImplementedError,
)
"""The exceptions that h5py raises if bytes of a file are missing or wrong."""

_OTHER_LOCKING = "flag values don't match"
"""What HDF5 says if the same process has the file open with another value of ``locking`` (H5F_open in H5Fint.c)."""

_LOCK_FAILED = "unable to lock file"
"""What HDF5 says if the file system has no locks, and the user demands them (H5FD_sec2_lock)."""


def _check_not_open_elsewhere(file: IO[bytes], path: Path) -> None:
    """Refuse a file that another process has open for writing: it is not damaged, and changes meanwhile.

    The superblock of a file that is open for writing has a mark, which a killed process leaves
    (HDF5 File Format Specification 3.0, II.A: bit 0 of the file consistency flags).
    """
    file.seek(0)
    head = file.read(12)
    is_marked = head.startswith(SIGNATURE) and len(head) == 12 and head[8] >= 3 and head[11] & 1
    if is_marked or is_locked(file):
        killed = (
            ", or, if none has it, clear the mark of a killed one by h5clear -s"
            if is_marked
            else ""
        )
        why = f"another process has it open for writing, such as a notebook; do: close it there{killed}"
        raise OpenElsewhereError("path", f"{format_value(str(path))} cannot be read: {why}")


SEAL_DATASET = "bytes_sha256"
"""The dataset of the root group that holds the seal."""

_TEXT = b"SHA-256 of all bytes of this file but these 64 digits: "
_DIGITS = 64
_HEAD_BYTES = 1 << 16
"""The seal is within the first bytes of a file, because it is written first."""

SIGNATURE = b"\x89HDF\r\n\x1a\n"


class IntegrityError(ValueError):
    """The bytes of a file are not those that were written, or not its own."""


MAX_COMPRESSION_RATIO = 1100
"""The maximum ratio of the size of a chunk to its compressed size; deflate reaches 1032."""
COMPRESSION: Mapping[str, Any] = {
    "compression": "gzip",
    "compression_opts": 4,
    "shuffle": True,
    "fletcher32": True,
}
"""How datasets with several dimensions are stored."""


def create_scales(group: Any, sizes: Mapping[str, int]) -> None:
    """Create the dimensions of the datasets of a group: numbers from 0 on."""
    for name, size in sizes.items():
        scale = group.create_dataset(name, data=np.arange(size))
        scale.make_scale(name)
        scale.attrs["long_name"] = name


def attach_scales(group: Any, dataset: Any, dims: Sequence[str]) -> None:
    """Name the dimensions of a dataset of a group."""
    for axis, dim in enumerate(dims):
        dataset.dims[axis].attach_scale(group[dim])


def create_text(group: Any, name: str, texts: str | Sequence[str], meaning: str) -> Any:
    """Create a dataset of one text or several: an attribute holds at most 64 KiB."""
    dataset = group.create_dataset(name, data=texts, dtype=h5py.string_dtype())
    dataset.attrs["long_name"] = meaning
    return dataset


def stored_object(group: Any, name: str, file_bytes: int) -> Any:
    """Return a member of a group whose values are in this file.

    Raises:
        IntegrityError: if it is missing, is a link, lies in another file, or is larger than this
            file can hold.
    """
    link = group.get(name, getlink=True)
    if link is None:
        raise IntegrityError(f"{name!r:.200} is missing")
    if not isinstance(link, h5py.HardLink):
        raise IntegrityError(f"{name!r:.200} is a link to elsewhere")
    item = group[name]
    if isinstance(item, h5py.Dataset):
        at_once = item.nbytes if item.chunks is None else item.nbytes // max(1, len(item))
        limit = file_bytes if item.chunks is None else MAX_COMPRESSION_RATIO * file_bytes
        if item.is_virtual or item.external or at_once > limit:
            raise IntegrityError(
                f"{name!r:.200} has {item.nbytes} bytes, and its file {file_bytes}"
            )
    return item


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
