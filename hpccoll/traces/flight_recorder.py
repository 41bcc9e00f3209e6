"""Dumps of PyTorch's Flight Recorder: the collectives and messages that a rank enqueued, and which have completed.

Sources: ``torch/csrc/distributed/c10d`` ``FlightRecorder.hpp`` and ``FlightRecorderDetail.hpp``
(PyTorch 2.5 to 2.14). A dump is a pickle of plain values, or JSON. One process writes it; its rank
is in the name of the file.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from hpccoll.common.files import read_bytes
from hpccoll.traces.job_file import MAX_BYTES
from hpccoll.traces.plain_pickle import MAX_VALUES, read_plain_pickle
from hpccoll.traces.recorded_job import (
    Group,
    Progress,
    Rank,
    RecordedJob,
    RecordedOperation,
    State,
    unique_group,
)
from hpccoll.traces.torch_names import collective_of_torch, dtype_of_torch

SOURCE = "PyTorch Flight Recorder"
_KEYS = (b'"pg_status"', b'"collective_seq_id"', b'"comm_lib_version"', b'"nccl_comm_state"')
"""Keys of the JSON form that no other format has."""
OLDEST_VERSION = (2, 4)
RANK = r"rank[_-]?(\d{1,9})"
MAX_DIMENSIONS, MAX_SIZE = 64, 1 << 62
Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]


_Sizes: TypeAlias = tuple[tuple[Integer, ...], ...]
"""The size of each tensor in each dimension."""


@dataclass(slots=True)
class _Frame:
    name: str = ""
    filename: str = ""
    line: Integer = 0


class _Entry(msgspec.Struct, gc=False):
    pg_id: Integer
    process_group: Annotated[Sequence[str], msgspec.Meta(min_length=2, max_length=2)]
    collective_seq_id: Integer
    profiling_name: str
    time_created_ns: Integer
    p2p_seq_id: Integer = 0
    time_discovered_started_ns: Integer | None = None
    time_discovered_completed_ns: Integer | None = None
    duration_ms: float | None = None
    input_sizes: _Sizes = ()
    output_sizes: _Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = "scheduled"
    retired: bool = False
    is_p2p: bool = False
    timeout_ms: Integer = 0
    thread_id: str | Integer = ""
    frames: Sequence[_Frame] = ()

    @property
    def latest_ns(self) -> int:
        return max(
            self.time_created_ns,
            self.time_discovered_started_ns or 0,
            self.time_discovered_completed_ns or 0,
        )


class _Call(NamedTuple):
    """What many entries of a dump have in common."""

    collective: str
    bytes_in: int | None
    bytes_out: int | None
    dtype: str | None
    peer: int | None  # the number in the ranks of its group


@dataclass(slots=True)
class _ConfiguredGroup:
    name: str
    ranks: str | Sequence[Integer]  # a text of JSON
    desc: str = ""


@dataclass(slots=True)
class _Status:
    last_enqueued_collective: Integer | str  # JSON has texts
    last_completed_collective: Integer | str


@dataclass(slots=True)
class _Dump:
    version: str
    comm_lib_version: str = ""
    pg_status: Mapping[str, _Status] = field(default_factory=dict)
    pg_config: Mapping[str, _ConfiguredGroup] = field(default_factory=dict)
    entries: Sequence[_Entry] = ()


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a pickle, or the JSON form of a dump."""
    return head.startswith(b"\x80") or (
        head.lstrip().startswith(b"{") and any(key in head for key in _KEYS)
    )


def read(path: Path) -> RecordedJob:
    """Return what one rank recorded; a group of gloo has no ranks, because its dump does not name them.

    Raises:
        ValueError: if the file is not a dump, or is damaged; msgspec's errors are such, too.
    """
    dump = _read_dump(path)
    version = tuple(int(part) for part in re.findall(r"\d{1,4}", dump.version)[:2])
    if version < OLDEST_VERSION:
        raise ValueError(
            f"its version is {dump.version[:20]!r}; valid: 2.4, of PyTorch 2.5, and later"
        )
    groups_by_id = _groups_by_id(dump)
    rank = _rank_of_path(path, groups_by_id.values())
    is_gloo = any(entry.profiling_name.startswith("gloo:") for entry in dump.entries)
    counts, unknown = _counts(dump, groups_by_id)
    progress = [
        Progress(rank, group, enqueued, None if is_gloo else done)
        for group, enqueued, done in counts
    ]
    cannot_say = []
    if is_gloo:
        cannot_say.append("which operations of gloo have completed")
    if unknown:
        cannot_say.append(f"the names of {unknown} groups of rank {rank}")
    call_of = cache(_call)  # of this dump only: what a strange one holds is not kept
    return RecordedJob(
        SOURCE,
        ranks=(Rank(rank),),
        operations=[
            _operation(rank, entry, groups_by_id[entry.pg_id], call_of)
            for entry in _single_entries(dump.entries)
        ],
        progress=progress,
        taken_ns=max((entry.latest_ns for entry in dump.entries), default=0),
        timeout_ns=max((entry.timeout_ms for entry in dump.entries), default=0) * 10**6,
        threads={str(entry.thread_id) for entry in dump.entries if entry.thread_id},
        cannot_say=tuple(cannot_say),
        nccl=dump.comm_lib_version,
    )


def _rank_of_path(path: Path, groups: Iterable[Group]) -> int:
    """Return the rank that wrote a dump: PyTorch writes it behind a prefix, in the name of the file or its directory.

    Raises:
        ValueError: if no number of the name is in all groups.
    """
    members = []
    for group in groups:
        if group.ranks:
            members.append(group.ranks)
    for number in map(int, _numbers_of_path(path)):
        if all(number in ranks for ranks in members):
            return number
    raise ValueError(
        "its name does not end with a rank of its groups; valid: PREFIX + rank, as PyTorch writes it"
    )


def _numbers_of_path(path: Path) -> Sequence[str]:
    """Return the numbers that may be the rank, the likeliest first; only those in the likeliest place."""
    return (
        re.findall(RANK, path.name)[-1:]
        or re.findall(RANK, path.parent.name)[-1:]
        or re.findall(r"\d{1,9}", path.name)[::-1]
        or re.findall(r"^\d{1,9}$", path.parent.name)
    )


def _counts(
    dump: _Dump, groups_by_id: Mapping[int, Group]
) -> tuple[list[tuple[Group, int, int]], int]:
    """Return the groups with the numbers of collectives that were enqueued and completed, and how many are unknown."""
    counts: dict[Group, tuple[int, int]] = {}
    unknown = 0
    for key, status in dump.pg_status.items():
        group = groups_by_id.get(int(key)) if key.isdecimal() else None
        if group is None:
            unknown += 1
        else:
            enqueued = int(status.last_enqueued_collective)
            completed = int(status.last_completed_collective)
            counts[group] = max(0, enqueued), max(0, completed)
    return [(group, *numbers) for group, numbers in counts.items()], unknown


def _read_dump(path: Path) -> _Dump:
    content = read_bytes(path, "FILES", MAX_BYTES)
    if content.startswith(b"\x80"):
        return msgspec.convert(read_plain_pickle(content), _Dump)
    if content.count(b"[") + content.count(b"{") + content.count(b",") > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES} values")
    return msgspec.json.decode(content, type=_Dump)


def _groups_by_id(dump: _Dump) -> dict[int, Group]:
    """Return the groups by the ids that this process gave them.

    Entries have both. For groups without entries, names and ids in ascending order belong together,
    because a process counts both up; where that contradicts an entry, as with gloo, only the
    entries count.
    """
    configured = _configured_groups(dump)
    groups_by_id = {}
    for entry in dump.entries:
        name, description = entry.process_group
        groups_by_id[entry.pg_id] = configured.get(name) or unique_group(
            Group(name, (), description)
        )
    ids = []
    for key in dump.pg_status:
        if key.isdecimal():
            ids.append(int(key))
    if len(ids) == len(configured) and all(name.isdecimal() for name in configured):
        names = sorted(configured, key=int)
        paired = {number: configured[name] for number, name in zip(sorted(ids), names, strict=True)}
        if all(paired.get(number, group) == group for number, group in groups_by_id.items()):
            return {**groups_by_id, **paired}
    ids_left = set(ids) - groups_by_id.keys()
    names_left = configured.keys() - {group.name for group in groups_by_id.values()}
    if len(ids_left) == len(names_left) == 1:  # of names that are not numbers
        groups_by_id[ids_left.pop()] = configured[names_left.pop()]
    return groups_by_id


def _configured_groups(dump: _Dump) -> dict[str, Group]:
    """Return the groups that a dump configures, by name."""
    configured = {}
    for group in dump.pg_config.values():
        if not group.name:
            continue
        ranks = group.ranks
        if isinstance(ranks, str):
            ranks = msgspec.json.decode(ranks, type=list[Integer])
        configured[group.name] = unique_group(Group(group.name, tuple(ranks), group.desc))
    return configured


def _single_entries(entries: Sequence[_Entry]) -> Iterator[_Entry]:
    """Yield entries, those of a batch with its state: only the entry ``coalesced``, the last of its number, has that.

    Dumps of active operations leave out that of a batch which has completed. Its times go to the
    first of the batch, whose size is then unknown.
    """
    batches = defaultdict[tuple[int, int, int], list[_Entry]](list)
    for entry in entries:
        batches[entry.pg_id, entry.collective_seq_id, entry.p2p_seq_id].append(entry)
    for first, *later in batches.values():
        for last in later[-1:]:
            is_open = _is_batch(last) and not last.retired and last.state != "completed"
            for entry in (first, *later):
                entry.retired = not is_open
            if _is_batch(last) and last.duration_ms:
                first.time_discovered_started_ns = last.time_discovered_started_ns
                first.time_discovered_completed_ns = last.time_discovered_completed_ns
                first.duration_ms = last.duration_ms
                first.input_sizes = ()
                first.output_sizes = ()
    yield from (entry for entry in entries if not _is_batch(entry))


def _is_batch(entry: _Entry) -> bool:
    return entry.profiling_name.endswith(":coalesced")


def _call(
    name: str,
    input_sizes: _Sizes,
    input_dtypes: tuple[str, ...],
    output_sizes: _Sizes,
    output_dtypes: tuple[str, ...],
) -> _Call:
    """Return what an entry with these values called."""
    dtype = None
    if output_dtypes:
        dtype = dtype_of_torch(output_dtypes[0])
    return _Call(
        collective_of_torch(name),
        bytes_in=_total_bytes(input_sizes, input_dtypes),
        bytes_out=_total_bytes(output_sizes, output_dtypes),
        dtype=dtype[0] if dtype else None,
        peer=_named_peer(name),
    )


def _operation(
    rank: int, entry: _Entry, group: Group, call_of: Callable[..., _Call]
) -> RecordedOperation:
    call = call_of(
        entry.profiling_name,
        entry.input_sizes,
        entry.input_dtypes,
        entry.output_sizes,
        entry.output_dtypes,
    )
    largest = max(call.bytes_in or 0, call.bytes_out or 0)
    number = entry.collective_seq_id
    if entry.is_p2p:
        number = entry.p2p_seq_id
    duration_s = None
    if entry.duration_ms:
        duration_s = entry.duration_ms / 1e3
    state: State = "enqueued"
    if entry.retired or entry.state == "completed":
        state = "completed"
    peer = None
    if call.peer is not None:
        peer = _rank_in(group, call.peer)
    return RecordedOperation(
        rank,
        group,
        call.collective,
        number,
        largest or None,
        call.bytes_in,
        call.bytes_out,
        call.dtype,
        enqueued_ns=entry.time_created_ns or None,
        started_ns=entry.time_discovered_started_ns or None,
        ended_ns=entry.time_discovered_completed_ns or None,
        duration_s=duration_s,
        state=state,
        peer=peer,
        # all_to_all_single with splits has this name, too
        may_be_uneven=call.collective == "all_to_all",
        where=_place(entry.frames),
    )


def _named_peer(name: str) -> int | None:
    """Return the number that a message has in its group's ranks by its name, such as ``nccl:send 0->1``."""
    peer = re.search(r"(?:->|<-)(\d{1,9})", name)
    if not peer:
        return None
    return int(peer[1])


def _rank_in(group: Group, number: int) -> int | None:
    """Return the rank of the job that has a number in a group."""
    if not group.ranks:
        return number
    if number < len(group.ranks):
        return group.ranks[number]
    return None


def _total_bytes(shapes: Sequence[Sequence[Integer]], names: Sequence[str]) -> int | None:
    """Return the bytes of all tensors; None if no size or type is known."""
    total = 0
    for shape, name in zip(shapes, names, strict=False):
        if len(shape) > MAX_DIMENSIONS:
            return None
        dtype = dtype_of_torch(name)
        if dtype is not None:
            total += math.prod(shape) * dtype[1]
    if 0 < total < MAX_SIZE:
        return total
    return None


def _place(frames: Sequence[_Frame]) -> str | None:
    """Return the innermost line of code outside PyTorch."""
    if not frames:
        return None
    own = [frame for frame in frames if "/torch/" not in frame.filename] or list(frames)
    if not own:
        return None
    return f"{own[0].filename}:{own[0].line} {own[0].name}"
