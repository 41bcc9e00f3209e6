"""Kineto's traces, which PyTorch's profiler writes: kernels of NCCL, with and without arguments, and of computing.

Source: libkineto/src/output_json.cpp of pytorch/kineto. Times are in microseconds: since 2024 after
``baseTimeNanoseconds``, before that since 1970. The time of a kernel contains its waiting for other
ranks. S is the larger one of the input and the output (the rule of facebookresearch/param). Kernels
of 2023 have no arguments: their collective is that of the annotation ``nccl:...`` around their
launch, in the thread that launched them, or without one that in the name of the kernel. An
annotation does not tell an all-to-all of equal blocks from one of unequal blocks.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from hpccoll.common.files import open_regular
from hpccoll.common.limits import RANK, RANKS
from hpccoll.traces.event_stream import EventStream
from hpccoll.traces.job_file import MAX_OBJECTS, decode_part, decode_trace_json
from hpccoll.traces.recorded_job import (
    Computing,
    Group,
    Rank,
    RecordedJob,
    RecordedOperation,
    union_of,
)
from hpccoll.traces.torch_names import collective_of_torch, dtype_of_torch

SOURCE = "Kineto"
_KEYS = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')

_KERNELS_AND_STEPS = re.compile(rb'(?i)"cat"\s*+:\s*+"(?:kernel|user_annotation)"')
_LAUNCHES_AND_ANNOTATIONS = re.compile(rb'"cat"\s*+:\s*+"[^"]*cuda|"nccl:')
"""What events have in them that matter."""

_KERNEL = re.compile(r"nccl\w*?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce)(?=[_RTC])")
"""The names of kernels that say what they run: ncclKernel_AllReduce_RING_LL_Sum_float up to NCCL
2.18, ncclDevKernel_AllReduce_Sum_f32_RING_LL since, ncclAllReduceRingLLKernel_sum_f32 long before
(src/device of NCCL)."""

_Scalar: TypeAlias = str | int | float | bool | None
_Microseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e16)]


class _Arguments(msgspec.Struct, gc=False):
    """Arguments of a kernel, a launch or an annotation; other events have other ones."""

    correlation: _Scalar = None
    collective: _Scalar = msgspec.field(default=None, name="Collective name")
    elements_in: _Scalar = msgspec.field(default=None, name="In msg nelems")
    elements_out: _Scalar = msgspec.field(default=None, name="Out msg nelems")
    dtype: _Scalar = None
    group: _Scalar = msgspec.field(default=None, name="Process Group Name")
    description: _Scalar = msgspec.field(default=None, name="Process Group Description")
    ranks: _Scalar = msgspec.field(default=None, name="Process Group Ranks")
    sequence: _Scalar = msgspec.field(default=None, name="Seq")
    size: _Scalar = msgspec.field(default=None, name="Group size")
    source: _Scalar = msgspec.field(default=None, name="Src Rank")
    target: _Scalar = msgspec.field(default=None, name="Dst Rank")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="Input type")


_NO_ARGUMENTS = _Arguments()


class _Event(msgspec.Struct, gc=False):
    cat: str = ""
    # most are long, and of no interest
    title: msgspec.Raw = msgspec.field(default=msgspec.Raw(b'""'), name="name")
    ts: _Microseconds = 0.0
    dur: _Microseconds | None = None
    pid: _Scalar = None
    tid: _Scalar = None
    args: _Arguments = msgspec.field(default_factory=lambda: _NO_ARGUMENTS)

    @property
    def name(self) -> str:
        return str(decode_part(self.title))

    @property
    def thread(self) -> tuple[str, str]:
        return str(self.pid), str(self.tid)


class _Trace(msgspec.Struct):
    events: list[None] = msgspec.field(name="traceEvents")  # which were read before
    base: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = msgspec.field(
        default=0, name="baseTimeNanoseconds"
    )
    host: str | None = msgspec.field(default=None, name="host_name")
    distributed: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="distributedInfo")


def recognises(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is a trace of Kineto: its keys precede its events."""
    is_object = head.lstrip().startswith(b"{")
    return is_object and any(key in head for key in _KEYS)


def read(path: Path) -> RecordedJob:
    """Return what the trace of one rank recorded.

    Raises:
        ValueError: if it cannot be read, or is not a trace.
    """
    recorded = _read_events(path)
    trace = recorded.trace
    distributed = decode_part(trace.distributed)
    if not isinstance(distributed, dict):
        distributed = {}
    named = re.search(r"(?:rank|worker)[-_]?(\d{1,6})", path.name)
    rank = distributed.get("rank", int(named[1]) if named else 0)
    size = distributed.get("world_size", 1)
    if not RANK.accepts(rank) or not RANKS.accepts(size):
        raise ValueError("its rank and world_size are not numbers, or out of range")
    groups = _Groups(distributed, size)
    annotations = _read_annotations(path, recorded.communication)
    operations = []
    for event in recorded.communication:
        annotation = annotations.get(str(event.args.correlation))
        operations.append(_operation(rank, groups, event, annotation, trace.base))
    spans = [(begin + trace.base, end + trace.base) for begin, end in union_of(recorded.computing)]
    computing = []
    if recorded.window is not None:
        begin, end = recorded.window
        window = begin + trace.base, end + trace.base
        computing = [Computing(rank, spans, window, max(1, len(recorded.steps)))]
    cannot_say = ["which rank did not join an operation"]
    if not operations:
        cannot_say.append(f"any kernel of NCCL in {path.name}")
    if any(operation.sequence is None for operation in operations):
        cannot_say.append(
            "numbers and groups of operations: they are matched by their order, as one group"
        )
    if "rank" not in distributed and not named:
        cannot_say.append(f"the rank of {path.name}, which is taken for 0")
    return RecordedJob(
        SOURCE,
        (Rank(rank, trace.host),),
        operations,
        computing=computing,
        cannot_say=cannot_say,
        nccl=str(distributed.get("nccl_version", "")),
    )


class _Recorded:
    """What the events of a trace say; times are in ns after its base."""

    def __init__(self) -> None:
        self.trace = _Trace([])
        self.communication: list[_Event] = []
        self.computing: list[tuple[int, int]] = []  # begin and end of each kernel
        self.steps: set[str] = set()
        # of kernels and steps: the device may run after its steps
        self.window: tuple[int, int] | None = None

    def add(self, event: _Event) -> None:
        if event.dur is None:
            return
        if event.cat.lower() == "kernel":
            self._add_kernel(event)
        elif event.cat == "user_annotation" and event.name.startswith("ProfilerStep"):
            self.steps.add(event.name)
            self._widen(_span(event, 0))

    def _add_kernel(self, event: _Event) -> None:
        span = _span(event, 0)
        self._widen(span)
        if "nccl" in event.name.lower():
            self.communication.append(_kept(event))
        else:
            self.computing.append(span)
        if len(self.communication) + len(self.computing) > MAX_OBJECTS:
            raise ValueError(f"it has more than {MAX_OBJECTS} kernels; do: record fewer steps")

    def _widen(self, span: tuple[int, int]) -> None:
        begin, end = self.window or span
        self.window = min(begin, span[0]), max(end, span[1])


def _read_events(path: Path) -> _Recorded:
    """Return the kernels and steps of a trace, and what is around its events."""
    recorded = _Recorded()
    with open_regular(path, "FILES") as file:
        stream = EventStream(file)
        for events in stream.read(_KERNELS_AND_STEPS):
            for event in _decoded(events):
                recorded.add(event)
    recorded.communication.sort(key=_begin_us)
    recorded.trace = decode_trace_json(stream.around, _Trace)
    return recorded


def _decoded(events: Sequence[bytes]) -> list[_Event]:
    return decode_trace_json(b"[" + b",".join(events) + b"]", list[_Event])


def _kept(event: _Event) -> _Event:
    """Return an event that refers to no text of many others."""
    event.title = event.title.copy()
    if event.args is not _NO_ARGUMENTS:
        event.args.shapes, event.args.types = event.args.shapes.copy(), event.args.types.copy()
    return event


def _begin_us(event: _Event) -> float:
    return event.ts


def _read_annotations(path: Path, communication: Sequence[_Event]) -> dict[str, _Event]:
    """Return the annotations of kernels that do not name their collective, by correlation.

    Traces of 2023 are read once more for them: only then is it known which launches matter.
    """
    nameless = {
        str(event.args.correlation) for event in communication if event.args.collective is None
    }
    if not nameless:
        return {}
    timed = []
    with open_regular(path, "FILES") as file:
        for events in EventStream(file).read(_LAUNCHES_AND_ANNOTATIONS):
            for event in _decoded(events):
                is_of_one = str(event.args.correlation) in nameless or event.name.startswith(
                    "nccl:"
                )
                if is_of_one and event.dur is not None:
                    timed.append(_kept(event))
    if len(timed) > MAX_OBJECTS:
        raise ValueError(f"it has more than {MAX_OBJECTS} launches; do: record fewer steps")
    timed.sort(key=_begin_us)
    return _annotations(timed, nameless)


def _span(event: _Event, base_ns: int) -> tuple[int, int]:
    """Return begin and end of an event in ns; a double does not hold nanoseconds since 1970."""
    begin = base_ns + int(event.ts) * 1000 + round(event.ts % 1 * 1000)
    return begin, begin + round((event.dur or 0.0) * 1000)


class _Groups:
    """The groups of a trace by the names in its kernels; all kernels without one are of one group."""

    def __init__(self, distributed: Mapping[str, Any], size: int) -> None:
        self._all = tuple(range(size))
        self._members: dict[str, tuple[int, ...]] = {}
        configured = distributed.get("pg_config")
        if not isinstance(configured, list):
            configured = ()
        for group in configured:
            ranks = None
            if isinstance(group, dict):
                ranks = group.get("ranks")
            if isinstance(ranks, list) and all(map(RANK.accepts, ranks)):
                self._members[str(group.get("pg_name"))] = tuple(ranks) or self._all

    def of(self, arguments: _Arguments) -> Group:
        if arguments.group is None:
            return Group("", self._all)
        name = str(arguments.group)
        ranks = self._members.get(name)
        size = 0
        if ranks is None:
            text = str(arguments.ranks)  # "[0, 1, 2]", which long groups shorten by "..."
            ranks = () if "..." in text else tuple(map(int, re.findall(r"\d{1,6}", text)))
            if not ranks and isinstance(arguments.size, int):
                size = arguments.size
        return Group(name, ranks, str(arguments.description or ""), size=size)


def _annotations(timed: Iterable[_Event], nameless: Collection[str]) -> dict[str, _Event]:
    """Return the annotation around the launch of each kernel of the ``nameless`` correlations, by correlation."""
    events_of_thread: defaultdict[tuple[str, str], list[_Event]] = defaultdict(list)
    launches: dict[str, _Event] = {}
    around: dict[str, _Event] = {}
    for event in timed:
        if event.name.startswith("nccl:"):
            events_of_thread[event.thread].append(event)
        # cuda_runtime, cuda_driver
        elif "cuda" in event.cat and str(event.args.correlation) in nameless:
            launches[str(event.args.correlation)] = event
    for correlation, launch in launches.items():
        annotations = events_of_thread[launch.thread]
        before = bisect_right(annotations, launch.ts, key=_begin_us)
        if before:
            latest = annotations[before - 1]
            if latest.ts + (latest.dur or 0.0) >= launch.ts:
                around[correlation] = latest
    return around


def _operation(
    rank: int, groups: _Groups, event: _Event, annotation: _Event | None, base_ns: int
) -> RecordedOperation:
    arguments = event.args
    name = _collective(event, annotation)
    elements: list[int] = []
    dtype = None
    if arguments.collective is not None:
        elements = []
        for count in (arguments.elements_in, arguments.elements_out):
            if isinstance(count, int):
                elements.append(count)
        dtype = dtype_of_torch(str(arguments.dtype))
    elif annotation:
        elements, dtype = _first_input(annotation.args)
    # their input is one block
    if name == "barrier" or (annotation and name in ("all_gather", "gather")):
        elements = []
    dtype_name = itemsize = nbytes = None
    if dtype is not None:
        dtype_name, itemsize = dtype
    if elements and itemsize:
        nbytes = max(elements) * itemsize
        if not 0 <= nbytes < 1 << 62:
            nbytes = None
    begin, end = _span(event, base_ns)
    return RecordedOperation(
        rank,
        groups.of(arguments),
        name,
        arguments.sequence if isinstance(arguments.sequence, int) else None,
        bytes=nbytes,
        dtype=dtype_name,
        started_ns=begin,
        ended_ns=end,
        duration_s=(event.dur or 0.0) / 1e6,
        peer=_peer(name, arguments),
        may_be_uneven=name == "all_to_all" and arguments.collective is None,
    )


def _peer(name: str, arguments: _Arguments) -> int | None:
    """Return the other rank of a message."""
    peer = {"send": arguments.target, "receive": arguments.source}.get(name)
    if isinstance(peer, int) and RANK.accepts(peer):
        return peer
    return None


def _collective(event: _Event, annotation: _Event | None) -> str:
    """Return what a kernel runs, by its arguments, the annotation around its launch, or its own name."""
    if event.args.collective is not None:
        return collective_of_torch(str(event.args.collective))
    if annotation:
        return collective_of_torch(annotation.name)
    kernel = _KERNEL.match(event.name)
    if not kernel:
        return "unknown"
    return collective_of_torch(kernel[1].lower())


def _first_input(arguments: _Arguments) -> tuple[list[int], tuple[str, int] | None]:
    """Return the elements of the first tensor of an annotation, and its type."""
    match decode_part(arguments.shapes), decode_part(arguments.types):
        case [[*shape], *_], [str() as name, *_] if shape and all(
            isinstance(n, int) and n >= 0 for n in shape
        ):
            return [math.prod(shape)], dtype_of_torch(name)
    return [], None
