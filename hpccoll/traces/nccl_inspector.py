"""Files of NCCL's Inspector, versions 4.0 to 4.3: a line of JSON for each operation that a process completed.

Source: plugins/profiler/inspector of NVIDIA/nccl. A file has the records of one process, or of
several whose files were joined, and holds all of their communicators. A line names its communicator
and process, or, as of NVIDIA/nccl#2359, has those of the line before. The time is that of the
kernel and contains its waiting. Numbers of operations count each type of a communicator by itself.
For all-gather and reduce-scatter the size is the block of one rank. Records are samples: NCCL keeps
the latest ones, and none of an operation that hangs.
"""

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from hpccoll.common.files import read_bytes
from hpccoll.common.limits import RANK, Ranks
from hpccoll.traces.job_file import MAX_BYTES, MAX_OBJECTS, check_members
from hpccoll.traces.recorded_job import (
    Group,
    Place,
    Rank,
    RecordedJob,
    RecordedOperation,
    number_ranks,
    pid_of,
)
from hpccoll.traces.torch_names import collective_of_torch

SOURCE = "NCCL Inspector"


class _Header(msgspec.Struct):
    id: str
    rank: Annotated[int, RANK.meta]
    n_ranks: Ranks


class _Metadata(msgspec.Struct):
    hostname: str | None = None
    pid: int | None = None
    dump_timestamp_us: Any = None


class _Line(msgspec.Struct):
    """A line; those with statistics have neither of the last two."""

    header: _Header | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    coll_perf: dict[str, Any] = {}
    p2p_perf: dict[str, Any] = {}

    @property
    def has_operation(self) -> bool:
        return bool(self.coll_perf or self.p2p_perf)


class _Record(NamedTuple):
    """A line with the communicator and the process that it is of."""

    header: _Header
    metadata: _Metadata
    line: _Line

    @property
    def process(self) -> tuple[str, str]:
        """The host and the process id; empty where they are not recorded."""
        return self.metadata.hostname or "", str(self.metadata.pid or "")


_RECORD_BEGIN = b'{"coll_perf"', b'{"p2p_perf"'
"""How lines without a header begin."""


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is one of NCCL's Inspector."""
    line = head.lstrip().split(b"\n", 1)[0]
    has_keys = b'"header"' in line and b'"n_ranks"' in line
    return line.startswith(b"{") and has_keys


def read(path: Path) -> RecordedJob:
    """Return what one process recorded.

    Raises:
        ValueError: if it cannot be read, or no line of it can be.
    """
    content = read_bytes(path, "FILES", MAX_BYTES)
    if content.count(b"{") + content.count(b"[") > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} lists and objects")
    records, damaged = _read_records(content, path)
    by_process = defaultdict[tuple[str, str], list[_Record]](list)
    for record in records:
        by_process[record.process].append(record)
    sizes = {record.header.id: record.header.n_ranks for record in records}
    check_members(sizes.values())
    groups = {
        name: Group(name.lower().removeprefix("0x")[:14], tuple(range(size)), has_job_ranks=False)
        for name, size in sizes.items()
    }
    recorded = list[tuple[Place, _Record]]()
    places = set[Place]()
    has_several_gpus = False
    for (host, process), records_of_process in by_process.items():
        largest = max(records_of_process, key=lambda record: record.header.n_ranks).header.id
        ranks = {record.header.rank for record in records_of_process if record.header.id == largest}
        has_several_gpus |= len(ranks) > 1
        places |= {(host, rank, process) for rank in ranks}
        for record in records_of_process:
            if len(ranks) == 1:
                recorded.append(((host, min(ranks), process), record))
            elif record.header.id == largest:  # smaller communicators do not tell which of the GPUs
                recorded.append(((host, record.header.rank, process), record))
    numbers = number_ranks(places)
    operations: list[RecordedOperation] = []
    for place, record in recorded:
        operations += _operations(record, groups[record.header.id], numbers[place])
    missing = [
        "which rank did not join an operation: only the latest completed operations are kept",
        "types of elements, and ranks of the job: they are those in the largest communicators, or counted by host",
    ]
    if has_several_gpus:
        missing.append("operations of smaller communicators in processes with several GPUs")
    if damaged > 1:  # NCCL may still write the last line
        missing.append(f"{damaged} damaged lines of {path.name}")
    all_ranks = [_rank(numbers[place], place) for place in sorted(places)]
    return RecordedJob(SOURCE, all_ranks, operations, cannot_say=missing)


def _rank(number: int, place: Place) -> Rank:
    host, _, process = place
    return Rank(number, host or None, place=place, pid=pid_of(process))


def _read_records(content: bytes, path: Path) -> tuple[list[_Record], int]:
    """Return the records of a file, and the number of its damaged lines.

    After a damaged line, which may have named another process, lines without a header are of an
    unknown one.

    Raises:
        ValueError: if no line can be read, or none of those with operations.
    """
    records = list[_Record]()
    damaged = 0
    error = "it is empty"
    last: _Line | None = None
    for text in io.BytesIO(content):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (ValueError, RecursionError) as problem:
            damaged += 1
            error = str(problem)
            if not text.startswith(_RECORD_BEGIN):
                last = None
            continue
        if line.header is not None:
            last = line
        if last is None or last.header is None:
            damaged += 1
            error = "no line before it names its communicator and process"
        else:
            records.append(_Record(last.header, last.metadata, line))
    if not records:
        raise ValueError(f"no line of it is one of NCCL's Inspector: {error}")
    if damaged > 1 and not any(record.line.has_operation for record in records):
        raise ValueError(
            f"none of the {damaged} lines of {path.name} with operations can be read: {error}"
        )
    return records, damaged


def _operations(record: _Record, group: Group, rank: int) -> Iterator[RecordedOperation]:
    """Yield the collective of a line, and its message, if it has them."""
    written_ns = _nanoseconds(_number(record.metadata.dump_timestamp_us))
    for prefix, perf in (("coll", record.line.coll_perf), ("p2p", record.line.p2p_perf)):
        if perf:
            yield _operation(prefix, perf, group, rank, written_ns)


def _operation(
    prefix: str, perf: Mapping[str, Any], group: Group, rank: int, written_ns: int | None
) -> RecordedOperation:
    """Return an operation of a group; keys of a collective begin with ``coll``, those of a message with ``p2p``."""
    name = collective_of_torch(str(perf.get(prefix)))
    blocks = 1
    if name in ("all_gather", "reduce_scatter"):
        blocks = len(group.ranks)
    nbytes = _whole(perf.get(f"{prefix}_msg_size_bytes"))
    duration_us = _number(perf.get(f"{prefix}_exec_time_us"))
    duration_ns = _nanoseconds(duration_us)
    enqueued_ns, ended_ns = _trace_times(perf.get("event_trace_ts"))
    started_ns = None
    if ended_ns is not None and duration_ns is not None:
        started_ns = ended_ns - duration_ns
    return RecordedOperation(
        rank,
        group,
        name,
        sequence=None if prefix == "p2p" else _whole(perf.get(f"{prefix}_sn")),
        bytes=None if nbytes is None else nbytes * blocks,
        enqueued_ns=enqueued_ns,
        started_ns=started_ns,
        ended_ns=ended_ns,
        duration_s=None if duration_us is None else duration_us / 1e6,
        written_ns=written_ns,
        peer=_whole(perf.get(f"{prefix}_peer")),
        by_type=True,
    )


def _whole(value: object) -> int | None:
    """Return a number without what is behind its point; None as ``_number``."""
    number = _number(value)
    if number is None:
        return None
    return int(number)


def _nanoseconds(microseconds: float | None) -> int | None:
    if microseconds is None:
        return None
    return round(microseconds * 1000)


def _number(value: object) -> float | None:
    """Return a number that is one and not negative; NCCL writes "nan" for others."""
    if isinstance(value, int | float) and 0 <= value < 1 << 62:
        return value
    return None


def _trace_times(trace: object) -> tuple[int | None, int | None]:
    """Return when an operation was enqueued, and when NCCL noticed the end of its last kernel, in ns; None if unknown.

    The times of ``event_trace_ts`` are microseconds of the host's clock.
    """
    match trace:
        case {"coll_start_ts": enqueued, "kernel_events": [*kernels]}:
            stops = []
            for kernel in kernels:
                if isinstance(kernel, dict):
                    stops.append(_number(kernel.get("kernel_stop_ts")))
            begin = _number(enqueued)
            end = max(filter(None, stops), default=None)
            return round(begin * 1000) if begin else None, round(end * 1000) if end else None
    return None, None
