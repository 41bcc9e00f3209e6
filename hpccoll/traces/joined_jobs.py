"""The files of a job joined: which are of one job, and of one rank one after the other."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from msgspec import structs

from hpccoll.traces.recorded_job import (
    Computing,
    Group,
    Progress,
    RecordedJob,
    RecordedOperation,
    number_ranks,
    union_of,
)


@dataclass(eq=False)
class _Run:
    """Files of one job, with what tells which others are of it."""

    jobs: list[RecordedJob]
    taken_ns: int = 0
    hashes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    # of ranks: other processes may have the same
    threads: set[tuple[int, str]] = field(default_factory=set)

    def add(self, job: RecordedJob) -> None:
        """Add a file."""
        self.jobs.append(job)
        self.taken_ns = max(self.taken_ns, job.taken_ns)
        for group in job.groups:
            if not group.has_job_ranks:
                self.hashes.add(group.name)
        ranks = {rank.rank for rank in job.ranks}
        self.ranks |= ranks
        if job.progress:
            for rank in ranks:
                for thread in job.threads:
                    self.threads.add((rank, thread))

    def is_of_one_job(self, run: "_Run") -> bool:
        """Return whether other files are of the same job."""
        if self.jobs[0].source != run.jobs[0].source:
            return False
        if self.hashes or run.hashes:
            return not self.hashes.isdisjoint(run.hashes)
        if self.ranks.isdisjoint(run.ranks):
            # else nothing says whose files they are
            return bool(self.jobs[0].groups and run.jobs[0].groups)
        if not self.call_times().isdisjoint(run.call_times()):
            return True
        is_soon = abs(run.taken_ns - self.taken_ns) <= max(job.timeout_ns for job in run.jobs)
        return is_soon and not self.threads.isdisjoint(run.threads)

    def call_times(self) -> set[tuple[int, int]]:
        """Return the times at which ranks enqueued their operations: no process of another job has the same."""
        times = set[tuple[int, int]]()
        for job in self.jobs:
            if job.progress:
                for call in job.operations:
                    if call.enqueued_ns:
                        times.add((call.rank, call.enqueued_ns))
        return times


def joined_jobs(recorded: Iterable[tuple[Path, RecordedJob]]) -> list[RecordedJob]:
    """Return the jobs of files, with what each file recorded.

    Files of one directory are of one job if their names differ in the number of the rank only. Such
    sets of files are of one job, too, if their ranks differ, as those of different hosts do; if
    several sets fit, the nearest in time is taken. Sets of the same ranks are of one job if they
    have operations in common, or threads soon after one another. Where files have NCCL's hashes,
    those that share one are of one job.
    """
    sets = dict[tuple[str, str], _Run]()
    for path, job in sorted(recorded, key=_place):
        run = sets.setdefault((job.source, _set_name(path, job)), _Run([]))
        run.add(replace(job, files=(str(path),)))
    joined = list[_Run]()
    for run in sorted(sets.values(), key=lambda run: (not run.taken_ns, run.taken_ns)):
        joined = _joined_with(run, joined)
    return [_merged(run.jobs) for run in sorted(joined, key=lambda run: min(map(_order, run.jobs)))]


def _set_name(path: Path, job: RecordedJob) -> str:
    """Return the path of a file, without the number of its rank if its set differs in that only."""
    has_status = any(rank.status for rank in job.ranks)
    groups = job.groups
    is_numbered = (groups or (job.ranks and not has_status)) and all(
        group.has_job_ranks for group in groups
    )
    if not is_numbered:
        return str(path)
    number = r"()\d+"
    if job.progress:
        number = rf"(.*)(?<!\d)0*{job.ranks[0].rank}(?!\d)"
    return str(path.parent / re.sub(number, r"\1#", path.name))


def _joined_with(run: _Run, joined: Sequence[_Run]) -> list[_Run]:
    """Return the joined runs with another one, which is added to those of the same job."""
    fitting = [earlier for earlier in joined if earlier.is_of_one_job(run)]
    if not run.hashes:  # hashes of one job may be in several of its parts
        fitting = sorted(fitting, key=lambda earlier: abs(earlier.taken_ns - run.taken_ns))[:1]
    whole, *later = *fitting, run
    for part in later:
        for job in part.jobs:
            whole.add(job)
    return [earlier for earlier in joined if earlier not in fitting] + [whole]


def _place(recorded: tuple[Path, RecordedJob]) -> tuple[str, int, Path]:
    """Order files where nothing else does, so that it does not matter in which order they are given."""
    path, job = recorded
    first_rank = min((rank.rank for rank in job.ranks), default=-1)
    return job.source, first_rank, path


def _order(job: RecordedJob) -> tuple[int, int]:
    """Order the files of a rank, and reports of all, by what was launched and by when they were written."""
    launched = sum(counted.enqueued for counted in job.progress)
    if len(job.ranks) == 1:
        return 0, launched
    return job.taken_ns, launched


def _merged(parts: Sequence[RecordedJob]) -> RecordedJob:
    """Return all parts as one job, as of the last file of each rank, and as of the file before.

    Two polls of one time are one, and a group without ranks has those that know it.
    """
    paths = sorted({path for job in parts for path in job.files})
    in_order = sorted(_numbered(_without_repeated_polls(parts)), key=_order)
    parts, lacking = _without_outdated(in_order)
    source = parts[0].source
    files = _counting_files(parts)
    polls = [len(jobs) for jobs in files.values()] or [1]
    groups = _groups_with_ranks(parts)
    before = None
    if max(polls) > 1:
        before = RecordedJob(source, **_as_of(2, parts, files, groups))
    ranks = {}
    computing: list[Computing] = []
    for job in parts:
        computing += job.computing
        for rank_of_job in job.ranks:
            ranks[rank_of_job.rank] = rank_of_job
    for rank in _ranks_with_overlapping_windows(computing):
        lacking.append(f"which ranks wrote the files of rank {rank} that are of the same time")
    for job in parts:
        lacking += job.cannot_say
    return RecordedJob(
        source,
        [ranks[number] for number in sorted(ranks)],
        computing=computing,
        cannot_say=tuple(dict.fromkeys(lacking)),
        unnamed_behind=_unnamed_behind(parts),
        polls=min(polls),
        before=before,
        files=paths,
        nccl=_common_version(parts),
        **_as_of(1, parts, files, groups),
    )


def _common_version(parts: Sequence[RecordedJob]) -> str:
    """Return the version of NCCL that all parts with one record; empty if there are several."""
    versions = {job.nccl for job in parts if job.nccl}
    if len(versions) != 1:
        return ""
    return versions.pop()


def _without_repeated_polls(parts: Sequence[RecordedJob]) -> list[RecordedJob]:
    """Return the parts with the last one only of reports of one time that have counts and no operations."""
    single: dict[int, RecordedJob] = {}
    for number, job in enumerate(parts):
        is_poll = bool(job.taken_ns) and not job.operations
        single[job.taken_ns if is_poll else -number] = job
    return list(single.values())


def _counting_files(parts: Sequence[RecordedJob]) -> dict[int, list[RecordedJob]]:
    """Return the files of each rank that count operations, one after the other."""
    files: dict[int, list[RecordedJob]] = {}
    for job in parts:
        if job.progress:
            for rank in job.ranks:
                files.setdefault(rank.rank, []).append(job)
    return files


def _groups_with_ranks(parts: Sequence[RecordedJob]) -> dict[Group, Group]:
    """Return the groups whose ranks no file names, with the ranks that recorded anything of them."""
    members = dict[Group, set[int]]()
    for job in parts:
        for record in chain[Progress | RecordedOperation](job.operations, job.progress):
            if not record.group.ranks:
                members.setdefault(record.group, set()).add(record.rank)
    return {group: replace(group, ranks=tuple(sorted(ranks))) for group, ranks in members.items()}


def _ranks_with_overlapping_windows(computing: Iterable[Computing]) -> list[int]:
    """Return the ranks that seem to have recorded twice at one time: two ranks have the same number."""
    windows = defaultdict[int, list[tuple[int, int]]](list)
    for record in computing:
        windows[record.rank].append(record.window_ns)
    return [rank for rank, spans in windows.items() if len(union_of(spans)) < len(spans)]


def _as_of(
    place: int,
    parts: Sequence[RecordedJob],
    files: Mapping[int, Sequence[RecordedJob]],
    groups: Mapping[Group, Group],
) -> dict[str, Any]:
    """Return the operations and the progress of each rank as of its last file but ``place`` - 1.

    One file of a rank does not tell which of its operations last: they are left out as of an
    earlier file.
    """
    chosen = {rank: jobs[-min(place, len(jobs))] for rank, jobs in files.items()}
    has_earlier = {rank for rank, jobs in files.items() if len(jobs) > 1}
    operations = []
    progress = []
    for job in parts:
        for call in job.operations:
            rank = call.rank
            if chosen.get(rank, job) is job and (place == 1 or rank in has_earlier):
                operations.append(
                    call if call.group.ranks else structs.replace(call, group=groups[call.group])
                )
        for counted in job.progress:
            if chosen.get(counted.rank, job) is job:
                group = groups.get(counted.group, counted.group)
                progress.append(counted if counted.group.ranks else replace(counted, group=group))
    return {"operations": operations, "progress": progress}


def _unnamed_behind(parts: Sequence[RecordedJob]) -> Sequence[str]:
    sentences = dict[str, None]()  # in their order
    for job in parts:
        sentences |= dict.fromkeys(job.unnamed_behind)
    return list(sentences)


def _numbered(parts: Sequence[RecordedJob]) -> Iterator[RecordedJob]:
    """Yield the parts with ranks of the whole job, where files of one process each know those of a communicator."""
    numbers = number_ranks(rank.place for job in parts for rank in job.ranks if rank.place)
    for job in parts:
        new = {rank.rank: numbers[rank.place] for rank in job.ranks if rank.place}
        moved: dict[str, Any] = {}
        if any(rank != number for rank, number in new.items()):
            moved["operations"] = [
                structs.replace(call, rank=new[call.rank]) for call in job.operations
            ]
            for name in ("ranks", "progress"):
                records = getattr(job, name)
                moved[name] = [replace(record, rank=new[record.rank]) for record in records]
        yield replace(job, **moved)


def _without_outdated(parts: Sequence[RecordedJob]) -> tuple[list[RecordedJob], list[str]]:
    """Return the files of the latest run, and a sentence for each rank that died without one, and has an older one."""
    last: dict[int, RecordedJob] = {}
    for job in parts:
        if job.timeout_ns > 0 and job.taken_ns:
            last |= dict.fromkeys((rank.rank for rank in job.ranks), job)
    timed = sorted(last.values(), key=lambda job: job.taken_ns)
    outdated = 0  # the number of files before the last gap that is longer than the timeout
    for number, (job, later) in enumerate(pairwise(timed), 1):
        if later.taken_ns - job.taken_ns > job.timeout_ns:
            outdated = number
    gone = dict.fromkeys(rank.rank for job in timed[:outdated] for rank in job.ranks)
    sentences = [
        f"rank {rank} in this run: its file, older than the others, is left out" for rank in gone
    ]
    kept = []
    for job in parts:
        if gone.keys().isdisjoint(rank.rank for rank in job.ranks):
            kept.append(job)
    return kept, sentences
