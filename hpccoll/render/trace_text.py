"""A recorded job as text and as JSON: why it hangs and who waits for whom, what is slow, and what its files lack."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from hpccoll.common.records import to_builtins
from hpccoll.common.text import first_few
from hpccoll.common.units import format_count, format_cpu_list, format_size
from hpccoll.judge.against_curve import AgainstCurve
from hpccoll.render.slow_text import group_text, slow_lines, slow_record
from hpccoll.traces.hangs import BlockedRanks, Hang, Reason
from hpccoll.traces.records import RecordedJob, RecordedOperation
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
    for number, (each, heading) in enumerate(zip(jobs, headings(jobs), strict=True)):
        yield from [""] if number else []
        yield heading
        yield from hang_lines(each)
        yield from slow_lines(each.slow, each.against) if each.slow else ()
        if each.job.cannot_say:
            yield f"  not recorded: {'; '.join(first_few(each.job.cannot_say, 5, 'fact'))}"


def headings(jobs: Sequence[JobFindings]) -> Iterator[str]:
    """Yield the format of each job, its files if there are several jobs, below the directory of all, and its size."""
    common = os.path.commonprefix([each.job.path for each in jobs])  # noqa: RUF071 - the paths may be relative
    below = len("".join(common.rpartition("/")[:2]))
    for job in (each.job for each in jobs):
        place = f" of {job.path[below:]}" if len(jobs) > 1 else ""
        equal = "" if job.moved else ", equal: nothing moved in between, unless these are copies"
        several = f", recorded {job.polls} times{equal}" if job.polls > 1 else ""
        yield f"{job.source}{place}: {', '.join(_size(job)) or 'no rank is named'}{several}"


def hang_lines(findings: JobFindings) -> Iterator[str]:
    """Yield why a job hangs; nothing if its files do not tell."""
    sizes, shown = defaultdict[object, set[int]](set), set[str]()
    for each in findings.job.operations if findings.hangs else ():
        if each.bytes and each.peer is None:
            sizes[each.call].add(each.bytes)
    for hang in findings.hangs:
        yield from _hang_lines(hang, findings.job, sizes, shown)
    if any(hang.may_be_late(findings.job) for hang in findings.hangs):
        yield "  if the job was still running, that may only be late: record it once more, and read all of its files"
    for sentence in first_few(findings.job.unnamed_behind, 5, "group"):
        yield f"  {sentence}"
    if findings.hangs or findings.job.unnamed_behind:
        return
    yield from _peace_lines(findings.job)


def _peace_lines(job: RecordedJob) -> Iterator[str]:
    """Yield that no rank waits, with what that leaves out; of a format that does not tell who waits the latter only."""
    if job.is_silent:
        yield "  whether a rank waits for another one is not known: no operation is recorded"
        return
    left_out = list[str]()
    if job.unrecorded:
        left_out.append(f"nothing is recorded of {ranks_text(job.unrecorded)}")
    if job.progress or not job.ranks:
        left_out += [f"no operation is recorded of {ranks_text(job.idle)}"] if job.idle else []
        yield f"  {'; '.join(('no rank waits for another one, as far as these files say', *left_out))}"
        return
    yield from (f"  {sentence}" for sentence in left_out)


def trace_record(jobs: Sequence[JobFindings]) -> Mapping[str, Any]:
    """Return all jobs as JSON has them; a figure that no file has is null."""
    slow = [slow_record(each.slow, each.against) | {"source": each.job.source} for each in jobs if each.slow]
    first = slow[0] if slow else {}
    return {
        "ranks": max((len(each.job.ranks) for each in jobs), default=0),
        "operations": sum(len(each.job.operations) for each in jobs),
        "groups": [
            {"name": group.name, "description": group.description, "ranks": group.ranks}
            for each in jobs
            for group in each.job.groups
        ],
        **{key: first.get(key) for key in ("step_s", "share", "exposed", "waiting_s", "transfer_s", "late")},
        "not_joined": _not_joined(*jobs),
        "hangs": [
            {
                "source": each.job.source,
                "path": each.job.path,
                "hosts": _hosts(each.job, hang),
                "polls": each.job.polls,
                "may_be_late": hang.may_be_late(each.job),
                **to_builtins(hang),
            }
            for each in jobs
            for hang in each.hangs
        ],
        "slow": slow,
        "sources": [
            {
                "source": each.job.source, "path": each.job.path, "files": each.job.files,
                "ranks": len(each.job.ranks), "not_joined": _not_joined(each), "unrecorded": each.job.unrecorded,
                "cannot_say": each.job.cannot_say,
            }
            for each in jobs
        ],
    }  # fmt: skip


def _not_joined(*jobs: JobFindings) -> list[int]:
    hangs = (hang for each in jobs for hang in each.hangs if hang.reason in ("not joined", "failed"))
    return sorted({rank for hang in hangs for rank in hang.ranks})


def _size(job: RecordedJob) -> Iterator[str]:
    counts = {
        "rank": sum(each.rank >= 0 for each in job.ranks),
        "group": len(job.groups),
        "operation": len(job.operations),
    }
    yield from (format_count(count, noun) for noun, count in counts.items() if count)


def _hosts(job: RecordedJob, hang: Hang) -> list[str | None]:
    hosts = {each.rank: each.host for each in job.ranks}
    return [hosts.get(rank) for rank in hang.ranks]


def _hang_lines(hang: Hang, job: RecordedJob, sizes: Sizes, shown: set[str]) -> Iterator[str]:
    """Yield why ranks are waited for, since when, and who waits for them; a wait that was ``shown`` is left out."""
    yield f"  {_hang_sentence(hang, job, sizes)}"
    if hang.operation and hang.operation.enqueued_ns:
        yield f"    {_enqueued_text(hang.operation, hang.operation.enqueued_ns)}"
    verb = "in" if hang.reason == "circle" else "to complete"
    waits = [_wait_text(wait, sizes, verb if wait.behind else "in") for wait in hang.waits]
    unseen = [line for line in waits if line not in shown]
    for line in first_few(unseen, MAX_LINES, "wait"):
        yield f"    {line}"
    shown.update(waits)


def _hang_sentence(hang: Hang, job: RecordedJob, sizes: Sizes) -> str:
    """Return the sentence of the reason of a hang, with its ranks, their hosts, the operation and the group."""
    hosts = [*dict.fromkeys(host for host in _hosts(job, hang) if host)]
    place = f" on {', '.join(first_few(hosts, 8, 'host'))}" if hosts else ""
    values = {
        "ranks": f"{ranks_text(hang.ranks)}{place}",
        "each": "each of " if len(hang.ranks) > 1 else "",
        "status": hang.status,
        "called": ", ".join(first_few(_calls(hang, place), MAX_CALLS, "call")),
        "unseen": f"; {format_count(hang.unseen, 'other rank')} logged no beginning" if hang.unseen else "",
        **dict.fromkeys(("group", "created", "operation"), ""),
    }
    members = ""
    if hang.group:
        count = len(hang.group.ranks)
        members = f", {ranks_text(hang.group.ranks)}" if count else ""
        values["group"] = f"{group_text(hang.group)}{members}"
        values["created"] = f"{hang.group.name} of {format_count(count, 'rank')}"
    if hang.operation:
        values["operation"] = f"{operation_text(hang.operation, sizes)}{members}"
    return SENTENCES[hang.reason].format(**values)


def _enqueued_text(operation: RecordedOperation, enqueued_ns: int) -> str:
    """Return who enqueued an operation, when, and in which line of code if that is known."""
    since = datetime.fromtimestamp(enqueued_ns // 10**9, UTC)
    place = f", called at {operation.where}" if operation.where else ""
    return f"rank {operation.rank} enqueued it at {since:%Y-%m-%d %H:%M:%S} UTC{place}"


def _calls(hang: Hang, place: str) -> Iterator[str]:
    for ranks, each in hang.called:
        where = place if {*ranks} <= {*hang.ranks} else ""
        yield f"{ranks_text(ranks)}{where} called {_call_text(each)}{f' ({each.dtype})' if each.dtype else ''}"


def _wait_text(wait: BlockedRanks, sizes: Sizes, what: str) -> str:
    verb = "waits" if len(wait.ranks) == 1 else "wait"
    awaited = f"{ranks_text(wait.awaited)} {what} {operation_text(wait.operation, sizes)}"
    return f"{ranks_text(wait.ranks)} {verb} for {awaited}"


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks as a part of a sentence: ``rank 3``, ``ranks 0-2,5``; a process if there is none."""
    if not ranks:
        return "a process"
    return f"rank{'s' if len(ranks) > 1 else ''} {format_cpu_list(ranks)}"


def operation_text(operation: RecordedOperation, sizes: Sizes) -> str:
    """Return an operation as a part of a sentence: ``all_to_all 12 of up to 4 MiB in group dp (1)``."""
    return f"{_call_text(operation, sizes.get(operation.call, ()))} in group {group_text(operation.group)}"


def _call_text(operation: RecordedOperation, sizes: Collection[int] = ()) -> str:
    largest = max(sizes, default=operation.bytes)
    size = f" of {'up to ' if len(sizes) > 1 else ''}{format_size(largest)}" if largest else ""
    name = f"{operation.collective or 'operation'} {'' if operation.sequence is None else operation.sequence}".strip()
    return f"{name}{size}"
