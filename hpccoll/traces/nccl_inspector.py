"""Files of NCCL's Inspector, versions 4.0 to 4.3: a line of JSON for each operation that a process completed.

Source: plugins/profiler/inspector of NVIDIA/nccl. One file is of one process and holds all of its communicators. The
time is that of the kernel and contains its waiting. Numbers of operations count each type of a communicator by itself.
For all-gather and reduce-scatter the size is the block of one rank. Records are samples: NCCL keeps the latest ones,
and none of an operation that hangs.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hpccoll.common.files import read_bytes
from hpccoll.common.limits import RANK, Ranks
from hpccoll.traces.job_file import MAX_BYTES, MAX_OBJECTS, check_members
from hpccoll.traces.records import Group, Rank, RecordedJob, RecordedOperation
from hpccoll.traces.torch_names import collective_of_torch

SOURCE = "NCCL Inspector"


class _Header(msgspec.Struct):
    id: str
    rank: Annotated[int, RANK.meta]
    n_ranks: Ranks


class _Metadata(msgspec.Struct):
    hostname: str | None = None
    pid: int | None = None


class _Line(msgspec.Struct):
    """A line; those with statistics have neither of the last two."""

    header: _Header
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    coll_perf: dict[str, Any] = {}
    p2p_perf: dict[str, Any] = {}


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is one of NCCL's Inspector."""
    line = head.lstrip().split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"header"' in line and b'"n_ranks"' in line


def read(path: Path) -> RecordedJob:
    """Return what one process recorded.

    Raises:
        ValueError: if it cannot be read, or no line of it can be.
    """
    content = read_bytes(path, "FILES", MAX_BYTES)
    if content.count(b"{") + content.count(b"[") > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} lists and objects")
    lines, cut, error = list[_Line](), 0, "it is empty"
    for text in io.BytesIO(content):
        try:
            lines.append(msgspec.json.decode(text, type=_Line))
        except (ValueError, RecursionError) as problem:
            cut, error = cut + 1, str(problem)
    if not lines:
        raise ValueError(f"it has no line of NCCL's Inspector: {error}")
    largest = max(lines, key=lambda line: line.header.n_ranks).header
    ranks = sorted({line.header.rank for line in lines if line.header.id == largest.id})
    if len(ranks) > 1:  # of several GPUs: smaller communicators do not tell which of them
        lines = [line for line in lines if line.header.id == largest.id]
    host = next((line.metadata.hostname for line in lines if line.metadata.hostname), None)
    process = next((str(line.metadata.pid) for line in lines if line.metadata.pid), "")
    sizes = {line.header.id: line.header.n_ranks for line in lines}
    check_members(sizes.values())
    groups = {
        name: Group(name.lower().removeprefix("0x")[:14], tuple(range(size)), of_job=False)
        for name, size in sizes.items()
    }
    operations = [
        operation
        for line in lines
        for operation in _operations(line, groups[line.header.id], line.header.rank if len(ranks) > 1 else ranks[0])
    ]
    missing = [
        "which rank did not join an operation: only the latest completed operations are kept",
        "types of elements, and ranks of the job: they are those in the largest communicators, or counted by host",
        *(["operations of smaller communicators in processes with several GPUs"] if len(ranks) > 1 else []),
        *([f"{cut} damaged lines of {path.name}"] if cut > 1 else []),  # NCCL may still write the last line
    ]
    of_job = [Rank(rank, host, place=(host or "", rank, process)) for rank in ranks]
    return RecordedJob(SOURCE, of_job, operations, cannot_say=missing)


def _operations(line: _Line, group: Group, rank: int) -> Iterator[RecordedOperation]:
    for prefix, perf in (("coll", line.coll_perf), ("p2p", line.p2p_perf)):
        if not perf:
            continue
        name, nbytes = collective_of_torch(str(perf.get(prefix))), _number(perf.get(f"{prefix}_msg_size_bytes"))
        factor = len(group.ranks) if name in ("all_gather", "reduce_scatter") else 1
        seconds, sequence, peer = (_number(perf.get(f"{prefix}_{key}")) for key in ("exec_time_us", "sn", "peer"))
        enqueued, stopped = _trace_times(perf.get("event_trace_ts"))
        yield RecordedOperation(
            rank, group, name, None if sequence is None or prefix == "p2p" else int(sequence),
            bytes=None if nbytes is None else int(nbytes) * factor, enqueued_ns=enqueued,
            started_ns=stopped - round(seconds * 1000) if stopped is not None and seconds is not None else None,
            ended_ns=stopped, duration_s=None if seconds is None else seconds / 1e6,
            peer=None if peer is None else int(peer), by_type=True,
        )  # fmt: skip


def _number(value: object) -> float | None:
    """Return a number that is one and not negative; NCCL writes "nan" for others."""
    return value if isinstance(value, int | float) and 0 <= value < 1 << 62 else None


def _trace_times(trace: object) -> tuple[int | None, int | None]:
    """Return when an operation was enqueued, and when NCCL noticed the end of its last kernel, in ns; None if unknown.

    The times of ``event_trace_ts`` are microseconds of the host's clock.
    """
    match trace:
        case {"coll_start_ts": enqueued, "kernel_events": [*kernels]}:
            stops = [_number(each.get("kernel_stop_ts")) for each in kernels if isinstance(each, dict)]
            begin, end = _number(enqueued), max((stop for stop in stops if stop), default=None)
            return round(begin * 1000) if begin else None, round(end * 1000) if end else None
    return None, None
