"""A recorded job as text and as JSON: why it hangs and who waits for whom, what is slow, and what its files lack."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, TypedDict

from hpccoll.common.json_schema import record_of_fields, typed_dict
from hpccoll.common.records import to_builtins
from hpccoll.common.text import first_few
from hpccoll.common.units import format_count, format_cpu_list, format_size
from hpccoll.evidence.defects import (
    FittingDefect,
    FittingDefectJson,
    defect_sentences,
    surest_of_each,
)
from hpccoll.judge.against_curve import AgainstCurve
from hpccoll.judge.defects_of_jobs import defects_of_job
from hpccoll.render.slow_text import (
    LateRankJson,
    SlowFiguresJson,
    group_text,
    slow_json_record,
    slow_lines,
    slow_record,
)
from hpccoll.render.trace_remedies import UNNAMED_REMEDY, hang_remedy
from hpccoll.traces.hangs import BlockedRanks, Hang, Reason
from hpccoll.traces.recorded_job import Group, RecordedJob, RecordedOperation
from hpccoll.traces.slow import SlowParts


class JobFindings(NamedTuple):
    """What follows from the files of one job and format."""

    job: RecordedJob
    hangs: Sequence[Hang]
    slow: SlowParts | None = None  # None without times of operations
    against: Sequence[AgainstCurve] | None = None  # None without measurements


Sizes: TypeAlias = Mapping[object, Collection[int]]
"""The bytes that ranks named for each call of a collective: in an uneven all-to-all they differ."""
MAX_LINES, MAX_CALLS = 12, 4
"""The maximum numbers of lines of one chain of waiting, and of calls that differ; JSON has all."""

SENTENCES: Mapping[Reason, str] = {
    "not created": "{ranks} began communicator {created} and did not complete it{unseen}",
    "not joined": "{ranks} did not join {operation}",
    "behind": "the GPU or network of {ranks} is stuck: others have completed {operation}",
    "failed": "{each}{ranks} {status}",
    "circle": "{ranks} wait for one another: the first one in {operation}",
    "mismatch": "at the same time {called} in group {group}",
    "unrecorded": "nothing is recorded of {ranks}, for which others wait in {operation}",
    "older": "the files of {ranks} are older: others completed what takes all ranks; do: record all ranks at once",
    "launched": "all ranks have launched {operation}: if it does not end, the GPU or the network is stuck",
}


def trace_lines(jobs: Sequence[JobFindings]) -> Iterator[str]:
    """Yield what is known of each job: its size, why it hangs, what is slow, and what its files do not say."""
    for number, (findings, heading) in enumerate(zip(jobs, headings(jobs), strict=True)):
        if number:
            yield ""
        yield heading
        yield from hang_lines(findings)
        if findings.slow:
            yield from slow_lines(findings.slow, findings.against)
        for sentence in known_defect_sentences(findings):
            yield f"  {sentence}"
        if findings.job.cannot_say:
            facts = "; ".join(first_few(findings.job.cannot_say, 5, "fact"))
            yield f"  not recorded: {facts}"


def known_defect_sentences(findings: JobFindings) -> list[str]:
    """Return the known defects of the recorded version of NCCL that fit what is wrong."""
    return defect_sentences(_known_defects(findings), "this ")


def _known_defects(findings: JobFindings) -> list[FittingDefect]:
    return defects_of_job(findings.job, findings.hangs, findings.against or ())


def headings(jobs: Sequence[JobFindings]) -> Iterator[str]:
    """Yield the format of each job, its files if there are several jobs, below the directory of all, and its size."""
    common = os.path.commonprefix([findings.job.path for findings in jobs])  # noqa: RUF071 - paths may be relative
    below = len("".join(common.rpartition("/")[:2]))
    for findings in jobs:
        job = findings.job
        heading = job.source
        if len(jobs) > 1:
            heading += f" of {job.path[below:]}"
        counts = ", ".join(_counts(job)) or "no rank is named"
        heading += f": {counts}"
        if job.polls > 1:
            heading += f", recorded {job.polls} times"
            if not job.moved:
                heading += ", equal: nothing moved in between, unless these are copies"
        yield heading


def hang_lines(findings: JobFindings) -> Iterator[str]:
    """Yield why a job hangs; nothing if its files do not tell."""
    if findings.hangs:
        sizes = _sizes(findings.job)
        shown: set[str] = set()
        for hang in findings.hangs:
            yield from _hang_lines(hang, findings.job, sizes, shown)
    if any(hang.may_be_late(findings.job) for hang in findings.hangs):
        yield "  if the job was still running, that may only be late: record it once more, and read all of its files"
    for sentence in first_few(findings.job.unnamed_behind, 5, "group"):
        yield f"  {sentence}"
    if findings.job.unnamed_behind:
        yield f"    do: {UNNAMED_REMEDY}"
    if findings.hangs or findings.job.unnamed_behind:
        return
    yield from _peace_lines(findings.job)


def _sizes(job: RecordedJob) -> Sizes:
    sizes: dict[object, set[int]] = defaultdict(set)
    for operation in job.operations:
        if operation.bytes and operation.peer is None:
            sizes[operation.call].add(operation.bytes)
    return sizes


def _peace_lines(job: RecordedJob) -> Iterator[str]:
    """Yield that no rank waits, with what that leaves out; of a format that does not tell who waits the latter only."""
    if job.is_silent:
        yield "  whether a rank waits for another one is not known: no operation is recorded"
        return
    left_out: list[str] = []
    if job.unrecorded:
        left_out.append(
            f"nothing is recorded of {ranks_text(job.unrecorded)}; do: read their files, too"
        )
    if job.progress or not job.ranks:
        if job.idle:
            left_out.append(f"no operation is recorded of {ranks_text(job.idle)}")
        sentences = "; ".join(("no rank waits for another in these files", *left_out))
        yield f"  {sentences}"
        return
    for sentence in left_out:
        yield f"  {sentence}"


class GroupJson(TypedDict):
    """A group of ranks, as JSON has it."""

    name: str
    description: str
    ranks: Sequence[int]


class SourceJson(TypedDict):
    """What the files of a job are of, and what they lack."""

    source: str
    path: str
    files: Sequence[str]
    ranks: int
    not_joined: list[int]
    unrecorded: Sequence[int]
    cannot_say: Sequence[str]


class _HangKeys(TypedDict):
    source: str
    path: str
    hosts: list[str | None]
    polls: int
    may_be_late: bool
    remedy: str | None


class _TraceKeys(SlowFiguresJson):
    ranks: int
    operations: int
    groups: list[GroupJson]
    late: list[LateRankJson] | None
    not_joined: list[int]
    defects: list[FittingDefectJson]
    sources: list[SourceJson]


def trace_json_record() -> Any:
    """Return the type of the JSON of recorded jobs."""
    hang = record_of_fields("HangJson", Hang, changed=_HangKeys)
    slow = slow_json_record()
    hangs = list[hang]  # type: ignore[valid-type]  # made of its keys
    slow_parts = list[slow]  # type: ignore[valid-type]
    return typed_dict("TraceJson", {"hangs": hangs, "slow": slow_parts}, _TraceKeys)


def trace_record(jobs: Sequence[JobFindings]) -> Mapping[str, Any]:
    """Return all jobs as JSON has them; a figure that no file has is null."""
    groups: list[GroupJson] = []
    hangs: list[dict[str, Any]] = []
    slow: list[dict[str, Any]] = []
    for findings in jobs:
        job = findings.job
        groups += map(_group_record, job.groups)
        hangs += [_hang_record(hang, job) for hang in findings.hangs]
        if findings.slow:
            slow.append(slow_record(findings.slow, findings.against) | {"source": job.source})
    record: dict[str, Any] = {
        "ranks": max((len(findings.job.ranks) for findings in jobs), default=0),
        "operations": sum(len(findings.job.operations) for findings in jobs),
        "groups": groups,
    }
    first_slow = slow[0] if slow else {}
    for key in ("step_s", "share", "exposed", "waiting_s", "transfer_s", "late"):
        record[key] = first_slow.get(key)
    record["not_joined"] = _not_joined(jobs)
    record["hangs"] = hangs
    record["slow"] = slow
    defects = [fit for findings in jobs for fit in _known_defects(findings)]
    record["defects"] = [fit.to_json() for fit in surest_of_each(defects)]
    record["sources"] = list(map(_source_record, jobs))
    return record


def _group_record(group: Group) -> GroupJson:
    return {"name": group.name, "description": group.description, "ranks": group.ranks}


def _hang_record(hang: Hang, job: RecordedJob) -> dict[str, Any]:
    return {
        "source": job.source,
        "path": job.path,
        "hosts": _hosts(job, hang),
        "polls": job.polls,
        "may_be_late": hang.may_be_late(job),
        "remedy": hang_remedy(hang, job) or None,
        **to_builtins(hang),
    }


def _source_record(findings: JobFindings) -> SourceJson:
    job = findings.job
    return {
        "source": job.source,
        "path": job.path,
        "files": job.files,
        "ranks": len(job.ranks),
        "not_joined": _not_joined([findings]),
        "unrecorded": job.unrecorded,
        "cannot_say": job.cannot_say,
    }


def _not_joined(jobs: Iterable[JobFindings]) -> list[int]:
    ranks: set[int] = set()
    for findings in jobs:
        for hang in findings.hangs:
            if hang.reason in ("not joined", "failed"):
                ranks.update(hang.ranks)
    return sorted(ranks)


def _counts(job: RecordedJob) -> Iterator[str]:
    """Yield the numbers of ranks, groups and operations of a job, in words, without those that are 0."""
    counts = {
        "rank": sum(recorded.rank >= 0 for recorded in job.ranks),
        "group": len(job.groups),
        "operation": len(job.operations),
    }
    for noun, count in counts.items():
        if count:
            yield format_count(count, noun)


def _hosts(job: RecordedJob, hang: Hang) -> list[str | None]:
    hosts = {recorded.rank: recorded.host for recorded in job.ranks}
    return [hosts.get(rank) for rank in hang.ranks]


def _hang_lines(hang: Hang, job: RecordedJob, sizes: Sizes, shown: set[str]) -> Iterator[str]:
    """Yield why ranks are waited for, since when, and who waits for them; a wait that was ``shown`` is left out."""
    yield f"  {_hang_sentence(hang, job, sizes)}"
    if hang.operation and hang.operation.enqueued_ns:
        yield f"    {_enqueued_text(hang.operation, hang.operation.enqueued_ns)}"
    waits = []
    for wait in hang.waits:
        is_behind = wait.behind and hang.reason != "circle"
        waits.append(_wait_text(wait, sizes, "to complete" if is_behind else "in"))
    unseen = [line for line in waits if line not in shown]
    for line in first_few(unseen, MAX_LINES, "wait"):
        yield f"    {line}"
    shown.update(waits)
    remedy = hang_remedy(hang, job)
    if remedy:
        yield f"    do: {remedy}"


def _hang_sentence(hang: Hang, job: RecordedJob, sizes: Sizes) -> str:
    """Return the sentence of the reason of a hang, with its ranks, their hosts, the operation and the group."""
    place = ""
    hosts = list(dict.fromkeys(filter(None, _hosts(job, hang))))
    if hosts:
        names = ", ".join(first_few(hosts, 8, "host"))
        place = f" on {names}"
    values = {
        "ranks": f"{ranks_text(hang.ranks)}{place}",
        "each": "each of " if len(hang.ranks) > 1 else "",
        "status": hang.status,
        "called": ", ".join(first_few(_calls(hang, place), MAX_CALLS, "call")),
        "unseen": "",
        "group": "",
        "created": "",
        "operation": "",
    }
    if hang.unseen:
        values["unseen"] = f"; {format_count(hang.unseen, 'other rank')} logged no beginning"
    members = ""
    if hang.group:
        count = len(hang.group.ranks)
        if count:
            members = f", {ranks_text(hang.group.ranks)}"
        values["group"] = f"{group_text(hang.group)}{members}"
        values["created"] = f"{hang.group.name} of {format_count(count, 'rank')}"
    if hang.operation:
        values["operation"] = f"{operation_text(hang.operation, sizes)}{members}"
    return SENTENCES[hang.reason].format(**values)


def _enqueued_text(operation: RecordedOperation, enqueued_ns: int) -> str:
    """Return who enqueued an operation, when, and in which line of code if that is known."""
    since = datetime.fromtimestamp(enqueued_ns // 10**9, UTC)
    text = f"rank {operation.rank} enqueued it at {since:%Y-%m-%d %H:%M:%S} UTC"
    if operation.where:
        text += f", called at {operation.where}"
    return text


def _calls(hang: Hang, place: str) -> Iterator[str]:
    """Yield which ranks called what; ``place`` is that of the ranks for which others wait."""
    awaited = set(hang.ranks)
    for ranks, operation in hang.called:
        callers = ranks_text(ranks)
        if set(ranks) <= awaited:
            callers += place
        call = _call_text(operation)
        if operation.dtype:
            call += f" ({operation.dtype})"
        yield f"{callers} called {call}"


def _wait_text(wait: BlockedRanks, sizes: Sizes, relation: str) -> str:
    verb = "waits" if len(wait.ranks) == 1 else "wait"
    awaited = f"{ranks_text(wait.awaited)} {relation} {operation_text(wait.operation, sizes)}"
    return f"{ranks_text(wait.ranks)} {verb} for {awaited}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks as a part of a sentence: ``rank 3``, ``ranks 0-2,5``; a process if there is none."""
    if not ranks:
        return "a process"
    noun = "ranks" if len(ranks) > 1 else "rank"
    return f"{noun} {format_cpu_list(ranks)}"


def operation_text(operation: RecordedOperation, sizes: Sizes) -> str:
    """Return an operation as a part of a sentence: ``all_to_all 12 of up to 4 MiB in group dp (1)``."""
    call = _call_text(operation, sizes.get(operation.call, ()))
    return f"{call} in group {group_text(operation.group)}"


def _call_text(operation: RecordedOperation, sizes: Collection[int] = ()) -> str:
    text = operation.collective or "operation"
    if operation.sequence is not None:
        text += f" {operation.sequence}"
    largest = max(sizes, default=operation.bytes)
    if largest:
        size = format_size(largest)
        text += f" of up to {size}" if len(sizes) > 1 else f" of {size}"
    return text
