"""A job from the files that it left: each is recognised by its content, and a damaged one does not hide the others."""

import gzip
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, BinaryIO, NamedTuple, cast

import msgspec

from hpccoll.common.errors import to_one_line
from hpccoll.common.files import open_regular
from hpccoll.common.units import format_size
from hpccoll.traces import execution_trace, flight_recorder, kineto, nccl_inspector, nccl_log, nccl_ras
from hpccoll.traces.records import RecordedJob

MAX_FILE_BYTES = 512 << 20
"""The maximum number of bytes of a file, unpacked."""
MAX_ARCHIVE_BYTES, MAX_MEMBERS = 16 << 30, 10_000
HEAD_BYTES, PIECE_BYTES = 1 << 16, 1 << 20

READ_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError, EOFError, OSError,
    msgspec.MsgspecError, tarfile.TarError, zlib.error,
)  # fmt: skip
"""What damaged content makes readers, and the libraries under them, raise."""


class JobFormat(NamedTuple):
    """A format of recorded jobs."""

    name: str  # as people call it
    recognises: Callable[[bytes, str], bool]  # from the first bytes and the name of a file
    read: Callable[[Path], RecordedJob]  # raises one of ``READ_ERRORS``


FORMATS = tuple(
    JobFormat(reader.SOURCE, reader.recognises, reader.read)
    for reader in (flight_recorder, nccl_ras, nccl_inspector, execution_trace, kineto, nccl_log)
)
"""The formats, in the order in which they are tried."""


class JobFiles(NamedTuple):
    """What the files of one job, or of several ones, say."""

    jobs: Sequence[RecordedJob]  # one for each job and format
    damaged: Sequence[str]  # a line for each file that cannot be read


def read_job(paths: Iterable[Path]) -> JobFiles:
    """Read files, directories, and .gz and .tar archives; files of different ranks are joined to one job.

    Nothing in a file is executed, and reading one takes 1 GB of memory at most.
    """
    recorded, damaged = list[tuple[Path, RecordedJob]](), list[str]()
    with TemporaryDirectory(prefix="hpccoll-") as scratch:
        for path in _files(paths):
            members = _members(path, Path(scratch))
            while True:
                shown = path
                try:
                    shown, unpacked = next(members)
                    recorded.append((shown, _read_file(unpacked)))
                except StopIteration:
                    break
                except READ_ERRORS as error:
                    why = str(error) if isinstance(error, ValueError | OSError) else f"it is damaged ({error!r})"
                    damaged.append(to_one_line(f"{shown}: {why}"))
    return JobFiles(_join(recorded), damaged)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(each for each in path.rglob("*") if not each.is_dir()) if path.is_dir() else (path,)


def _read_file(path: Path) -> RecordedJob:
    with open_regular(path, "FILES") as file:
        head = file.read(HEAD_BYTES)
        if file.seek(0, 2) > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {format_size(MAX_FILE_BYTES)}")
    for each in FORMATS:
        if each.recognises(head, path.name):
            return each.read(path)
    known = ", ".join(each.name for each in FORMATS)
    raise ValueError(f"it is {'no recorded job' if head else 'empty'}; read are {known}")


def _members(path: Path, scratch: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a file, or each file in an archive, as people know it and where its content is, one at a time."""
    with open_regular(path, "FILES") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        content = cast("IO[bytes]", _Limited(gzip.GzipFile(fileobj=file) if packed else file))
        first = content.read(512)
        content.seek(0)
        if first[257:262] == b"ustar":
            with tarfile.open(fileobj=content, mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number == MAX_MEMBERS:
                        raise ValueError(f"it holds more than {MAX_MEMBERS} files")
                    if (source := archive.extractfile(member)) is not None:
                        name = Path(member.name).name
                        yield path / name, _copied(source, scratch / name)
        elif packed:
            yield path, _copied(content, scratch / path.name.removesuffix(".gz"))
        else:
            yield path, path


class _Limited:
    """An archive of which little is read at once, because the header of a member may claim any size."""

    def __init__(self, file: BinaryIO | gzip.GzipFile) -> None:
        self.file, self.tell = file, file.tell

    def seek(self, offset: int) -> int:
        """Go to a place; ValueError if an archive of this size is not read."""
        if offset > MAX_ARCHIVE_BYTES:
            raise ValueError(f"it is larger than {format_size(MAX_ARCHIVE_BYTES)} when it is unpacked")
        return self.file.seek(offset)

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes; ValueError if they are more than a header or a piece has."""
        if size > PIECE_BYTES:
            raise ValueError("it has a header that is larger than 1 MiB")
        return self.file.read(size)


def _copied(source: IO[bytes], target: Path) -> Path:
    """Return the file with the content of another one, which may be compressed."""
    with target.open("wb") as file:
        while piece := source.read(PIECE_BYTES):
            file.write(piece)
            if file.tell() > MAX_FILE_BYTES:
                raise ValueError(f"it is larger than {format_size(MAX_FILE_BYTES)} when it is unpacked")
    return target


def _join(recorded: Iterable[tuple[Path, RecordedJob]]) -> list[RecordedJob]:
    """Join the files of each job.

    Files of one directory whose names differ in numbers only are of one job; so are sets of different ranks, such as
    those of different hosts. Where files have NCCL's hashes, those that share one are of one job.
    """
    sets = dict[tuple[str, ...], RecordedJob]()
    for path, job in sorted(recorded, key=lambda each: max(each[1].taken_ns.values(), default=0)):
        named = job.groups and all(group.of_job for group in job.groups)
        pattern = str(path.parent / re.sub(r"\d+", "#", path.name)) if named else str(path)
        known = sets.get((job.source, pattern))
        sets[job.source, pattern] = _merged(known, job) if known else job
    jobs = list[RecordedJob]()
    for job in sets.values():
        fitting = next((number for number, other in enumerate(jobs) if _is_one_job(other, job)), None)
        if fitting is None:
            jobs.append(job)
        else:
            jobs[fitting] = _merged(jobs[fitting], job)
    return [_with_members(job) for job in jobs]


def _hashes(job: RecordedJob) -> set[str]:
    return {group.name for group in job.groups if not group.of_job}


def _is_one_job(first: RecordedJob, second: RecordedJob) -> bool:
    hashes, others = _hashes(first), _hashes(second)
    if hashes or others:
        fit = bool(hashes & others)
    else:  # a report that counts nothing says of no job that it is its own
        fit = bool(first.groups and second.groups) and {each.rank for each in first.ranks}.isdisjoint(
            each.rank for each in second.ranks
        )
    return first.source == second.source and fit


def _merged(first: RecordedJob, later: RecordedJob) -> RecordedJob:
    if first.taken_ns and first.taken_ns == later.taken_ns and set(later.progress) <= set(first.progress):
        return first  # one poll, twice
    ranks = {each.rank: each for each in (*first.ranks, *later.ranks)}
    return RecordedJob(
        first.source,
        [ranks[number] for number in sorted(ranks)],
        (*first.operations, *later.operations),
        (*first.progress, *later.progress),
        (*first.computing, *later.computing),
        {**first.taken_ns, **later.taken_ns},
        tuple(dict.fromkeys((*first.cannot_say, *later.cannot_say))),
    )


def _with_members(job: RecordedJob) -> RecordedJob:
    """Return a job in which groups whose dumps name no ranks have those that recorded something of them."""
    recorded = {(each.group, each.rank) for each in job.progress} | {(each.group, each.rank) for each in job.operations}
    groups = {
        group: replace(group, ranks=tuple(sorted(rank for other, rank in recorded if other == group)))
        for group in job.groups
        if not group.ranks
    }
    return replace(
        job,
        operations=[replace(each, group=groups.get(each.group, each.group)) for each in job.operations],
        progress=[replace(each, group=groups.get(each.group, each.group)) for each in job.progress],
    )
