"""A job from the files that it left: each is recognised by its content, and a damaged one does not hide the others."""

import gzip
import os
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import IO, Any, BinaryIO, NamedTuple, cast

import msgspec

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import open_regular
from hpccoll.common.units import format_size
from hpccoll.traces import execution_trace, flight_recorder, kineto, nccl_inspector, nccl_log, nccl_ras
from hpccoll.traces.job_file import MAX_BYTES
from hpccoll.traces.records import Group, Progress, RecordedJob, RecordedOperation, number_ranks, union_of

MAX_ARCHIVE_BYTES, MAX_MEMBERS = 16 << 30, 10_000
LONG_BYTES, MAX_PROCESSES = 32 << 20, 8
"""Files of more bytes than one process reads in a few seconds are read by so many processes."""

HEAD_BYTES, PIECE_BYTES = 1 << 16, 1 << 20

READ_ERRORS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError, EOFError, OSError,
    msgspec.MsgspecError, tarfile.TarError, zlib.error,
)  # fmt: skip
"""What damaged content makes readers, and the libraries under them, raise."""


READERS = flight_recorder, nccl_ras, nccl_inspector, execution_trace, kineto, nccl_log
"""The formats, in the order in which they are tried; each has SOURCE, recognises and read."""


class JobFiles(NamedTuple):
    """What the files of one job, or of several ones, say."""

    jobs: Sequence[RecordedJob]  # one for each job and format
    damaged: Sequence[str]  # a line for each file that cannot be read


def read_job(paths: Iterable[Path], progress: Callable[[int, int], object] | None = None) -> JobFiles:
    """Read files, directories, and .gz and .tar archives; files of different ranks are joined to one job.

    Nothing in a file is executed, and a process takes 1 GB of memory at most. Many files are read by several processes.

    Args:
        paths: files, archives and directories.
        progress: is called with the number of paths that are read, and that of all.
    """
    every, found = [*_files(paths)], list[tuple[Path, RecordedJob | str]]()
    is_long = sum(each.stat().st_size for each in every if each.is_file()) > LONG_BYTES
    with ProcessPoolExecutor(min(MAX_PROCESSES, len(os.sched_getaffinity(0))), get_context("forkserver")) as pool:
        reads = [pool.submit(_read_all, each).result if is_long else partial(_read_all, each) for each in every]
        for number, (path, read) in enumerate(zip(every, reads, strict=True), 1):
            try:
                found += read()
            except BrokenProcessPool:
                found.append((path, _line(path, path, ValueError("a process that reads was ended, maybe for memory"))))
            if progress:
                progress(number, len(every))
    recorded = [(path, job) for path, job in found if isinstance(job, RecordedJob)]
    return JobFiles(_join(recorded), [line for _, line in found if isinstance(line, str)])


def _read_all(path: Path) -> list[tuple[Path, RecordedJob | str]]:
    """Return what a file, or each one in an archive, recorded, or a line why it cannot be read."""
    found = list[tuple[Path, RecordedJob | str]]()
    with TemporaryDirectory(prefix="hpccoll-") as scratch:
        members = _members(path, Path(scratch))
        while True:
            shown = unpacked = path
            try:
                shown, unpack = next(members)
                unpacked = unpack()
                found.append((shown, _read_file(unpacked)))
            except StopIteration:
                return found
            except READ_ERRORS as error:
                found.append((shown, _line(shown, unpacked, error)))
            rmtree(scratch, ignore_errors=True)  # so that one file lies there at a time


def _line(shown: Path, unpacked: Path, error: BaseException) -> str:
    if isinstance(error, UnusableError):
        return str(error).replace(str(unpacked), str(shown))
    why = str(error) if isinstance(error, ValueError) else f"it is damaged: {type(error).__name__}: {error}"
    return str(UnusableError("FILES", f"{format_value(str(shown))} cannot be read: {why}"))


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(each for each in path.rglob("*") if not each.is_dir()) if path.is_dir() else (path,)


def _read_file(path: Path) -> RecordedJob:
    with open_regular(path, "FILES") as file:
        head = file.read(HEAD_BYTES)
        if file.seek(0, 2) > MAX_BYTES:
            raise ValueError(f"it has more than {format_size(MAX_BYTES)}")
    for reader in READERS:
        if reader.recognises(head):
            try:
                job: RecordedJob = reader.read(path)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise ValueError(f"it is damaged, or no file of {reader.SOURCE}: {error}") from None
            return job
    known = ", ".join(reader.SOURCE for reader in READERS)
    raise ValueError(f"it is {'no file of a recorded job' if head else 'empty'}; read are {known}")


def _members(path: Path, scratch: Path) -> Iterator[tuple[Path, Callable[[], Path]]]:
    """Yield a file, or each file in an archive, as people know it, and what returns the place of its content."""
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
                        target = scratch / str(number) / Path(member.name).parent.name / name
                        yield path / member.name, partial(_copied, source, target)
        elif packed:
            yield path, partial(_copied, content, scratch / path.parent.name / path.name.removesuffix(".gz"))
        else:
            yield path, lambda: path


class _Limited:
    """An archive of which little is read at once, because the header of a member may claim any size."""

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
            if file.tell() > MAX_BYTES:
                raise ValueError(f"it has more than {format_size(MAX_BYTES)}, unpacked")
    return target


@dataclass(eq=False)
class _Run:
    """Files of one job, with what tells which others are of it."""

    jobs: list[RecordedJob]
    taken_ns: int = 0
    hashes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    times: set[tuple[int, int]] = field(default_factory=set)  # of a rank and its operation: no other process has it
    threads: set[tuple[int, str]] = field(default_factory=set)  # of ranks: other processes may have the same

    def add(self, job: RecordedJob) -> None:
        """Add a file."""
        self.jobs.append(job)
        self.taken_ns = max(self.taken_ns, job.taken_ns)
        self.hashes |= {group.name for group in job.groups if not group.of_job}
        self.ranks |= {each.rank for each in job.ranks}
        if job.progress:
            self.times |= {(each.rank, each.enqueued_ns) for each in job.operations if each.enqueued_ns}
            self.threads |= {(each.rank, thread) for each in job.ranks for thread in job.threads}

    def is_of_one_job(self, other: "_Run") -> bool:
        """Return whether other files are of the same job."""
        if self.jobs[0].source != other.jobs[0].source:
            return False
        if self.hashes or other.hashes:
            return not self.hashes.isdisjoint(other.hashes)
        if self.ranks.isdisjoint(other.ranks):
            return all(job.groups for job in (self.jobs[0], other.jobs[0]))  # else nothing says of which job they are
        is_soon = abs(other.taken_ns - self.taken_ns) <= max(job.timeout_ns for job in other.jobs)
        return not self.times.isdisjoint(other.times) or (is_soon and not self.threads.isdisjoint(other.threads))


def _join(recorded: Iterable[tuple[Path, RecordedJob]]) -> list[RecordedJob]:
    """Join the files of each job.

    Files of one directory whose names differ in the number of the rank only are of one job; so are sets of different
    ranks, such as those of different hosts: of several ones those that are nearest in time. Files of the same ranks
    are of one job if they have operations in common, or soon after one another threads. Where files have NCCL's hashes,
    those that share one are of one job.
    """
    sets = dict[tuple[str, str], _Run]()
    for path, job in recorded:
        known = job.groups or (job.ranks and not any(each.status for each in job.ranks))
        numbered = known and all(group.of_job for group in job.groups)
        number = rf"(.*)(?<!\d)0*{job.ranks[0].rank}(?!\d)" if numbered and job.progress else r"()\d+"
        pattern = path.parent / re.sub(number, r"\1#", path.name) if numbered else path
        sets.setdefault((job.source, str(pattern)), _Run([])).add(job)
    joined = list[_Run]()
    for part in sorted(sets.values(), key=lambda each: (not each.taken_ns, each.taken_ns)):
        fitting = [each for each in joined if each.is_of_one_job(part)]
        if not part.hashes:  # hashes of one job may be in several of its parts
            fitting = sorted(fitting, key=lambda each: abs(each.taken_ns - part.taken_ns))[:1]
        whole, *others = *fitting, part
        for job in (job for each in others for job in each.jobs):
            whole.add(job)
        joined = [each for each in joined if each not in fitting] + [whole]
    return [_merged(each.jobs) for each in sorted(joined, key=lambda each: min(map(_order, each.jobs)))]


def _order(job: RecordedJob) -> tuple[int, int]:
    """Order the files of a rank, and reports of all, by what was launched and by when they were written."""
    return (0 if len(job.ranks) == 1 else job.taken_ns), sum(each.enqueued for each in job.progress)


def _merged(parts: Sequence[RecordedJob]) -> RecordedJob:
    """Return all parts as one job, as of the last file of each rank, and as of the file before.

    Two polls of one time are one, and a group without ranks has those that know it.
    """
    single = {-number if job.operations or not job.taken_ns else job.taken_ns: job for number, job in enumerate(parts)}
    parts, lacking = _without_outdated(sorted(_numbered([*single.values()]), key=_order))
    files = defaultdict[int, list[RecordedJob]](list)  # of each rank, one after the other
    for job in (each for each in parts if each.progress):
        for rank in job.ranks:
            files[rank.rank].append(job)
    polls = [*map(len, files.values())] or [1]
    members = dict[Group, set[int]]()
    for job in parts:
        for each in chain[Progress | RecordedOperation](job.operations, job.progress):
            if not each.group.ranks:
                members.setdefault(each.group, set()).add(each.rank)
    groups = {group: replace(group, ranks=tuple(sorted(ranks))) for group, ranks in members.items()}
    ranks = {each.rank: each for job in parts for each in job.ranks}
    windows = defaultdict[int, list[tuple[int, int]]](list)
    for record in (each for job in parts for each in job.computing):
        windows[record.rank].append(record.window_ns)
    doubled = (rank for rank, spans in windows.items() if len(union_of(spans)) < len(spans))
    lacking += [f"which ranks wrote the files of rank {rank} that are of the same time" for rank in doubled]

    def as_of(place: int) -> dict[str, Any]:
        chosen = {rank: each[-min(place, len(each))] for rank, each in files.items()}
        return {
            key: [
                each if each.group.ranks else replace(each, group=groups[each.group])
                for job in parts
                for each in getattr(job, key)
                if chosen.get(each.rank, job) is job
                and (place == 1 or key == "progress" or len(files[each.rank]) > 1)  # one file does not tell what lasts
            ]
            for key in ("operations", "progress")
        }

    return RecordedJob(
        parts[0].source,
        [ranks[number] for number in sorted(ranks)],
        computing=[each for job in parts for each in job.computing],
        cannot_say=tuple(dict.fromkeys((*lacking, *(sentence for job in parts for sentence in job.cannot_say)))),
        polls=min(polls),
        before=RecordedJob(parts[0].source, **as_of(2)) if max(polls) > 1 else None,
        **as_of(1),
    )


def _numbered(parts: Sequence[RecordedJob]) -> Iterator[RecordedJob]:
    """Yield the parts with ranks of the whole job, where files of one process each know those of a communicator."""
    numbers = number_ranks(each.place for job in parts for each in job.ranks if each.place)
    for job in parts:
        new = {each.rank: numbers[each.place] for each in job.ranks if each.place}
        moved = ("ranks", "operations", "progress") if any(rank != number for rank, number in new.items()) else ()
        lists: dict[str, Any] = {
            key: [replace(each, rank=new[each.rank]) for each in getattr(job, key)] for key in moved
        }
        yield replace(job, **lists)


def _without_outdated(parts: Sequence[RecordedJob]) -> tuple[list[RecordedJob], list[str]]:
    """Return the files of the latest run, and a sentence for each rank that died without one, and has an older one."""
    last = {each.rank: job for job in parts for each in job.ranks if job.timeout_ns > 0 and job.taken_ns}
    timed = sorted(last.values(), key=lambda job: job.taken_ns)
    gaps = [(later.taken_ns - each.taken_ns, each) for each, later in pairwise(timed)]
    outdated = timed[: max((number for number, (gap, each) in enumerate(gaps, 1) if gap > each.timeout_ns), default=0)]
    gone = dict.fromkeys(each.rank for job in outdated for each in job.ranks)
    said = [f"rank {rank} in this run: its file, older than the others, is left out" for rank in gone]
    return [job for job in parts if not any(each.rank in gone for each in job.ranks)], said
