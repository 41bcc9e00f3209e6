"""Reports of NCCL's RAS: how many operations of each type every rank of each communicator has launched.

Sources: ``src/ras/client_support.cc`` of NCCL 2.24 to 2.32 and its user guide, "RAS". A file is one
poll, as JSON or as text. Launches are counted on the host: a lower count is late or absent, an
equal one says nothing about the GPU.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from hpccoll.common.files import read_bytes, to_utf8
from hpccoll.common.units import format_count
from hpccoll.traces.job_file import check_members
from hpccoll.traces.recorded_job import ANY, Group, Progress, Rank, RecordedJob, pid_of

SOURCE = "NCCL RAS"
MAX_REPORT_BYTES = 32 << 20
NO_COMMUNICATOR = "it reports no communicator; do: ask again while the job runs"
UNCOUNTED = "messages, all-to-alls, gathers and scatters, which NCCL does not count, nor operations of CUDA graphs"

COLLECTIVES = {
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllReduce": "all_reduce",
    "collective": ANY,
}
_SIGNS = re.compile(
    rb'"communicators_count"|^Group +Comms +Nodes|launched up to operation|No communicator data collected',
    re.MULTILINE,
)
_VERSION = re.compile(r"^NCCL version (\d+(?:\.\d+)+)", re.MULTILINE)
_WITHOUT_COMMA = re.compile(rb'("nvml_dev"\s*:\s*-?\d+)(\s*")')
_BLOCK = re.compile(r"#(\d+)-\d+ \(([0-9a-f]{1,16})\) (MISMATCH|INCOMPLETE|ERROR)")
_TYPE = re.compile(r"Communicator ranks have different (\w+) operation counts")
_LAUNCHED = r"ha(?:s|ve) (?:launched up to operation (\d{1,18})|not launched any)"
_SEVERAL = re.compile(rf"(\d{{1,9}}) ranks? {_LAUNCHED}")
_RANK = re.compile(
    rf"Rank (\d{{1,9}}) (?:{_LAUNCHED}\D*?)?-- "
    r"(?:GPU \S+ managed by process (?P<pid>\d{1,9}) on node (?P<host>\S+)|\[)"
)
_MISSING = re.compile(r"Missing communicator data from (\d{1,9}) ranks?")
_MISSING_RANKS = re.compile(r"The missing ranks?: ([\d ,-]+)")
"""What NCCL 2.24 writes; later ones write a line for each rank, with its process."""
_PROCESS = re.compile(r"Process (\d{1,9}) on node (\S+) managing GPUs? .*")

_TIMEOUT = re.compile(
    r".*\[Rank (\d{1,9})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,40})"
)
"""A line of PyTorch's watchdog, which lands in the same output."""

TABLE_COLUMNS = 8
"""Of the summary: group, communicators in it, nodes, ranks on a node, ranks, ranks in the group, status, errors."""
SILENT = "INCOMPLETE"
"""What the summary and a block say of a communicator if some of its ranks report nothing."""
SUCCESS, IN_PROGRESS = 0, 7  # ncclResult_t

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=1 << 62)]
Place: TypeAlias = tuple[str, int, int]
"""Host, process and GPU: what the communicators of a process have in common."""


@dataclass
class _Member:
    rank: Number
    host: str = ""
    pid: Number = 0
    cuda_dev: Number = 0
    status: Mapping[str, Number | bool] = field(default_factory=dict)
    collective_counts: Mapping[str, Number] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return self.host, self.pid, self.cuda_dev


@dataclass
class _Communicator:
    hash: str
    size: Number
    secondary_hash: str = ""
    ranks: Sequence[_Member] = ()
    missing_ranks: Sequence[_Member] = ()


@dataclass
class _Report:
    communicators: Sequence[_Communicator]
    timestamp: str = ""
    nccl_version: str = ""


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is the output of ncclras."""
    return bool(_SIGNS.search(head)) and b"NCCL INFO" not in head


def read(path: Path) -> RecordedJob:
    """Return one poll; ranks are numbered as in the largest communicator.

    Raises:
        ValueError: if the file is not a report, or is damaged; msgspec's errors are such, too.
    """
    content = to_utf8(read_bytes(path, "FILES", MAX_REPORT_BYTES))
    if not content.lstrip().startswith(b"{"):
        return _read_text(content.decode(errors="replace"))
    # NCCL 2.28.7 to 2.28.9 leave out the comma before the status of a missing rank
    return _to_job(msgspec.json.decode(_WITHOUT_COMMA.sub(rb"\1,\2", content), type=_Report))


def _to_job(report: _Report) -> RecordedJob:
    if not report.communicators:
        raise ValueError(NO_COMMUNICATOR)
    communicators = sorted(
        report.communicators, key=lambda comm: (-comm.size, comm.hash, comm.secondary_hash)
    )
    largest = communicators[0]
    numbers: dict[Place, int] = {}
    ranks: dict[int, Rank] = {}
    progress: list[Progress] = []
    for communicator in communicators:
        unused = count(max(numbers.values(), default=-1) + 1)
        members = sorted(
            (*communicator.ranks, *communicator.missing_ranks), key=lambda member: member.rank
        )
        for member in members:
            if member.place not in numbers:
                if communicator is largest:
                    numbers[member.place] = member.rank
                else:
                    numbers[member.place] = next(unused)
        absent = {member.place for member in communicator.missing_ranks}
        for member in members:
            number = numbers[member.place]
            status = _status(member, missing=member.place in absent)
            if number not in ranks or status:
                pid = pid_of(str(member.pid))
                ranks[number] = Rank(number, member.host or None, status, pid=pid)
        name = f"{communicator.hash} {communicator.secondary_hash}".strip()
        group = Group(name, tuple(numbers[member.place] for member in members), has_job_ranks=False)
        for member in communicator.ranks:
            number = numbers[member.place]
            for function, launched in member.collective_counts.items():
                progress.append(
                    Progress(number, group, launched, None, COLLECTIVES.get(function, function))
                )
    return RecordedJob(
        SOURCE,
        ranks=[ranks[number] for number in sorted(ranks)],
        progress=progress,
        taken_ns=_time(report.timestamp),
        cannot_say=(UNCOUNTED,),
        nccl=report.nccl_version,
    )


def _status(member: _Member, *, missing: bool) -> str | None:
    status = member.status
    if missing:
        words = {"considered_dead": "is considered dead", "unresponsive": "does not answer"}
        return next(
            (text for key, text in words.items() if status.get(key)),
            "reports nothing of the communicator",
        )
    errors = [status.get(key, 0) for key in ("init_state", "async_error")]
    for error in errors:
        if error not in (SUCCESS, IN_PROGRESS):
            return f"reports NCCL error {error}"
    return "has aborted" if status.get("abort_flag") else None


def _time(text: str) -> int:
    """Return a time of the report, which has no zone, as nanoseconds, 0 if it has none: for the order of polls only."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9
    except ValueError:
        return 0


def _read_text(text: str) -> RecordedJob:
    """Return a report in words: it names ranks only where a few of them differ from the others."""
    report = _TextReport()
    for line in text.splitlines():
        report.read(line.strip())
    if not (report.sizes or report.blocks or report.processes):
        raise ValueError(NO_COMMUNICATOR)
    check_members(report.blocks.values())
    check_members((number for classes in report.launched.values() for number, _, _ in classes))
    version = _VERSION.search(text)
    if version is None:
        return report.to_job()
    return replace(report.to_job(), nccl=version[1])


def _listed_ranks(text: str) -> Sequence[int]:
    """Return the ranks of a list such as ``1, 4-6``."""
    spans = [
        (int(first), int(last or first))
        for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    ]
    check_members(last - first + 1 for first, last in spans)
    ranks = list[int]()
    for first, last in spans:
        ranks += range(first, last + 1)
    return ranks


class _TextReport:
    """What is known from the lines of a report that were read."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}  # by group of the summary
        self.errors: dict[str, str] = {}  # likewise, such as "OK" or "INCOMPLETE,MISMATCH"
        self.blocks: dict[str, int] = {}
        self.ranks: dict[int, Rank] = {}
        # of ranks: number, operation, names
        self.launched: dict[tuple[str, str], list[tuple[int, int, set[int]]]] = {}
        # by block: the ranks that report nothing, without those that it names
        self.unnamed: dict[str, int] = {}
        self.processes: list[Rank] = []
        self.lacking: list[str] = []
        self.block = ""
        self.kind = ""
        self.collective = ANY

    def read(self, line: str) -> None:
        words = line.split()
        if len(words) == TABLE_COLUMNS and words[0].isdecimal() and words[4].isdecimal():
            self.sizes[words[0]] = int(words[4])
            if self.sizes[words[0]]:
                self.errors[words[0]] = words[-1]
        elif match := _BLOCK.match(line):
            self._begin_block(match)
        elif match := _TYPE.match(line):
            self.collective = COLLECTIVES.get(match[1], match[1])
        elif not self.block and (match := _PROCESS.match(line)):
            self.processes.append(
                Rank(
                    -1 - len(self.processes),
                    match[2],
                    f"({line[:200]}) does not answer",
                    pid=int(match[1]),
                )
            )
        elif match := _TIMEOUT.match(line):
            self.lacking.append(
                f"why PyTorch's watchdog of rank {match[1]} timed out in {match[3]} {match[2]}"
            )
        elif self.block:
            self._read_ranks(line)

    def _begin_block(self, match: re.Match[str]) -> None:
        size = self.sizes.get(match[1])
        if size == 0:  # NCCL 2.27.3 lists such ones, with ranks that no job has
            self.block = ""
            self.lacking.append(
                f"the ranks of communicator 0x{match[2].lstrip('0')}: the report lists it with 0 ranks"
            )
            return
        self.block = match[2]
        self.kind = match[3]
        self.blocks[self.block] = size or 0
        if self.kind == SILENT:
            self.unnamed[self.block] = 1

    def _read_ranks(self, line: str) -> None:
        if self.kind == SILENT:
            self._read_missing(line)
            return
        classes = self.launched.setdefault((self.block, self.collective), [])
        if match := _SEVERAL.match(line):
            classes.append((int(match[1]), int(match[2] or 0), set()))
        elif match := _RANK.match(line):
            rank = int(match[1])
            self.ranks.setdefault(rank, Rank(rank, match["host"], pid=pid_of(match["pid"])))
            if "launched" in line:
                classes.append((1, int(match[2] or 0), {rank}))
            elif classes:
                classes[-1][2].add(rank)

    def _read_missing(self, line: str) -> None:
        """Read a line of a block about ranks that report nothing."""
        if match := _MISSING.match(line):
            self.unnamed[self.block] = int(match[1])
        elif match := _MISSING_RANKS.match(line):
            for rank in _listed_ranks(match[1]):
                self._add_missing(Rank(rank))
        elif match := _RANK.match(line):
            self._add_missing(Rank(int(match[1]), match["host"], pid=pid_of(match["pid"])))

    def _add_missing(self, rank: Rank) -> None:
        self.ranks[rank.rank] = replace(rank, status="does not answer")
        self.unnamed[self.block] -= 1

    def _missing_of_process(self) -> None:
        """Join the only process that does not answer with the only rank that does not, which has no host of its own."""
        missing = []
        for rank in self.ranks.values():
            if rank.status:
                missing.append(rank)
        if len(missing) == len(self.processes) == 1 and missing[0].host is None:
            (process,) = self.processes
            self.ranks[missing[0].rank] = replace(process, rank=missing[0].rank)

    def _unnamed_faults(self) -> Iterator[str]:
        """Yield what is wrong with ranks that the report does not name; processes that do not answer are named."""
        for block, missing in self.unnamed.items():
            if missing > 0 and not self.processes:
                ranks = format_count(missing, "rank")
                yield f"nothing is reported of {ranks} of 0x{block.lstrip('0')}: the report does not name them"
        for group, errors in self.errors.items():
            if "ERROR" in errors:
                yield f"ranks of the communicators #{group} report an error of NCCL, which the report has: {errors}"
            elif SILENT in errors and not self.unnamed and not self.processes:
                yield f"nothing is reported of some ranks of the communicators #{group}: {errors}"

    def to_job(self) -> RecordedJob:
        """Return the poll; ranks that are not named are those that are left, if there is one class of them."""
        progress = list[Progress]()
        self._missing_of_process()
        behind = list(self._unnamed_faults())
        failed = set()
        for rank, rank_record in self.ranks.items():
            if rank_record.status:
                failed.add(rank)
        for (block, collective), classes in self.launched.items():
            members = range(self.blocks[block] or sum(number for number, _, _ in classes))
            group = Group(f"0x{block.lstrip('0')}", tuple(members), "", has_job_ranks=False)
            unlisted = set(members) - failed.union(*(names for _, _, names in classes))
            latest = max((operation for _, operation, _ in classes), default=0)
            for number, operation, names in classes:
                if not names and number != len(unlisted):
                    if operation < latest:
                        launched = (
                            f"have launched {collective} up to {operation}, others up to {latest}"
                        )
                        behind.append(
                            f"{number} ranks of {group.name} {launched}: the report does not name them"
                        )
                    self.lacking.append(
                        f"which {number} ranks of {group.name} launched up to operation {operation}"
                    )
                    continue
                progress += [
                    Progress(rank, group, operation, None, collective)
                    for rank in sorted(names or unlisted)
                ]
        if len({progress_of_rank.group for progress_of_rank in progress}) > 1:
            self.lacking.append("which ranks of different communicators are one process")
        if not self.blocks and self.sizes:
            listed = format_count(max(self.sizes.values()), "rank")
            self.lacking.append(
                f"the counts of its {listed}: a report in words lists only ranks that differ"
            )
        ranks = {
            progress_of_rank.rank: Rank(progress_of_rank.rank) for progress_of_rank in progress
        } | self.ranks
        are_named = failed and all(self.ranks[rank].host for rank in failed)
        # else they are named once more, with their ranks
        unnamed = () if are_named else self.processes
        return RecordedJob(
            SOURCE,
            (*unnamed, *ranks.values()),
            progress=progress,
            cannot_say=(UNCOUNTED, *self.lacking),
            unnamed_behind=behind,
        )
