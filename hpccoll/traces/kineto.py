"""Kineto's traces, which PyTorch's profiler writes: kernels of NCCL, with and without arguments, and of computing.

Source: libkineto/src/output_json.cpp of pytorch/kineto. Times are in microseconds: since 2024 after
``baseTimeNanoseconds``, before that since 1970. The time of a kernel contains its waiting for other ranks. S is the
larger one of the input and the output (the rule of facebookresearch/param). Kernels of 2023 have no arguments: their
collective is that of the annotation ``nccl:...`` around their launch, in the thread that launched them.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from hpccoll.common.limits import RANKS
from hpccoll.traces.job_file import content_of, damaged, decode_json, decode_part
from hpccoll.traces.records import Computing, Group, Rank, RecordedJob, RecordedOperation, union_of
from hpccoll.traces.torch_names import collective_of_torch, dtype_of_torch

SOURCE = "Kineto"


_Scalar: TypeAlias = str | int | float | bool | None


class _Arguments(msgspec.Struct, gc=False):
    """Arguments of a kernel, a launch or an annotation; other events have other ones, of any type."""

    correlation: _Scalar = None
    collective: _Scalar = msgspec.field(default=None, name="Collective name")
    elements_in: _Scalar = msgspec.field(default=None, name="In msg nelems")
    elements_out: _Scalar = msgspec.field(default=None, name="Out msg nelems")
    dtype: _Scalar = None
    group: _Scalar = msgspec.field(default=None, name="Process Group Name")
    description: _Scalar = msgspec.field(default=None, name="Process Group Description")
    ranks: _Scalar = msgspec.field(default=None, name="Process Group Ranks")
    sequence: _Scalar = msgspec.field(default=None, name="Seq")
    shapes: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="Input type")


class _Event(msgspec.Struct, gc=False):
    cat: str | None = None
    name: str | None = None
    ts: float | None = None
    dur: float | None = None
    pid: _Scalar = None
    tid: _Scalar = None
    args: _Arguments | None = None

    @property
    def end(self) -> float:
        return (self.ts or 0.0) + (self.dur or 0.0)


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")
    base: int = msgspec.field(default=0, name="baseTimeNanoseconds")
    host: str | None = msgspec.field(default=None, name="host_name")
    distributed: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="distributedInfo")


def recognises(head: bytes, _name: str) -> bool:
    """Return whether a file that begins with ``head`` is a trace of Kineto: its keys precede its events."""
    return head.lstrip().startswith(b"{") and any(
        key in head for key in (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')
    )


def read(path: Path) -> RecordedJob:
    """Return what the trace of one rank recorded.

    Raises:
        UnusableError: if it cannot be read, or is no trace.
    """
    trace = decode_json(path, content_of(path), _Trace, "trace of Kineto")
    try:
        distributed = decode_part(trace.distributed)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"is damaged: {error}") from None
    distributed = distributed if isinstance(distributed, dict) else {}
    rank, size = (distributed.get(key) for key in ("rank", "world_size"))
    if rank is None and (match := re.search(r"(?:rank|worker)[-_]?(\d{1,6})", path.name)):
        rank = int(match[1])
    if not (isinstance(rank or 0, int) and isinstance(size or 1, int) and 0 <= (rank or 0) < RANKS.maximum):
        raise damaged(path, "is damaged: rank and world_size are no numbers of ranks")
    timed = [event for event in trace.events if event.ts is not None and event.dur is not None]
    if any(not (0 <= event.ts + trace.base / 1000 < 1e16 and 0 <= event.dur < 1e16) for event in timed):  # type: ignore[operator] # timed
        raise damaged(path, "is damaged: it has times that no clock shows")
    kernels = sorted((e for e in timed if (e.cat or "").lower() == "kernel"), key=lambda each: each.ts or 0.0)
    communication = [event for event in kernels if "nccl" in (event.name or "").lower()]
    groups = _Groups(distributed, min(size or 0, RANKS.maximum))
    annotations = _annotations(timed, communication)
    operations = [
        _operation(rank or 0, groups, event, annotations.get(position), trace.base)
        for position, event in enumerate(communication)
    ]
    spans = union_of(_span(e, trace.base) for e in kernels if "nccl" not in (e.name or "").lower())
    steps = [e for e in timed if e.cat == "user_annotation" and (e.name or "").startswith("ProfilerStep")]
    window = [_span(e, trace.base) for e in steps or kernels]
    computing = Computing(
        rank or 0, spans, (min(window)[0], max(end for _, end in window)), max(1, len({e.name for e in steps}))
    ) if window else None  # fmt: skip
    return RecordedJob(
        SOURCE, (Rank(rank or 0, trace.host),), operations, computing=(computing,) if computing else (),
        cannot_say=tuple(_cannot_say(path, communication, unnumbered=any(o.sequence is None for o in operations))),
    )  # fmt: skip


def _cannot_say(path: Path, communication: list[_Event], *, unnumbered: bool) -> Iterable[str]:
    if not communication:
        yield f"any kernel of NCCL in {path.name}"
    if unnumbered:
        yield "numbers and groups of operations: they are matched by their order, as one group"
    yield "which rank did not join an operation"


def _span(event: _Event, base_ns: int) -> tuple[int, int]:
    """Return begin and end of an event in ns; a double does not hold nanoseconds since 1970."""
    microseconds = event.ts or 0.0
    begin = base_ns + int(microseconds) * 1000 + round(microseconds % 1 * 1000)
    return begin, begin + round((event.dur or 0.0) * 1000)


class _Groups:
    """The groups of a trace by the names in its kernels; all kernels without one are of one group."""

    def __init__(self, distributed: Mapping[str, Any], size: int) -> None:
        self._all = tuple(range(size))
        configured = distributed.get("pg_config")
        self._members = {
            str(each.get("pg_name")): tuple(each["ranks"]) or self._all
            for each in (configured if isinstance(configured, list) else ())
            if isinstance(each, dict) and _are_ranks(each.get("ranks"))
        }

    def of(self, arguments: _Arguments) -> Group:
        if arguments.group is None:
            return Group("", self._all)
        ranks = self._members.get(name := str(arguments.group))
        if ranks is None:  # "[0, 1, 2]", which long groups shorten by "..."
            text = str(arguments.ranks)
            ranks = tuple(map(int, re.findall(r"\d{1,6}", text))) if "..." not in text else ()
        return Group(name, ranks, str(arguments.description or ""))


def _are_ranks(ranks: object) -> bool:
    return isinstance(ranks, list) and all(isinstance(rank, int) and 0 <= rank < RANKS.maximum for rank in ranks)


def _annotations(timed: Iterable[_Event], communication: list[_Event]) -> dict[int, _Event]:
    """Return the annotation around the launch of each kernel that does not name its collective, by its position."""
    nameless = {
        str(event.args.correlation): position
        for position, event in enumerate(communication)
        if event.args and event.args.correlation is not None and event.args.collective is None
    }
    if not nameless:
        return {}
    by_thread: defaultdict[tuple[str, str], list[_Event]] = defaultdict(list)
    launches = {}
    for event in timed:
        if (event.name or "").startswith("nccl:"):
            by_thread[str(event.pid), str(event.tid)].append(event)
        elif "cuda" in (event.cat or "") and event.args:  # cuda_runtime, cuda_driver
            position = nameless.get(str(event.args.correlation))
            if position is not None:
                launches[position] = event
    for events in by_thread.values():
        events.sort(key=lambda each: each.ts or 0.0)
    found = {}
    for position, launch in launches.items():
        events = by_thread[str(launch.pid), str(launch.tid)]
        before = bisect_right(events, launch.ts or 0.0, key=lambda each: each.ts or 0.0)
        if before and events[before - 1].end >= (launch.ts or 0.0):
            found[position] = events[before - 1]
    return found


def _operation(rank: int, groups: _Groups, event: _Event, annotation: _Event | None, base_ns: int) -> RecordedOperation:
    arguments = event.args or _Arguments()
    if arguments.collective is not None:
        name = collective_of_torch(str(arguments.collective))
        elements = [count for count in (arguments.elements_in, arguments.elements_out) if isinstance(count, int)]
        dtype = dtype_of_torch(str(arguments.dtype))
    else:
        name = collective_of_torch(annotation.name or "") if annotation else "unknown"
        elements, dtype = _first_input(annotation) if annotation else ([], None)
        if name in ("all_gather", "gather"):  # the input is one block, of a group of unknown size
            elements = []
    (begin, end), sequence = _span(event, base_ns), arguments.sequence
    return RecordedOperation(
        rank, groups.of(arguments), name, sequence if isinstance(sequence, int) else None,
        bytes=max(elements) * dtype[1] if elements and dtype and name != "barrier" else None,
        dtype=dtype[0] if dtype else None, started_ns=begin, ended_ns=end,
        duration_s=(event.dur or 0.0) / 1e6,
    )  # fmt: skip


def _first_input(annotation: _Event) -> tuple[list[int], tuple[str, int] | None]:
    """Return the elements of the first tensor of an annotation, and its type."""
    arguments = annotation.args or _Arguments()
    try:
        shapes, types = decode_part(arguments.shapes), decode_part(arguments.types)
    except (ValueError, RecursionError):
        return [], None
    match shapes, types:
        case [[*shape], *_], [str() as name, *_] if shape and all(isinstance(n, int) and n >= 0 for n in shape):
            return [math.prod(shape)], dtype_of_torch(name)
    return [], None
