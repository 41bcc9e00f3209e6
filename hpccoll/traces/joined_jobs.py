"""The files of a job joined: which are of one job, and of one rank one after the other."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from hpccoll.traces.records import Group, Progress, RecordedJob, RecordedOperation, number_ranks, union_of


@dataclass(eq=False)
class _Run:
    """Files of one job, with what tells which others are of it."""

    jobs: list[RecordedJob]
    taken_ns: int = 0
    hashes: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    threads: set[tuple[int, str]] = field(default_factory=set)  # of ranks: other processes may have the same

    def add(self, job: RecordedJob) -> None:
        """Add a file."""
        self.jobs.append(job)
        self.taken_ns = max(self.taken_ns, job.taken_ns)
        self.hashes |= {group.name for group in job.groups if not group.of_job}
        self.ranks |= {each.rank for each in job.ranks}
        if job.progress:
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
        if not self.call_times().isdisjoint(other.call_times()):
            return True
        return is_soon and not self.threads.isdisjoint(other.threads)

    def call_times(self) -> set[tuple[int, int]]:
        """Return the times at which ranks enqueued their operations: no process of another job has the same."""
        times = set[tuple[int, int]]()
        for job in self.jobs:
            if job.progress:
                times |= {(each.rank, each.enqueued_ns) for each in job.operations if each.enqueued_ns}
        return times


def joined_jobs(recorded: Iterable[tuple[Path, RecordedJob]]) -> list[RecordedJob]:
    """Return the jobs of files, with what each of these recorded.

    Files of one directory whose names differ in the number of the rank only are of one job; so are sets of different
    ranks, such as those of different hosts: of several ones those that are nearest in time. Files of the same ranks
    are of one job if they have operations in common, or soon after one another threads. Where files have NCCL's hashes,
    those that share one are of one job.
    """
    sets = dict[tuple[str, str], _Run]()
    for path, job in sorted(recorded, key=_place):
        known = job.groups or (job.ranks and not any(each.status for each in job.ranks))
        numbered = known and all(group.of_job for group in job.groups)
        number = rf"(.*)(?<!\d)0*{job.ranks[0].rank}(?!\d)" if numbered and job.progress else r"()\d+"
        pattern = path.parent / re.sub(number, r"\1#", path.name) if numbered else path
        sets.setdefault((job.source, str(pattern)), _Run([])).add(replace(job, files=(str(path),)))
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


def _place(recorded: tuple[Path, RecordedJob]) -> tuple[str, int, Path]:
    """Order files where nothing else does, so that it does not matter in which order they are given."""
    path, job = recorded
    return job.source, min((each.rank for each in job.ranks), default=-1), path


def _order(job: RecordedJob) -> tuple[int, int]:
    """Order the files of a rank, and reports of all, by what was launched and by when they were written."""
    return (0 if len(job.ranks) == 1 else job.taken_ns), sum(each.enqueued for each in job.progress)


def _merged(parts: Sequence[RecordedJob]) -> RecordedJob:
    """Return all parts as one job, as of the last file of each rank, and as of the file before.

    Two polls of one time are one, and a group without ranks has those that know it.
    """
    paths = sorted({path for job in parts for path in job.files})
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
        unnamed_behind=_unnamed_behind(parts),
        polls=min(polls),
        before=RecordedJob(parts[0].source, **as_of(2)) if max(polls) > 1 else None,
        files=paths,
        **as_of(1),
    )


def _unnamed_behind(parts: Sequence[RecordedJob]) -> Sequence[str]:
    sentences = dict[str, None]()  # in their order
    for job in parts:
        sentences |= dict.fromkeys(job.unnamed_behind)
    return [*sentences]


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
