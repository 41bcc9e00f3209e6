"""Logs of NCCL with NCCL_DEBUG=INFO: how many collectives of each type each rank has called, without times.

The subsystem COLL logs a line for each call, INIT one for each rank of a communicator; the address
of a communicator is that of one process, its commId (from 2.16) is equal on all ranks.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hpccoll.common.files import read_lines
from hpccoll.common.limits import LOG_BYTES, RANKS
from hpccoll.evidence.log_message import has_header, split_messages
from hpccoll.traces.job_file import check_members
from hpccoll.traces.recorded_job import (
    ANY,
    Group,
    Progress,
    Rank,
    RecordedJob,
    number_ranks,
    pid_of,
)
from hpccoll.traces.torch_names import collective_of_torch

SOURCE = "NCCL_DEBUG log"

_CALL = re.compile(
    r"(?P<function>(?!Send:|Recv:)\w+): opCount (?P<number>[0-9a-f]{1,16}) sendbuff .* comm (?P<comm>0x[0-9a-f]+) "
)
_MEMBER = re.compile(
    r"(?:\w+ )*comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d{1,6}) n[rR]anks (?P<ranks>\d{1,6}) .*?"
    r"commId (?P<id>0x[0-9a-f]+) - Init (?P<event>\w+)"
)

_BANNER = re.compile(r"^NCCL version (\d+(?:\.\d+)+)")
_MEMBER_OF_OLDER = re.compile(r"(?:\w+ )*comm 0x[0-9a-f]+ rank \d{1,6} n[rR]anks \d{1,6} .*- Init ")


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a log of NCCL."""
    return any(
        has_header(line) for line in head.decode(errors="replace").splitlines() if " NCCL " in line
    )


def read(path: Path) -> RecordedJob:
    """Return how many collectives the ranks whose processes wrote a log have called.

    Raises:
        ValueError: if it cannot be read, or logs no communicator.
    """
    members: dict[tuple[str, str], re.Match[str]] = {}  # by process and address of the communicator
    calls: Counter[tuple[str, str, str]] = Counter()
    hosts: dict[str, str | None] = {}
    first: dict[tuple[str, str], int] = {}  # the number of the first call of a communicator
    without_ids = False  # whether it has lines of communicators of NCCL before 2.16
    # the communicators that were begun, and neither completed nor used
    incomplete = set[tuple[str, str]]()
    lines = read_lines(path, "FILES", LOG_BYTES)
    versions = set[str]()
    for message in split_messages(line for line in lines if "NCCL" in line):
        versions.update(_BANNER.findall(message.text))
        if match := _MEMBER.match(message.text):
            members[message.writer, match["comm"]] = match
            hosts[message.writer] = message.host
            incomplete.discard((message.writer, match["comm"]))
            if match["event"] == "START":
                incomplete.add((message.writer, match["comm"]))
        elif _MEMBER_OF_OLDER.match(message.text):
            without_ids = True
        elif match := _CALL.match(message.text):
            writer, comm = message.writer, match["comm"]
            incomplete.discard((writer, comm))
            first.setdefault((writer, comm), int(match["number"], 16))
            calls[writer, comm, match["function"]] += 1
    if not members and without_ids:
        raise ValueError(
            "NCCL before 2.16 logs no commId: which processes share a communicator is not known"
        )
    if not members:
        raise ValueError(
            "it has no line of a communicator and its ranks; do: log with NCCL_DEBUG_SUBSYS=INIT,COLL"
        )
    groups = _groups_by_id(members.values())
    places = _places(members, hosts)
    numbers = number_ranks(places.values())
    progress = []
    for (writer, comm, function), count in _counts(members, calls, first):
        counted = Progress(
            rank=numbers[places[writer]],
            group=groups[members[writer, comm]["id"]],
            enqueued=count,
            completed=None,
            collective=collective_of_torch(function) if function else ANY,
            is_created=(writer, comm) not in incomplete,
        )
        progress.append(counted)
    ranks = tuple(
        Rank(numbers[place], hosts[writer], place=place, pid=_pid(writer))
        for writer, place in places.items()
    )
    unnamed = sum(
        count for (writer, comm, _), count in calls.items() if (writer, comm) not in members
    )
    cannot_say = _cannot_say(path, unnamed, has_calls=bool(calls), begun_late=any(first.values()))
    job = RecordedJob(SOURCE, ranks, progress=progress, cannot_say=tuple(cannot_say))
    return replace(job, nccl=_only_version(versions))


def _only_version(versions: Collection[str]) -> str:
    """Return the version that a log names; empty if it names several, or none."""
    if len(versions) != 1:
        return ""
    return next(iter(versions))


def _counts(
    members: Mapping[tuple[str, str], re.Match[str]],
    calls: Mapping[tuple[str, str, str], int],
    first: Mapping[tuple[str, str], int],
) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield how often each process called each function of a communicator whose first call was logged.

    A communicator without calls has one count, of no function.
    """
    for (writer, comm, function), count in calls.items():
        if (writer, comm) in members and not first.get((writer, comm)):
            yield (writer, comm, function), count
    for writer, comm in sorted(members.keys() - first.keys()):
        yield (writer, comm, ""), 0


def _groups_by_id(members: Collection[re.Match[str]]) -> dict[str, Group]:
    """Return the communicators of a log, by their ids."""
    sizes = {member["id"]: min(int(member["ranks"]), RANKS.maximum) for member in members}
    check_members(sizes.values())
    return {
        name: Group(name.removeprefix("0x"), tuple(range(size)), has_job_ranks=False)
        for name, size in sizes.items()
    }


def _pid(writer: str) -> int | None:
    """Return the process id of ``HOST:PID``; None of a writer whose process no header names."""
    _, _, process = writer.rpartition(":")
    return pid_of(process)


def _places(
    members: Mapping[tuple[str, str], re.Match[str]], hosts: Mapping[str, str | None]
) -> dict[str, tuple[str, int, str]]:
    """Return the place of each process: its host, and its rank in its largest communicator."""
    largest: dict[str, re.Match[str]] = {}
    for (writer, _), member in members.items():
        if writer not in largest or int(member["ranks"]) > int(largest[writer]["ranks"]):
            largest[writer] = member
    return {
        writer: (hosts[writer] or "", int(member["rank"]), writer)
        for writer, member in largest.items()
    }


def _cannot_say(path: Path, unnamed: int, *, has_calls: bool, begun_late: bool) -> Iterator[str]:
    yield "times of operations, and which of the calls have completed"
    if not has_calls:
        yield "calls of collectives, which NCCL logs with NCCL_DEBUG_SUBSYS=INIT,COLL"
    if unnamed:
        yield f"the ranks of the communicators of {unnamed} calls in {path.name}"
    if begun_late:
        yield f"the first calls of a communicator in {path.name}, whose counts are left out"
