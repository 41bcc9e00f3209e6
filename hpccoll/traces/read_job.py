"""A job from the files that it left: each is recognised by its content, and a damaged one does not hide the others."""

import gc
import gzip
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import IO, BinaryIO, NamedTuple, cast

import msgspec

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import open_regular, to_utf8
from hpccoll.common.units import format_size
from hpccoll.traces import (
    execution_trace,
    flight_recorder,
    kineto,
    nccl_inspector,
    nccl_log_calls,
    nccl_ras,
)
from hpccoll.traces.job_file import MAX_BYTES, MAX_STREAMED_BYTES
from hpccoll.traces.joined_jobs import joined_jobs
from hpccoll.traces.recorded_job import RecordedJob

MAX_ARCHIVE_BYTES, MAX_MEMBERS = 16 << 30, 10_000
LONG_BYTES, MAX_PROCESSES = 32 << 20, 8
"""Files above LONG_BYTES are read by up to MAX_PROCESSES processes."""

MAX_ZIP_TABLE_BYTES, ZIP_TAIL_BYTES = 4 << 20, (1 << 16) + 22
"""The largest table of the members of a zip archive, and the bytes at its end that say where the table is."""
_ZIP_END = re.compile(rb"(?s)PK\x05\x06.{8}(.{4})(?!.*PK\x05\x06)")

HEAD_BYTES, PIECE_BYTES = 1 << 16, 1 << 20
GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
TAR = b"ustar"
"""How files begin that are packed; of tar archives at byte 257."""

DESKTOP_FILES = re.compile(r"(^|/)(__MACOSX/.*|\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)$")
"""Files that macOS and Windows add to directories and archives."""

READ_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    EOFError,
    OSError,
    msgspec.MsgspecError,
    tarfile.TarError,
    zlib.error,
    zipfile.BadZipFile,
    NotImplementedError,
)
"""What damaged content makes readers, and the libraries under them, raise."""


READERS = flight_recorder, nccl_ras, nccl_inspector, execution_trace, kineto, nccl_log_calls
"""The formats, in the order in which they are tried; each has SOURCE, recognises and read."""


class JobFiles(NamedTuple):
    """What the files of one or more jobs say."""

    jobs: Sequence[RecordedJob]  # one for each job and format
    damaged: Sequence[str]  # a line for each file that cannot be read


def read_job(
    paths: Iterable[Path], progress: Callable[[int, int], object] | None = None
) -> JobFiles:
    """Read files, directories, and .gz and .tar archives; files of different ranks are joined to one job.

    Nothing in a file is executed, and a process takes 1 GB of memory at most. Many files are read
    by several processes.

    Args:
        paths: files, archives and directories.
        progress: is called with the number of paths that are read, and that of all.
    """
    files = list(_files(paths))
    contents: list[tuple[Path, RecordedJob | str]] = []
    is_long = sum(file.stat().st_size for file in files if file.is_file()) > LONG_BYTES
    processes = min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(processes, get_context("forkserver"), gc.disable) as pool:
        reads = [
            pool.submit(_read_all, file).result if is_long else partial(_read_all, file)
            for file in files
        ]
        for number, (path, read) in enumerate(zip(files, reads, strict=True), 1):
            try:
                contents += read()
            except BrokenProcessPool:
                error = ValueError("a process that reads was ended, maybe for memory")
                contents.append((path, _line(path, path, error)))
            if progress:
                progress(number, len(files))
    recorded = [(path, content) for path, content in contents if isinstance(content, RecordedJob)]
    damaged = []
    for _, content in contents:
        if isinstance(content, str):
            damaged.append(content)
    return JobFiles(joined_jobs(recorded), damaged)


def _read_all(path: Path) -> list[tuple[Path, RecordedJob | str]]:
    """Return what a file, or each one in an archive, recorded, or a line why it cannot be read."""
    try:
        if not _is_packed(path):
            return [(path, _read_file(path))]
    except READ_ERRORS as error:
        return [(path, _line(path, path, error))]
    entries = list[tuple[Path, RecordedJob | str]]()
    with TemporaryDirectory(prefix="hpccoll-") as scratch:
        members = _members(path, Path(scratch))
        while True:
            shown = unpacked = path
            try:
                shown, unpack = next(members)
                unpacked = unpack()
                entries.append((shown, _read_file(unpacked)))
            except StopIteration:
                return entries
            except READ_ERRORS as error:
                entries.append((shown, _line(shown, unpacked, error)))
            rmtree(scratch, ignore_errors=True)  # so that one file lies there at a time


def _is_packed(path: Path) -> bool:
    """Return whether a file holds other files, or is compressed: then it is unpacked into a directory."""
    with open_regular(path, "FILES") as file:
        begin = file.read(512)
    return begin.startswith((GZIP, ZIP)) or begin[257:262] == TAR


def _line(shown: Path, unpacked: Path, error: BaseException) -> str:
    if isinstance(error, UnusableError):
        return str(error).replace(str(unpacked), str(shown))
    if isinstance(error, ValueError):
        why = str(error)
    else:
        why = f"it is damaged: {type(error).__name__}: {error}"
    return str(UnusableError("FILES", f"{format_value(str(shown))} cannot be read: {why}"))


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(
                file for file in path.rglob("*") if not file.is_dir() and _is_of_user(file)
            )
        else:
            yield path


def _is_of_user(name: Path | str) -> bool:
    """Return whether a file of a directory or an archive is one that its user put there."""
    return not DESKTOP_FILES.search(str(name))


def _read_file(path: Path) -> RecordedJob:
    with open_regular(path, "FILES") as file:
        head = to_utf8(file.read(HEAD_BYTES))
        size = file.seek(0, os.SEEK_END)
    for reader in READERS:
        if reader.recognises(head):
            if reader is kineto:
                most = MAX_STREAMED_BYTES
            else:
                most = MAX_BYTES
            if size > most:
                raise ValueError(f"it has more than {format_size(most)}")
            try:
                job: RecordedJob = reader.read(path)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ValueError(
                    f"it is damaged, or not a file of {reader.SOURCE}: {error}"
                ) from None
            return job
    sources = ", ".join(reader.SOURCE for reader in READERS)
    problem = "empty"
    if head:
        problem = "not a file of a recorded job"
    raise ValueError(f"it is {problem}; valid: {sources}")


def _members(path: Path, scratch: Path) -> Iterator[tuple[Path, Callable[[], Path]]]:
    """Yield each file that a packed one holds, as people know it, and what returns the place of its content."""
    with open_regular(path, "FILES") as file:
        begin = file.read(4)
        packed = begin.startswith(GZIP)
        if begin == ZIP:
            yield from _zip_members(path, file, scratch)
            return
        file.seek(0)
        content = cast("IO[bytes]", _Limited(gzip.GzipFile(fileobj=file) if packed else file))
        first = content.read(512)
        content.seek(0)
        if first[257:262] == TAR:
            with tarfile.open(fileobj=content, mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number == MAX_MEMBERS:
                        raise ValueError(f"it holds more than {MAX_MEMBERS} files")
                    # A link is a second name of a file. To find that file, tarfile would read the
                    # whole archive.
                    if not (member.isreg() and _is_of_user(member.name)):
                        continue
                    if (source := archive.extractfile(member)) is not None:
                        name = Path(member.name).name
                        target = scratch / str(number) / Path(member.name).parent.name / name
                        yield path / member.name, partial(_unpacked, source, target)
        else:
            yield (
                path,
                partial(
                    _copied, content, scratch / path.parent.name / path.name.removesuffix(".gz")
                ),
            )


def _zip_members(
    path: Path, file: BinaryIO, scratch: Path
) -> Iterator[tuple[Path, Callable[[], Path]]]:
    """Yield each file in a zip archive, as ``_members`` does.

    The table of a zip archive is at its end, and is read at once: its size is checked before.
    """
    file.seek(max(0, file.seek(0, os.SEEK_END) - ZIP_TAIL_BYTES))
    table = _ZIP_END.search(file.read())
    if table is None or int.from_bytes(table[1], "little") > MAX_ZIP_TABLE_BYTES:
        raise ValueError(
            f"it is a zip archive that is damaged, or holds more than {MAX_MEMBERS} files"
        )
    with zipfile.ZipFile(file) as archive:
        for number, member in enumerate(archive.infolist()):
            if number == MAX_MEMBERS:
                raise ValueError(f"it holds more than {MAX_MEMBERS} files")
            if not member.is_dir() and _is_of_user(member.filename):
                name = PurePosixPath(member.filename)
                target = scratch / str(number) / name.parent.name / name.name
                yield path / member.filename, partial(_unzipped, archive, member, target)


def _unzipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> Path:
    if member.flag_bits & 1:
        raise ValueError("it is encrypted; do: unpack it")
    with archive.open(member) as source:
        return _unpacked(source, target)


def _unpacked(source: IO[bytes], target: Path) -> Path:
    """Return the file with the content of a member of an archive, without its own compression by gzip."""
    copy = _copied(source, target)
    with copy.open("rb") as file:
        if file.read(len(GZIP)) != GZIP:
            return copy
        file.seek(0)
        copy.unlink()
        content = cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        return _copied(
            content, copy.parent / "unpacked" / copy.parent.name / copy.name.removesuffix(".gz")
        )


class _Limited:
    """An archive that is read in small pieces, because the header of a member may claim any size."""

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self.file, self.tell = file, file.tell

    def seek(self, offset: int) -> int:
        """Go to a place; ValueError if an archive of this size is not read."""
        if offset > MAX_ARCHIVE_BYTES:
            raise ValueError(f"it has more than {format_size(MAX_ARCHIVE_BYTES)}, unpacked")
        return self.file.seek(offset)

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes; ValueError if they are more than a header or a piece has."""
        if size > PIECE_BYTES:
            raise ValueError("it has a header of more than 1 MiB")
        return self.file.read(size)


def _copied(source: IO[bytes], target: Path) -> Path:
    """Return the file with the content of another one, which may be compressed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        while piece := source.read(PIECE_BYTES):
            file.write(piece)
            if file.tell() > MAX_STREAMED_BYTES:
                raise ValueError(f"it has more than {format_size(MAX_STREAMED_BYTES)}, unpacked")
    return target
